/*
 * Tests the result shapes of ops: each op accepts inputs with the outputs that it names. Ops come from their
 * descriptions, so a new one needs no line here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernel.h"
#include "seed.h"

#define TRIALS 20000

/* Uses few extents, so that inputs often fit together. */
static void random_view(struct view *v, kops_dtype dtype)
{
	*v = (struct view){.dtype = dtype, .rank = 1 + (uint32_t)rand() % KOPS_RANK_MAX};
	for (uint32_t d = 0; d < v->rank; d++)
		v->shape[d] = (uint64_t)rand() % 4;
	view_make_dense(v);
}

static kops_dtype random_dtype(const struct op *op)
{
	kops_dtype dtype;

	do
		dtype = (kops_dtype)(rand() % 32);
	while (!op_takes(op, dtype));
	return dtype;
}

/* Makes optional inputs absent now and then, or as they fit: by chance alone they rarely do. */
static void random_input(struct op_args *args, unsigned v, kops_dtype dtype)
{
	if (args->op->operands[v].is_optional && rand() % 2) {
		args->views[v].dtype = op_dtype_beside(args->op, v, dtype);
		op_fit_optional(args, v, rand() % 4 ? ANY_COUNT : 0);
	} else {
		random_view(&args->views[v], op_dtype_beside(args->op, v, dtype));
	}
}

/* Puts each operand into memory of its own. */
static void lay_out(struct op_args *args, const char spaces[OP_OPERANDS_MAX])
{
	for (unsigned v = 0; v < args->op->n_operands; v++) {
		args->views[v].space = &spaces[v];
		if (op_is_output(args->op, v))
			view_make_dense(&args->views[v]);
	}
}

/* Returns true if the inputs fit together. */
static bool try_once(const struct op *op)
{
	static const char spaces[OP_OPERANDS_MAX];
	struct op_args args = {.op = op};
	char why[WHY_BYTES] = "";
	kops_dtype dtype = random_dtype(op);
	int rc;

	op_set_defaults(&args);
	for (unsigned v = 0; v < op_first_output(op); v++)
		random_input(&args, v, dtype);
	rc = op_result(&args, why);
	if (rc < 0) {
		assert_true(rc == KOPS_E_SHAPE || rc == KOPS_E_INVALID); /* gemm: a complex bias */
		assert_true(strlen(why) > 10);
		return false;
	}
	lay_out(&args, spaces);
	rc = op_check(&args, why);
	if (rc < 0)
		fail_msg("%s refuses the result that it told: %s", op->name, why);
	return true;
}

static void test_ops_accept_the_results_that_they_tell(void **state)
{
	(void)state;
	for (unsigned i = 0; i < OP_COUNT; i++) {
		unsigned fitting = 0;

		for (unsigned trial = 0; trial < TRIALS; trial++)
			fitting += try_once(ops[i]);
		assert_in_range(fitting, TRIALS / 2000, TRIALS);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_ops_accept_the_results_that_they_tell)};
	unsigned seed = (unsigned)seed_of_run();

	print_message("seed: KOPS_TEST_SEED=%u\n", seed);
	srand(seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
