/* Tests the planned time of ops on a device that computes in host memory, whose pages take time when first
 * used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/plan.h"

#define SIDE 256 /* of each matrix */

static bool supports(const struct op_args *args, const char **ret_why_not)
{
	(void)args;
	(void)ret_why_not;
	return true;
}

static double time_ns(const struct op_args *args)
{
	(void)args;
	return 1000;
}

static const struct kernel_list *kernels_of(const struct op *op)
{
	static const struct kernel kernel = {.name = "whole", .supports = supports, .time_ns = time_ns};
	static const struct kernel_list list = {&kernel, 1};

	(void)op;
	return &list;
}

static const struct planner host = {.kernels = kernels_of, .info.memory_bytes = 1 << 30};

/* Memories of one matrix each, which nobody has written yet. */
enum { W, X, Y, Z, MEMORIES };
#define BYTES (SIDE * SIDE * sizeof(float))
static struct memory memories[MEMORIES] = {[W] = {.bytes = BYTES, .missing_bytes = BYTES},
                                           [X] = {.bytes = BYTES, .missing_bytes = BYTES},
                                           [Y] = {.bytes = BYTES, .missing_bytes = BYTES},
                                           [Z] = {.bytes = BYTES, .missing_bytes = BYTES}};

static struct run_op op_on(const char *name, unsigned from, unsigned to)
{
	const struct view matrix = {.dtype = KOPS_F32, .rank = 2, .shape = {SIDE, SIDE}, .strides = {SIDE, 1}};
	struct run_op op = {.args = {.op = op_by_name(name), .views = {matrix, matrix}}, .pinned = ""};
	char why[WHY_BYTES];

	op.args.views[0].space = &memories[from];
	op.args.views[1].space = &memories[to];
	assert_int_equal(op_check(&op.args, why), 0);
	return op;
}

/* Plans the first two of three ops, and returns the time of the second one. */
static double second_us(struct run_op first, struct run_op second, struct run_op third)
{
	struct run_op three[] = {first, second, third};
	struct run run = {.ops = three, .n_ops = 3};

	assert_int_equal(plan_ops(&host, &run, 0, 2), 0);
	return three[1].plan_us;
}

/* A copy after another copy takes over its plan, but not this time. */
static void pages_that_the_op_before_has_touched_cost_nothing(void **state)
{
	static const char *const names[] = {"transpose", "copy"};

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct run_op second = op_on(names[i], Y, Z);
		double untouched = second_us(op_on("copy", X, W), second, op_on("copy", X, W));

		assert_true(second_us(op_on("copy", X, Y), second, op_on("copy", X, W)) < untouched);
		assert_true(second_us(op_on("copy", X, W), second, op_on("copy", X, Y)) == untouched);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(pages_that_the_op_before_has_touched_cost_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
