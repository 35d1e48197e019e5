/* test_tolerances.c: self-tests see a kernel that is wrong: what an op tolerates is small beside its results.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/half.h"
#include "kernel.h"

/* Gives each operand memory: numbers from [-1, 1], as both parts of complex ones, or valid indices. */
static void fill(struct op_args *args)
{
	for (unsigned v = 0; v < args->op->n_operands; v++) {
		struct view *view = &args->views[v];
		uint64_t n = view_elements(view) * dtype_components(view->dtype);

		if (view_is_absent(view))
			continue;
		view->data = calloc(n + 1, dtype_size(dtype_component(view->dtype)));
		assert_non_null(view->data);
		view->space = view->data;
		for (uint64_t i = 0, limit = op_index_limit(args, v); i < n; i++)
			if (limit > 0)
				((int32_t *)view->data)[i] = (int32_t)((uint64_t)rand() % limit);
			else
				half_store(view->data, dtype_component(view->dtype), (int64_t)i,
				           2.0 * rand() / RAND_MAX - 1);
		if (args->op->operands[v].has_large_diagonal)
			op_enlarge_diagonals(view);
	}
}

/* The root mean square of the first output. */
static double size_of_results(const struct op_args *args)
{
	const struct view *y = op_output_const(args);
	uint64_t n = view_elements(y) * dtype_components(y->dtype);
	double squares = 0;

	for (uint64_t i = 0; i < n; i++)
		squares += pow(half_load(y->data, dtype_component(y->dtype), (int64_t)i), 2);
	return sqrt(squares / (double)n);
}

static void check_sample(const struct op *op, struct op_args *args)
{
	char why[WHY_BYTES];

	if (args->views[0].dtype == KOPS_I32)
		return; /* only moved */
	fill(args);
	assert_int_equal(op_check(args, why), 0);
	op->reference(args);
	if (op->tolerance(args) != 0 &&
	    !(op->tolerance(args) > 0 && op->tolerance(args) < size_of_results(args) / 4))
		fail_msg("%s of %s tolerates %g beside %g", op->name, dtype_name(args->views[0].dtype),
		         op->tolerance(args), size_of_results(args));
	for (unsigned v = 0; v < op->n_operands; v++)
		free(args->views[v].data);
}

static void test_every_op_tolerates_little(void **state)
{
	(void)state;
	srand(1);
	for (unsigned i = 0; i < OP_COUNT; i++)
		for (kops_dtype dtype = 1; dtype_size(dtype) > 0; dtype++) {
			struct op_args args;

			if (ops[i]->sample(dtype, &args))
				check_sample(ops[i], &args);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_every_op_tolerates_little),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
