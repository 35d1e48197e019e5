/* Tests how far results of a product may lie off: no less than its rounding may take them, and not much more.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gemm/gemm.h"

static double tolerance(kops_dtype dtype, kops_precision precision, double *ret_terms)
{
	const struct op *op = op_by_name("gemm");
	struct op_args args;

	assert_true(op->sample(dtype, &args));
	args.params.gemm.precision = precision;
	*ret_terms =
	    fabs(args.params.gemm.alpha) * (double)args.views[GEMM_A].shape[2] * dtype_components(dtype);
	return op->tolerance(&args);
}

/* Each term is a product of two operands in [-1, 1], which the precision may both round. */
static void it_fits_what_the_precision_may_round(void **state)
{
	static const struct {
		kops_dtype dtype;
		kops_precision precision;
		double rounding; /* of an operand */
	} cases[] = {
	    {KOPS_F32, KOPS_PRECISION_F32, 0x1p-24},  {KOPS_F32, KOPS_PRECISION_IEEE, 0x1p-24},
	    {KOPS_F32, KOPS_PRECISION_TF32, 0x1p-11}, {KOPS_F32, KOPS_PRECISION_BF16, 0x1p-8},
	    {KOPS_F64, KOPS_PRECISION_F32, 0x1p-53},  {KOPS_F64, KOPS_PRECISION_TF32, 0x1p-53},
	    {KOPS_F64, KOPS_PRECISION_BF16, 0x1p-53}, {KOPS_C64, KOPS_PRECISION_TF32, 0x1p-24},
	    {KOPS_C128, KOPS_PRECISION_F32, 0x1p-53},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		double terms, most = tolerance(cases[i].dtype, cases[i].precision, &terms);

		assert_true(most >= 2 * terms * cases[i].rounding);
		assert_true(most <= 8 * terms * cases[i].rounding);
	}
}

/* The precision is for f32 operands only. */
static void it_is_one_for_16_bits(void **state)
{
	static const kops_dtype dtypes[] = {KOPS_F16, KOPS_BF16};
	double terms;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		double most = tolerance(dtypes[i], KOPS_PRECISION_F32, &terms);

		assert_true(tolerance(dtypes[i], KOPS_PRECISION_TF32, &terms) == most);
		assert_true(tolerance(dtypes[i], KOPS_PRECISION_BF16, &terms) == most);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(it_fits_what_the_precision_may_round),
	    cmocka_unit_test(it_is_one_for_16_bits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
