/* Tests the CPU kernels of triangular_solve by what they solve, and what the op refuses. */
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
#include "triangular_solve/operands.h"
#include "unit/kernels/run_kernel.h"
#include "unit/linalg/assert_refused.h"

#define N       70
#define COLUMNS 5

/* One system in f64, of n × n and n × COLUMNS, or transposed. */
struct problem {
	struct op_args args;
	uint64_t n;
	double a[N * N], b[N * COLUMNS], x[N * COLUMNS];
};

static struct view matrix(double *data, uint64_t rows, uint64_t cols)
{
	return (struct view){.dtype = KOPS_F64,
	                     .rank = 2,
	                     .shape = {rows, cols},
	                     .strides = {(int64_t)cols, 1},
	                     .space = data,
	                     .data = data};
}

static void make(struct problem *p, uint64_t n, unsigned flags)
{
	bool right = flags >> SOLVE_RIGHT & 1;
	uint64_t rows = right ? COLUMNS : n, cols = right ? n : COLUMNS;

	*p = (struct problem){.args.op = op_by_name("triangular_solve"), .n = n};
	for (unsigned flag = SOLVE_UPPER; flag <= SOLVE_RIGHT; flag++)
		p->args.params.plain.flags[flag] = flags >> flag & 1;
	p->args.views[SOLVE_A] = matrix(p->a, n, n);
	p->args.views[SOLVE_B] = matrix(p->b, rows, cols);
	p->args.views[SOLVE_X] = matrix(p->x, rows, cols);
	for (uint64_t i = 0; i < n; i++)
		for (uint64_t j = 0; j < n; j++) {
			bool is_read = flags >> SOLVE_UPPER & 1 ? j >= i : j <= i;
			p->a[i * n + j] = !is_read || (i == j && flags >> SOLVE_UNIT & 1) ? NAN
			                  : i == j                                        ? 3 + (double)i / 10
			                           : cos((double)(i * n + j)) / 10;
		}
	for (uint64_t i = 0; i < n * COLUMNS; i++)
		p->b[i] = sin((double)i);
}

static double of_triangle(const struct problem *p, uint64_t i, uint64_t j)
{
	bool upper = p->args.params.plain.flags[SOLVE_UPPER];

	if (i == j && p->args.params.plain.flags[SOLVE_UNIT])
		return 1;
	return (upper ? j >= i : j <= i) ? p->a[i * p->n + j] : 0;
}

/* What a · x, or x · a, has there. */
static double product(const struct problem *p, const double *x, uint64_t i, uint64_t column)
{
	bool right = p->args.params.plain.flags[SOLVE_RIGHT];
	double sum = 0;

	for (uint64_t k = 0; k < p->n; k++)
		sum += right ? x[column * p->n + k] * of_triangle(p, k, i)
		             : of_triangle(p, i, k) * x[k * COLUMNS + column];
	return sum;
}

static void check(const struct kernel *kernel, uint64_t n, unsigned flags, bool in_place)
{
	static struct problem p;
	static double b[N * COLUMNS];
	struct op_args args;
	const char *why_not;
	char why[WHY_BYTES];
	bool right = flags >> SOLVE_RIGHT & 1;

	make(&p, n, flags);
	memcpy(b, p.b, sizeof b);
	if (in_place)
		p.args.views[SOLVE_X] = p.args.views[SOLVE_B];
	args = p.args;
	assert_int_equal(op_check(&args, why), 0);
	assert_int_equal(op_check(&args, why), 0);
	run_kernel(kernel->supports(&args, &why_not) ? kernel : &triangular_solve_cpu_kernels.kernels[0],
	           p.args);
	for (uint64_t i = 0; i < n; i++)
		for (uint64_t column = 0; column < COLUMNS; column++)
			assert_true(fabs(product(&p, in_place ? p.b : p.x, i, column) -
			                 b[right ? column * n + i : i * COLUMNS + column]) < 1e-12);
}

static void test_every_flag(void **state)
{
	static const uint64_t orders[] = {1, 2, 33, 64, 65, N};

	(void)state;
	for (size_t k = 0; k < triangular_solve_cpu_kernels.n; k++)
		for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++)
			for (unsigned flags = 0; flags < 1u << (SOLVE_RIGHT + 1); flags++)
				check(&triangular_solve_cpu_kernels.kernels[k], orders[i], flags,
				      flags % 3 == 0);
}

/* A 0 on the diagonal gives infinities, and NaN behind them. */
static void test_singular_triangles(void **state)
{
	static struct problem p;

	(void)state;
	for (size_t k = 0; k < triangular_solve_cpu_kernels.n; k++) {
		make(&p, 40, 0);
		p.a[20 * 40 + 20] = 0;
		run_kernel(&triangular_solve_cpu_kernels.kernels[k], p.args);
		assert_true(!isfinite(p.x[20 * COLUMNS]) && !isfinite(p.x[39 * COLUMNS]));
	}
}

static void test_refusals(void **state)
{
	static struct problem p;
	struct op_args args;

	(void)state;
	make(&p, 6, 0);
	args = p.args;
	args.views[SOLVE_B].shape[0] = args.views[SOLVE_X].shape[0] = 5;
	assert_refused(args, KOPS_E_SHAPE, "a is 6x6 and b 5x5; b must have as many rows as a");
	args = p.args;
	args.params.plain.flags[SOLVE_RIGHT] = true;
	assert_refused(args, KOPS_E_SHAPE, "b must have as many columns as a");
	args = p.args;
	args.views[SOLVE_A].shape[1] = 5;
	assert_refused(args, KOPS_E_SHAPE, "equal extents");
	args = p.args;
	args.views[SOLVE_X].shape[1] = 4;
	assert_refused(args, KOPS_E_SHAPE, "the shapes must be equal");
	args = p.args;
	args.views[SOLVE_A].rank = 3;
	args.views[SOLVE_A].shape[0] = 2;
	args.views[SOLVE_A].shape[1] = args.views[SOLVE_A].shape[2] = 6;
	assert_refused(args, KOPS_E_SHAPE, "a has more axes, 3, than b, 2");
	args = p.args;
	args.views[SOLVE_X] = args.views[SOLVE_A];
	args.views[SOLVE_X].shape[1] = COLUMNS;
	assert_refused(args, KOPS_E_OVERLAP, "output x overlaps input a");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_every_flag),
	    cmocka_unit_test(test_singular_triangles),
	    cmocka_unit_test(test_refusals),
	};

	threads_set(2);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	threads_stop();
	return failed;
}
