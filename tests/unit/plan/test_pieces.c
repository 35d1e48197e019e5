/* test_pieces.c: copies that end where a piece of registered memory does: copy/pieces.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "copy/pieces.h"
#include "seed.h"

#define PIECE CUDA_PIECE_BYTES

static bool is_in_one_piece(uint64_t first, const struct rows *got, uint64_t pitch)
{
	return first / PIECE == (first + (got->height - 1) * pitch + got->bytes - 1) / PIECE;
}

/* What is taken is the rows, in order and without gaps, and each copy lies in one piece of each side that has
 * some.
 */
static unsigned check(struct rows rows)
{
	struct rows rest = rows, got;
	uint64_t row = 0, done = 0;
	unsigned n = 0;

	for (; rows_take(&rest, &got); n++) {
		assert_true(row < rows.height);
		assert_int_equal(got.to, rows.to + row * rows.to_pitch + done);
		assert_int_equal(got.from, rows.from + row * rows.from_pitch + done);
		assert_true(got.height > 0 && got.bytes > 0);
		assert_true(!rows.to_pieces || is_in_one_piece(got.to, &got, rows.to_pitch));
		assert_true(!rows.from_pieces || is_in_one_piece(got.from, &got, rows.from_pitch));
		assert_true(got.height == 1 || got.bytes == rows.bytes);
		done += got.bytes;
		assert_true(done <= rows.bytes);
		if (done == rows.bytes) {
			row += got.height;
			done = 0;
		}
	}
	assert_int_equal(row, rows.height);
	assert_int_equal(done, 0);
	return n;
}

static void test_one_piece_is_one_copy(void **state)
{
	(void)state;
	assert_int_equal(check((struct rows){.from = PIECE, .bytes = PIECE, .height = 1, .from_pieces = true}),
	                 1);
	assert_int_equal(check((struct rows){.from = 3 * PIECE,
	                                     .to = 5,
	                                     .bytes = 1000,
	                                     .height = 2048,
	                                     .from_pitch = 4096,
	                                     .to_pitch = 1000,
	                                     .from_pieces = true}),
	                 1);
}

static void test_memory_that_is_in_no_pieces_is_one_copy(void **state)
{
	(void)state;
	assert_int_equal(check((struct rows){.from = 1, .to = 3, .bytes = 5 * PIECE, .height = 1}), 1);
}

static void test_a_row_over_pieces(void **state)
{
	struct rows rows = {.bytes = 4 * PIECE, .height = 1, .to_pieces = true};

	(void)state;
	assert_int_equal(check(rows), 4);
	rows.to = 1;
	assert_int_equal(check(rows), 5);
	rows.from_pieces = true;
	rows.from = 2;
	assert_int_equal(check(rows), 9);
}

static void test_rows_over_an_edge(void **state)
{
	struct rows rows = {.from = PIECE - 150,
	                    .bytes = 100,
	                    .height = 3,
	                    .from_pitch = 100,
	                    .to_pitch = 128,
	                    .from_pieces = true};

	(void)state;
	assert_int_equal(check(rows), 4); /* a row, half of one, its rest, and another row */
	rows.from = PIECE - 200;
	assert_int_equal(check(rows), 2);
}

static void test_what_ends_within(void **state)
{
	struct rows rows = {.bytes = 100, .height = 3};

	(void)state;
	assert_false(piece_ends_within(PIECE - 300, 100, &rows));
	assert_true(piece_ends_within(PIECE - 299, 100, &rows));
}

static void test_nothing(void **state)
{
	struct rows none = {.bytes = 8}, empty = {.height = 3, .to_pitch = 8}, got;

	(void)state;
	assert_false(rows_take(&none, &got));
	assert_false(rows_take(&empty, &got));
}

static void test_random_rows(void **state)
{
	(void)state;
	srand((unsigned)seed_of_run());
	for (unsigned i = 0; i < 2000; i++) {
		struct rows rows = {.to = (uint64_t)rand() % (3 * PIECE), .from = (uint64_t)rand() % PIECE};

		rows.to_pieces = rand() % 3 > 0;
		rows.from_pieces = rand() % 3 > 0;
		rows.bytes = 1 + (uint64_t)rand() % (rand() % 2 ? 2000 : 3 * PIECE);
		rows.height = 1 + (uint64_t)rand() % (rows.bytes < 2000 ? 50000 : 9);
		rows.to_pitch = rows.bytes + (uint64_t)rand() % (rand() % 2 ? 10 : PIECE);
		rows.from_pitch = rows.bytes + (uint64_t)rand() % 100;
		check(rows);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_one_piece_is_one_copy),
	    cmocka_unit_test(test_memory_that_is_in_no_pieces_is_one_copy),
	    cmocka_unit_test(test_what_ends_within),
	    cmocka_unit_test(test_a_row_over_pieces),
	    cmocka_unit_test(test_rows_over_an_edge),
	    cmocka_unit_test(test_nothing),
	    cmocka_unit_test(test_random_rows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
