/* Tests the CPU kernels of top_k at special values and ties, and what the op refuses. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/cpu.h"
#include "common/half.h"
#include "common/threads.h"
#include "run_kernel.h"
#include "top_k/top_k.h"

#define ROWS 3

static const kops_dtype dtypes[] = {KOPS_F32, KOPS_F64, KOPS_F16, KOPS_BF16};

/* A problem of ROWS rows, its memory and its results. */
struct problem {
	struct op_args args;
	uint64_t columns;
	double *x, *values; /* any type fits */
	int32_t *indices;
};

static void make(struct problem *p, kops_dtype dtype, uint64_t columns, uint32_t k, bool by_rows)
{
	struct view *v = p->args.views;

	*p = (struct problem){.args = {.op = op_by_name("top_k")}, .columns = columns};
	p->x = calloc(ROWS * columns + 1, sizeof *p->x);
	p->values = calloc(ROWS * (size_t)k + 1, sizeof *p->values);
	p->indices = calloc(ROWS * (size_t)k + 1, sizeof *p->indices);
	op_set_defaults(&p->args);
	p->args.params.plain.counts[TOP_K_K] = k;
	v[TOP_K_X] = (struct view){.dtype = dtype, .rank = 2, .shape = {ROWS, columns}, .strides = {1, ROWS}};
	v[TOP_K_VALUES] = (struct view){.dtype = dtype, .rank = 2, .shape = {ROWS, k}};
	v[TOP_K_INDICES] = (struct view){.dtype = KOPS_I32, .rank = 2, .shape = {ROWS, k}};
	if (by_rows)
		view_make_dense(&v[TOP_K_X]);
	view_make_dense(&v[TOP_K_VALUES]);
	view_make_dense(&v[TOP_K_INDICES]);
	v[TOP_K_X].space = v[TOP_K_X].data = p->x;
	v[TOP_K_VALUES].space = v[TOP_K_VALUES].data = p->values;
	v[TOP_K_INDICES].space = v[TOP_K_INDICES].data = p->indices;
}

static void release(struct problem *p)
{
	free(p->x);
	free(p->values);
	free(p->indices);
}

static void put(struct problem *p, uint64_t row, uint64_t i, double value)
{
	const struct view *x = &p->args.views[TOP_K_X];

	half_store(p->x, x->dtype, (int64_t)row * x->strides[0] + (int64_t)i * x->strides[1], value);
}

static double value(const struct problem *p, uint64_t row, uint32_t i)
{
	uint32_t k = top_k_count(&p->args);

	return half_load(p->values, p->args.views[TOP_K_VALUES].dtype, (int64_t)(row * k + i));
}

static int32_t index_of(const struct problem *p, uint64_t row, uint32_t i)
{
	return p->indices[row * top_k_count(&p->args) + i];
}

typedef void each_case(const struct kernel *kernel, struct problem *p);

static void of_each(each_case *check)
{
	static const struct {
		uint64_t columns;
		uint32_t k;
	} sizes[] = {{7, 5}, {7, 7}, {33, 5}, {257, 100}, {1500, 9}, {3000, 1024}};

	for (unsigned threads = 1; threads <= 3; threads += 2) {
		threads_set(threads);
		for (size_t i = 0; i < top_k_cpu_kernels.n; i++)
			for (unsigned c = 0; c < 8 * sizeof sizes / sizeof *sizes; c++) {
				struct problem p;

				make(&p, dtypes[c % 4], sizes[c / 8].columns, sizes[c / 8].k, c / 4 % 2);
				check(&top_k_cpu_kernels.kernels[i], &p);
				release(&p);
			}
	}
	threads_stop();
}

static void fill_special(struct problem *p)
{
	put(p, 1, 1, (double)-INFINITY);
	put(p, 1, 2, (double)NAN);
	put(p, 1, 4, (double)INFINITY);
	put(p, 1, 6, -(double)NAN);
}

/* Row 0: all are equal, but for their signs. Row 1: NaN, infinities and 0. Row 2: rising. */
static void fill(struct problem *p)
{
	for (uint64_t i = 0; i < p->columns; i++) {
		put(p, 0, i, i % 2 ? -0.0 : 0.0);
		put(p, 1, i, 0);
		put(p, 2, i, (double)(i < 100 ? i : 100));
	}
	fill_special(p);
}

static void check_largest(const struct kernel *kernel, struct problem *p)
{
	fill(p);
	run_kernel(kernel, p->args);
	for (uint32_t i = 0; i < top_k_count(&p->args); i++) {
		assert_int_equal(index_of(p, 0, i), i);
		assert_int_equal(!!signbit(value(p, 0, i)), i % 2);
	}
	assert_int_equal(index_of(p, 1, 0), 2);
	assert_int_equal(index_of(p, 1, 1), 6);
	assert_true(isnan(value(p, 1, 0)) && isnan(value(p, 1, 1)));
	assert_int_equal(index_of(p, 1, 2), 4);
	assert_true(value(p, 1, 2) == (double)INFINITY);
	assert_int_equal(index_of(p, 1, 3), 0);
	assert_int_equal(index_of(p, 1, 4), 3);
	assert_int_equal(index_of(p, 2, 0), p->columns <= 100 ? p->columns - 1 : 100);
}

static void check_smallest(const struct kernel *kernel, struct problem *p)
{
	uint32_t k = top_k_count(&p->args);

	p->args.params.plain.counts[TOP_K_KIND] = TOP_K_SMALLEST;
	fill(p);
	run_kernel(kernel, p->args);
	for (uint32_t i = 0; i < k; i++) {
		assert_int_equal(index_of(p, 0, i), i);
		assert_true(isnan(value(p, 1, i)) == (i + 2 >= p->columns));
	}
	assert_int_equal(index_of(p, 1, 0), 1);
	assert_int_equal(index_of(p, 1, 1), 0);
	assert_int_equal(index_of(p, 1, 2), 3);
	for (uint32_t i = 0; i < k; i++)
		assert_int_equal(index_of(p, 2, i), i);
	if (k == p->columns)
		assert_int_equal(index_of(p, 1, k - 3), 4);
}

static void check_order(const struct kernel *kernel, struct problem *p)
{
	uint32_t k = top_k_count(&p->args);

	p->args.params.plain.counts[TOP_K_ORDER] = TOP_K_BY_INDEX;
	fill(p);
	run_kernel(kernel, p->args);
	for (uint64_t row = 0; row < ROWS; row++)
		for (uint32_t i = 1; i < k; i++)
			assert_true(index_of(p, row, i) > index_of(p, row, i - 1));
	assert_int_equal(index_of(p, 1, 0), 0);
	assert_int_equal(index_of(p, 1, 1), k == p->columns ? 1 : 2);
}

static void ties_nan_and_infinities_are_in_order(void **state)
{
	(void)state;
	of_each(check_largest);
	of_each(check_smallest);
	of_each(check_order);
}

/* Each row is shared by several threads. */
static void pieces_of_rows_give_what_the_reference_does(void **state)
{
	const uint64_t columns = 400000;

	(void)state;
	threads_set(4);
	for (unsigned c = 0; c < 8; c++) {
		struct problem p, q;
		uint32_t k = c / 4 ? 1024 : 10;

		make(&p, dtypes[c % 4], columns, k, true);
		make(&q, dtypes[c % 4], columns, k, true);
		for (uint64_t i = 0; i < ROWS * columns; i++)
			put(&p, i / columns, i % columns, (double)(i * 7919 % 65521) / 64 - 500);
		memcpy(q.x, p.x, ROWS * columns * sizeof *p.x);
		run_kernel(&top_k_cpu_kernels.kernels[0], p.args);
		run_kernel(&top_k_cpu_kernels.kernels[top_k_cpu_kernels.n - 1], q.args);
		assert_memory_equal(p.indices, q.indices, ROWS * k * sizeof *p.indices);
		assert_memory_equal(p.values, q.values, ROWS * k * dtype_size(dtypes[c % 4]));
		release(&p);
		release(&q);
	}
	threads_stop();
}

/* Parts along the row hand on what they found, also where they have fewer elements than are wanted. */
static void parts_find_what_the_whole_does(void **state)
{
	const uint64_t columns = 300, sizes[] = {13, 128};

	(void)state;
	for (unsigned c = 0; c < 32; c++)
		for (size_t kernel = 0; kernel < top_k_cpu_kernels.n; kernel++) {
			struct problem p, whole;
			struct launch launch = {0};
			char why[WHY_BYTES];
			uint32_t k = c & 1 ? 5 : 40;
			kops_dtype dtype = dtypes[c / 8];

			make(&p, dtype, columns, k, true);
			make(&whole, dtype, columns, k, true);
			for (uint64_t i = 0; i < ROWS * columns; i++)
				put(&p, i / columns, i % columns, (double)(i * 7919 % 211) - 100);
			fill_special(&p);
			p.args.params.plain.counts[TOP_K_KIND] = c >> 1 & 1;
			p.args.params.plain.counts[TOP_K_ORDER] = c >> 2 & 1;
			whole.args.params = p.args.params;
			memcpy(whole.x, p.x, ROWS * columns * sizeof *p.x);
			run_kernel(&top_k_cpu_kernels.kernels[top_k_cpu_kernels.n - 1], whole.args);
			assert_int_equal(op_check(&p.args, why), 0);
			p.args.carried = malloc(p.args.op->carried_bytes(&p.args));
			launch.workspace = aligned_alloc(256, 1 << 20);
			for (uint64_t first = 0, n = sizes[c & 1]; first < columns; first += n) {
				struct op_args part = p.args;
				part.op->step_part(&part, 0, first, columns - first < n ? columns - first : n);
				assert_int_equal(top_k_cpu_kernels.kernels[kernel].launch(&part, &launch), 0);
			}
			assert_memory_equal(p.indices, whole.indices, ROWS * k * sizeof *p.indices);
			assert_memory_equal(p.values, whole.values, ROWS * k * dtype_size(dtype));
			free(launch.workspace);
			free(p.args.carried);
			release(&p);
			release(&whole);
		}
}

static void indices_may_be_absent(void **state)
{
	struct problem p;

	(void)state;
	make(&p, KOPS_F32, 33, 4, true);
	p.args.views[TOP_K_INDICES] = (struct view){0};
	fill(&p);
	for (size_t i = 0; i < top_k_cpu_kernels.n; i++) {
		memset(p.values, 0, ROWS * 4 * sizeof(float));
		run_kernel(&top_k_cpu_kernels.kernels[i], p.args);
		assert_true(value(&p, 2, 0) == 32 && value(&p, 2, 3) == 29);
	}
	release(&p);
}

static void refuses(struct problem *p, int code, const char *words)
{
	struct op_args args = p->args;
	char why[WHY_BYTES] = "";

	assert_int_equal(op_check(&args, why), code);
	if (!strstr(why, words))
		fail_msg("'%s' does not say '%s'", why, words);
}

static void what_does_not_fit_is_refused(void **state)
{
	struct problem p;
	struct view x;
	char why[WHY_BYTES];

	(void)state;
	make(&p, KOPS_F32, 33, 4, true);
	x = p.args.views[TOP_K_X];
	p.args.params.plain.counts[TOP_K_K] = 0;
	refuses(&p, KOPS_E_INVALID, "k");
	p.args.params.plain.counts[TOP_K_K] = TOP_K_MAX + 1;
	refuses(&p, KOPS_E_INVALID, "k");
	p.args.params.plain.counts[TOP_K_K] = 5;
	refuses(&p, KOPS_E_SHAPE, "x is 3x33, values 3x4 and k 5");
	p.args.params.plain.counts[TOP_K_K] = 4;
	p.args.views[TOP_K_X].shape[1] = 3;
	refuses(&p, KOPS_E_SHAPE, "x is 3x3: its last axis has fewer than k = 4 elements; k may be at most 3");
	p.args.views[TOP_K_X].shape[1] = (uint64_t)INT32_MAX + 1;
	p.args.views[TOP_K_X].strides[1] = 0;
	refuses(&p, KOPS_E_SHAPE, "indices are i32");
	p.args.views[TOP_K_X] = x;
	p.args.views[TOP_K_INDICES].shape[1] = 3;
	refuses(&p, KOPS_E_SHAPE, "indices");
	p.args.views[TOP_K_INDICES].shape[1] = 4;
	p.args.views[TOP_K_INDICES].dtype = KOPS_F32;
	refuses(&p, KOPS_E_DTYPE, "");
	p.args.views[TOP_K_INDICES].dtype = KOPS_I32;
	p.args.views[TOP_K_INDICES].space = p.args.views[TOP_K_VALUES].space;
	refuses(&p, KOPS_E_OVERLAP, "output indices overlaps output values");
	p.args.views[TOP_K_INDICES].space = p.indices;
	p.args.views[TOP_K_VALUES].space = p.x;
	refuses(&p, KOPS_E_OVERLAP, "output values overlaps input x");
	/* Without rows there is nothing to find. */
	for (unsigned v = TOP_K_X; v <= TOP_K_INDICES; v++)
		p.args.views[v].shape[0] = 0;
	p.args.views[TOP_K_X].shape[1] = 0;
	assert_int_equal(op_check(&p.args, why), 0);
	release(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(ties_nan_and_infinities_are_in_order),
	    cmocka_unit_test(pieces_of_rows_give_what_the_reference_does),
	    cmocka_unit_test(parts_find_what_the_whole_does),
	    cmocka_unit_test(indices_may_be_absent),
	    cmocka_unit_test(what_does_not_fit_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
