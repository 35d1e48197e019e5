/* Tests unary on the CPU: its functions at all kinds of numbers, special values, limits and scales. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/cpu.h"
#include "common/half.h"
#include "elementwise/unary_function.h"

#define N 4096

static const kops_dtype dtypes[] = {KOPS_F32, KOPS_F64, KOPS_F16, KOPS_BF16};
static double x[N], y[N], exact[N], slack[N]; /* any type fits */

static struct op_args args_of(kops_dtype dtype, const struct unary_params *p, uint64_t n)
{
	struct op_args args = {.op = op_by_name("unary"), .params.unary = *p};

	args.views[0] =
	    (struct view){.space = x, .data = x, .dtype = dtype, .rank = 1, .shape = {n}, .strides = {1}};
	args.views[1] = args.views[0];
	args.views[1].space = args.views[1].data = y;
	return args;
}

static void run(const struct kernel *kernel, kops_dtype dtype, const struct unary_params *p, uint64_t n)
{
	struct op_args args = args_of(dtype, p, n);
	const struct launch launch = {0};
	char why[WHY_BYTES];

	assert_int_equal(op_check(&args, why), 0);
	assert_int_equal(kernel->launch(&args, &launch), 0);
}

/* What x's elements are in float64, and how far y may be from what comes of them. */
static void judge(kops_dtype dtype, const struct unary_params *p, uint64_t n)
{
	struct op_args args = args_of(dtype, p, n);
	char why[WHY_BYTES];

	assert_int_equal(op_check(&args, why), 0);
	args.op->bounds(&args, 0, slack);
	args.views[1].dtype = KOPS_F64;
	args.views[1].data = exact;
	args.op->reference(&args);
}

static double roundoff(kops_dtype dtype)
{
	return dtype == KOPS_F16 ? 0x1p-11 : dtype == KOPS_BF16 ? 0x1p-8 : 0;
}

static double largest(kops_dtype dtype)
{
	return dtype == KOPS_F16    ? 65504
	       : dtype == KOPS_BF16 ? 0x1.fep127
	       : dtype == KOPS_F64  ? DBL_MAX
	                            : (double)FLT_MAX;
}

static void check_element(kops_dtype dtype, uint64_t i)
{
	double got = half_load(y, dtype, (int64_t)i), want = exact[i];
	double bound = slack[i] + 1.01 * roundoff(dtype) * fabs(want) + (dtype == KOPS_F16 ? 0x1p-25 : 0);

	if (isnan(want))
		assert_true(isnan(got));
	else if (isinf(want))
		assert_true(got == want);
	else if (isinf(got))
		assert_true(signbit(got) == signbit(want) && fabs(want) + bound > largest(dtype));
	else
		assert_true(fabs(got - want) <= bound);
}

/* Fills x with numbers of all magnitudes. */
static void fill(kops_dtype dtype, uint64_t seed)
{
	for (uint64_t i = 0; i < N; i++) {
		uint64_t bits = (seed * N + i) * 0x9e3779b97f4a7c15u;
		double mantissa = 1 + (double)(bits >> 40) * 0x1p-24;
		int exponent = (int)(i % (dtype == KOPS_F16 ? 40 : 256)) - (dtype == KOPS_F16 ? 25 : 140);

		half_store(x, dtype, (int64_t)i, ldexp(i & 512 ? -mantissa : mantissa, exponent));
	}
}

static void it_is_as_exact_as_promised(void **state)
{
	(void)state;
	for (unsigned f = 0; f < UNARY_FUNCTIONS; f++)
		for (unsigned d = 0; d < 4; d++)
			for (uint64_t seed = 0; seed < 8; seed++) {
				struct unary_params p = {.function = f,
				                         .scale = seed % 2 ? -0.75 : 1,
				                         .low = -INFINITY,
				                         .high = INFINITY};

				fill(dtypes[d], seed);
				judge(dtypes[d], &p, N);
				for (size_t k = 0; k < unary_cpu_kernels.n; k++) {
					run(&unary_cpu_kernels.kernels[k], dtypes[d], &p, N);
					for (uint64_t i = 0; i < N; i++)
						check_element(dtypes[d], i);
				}
			}
}

/* Returns the function of one number. */
static double at(const struct kernel *kernel, kops_dtype dtype, struct unary_params p, double v)
{
	half_store(x, dtype, 0, v);
	run(kernel, dtype, &p, 1);
	return half_load(y, dtype, 0);
}

static bool is_same(double a, double b)
{
	return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b);
}

static void special_values_are_those_of_the_definition(void **state)
{
	static const double values[] = {0, -0.0, INFINITY, -INFINITY, NAN};
	static const double want[UNARY_FUNCTIONS][5] = {
	    [UNARY_NONE] = {0, -0.0, INFINITY, -INFINITY, NAN},
	    [UNARY_RELU] = {0, -0.0, INFINITY, 0, NAN},
	    [UNARY_GELU] = {0, -0.0, INFINITY, NAN, NAN},
	    [UNARY_GELU_TANH] = {0, -0.0, INFINITY, NAN, NAN},
	    [UNARY_SILU] = {0, -0.0, INFINITY, NAN, NAN},
	    [UNARY_SIGMOID] = {0.5, 0.5, 1, 0, NAN},
	    [UNARY_TANH] = {0, -0.0, 1, -1, NAN},
	    [UNARY_EXP] = {1, 1, INFINITY, 0, NAN},
	    [UNARY_LOG] = {-INFINITY, -INFINITY, INFINITY, NAN, NAN},
	    [UNARY_SQRT] = {0, -0.0, INFINITY, NAN, NAN},
	    [UNARY_ABS] = {0, 0, INFINITY, INFINITY, NAN},
	};

	(void)state;
	for (size_t k = 0; k < unary_cpu_kernels.n; k++)
		for (unsigned f = 0; f < UNARY_FUNCTIONS; f++)
			for (unsigned d = 0; d < 4; d++)
				for (unsigned i = 0; i < 5; i++)
					assert_true(
					    is_same(at(&unary_cpu_kernels.kernels[k], dtypes[d],
					               (struct unary_params){f, 1, -INFINITY, INFINITY, false},
					               values[i]),
					            want[f][i]));
}

static void it_limits_what_the_function_gives(void **state)
{
	static const struct {
		enum unary_function function;
		double scale, low, high, x, y;
	} cases[] = {
	    {UNARY_NONE, 1, -1, 1, 3, 1},
	    {UNARY_NONE, 1, -1, 1, -3, -1},
	    {UNARY_NONE, 1, -1, 1, 0.5, 0.5},
	    {UNARY_NONE, 1, -1, 1, INFINITY, 1},
	    {UNARY_NONE, 1, -1, 1, NAN, NAN},
	    {UNARY_NONE, 2, -INFINITY, 1, 0.75, 1},
	    {UNARY_NONE, -1, 0, INFINITY, 2, 0},
	    {UNARY_NONE, 1, 2, 1, 0, 1}, /* low above high */
	    {UNARY_NONE, 1, 2, 1, 5, 1},
	    {UNARY_NONE, 1, 2, 1, NAN, NAN},
	    {UNARY_EXP, 1, 0, 4, 1000, 4},
	    {UNARY_LOG, 1, -8, 8, 0, -8},
	    {UNARY_LOG, 1, -8, 8, -1, NAN},
	    {UNARY_RELU, 1, -INFINITY, 6, 7, 6},
	    {UNARY_NONE, 0, -1, 1, INFINITY, NAN},         /* 0 · Infinity */
	    {UNARY_NONE, 1, 1e300, INFINITY, 1, INFINITY}, /* beyond f32, but not f64 */
	};

	(void)state;
	for (size_t k = 0; k < unary_cpu_kernels.n; k++)
		for (unsigned d = 0; d < 4; d++)
			for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
				struct unary_params p = {cases[i].function, cases[i].scale, cases[i].low,
				                         cases[i].high, false};
				double want =
				    dtypes[d] == KOPS_F64 && cases[i].low == 1e300 ? 1e300 : cases[i].y;

				assert_true(
				    is_same(at(&unary_cpu_kernels.kernels[k], dtypes[d], p, cases[i].x), want));
			}
}

/* scale · x is rounded to f32, and so infinite beyond its range. */
static void a_scaled_number_may_be_infinite(void **state)
{
	struct unary_params p = {UNARY_SQRT, 1e30, -INFINITY, INFINITY, false};

	(void)state;
	for (size_t k = 0; k < unary_cpu_kernels.n; k++) {
		const struct kernel *kernel = &unary_cpu_kernels.kernels[k];

		assert_true(isinf(at(kernel, KOPS_F32, p, 1e30)));
		assert_true(isinf(at(kernel, KOPS_BF16, p, 1e30)));
		assert_true(fabs(at(kernel, KOPS_F64, p, 1e30) - 1e30) < 1e15);
	}
}

static void it_refuses_what_no_kernel_takes(void **state)
{
	static const struct {
		struct unary_params p;
		const char *words;
	} cases[] = {
	    {{(enum unary_function)UNARY_FUNCTIONS, 1, -1, 1, false}, "function is 11"},
	    {{UNARY_NONE, (double)INFINITY, -1, 1, false}, "scale is inf"},
	    {{UNARY_NONE, 1e39, -1, 1, false}, "finite f32 number"},
	    {{UNARY_NONE, (double)NAN, -1, 1, false}, "scale is nan"},
	    {{UNARY_NONE, 1, (double)NAN, 1, false}, "low is not a number"},
	    {{UNARY_NONE, 1, -1, (double)NAN, false}, "high is not a number"},
	};
	char why[WHY_BYTES];

	(void)state;
	for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct op_args args = args_of(KOPS_F32, &cases[i].p, 1);

		assert_int_equal(op_check(&args, why), KOPS_E_INVALID);
		assert_non_null(strstr(why, cases[i].words));
	}
	struct op_args integers = args_of(KOPS_I32, &(struct unary_params){.scale = 1}, 1);
	assert_int_equal(op_check(&integers, why), KOPS_E_DTYPE);
	struct op_args shapes = args_of(KOPS_F32, &(struct unary_params){.scale = 1}, 2);
	shapes.views[1].shape[0] = 3;
	assert_int_equal(op_check(&shapes, why), KOPS_E_SHAPE);
	struct op_args repeated = args_of(KOPS_F32, &(struct unary_params){.scale = 1}, 2);
	repeated.views[1].strides[0] = 0;
	assert_int_equal(op_check(&repeated, why), KOPS_E_OVERLAP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(it_is_as_exact_as_promised),
	    cmocka_unit_test(special_values_are_those_of_the_definition),
	    cmocka_unit_test(it_limits_what_the_function_gives),
	    cmocka_unit_test(a_scaled_number_may_be_infinite),
	    cmocka_unit_test(it_refuses_what_no_kernel_takes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
