/*
 * Tests gather on the CPU where random problems rarely go: indices at both ends of their range and beyond,
 * tables without rows or columns, rows that threads share, and indices that somebody changes meanwhile.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/cpu.h"
#include "common/rules.h"
#include "common/threads.h"
#include "gather/gather.h"

static char why[WHY_BYTES];

static struct view dense(void *data, kops_dtype dtype, uint32_t rank, uint64_t n0, uint64_t n1, uint64_t n2)
{
	struct view v = {.space = data, .data = data, .dtype = dtype, .rank = rank, .shape = {n0, n1, n2}};

	view_make_dense(&v);
	return v;
}

static struct op_args args_of(struct view x, struct view indices, struct view y)
{
	return (struct op_args){.op = &op_gather, .views = {x, indices, y}};
}

static void run(struct op_args args, const char *kernel)
{
	const struct kernel *k = gather_cpu_kernels.kernels;
	const struct launch launch = {0};

	while (strcmp(k->name, kernel) != 0)
		k++;
	if (op_check(&args, why) < 0)
		fail_msg("%s", why);
	assert_int_equal(k->launch(&args, &launch), 0);
}

static const char *const kernels[] = {"vectorised", "reference"};

static void indices_that_are_out_of_range_give_zeros(void **state)
{
	float x[3][2] = {{1, 2}, {3, 4}, {5, 6}}, y[8][2];
	int32_t indices[8] = {2, -1, 0, 3, INT32_MIN, 1, INT32_MAX, -3};
	static const float want[8][2] = {{5, 6}, {0, 0}, {1, 2}, {0, 0}, {0, 0}, {3, 4}, {0, 0}, {0, 0}};

	(void)state;
	for (unsigned k = 0; k < 2; k++) {
		memset(y, 0xff, sizeof y);
		run(args_of(dense(x, KOPS_F32, 2, 3, 2, 0), dense(indices, KOPS_I32, 1, 8, 0, 0),
		            dense(y, KOPS_F32, 2, 8, 2, 0)),
		    kernels[k]);
		assert_memory_equal(y, want, sizeof y);
	}
}

/* Nothing of x may be read: it is nowhere. */
static void a_table_without_rows_gives_zeros(void **state)
{
	int32_t indices[3] = {0, 1, -1};
	double y[3][2];

	(void)state;
	for (unsigned k = 0; k < 2; k++) {
		memset(y, 0xff, sizeof y);
		run(args_of(dense(NULL, KOPS_F64, 2, 0, 2, 0), dense(indices, KOPS_I32, 1, 3, 0, 0),
		            dense(y, KOPS_F64, 2, 3, 2, 0)),
		    kernels[k]);
		for (unsigned i = 0; i < 6; i++)
			assert_true(y[i / 2][i % 2] == 0);
	}
}

static void without_elements_there_is_nothing_to_do(void **state)
{
	static const uint64_t shapes[][3] = {
	    {0, 5, 3}, {5, 0, 3}, {5, 2, 0}, {0, 0, 0}}; /* rows, columns, indices */
	float x[32], y[32];
	int32_t indices[8] = {0};

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		struct op_args args = args_of(dense(x, KOPS_F32, 2, shapes[i][0], shapes[i][1], 0),
		                              dense(indices, KOPS_I32, 1, shapes[i][2], 0, 0),
		                              dense(y, KOPS_F32, 2, shapes[i][2], shapes[i][1], 0));
		assert_int_equal(op_check(&args, why), 0);
		args.views[GATHER_Y].data = NULL;
		if (op_is_empty(&args))
			args.op->reference(&args);
		assert_true(op_is_empty(&args) == (shapes[i][1] == 0 || shapes[i][2] == 0));
	}
}

/* Indices of two axes, with gaps; x turned and y reversed. */
static void strides_may_be_any(void **state)
{
	uint16_t x[4][3], y[2 * 3 * 4], want;
	int32_t indices[2][8] = {{0, 9, 2, 9, -1, 9}, {2, 9, 2, 9, 1, 9}};
	struct op_args args = args_of(dense(x, KOPS_BF16, 2, 3, 4, 0), dense(indices, KOPS_I32, 2, 2, 3, 0),
	                              dense(y, KOPS_BF16, 3, 2, 3, 4));

	(void)state;
	for (unsigned i = 0; i < 12; i++)
		x[i / 3][i % 3] = (uint16_t)(100 + i);
	args.views[GATHER_X].strides[0] = 1;
	args.views[GATHER_X].strides[1] = 3;
	args.views[GATHER_INDICES].strides[0] = 8;
	args.views[GATHER_INDICES].strides[1] = 2;
	args.views[GATHER_Y].strides[2] = -1;
	args.views[GATHER_Y].offset = 3 * sizeof y[0];
	args.views[GATHER_Y].data = y + 3;
	for (unsigned k = 0; k < 2; k++) {
		memset(y, 0xff, sizeof y);
		run(args, kernels[k]);
		for (unsigned i = 0; i < 24; i++) {
			int32_t row = indices[i / 12][i / 4 % 3 * 2];
			want = row < 0 ? 0 : x[i % 4][row];
			assert_int_equal(y[i / 4 * 4 + 3 - i % 4], want);
		}
	}
}

static void threads_share_rows_and_their_pieces(void **state)
{
	static const uint64_t shapes[][3] = {{1000, 300, 999}, {3, 70001, 5}}; /* rows, columns, indices */
	static double x[300000], y[400000];
	static int32_t indices[1000];

	(void)state;
	threads_set(3);
	for (unsigned i = 0; i < 300000; i++)
		x[i] = i;
	for (unsigned s = 0; s < 2; s++) {
		uint64_t rows = shapes[s][0], cols = shapes[s][1], n = shapes[s][2];
		for (uint64_t i = 0; i < n; i++)
			indices[i] = (int32_t)((uint64_t)rand() % (rows + 1));
		run(args_of(dense(x, KOPS_F64, 2, rows, cols, 0), dense(indices, KOPS_I32, 1, n, 0, 0),
		            dense(y, KOPS_F64, 2, n, cols, 0)),
		    "vectorised");
		for (uint64_t i = 0; i < n * cols; i++) {
			uint64_t row = (uint64_t)indices[i / cols];
			assert_true(y[i] == (row == rows ? 0 : (double)(row * cols + i % cols)));
		}
	}
	threads_stop();
	threads_set(1);
}

/* Each index is valid or far out of range, whenever it is read. */
static void change_forever(int32_t *indices, unsigned n)
{
	for (unsigned i = 0;; i++)
		__atomic_store_n(&indices[i % n], i / n % 2 ? (int32_t)(i % 4) : INT32_MIN + (int32_t)i % 99,
		                 __ATOMIC_RELAXED);
}

/* By another process, as clients are. The table's neighbours cannot be read. */
static void indices_may_change_meanwhile(void **state)
{
	enum { N = 500, ROUNDS = 300 };
	size_t page = (size_t)sysconf(_SC_PAGESIZE), columns = page / 4 / sizeof(int32_t);
	char *guarded = mmap(NULL, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int32_t *indices = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int32_t *y = malloc(N * columns * sizeof *y), *x;

	(void)state;
	assert_true(guarded != MAP_FAILED && indices != MAP_FAILED && y != NULL);
	assert_int_equal(mprotect(guarded + page, page, PROT_READ | PROT_WRITE), 0);
	x = (int32_t *)(void *)(guarded + page);
	for (size_t i = 0; i < 4 * columns; i++)
		x[i] = (int32_t)(1 + i / columns);
	pid_t child = fork();
	if (child == 0)
		change_forever(indices, N);
	for (unsigned round = 0; round < ROUNDS; round++) {
		run(args_of(dense(x, KOPS_I32, 2, 4, columns, 0), dense(indices, KOPS_I32, 1, N, 0, 0),
		            dense(y, KOPS_I32, 2, N, columns, 0)),
		    kernels[0]);
		for (size_t i = 0; i < N * columns; i++)
			assert_in_range(y[i], 0, 4);
	}
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	free(y);
	munmap(indices, page);
	munmap(guarded, 3 * page);
}

static void refused(struct op_args args, int code, const char *sentence)
{
	assert_int_equal(op_check(&args, why), code);
	assert_string_equal(why, sentence);
}

static void shapes_and_types_that_do_not_fit_are_refused(void **state)
{
	static float x[64], y[64];
	static int32_t indices[8];
	const struct view table = dense(x, KOPS_F32, 2, 4, 6, 0), three = dense(indices, KOPS_I32, 1, 3, 0, 0),
	                  result = dense(y, KOPS_F32, 2, 3, 6, 0);

	(void)state;
	refused(args_of(dense(x, KOPS_F32, 1, 4, 0, 0), three, result), KOPS_E_SHAPE,
	        "x has rank 1; this op takes rank 2 to 2");
	refused(args_of(table, dense(indices, KOPS_I32, 3, 1, 1, 1), result), KOPS_E_SHAPE,
	        "indices has rank 3; this op takes rank 1 to 2");
	refused(args_of(table, three, dense(y, KOPS_F32, 2, 3, 5, 0)), KOPS_E_SHAPE,
	        "x is 4x6, indices 3 and y 3x5; y has the indices' axes, then x's columns");
	refused(args_of(table, three, dense(y, KOPS_F32, 3, 1, 3, 6)), KOPS_E_SHAPE,
	        "x is 4x6, indices 3 and y 1x3x6; y has the indices' axes, then x's columns");
	refused(args_of(table, dense(x, KOPS_F32, 1, 3, 0, 0), result), KOPS_E_DTYPE,
	        "indices is f32; gather takes i32");
	refused(args_of(table, three, dense(y, KOPS_F64, 2, 3, 6, 0)), KOPS_E_DTYPE,
	        "x is f32, y is f64: gather wants one type for both");
	refused(args_of(table, three, dense(x, KOPS_F32, 2, 3, 6, 0)), KOPS_E_OVERLAP,
	        "output y overlaps input x; write to other memory");
	struct view same = dense(indices, KOPS_F32, 2, 3, 6, 0);
	refused(args_of(table, three, same), KOPS_E_OVERLAP,
	        "output y overlaps input indices; write to other memory");
}

static void sizes_are_indices_rows_and_columns(void **state)
{
	static char memory[3];
	struct op_args args =
	    args_of(dense(&memory[0], KOPS_F16, 2, 4, 6, 0), dense(&memory[1], KOPS_I32, 2, 3, 5, 0),
	            dense(&memory[2], KOPS_F16, 3, 3, 5, 6));
	static const uint64_t want[] = {3, 5, 4, 6};
	struct op_shape shape;

	(void)state;
	op_shape_of(&args, &shape);
	assert_true(shape.dtype == KOPS_F16 && shape.rank == 4);
	assert_memory_equal(shape.extents, want, sizeof want);
	args.views[GATHER_INDICES].rank = 77;
	op_shape_of(&args, &shape);
	assert_int_equal(shape.rank, 0);
}

/* What is never read does not count, however large the table is. */
static void costs_count_rows_that_are_read(void **state)
{
	static char memory[3];
	struct op_args args =
	    args_of(dense(&memory[0], KOPS_F32, 2, 1 << 30, 64, 0), dense(&memory[1], KOPS_I32, 1, 10, 0, 0),
	            dense(&memory[2], KOPS_F32, 2, 10, 64, 0));
	struct cost cost;

	(void)state;
	assert_int_equal(op_check(&args, why), 0);
	args.op->cost(&args, &cost);
	assert_true(cost.flops == 0 && cost.bytes == 4 * (10 * 64 + 10 + 10 * 64));
	for (size_t i = 0; i < gather_cpu_kernels.n; i++)
		assert_true(gather_cpu_kernels.kernels[i].time_ns(&args) < 1e5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(indices_that_are_out_of_range_give_zeros),
	    cmocka_unit_test(a_table_without_rows_gives_zeros),
	    cmocka_unit_test(without_elements_there_is_nothing_to_do),
	    cmocka_unit_test(strides_may_be_any),
	    cmocka_unit_test(threads_share_rows_and_their_pieces),
	    cmocka_unit_test(indices_may_change_meanwhile),
	    cmocka_unit_test(shapes_and_types_that_do_not_fit_are_refused),
	    cmocka_unit_test(sizes_are_indices_rows_and_columns),
	    cmocka_unit_test(costs_count_rows_that_are_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
