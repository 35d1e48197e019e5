/* Tests the CPU kernels of lu at special values, in and out of place, and what the op refuses. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/cpu.h"
#include "common/threads.h"
#include "linalg/linalg.h"
#include "lu/operands.h"
#include "unit/kernels/run_kernel.h"
#include "unit/linalg/assert_refused.h"

#define N_MAX 80

/* One matrix of m × n in f64. */
struct problem {
	struct op_args args;
	double a[N_MAX * N_MAX], lu[N_MAX * N_MAX];
	int32_t pivots[N_MAX], info;
};

static struct view vector(int32_t *data, uint64_t n)
{
	return (struct view){
	    .dtype = KOPS_I32, .rank = 1, .shape = {n}, .strides = {1}, .space = data, .data = data};
}

static void make(struct problem *p, uint64_t m, uint64_t n)
{
	struct view *v = p->args.views;

	*p = (struct problem){.args.op = op_by_name("lu"), .info = -1};
	v[LU_A] = (struct view){.dtype = KOPS_F64,
	                        .rank = 2,
	                        .shape = {m, n},
	                        .strides = {(int64_t)n, 1},
	                        .space = p->a,
	                        .data = p->a};
	v[LU_LU] = v[LU_A];
	v[LU_LU].space = v[LU_LU].data = p->lu;
	v[LU_PIVOTS] = vector(p->pivots, m < n ? m : n);
	v[LU_INFO] = vector(&p->info, 1);
	for (uint64_t i = 0; i < m * n; i++)
		p->a[i] = sin((double)(i * i + 1));
	for (unsigned i = 0; i < N_MAX; i++)
		p->pivots[i] = -1;
}

static void run(const struct kernel *kernel, struct problem *p)
{
	struct op_args args = p->args;
	const char *why_not;
	char why[WHY_BYTES];

	assert_int_equal(op_check(&args, why), 0);
	run_kernel(kernel->supports(&args, &why_not) ? kernel : &lu_cpu_kernels.kernels[0], p->args);
}

static void each_kernel(void (*check)(const struct kernel *kernel))
{
	for (size_t i = 0; i < lu_cpu_kernels.n; i++)
		check(&lu_cpu_kernels.kernels[i]);
}

/* L·U against the rows of a as they were exchanged. */
static void assert_product(const struct problem *p, const double *a, const double *lu)
{
	uint64_t m = p->args.views[LU_A].shape[0], n = p->args.views[LU_A].shape[1], k = m < n ? m : n;
	uint64_t rows[N_MAX];

	for (uint64_t i = 0; i < m; i++)
		rows[i] = i;
	for (uint64_t i = 0; i < k; i++) {
		uint64_t other = (uint64_t)p->pivots[i], row = rows[i];
		assert_true(other >= i && other < m);
		rows[i] = rows[other];
		rows[other] = row;
	}
	for (uint64_t i = 0; i < m; i++)
		for (uint64_t j = 0; j < n; j++) {
			double sum = j >= i ? lu[i * n + j] : 0;
			for (uint64_t l = 0; l < i && l <= j; l++)
				sum += lu[i * n + l] * lu[l * n + j];
			assert_true(fabs(sum - a[rows[i] * n + j]) < 1e-11);
			assert_true(j >= i || fabs(lu[i * n + j]) <= 1);
		}
}

static void check_shapes(const struct kernel *kernel)
{
	static const uint64_t shapes[][2] = {{1, 1},   {2, 1},   {1, 3},   {16, 16}, {40, 16},
	                                     {17, 17}, {80, 33}, {33, 80}, {80, 80}};
	static struct problem p;
	static double before[N_MAX * N_MAX];

	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
		make(&p, shapes[i][0], shapes[i][1]);
		run(kernel, &p);
		assert_int_equal(p.info, 0);
		assert_product(&p, p.a, p.lu);
		memcpy(before, p.a, sizeof before);
		p.args.views[LU_LU] = p.args.views[LU_A];
		run(kernel, &p);
		assert_product(&p, before, p.a);
		assert_memory_equal(p.a, p.lu, sizeof p.a);
	}
}

/* The first of equal ones is the pivot; a column of zeros is none. */
static void check_zeros(const struct kernel *kernel)
{
	static struct problem p;

	make(&p, 20, 20);
	memset(p.a, 0, sizeof p.a);
	p.a[3 * 20] = p.a[5 * 20] = -2;
	p.a[4 * 20] = 2;
	run(kernel, &p);
	assert_int_equal(p.info, 2);
	assert_int_equal(p.pivots[0], 3);
	for (int i = 1; i < 20; i++)
		assert_int_equal(p.pivots[i], i);
	assert_product(&p, p.a, p.lu);
}

/* Whatever is computed, rows are exchanged with rows that there are. */
static void check_special_values(const struct kernel *kernel)
{
	static const double values[] = {NAN, INFINITY, -INFINITY, 1e308, 5e-324};
	static struct problem p;

	for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
		for (uint64_t every = 1; every < 70; every += 33) {
			make(&p, 70, 66);
			for (uint64_t e = 0; e < 70 * 66; e += every)
				p.a[e] = values[i];
			run(kernel, &p);
			for (int32_t j = 0; j < 66; j++)
				assert_true(p.pivots[j] >= j && p.pivots[j] < 70);
		}
}

static void test_shapes(void **state)
{
	(void)state;
	each_kernel(check_shapes);
}

static void test_zeros_and_special_values(void **state)
{
	(void)state;
	each_kernel(check_zeros);
	each_kernel(check_special_values);
}

static void test_refusals(void **state)
{
	static struct problem p;
	struct op_args args;

	(void)state;
	make(&p, 5, 4);
	args = p.args;
	args.views[LU_PIVOTS].shape[0] = 5;
	assert_refused(args, KOPS_E_SHAPE, "a is 5x4 and pivots 5; pivots must be 4");
	args = p.args;
	args.views[LU_INFO].shape[0] = 2;
	assert_refused(args, KOPS_E_SHAPE, "info must be 1");
	args = p.args;
	args.views[LU_A].rank = 1;
	assert_refused(args, KOPS_E_SHAPE, "a has rank 1; this op takes rank 2 to 4");
	args = p.args;
	args.views[LU_PIVOTS].dtype = KOPS_F32;
	assert_refused(args, KOPS_E_DTYPE, "pivots is f32; lu takes i32");
	args = p.args;
	args.views[LU_LU].strides[0] = 3;
	assert_refused(args, KOPS_E_OVERLAP, "several elements at one address");
	args = p.args;
	args.views[LU_A].rank = args.views[LU_LU].rank = 3;
	for (unsigned v = LU_A; v <= LU_LU; v++) {
		args.views[v].shape[0] = 0;
		args.views[v].shape[2] = 1ull << 31;
	}
	assert_refused(args, KOPS_E_SHAPE, "matrices have at most 2147483647 rows and columns");
	make(&p, 1, 1);
	args = p.args;
	for (unsigned v = LU_A; v <= LU_LU; v++)
		args.views[v].shape[0] = (1u << 26) + 1;
	assert_refused(args, KOPS_E_SHAPE, "a is 67108865x1; matrices have at most 67108864 rows");
}

/* The columns of a part begin where those before end, and no step is without any. */
static void test_steps_have_all_columns(void **state)
{
	const uint64_t orders[] = {1, 2, 255, 256, 257, 300, 1000, 65537},
	               lengths[] = {1, 1000, 1 << 16, 1 << 26};

	(void)state;
	for (unsigned i = 0; i < sizeof orders / sizeof *orders * 4; i++) {
		uint64_t n = orders[i / 4], length = lengths[i % 4], steps = linalg_steps(n, length), end = 0;
		struct op_args part = {0};

		for (uint64_t first = 0, some = 1; first < steps; first += some, some = some % 5 + 1) {
			some = first + some < steps ? some : steps - first;
			linalg_set_part(&part, n, length, first, some);
			assert_int_equal(linalg_begin(&part), end);
			end = linalg_end(&part);
			assert_in_range(end, linalg_begin(&part) + some, n);
		}
		assert_int_equal(end, n);
	}
	assert_int_equal(linalg_steps(0, 5), 0);
}

/* Without rows or columns there are no pivots, and info is 0. */
static void test_empty(void **state)
{
	static struct problem p;
	char why[WHY_BYTES];

	(void)state;
	for (uint64_t m = 0; m < 2; m++) {
		make(&p, m, 3 * (1 - m));
		assert_int_equal(op_check(&p.args, why), 0);
		assert_int_equal(op_check(&p.args, why), 0);
		lu_cpu_kernels.kernels[2].launch(&p.args, &(struct launch){0});
		assert_int_equal(p.info, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_shapes),   cmocka_unit_test(test_zeros_and_special_values),
	    cmocka_unit_test(test_refusals), cmocka_unit_test(test_steps_have_all_columns),
	    cmocka_unit_test(test_empty),
	};

	threads_set(2);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	threads_stop();
	return failed;
}
