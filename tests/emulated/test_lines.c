/* test_lines.c: wgmma takes tf32 only where the copy engine takes all lines, those of C too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "emulated.h"
#include "gemm/gemm.h"
#include "gemm/kernels.h"

static struct view matrix(uint64_t rows, uint64_t cols, uint64_t offset)
{
	return (struct view){.dtype = KOPS_F32,
	                     .rank = 3,
	                     .shape = {1, rows, cols},
	                     .strides = {0, (int64_t)cols, 1},
	                     .offset = offset};
}

/* A product without a bias whose operands lie so far behind multiples of 256 bytes. */
static bool is_taken(uint64_t a, uint64_t b, uint64_t c, const char **ret_why_not)
{
	struct op_args args = {.op = op_by_name("gemm")};

	args.views[GEMM_A] = matrix(64, 32, a);
	args.views[GEMM_B] = matrix(32, 64, b);
	args.views[GEMM_B].strides[1] = 1;
	args.views[GEMM_B].strides[2] = 32;
	args.views[GEMM_C] = matrix(64, 64, c);
	args.params.gemm.alpha = 1;
	args.params.gemm.precision = KOPS_PRECISION_TF32;
	return gemm_wgmma_supports(&args, ret_why_not);
}

static void test_each_operand_has_to_be_aligned(void **state)
{
	const char *why_not = "";

	(void)state;
	assert_true(is_taken(0, 16, 32, &why_not));
	assert_false(is_taken(8, 16, 32, &why_not));
	assert_non_null(strstr(why_not, "multiples of 16 bytes"));
	assert_false(is_taken(0, 8, 32, &why_not));
	assert_false(is_taken(0, 16, 8, &why_not));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_each_operand_has_to_be_aligned),
	};

	emulated_gpu(4, 1, "wgmma on given operands");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
