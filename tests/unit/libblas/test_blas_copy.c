/* Compares copies by columns, triangles and tiles (copy.c), by one thread and by several, with plain loops. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "libblas/copy.h"

#define MARGIN 64 /* bytes on both sides of the target, which must stay as they are */
#define EMPTY  0xA5

struct problem {
	uint64_t rows, cols, to_gap, from_gap;
	size_t element, shift; /* bytes by which the target is off a cache line */
};

/* From a few elements to what several threads copy past the caches. */
static const struct problem problems[] = {
    {1, 1, 0, 0, 4, 0},     {7, 5, 0, 0, 8, 8},      {7, 5, 3, 1, 4, 4},      {64, 64, 0, 0, 8, 0},
    {33, 65, 2, 0, 4, 12},  {300000, 1, 0, 0, 4, 4}, {2, 150001, 1, 0, 8, 8}, {509, 523, 0, 6, 8, 24},
    {701, 701, 8, 0, 4, 4}, {761, 701, 0, 0, 8, 8},  {701, 761, 5, 3, 8, 40}, {360000, 3, 1, 7, 4, 20},
};

struct buffers {
	unsigned char *to, *from, *expected;
	size_t to_bytes, from_bytes;
	struct copy copy;
};

static struct buffers make(const struct problem *p)
{
	struct buffers b = {.copy = {.to_ld = p->rows + p->to_gap,
	                             .from_ld = p->rows + p->from_gap,
	                             .rows = p->rows,
	                             .cols = p->cols,
	                             .element = p->element}};
	b.to_bytes = 2 * MARGIN + b.copy.to_ld * p->cols * p->element;
	b.from_bytes = b.copy.from_ld * p->cols * p->element;
	b.to = malloc(b.to_bytes);
	b.expected = malloc(b.to_bytes);
	b.from = malloc(b.from_bytes);
	assert_true(b.to && b.expected && b.from);
	for (size_t i = 0; i < b.from_bytes; i++)
		b.from[i] = (unsigned char)(i * 2654435761U >> 13);
	memset(b.to, EMPTY, b.to_bytes);
	memset(b.expected, EMPTY, b.to_bytes);
	b.copy.to = (char *)b.to + p->shift;
	b.copy.from = (char *)b.from;
	return b;
}

static void release(struct buffers *b)
{
	free(b->to);
	free(b->from);
	free(b->expected);
}

static void expect(struct buffers *b, uint64_t to_row, uint64_t to_col, uint64_t row, uint64_t col)
{
	const struct copy *c = &b->copy;
	unsigned char *to = b->expected + (c->to - (char *)b->to);
	memcpy(to + (to_col * c->to_ld + to_row) * c->element, c->from + (col * c->from_ld + row) * c->element,
	       c->element);
}

static bool is_of(enum triangle triangle, uint64_t row, uint64_t col)
{
	return triangle == WHOLE || (triangle == UPPER ? row <= col : row >= col);
}

static void check(const struct problem *p, enum triangle triangle, bool symmetric)
{
	struct buffers b = make(p);
	for (uint64_t col = 0; col < p->cols; col++)
		for (uint64_t row = 0; row < p->rows; row++) {
			if (is_of(triangle, row, col))
				expect(&b, row, col, row, col);
			if (symmetric && is_of(triangle, row, col))
				expect(&b, col, row, row, col);
		}
	if (symmetric)
		copy_symmetric(&b.copy, triangle);
	else
		copy_matrix(&b.copy, triangle);
	assert_memory_equal(b.to, b.expected, b.to_bytes);
	release(&b);
}

static void check_all(void)
{
	for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
		struct problem square = problems[i];
		for (enum triangle triangle = WHOLE; triangle <= LOWER; triangle++)
			check(&problems[i], triangle, false);
		square.rows = square.cols = square.rows < square.cols ? square.rows : square.cols;
		check(&square, UPPER, true);
		check(&square, LOWER, true);
	}
}

static void copies_are_what_loops_copy(void **state)
{
	(void)state;
	check_all();
}

__attribute__((unused)) static void a_child_has_threads_of_its_own(void **state)
{
	(void)state;
	pid_t child = fork();
	assert_int_not_equal(child, -1);
	if (child == 0) {
		check(&problems[10], WHOLE, false);
		_exit(0);
	}
	check(&problems[10], WHOLE, false);
	int status = -1;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void count_one(void *ctx, uint64_t i)
{
	((unsigned *)ctx)[i]++;
}

static void each_matrix_is_copied_once(void **state)
{
	static const uint64_t numbers[] = {1, 2, 63, 1000};
	(void)state;
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		for (uint64_t bytes = 64; bytes < 1 << 24; bytes *= 64) {
			unsigned counts[1000] = {0};
			copy_each(numbers[i], bytes, count_one, counts);
			for (uint64_t k = 0; k < 1000; k++)
				assert_int_equal(counts[k], k < numbers[i]);
		}
}

static void pages_are_got_and_unchanged(void **state)
{
	(void)state;
	const size_t bytes = (size_t)9 << 20, page = (size_t)sysconf(_SC_PAGESIZE);
	unsigned char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
	              present[1];
	assert_ptr_not_equal(p, MAP_FAILED);
	for (size_t i = 0; i < bytes; i += 3 * page)
		p[i + 5] = (unsigned char)(i / page);
	assert_true(copy_get_pages(p + 100, bytes - 200));
	for (size_t i = 0; i < bytes; i += page) {
		assert_int_equal(mincore(p + i, page, present), 0);
		assert_true((present[0] & 1) || i == 0 || i + page >= bytes);
		assert_int_equal(p[i + 5], i / page % 3 == 0 ? (unsigned char)(i / page) : 0);
	}
	assert_true(copy_get_pages(p, 0) && copy_get_pages(p + 1, 100));
	munmap(p, bytes);
	assert_false(copy_get_pages(p, bytes));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(copies_are_what_loops_copy),
#ifndef __SANITIZE_THREAD__ /* the sanitizer takes the child's threads for the parent's */
	    cmocka_unit_test(a_child_has_threads_of_its_own),
#endif
	    cmocka_unit_test(each_matrix_is_copied_once),
	    cmocka_unit_test(pages_are_got_and_unchanged),
	};
	setenv("KOPS_BLAS_THREADS", "3", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
