/*
 * Tests the self-test of kernels at start, on a driver whose kernels are the ops' references, right or
 * spoiled.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "device/canary.h"
#include "plan/plan.h"

enum { LARGE_ELEMENTS = 500000 };

static struct run *finished;

static bool takes_small(const struct op_args *args, const char **ret_why_not)
{
	*ret_why_not = "takes small products";
	return view_elements(op_output_const(args)) < LARGE_ELEMENTS;
}

static bool takes_large_f32(const struct op_args *args, const char **ret_why_not)
{
	*ret_why_not = "takes large products of f32";
	return !takes_small(args, ret_why_not) && args->views[0].dtype == KOPS_F32;
}

static bool takes_nothing(const struct op_args *args, const char **ret_why_not)
{
	(void)args;
	*ret_why_not = "takes nothing";
	return false;
}

static int compute(const struct op_args *args, const struct launch *launch)
{
	(void)launch;
	args->op->reference(args);
	return 0;
}

/* Computes the last element wrongly. */
static int compute_wrongly(const struct op_args *args, const struct launch *launch)
{
	const struct view *out = op_output_const(args);
	size_t size = dtype_size(out->dtype);
	char *last = (char *)out->data + (view_elements(out) - 1) * size;

	compute(args, launch);
	memset(last, 0x3d, size);
	return 0;
}

static double time_ns(const struct op_args *args)
{
	(void)args;
	return 1000;
}

static const struct kernel kernels[] = {
    {.name = "small", .time_ns = time_ns, .supports = takes_small, .launch = compute},
    {.name = "large", .time_ns = time_ns, .supports = takes_large_f32, .launch = compute},
    {.name = "wrong-small", .time_ns = time_ns, .supports = takes_small, .launch = compute_wrongly},
    {.name = "wrong-large", .time_ns = time_ns, .supports = takes_large_f32, .launch = compute_wrongly},
    {.name = "none", .time_ns = time_ns, .supports = takes_nothing, .launch = compute_wrongly},
};

static const struct kernel_list *list_of(const struct op *op)
{
	static const struct kernel_list gemm = {kernels, sizeof kernels / sizeof kernels[0]}, none = {NULL, 0};

	return strcmp(op->name, "gemm") == 0 ? &gemm : &none;
}

static unsigned short_runs; /* number of runs that still lack memory */

static void start(struct device_state *dev, struct run *run)
{
	struct op_args args = run->ops[0].args;

	(void)dev;
	finished = run;
	if (short_runs > 0) {
		short_runs--;
		run->status = KOPS_E_NOMEM;
		return;
	}
	for (unsigned i = 0; i < args.op->n_operands; i++)
		if (!view_is_absent(&args.views[i]))
			args.views[i].data = memory_at(args.views[i].space, args.views[i].offset);
	run->status = run->ops[0].kernel->launch(&args, NULL);
}

static struct run *poll(struct device_state *dev)
{
	struct run *run = finished;

	(void)dev;
	finished = NULL;
	return run;
}

static const struct planner plain = {.kernels = list_of, .info.memory_bytes = UINT64_MAX};

/* Returns which kernels of gemm a self-test disables, if `passed` of them pass. */
static uint64_t disabled_by_test(int passed, const char *failures)
{
	const struct driver driver = {.start = start, .poll = poll};
	struct planner planner = plain;
	char failed[WHY_BYTES];

	assert_int_equal(canary_self_test(&driver, NULL, &planner, failed), passed);
	assert_string_equal(failed, failures);
	return planner.disabled[op_index(op_by_name("gemm"))];
}

static void wrong_kernels_are_disabled_whatever_their_size(void **state)
{
	(void)state;
	assert_int_equal(disabled_by_test(2, "gemm/wrong-small,gemm/wrong-large"), 1 << 2 | 1 << 3);
}

/*
 * A kernel that lacks memory once is tried again. If memory lacks for good, the kernel is neither blamed nor
 * passed.
 */
static void a_lack_of_memory_is_no_fault_of_a_kernel(void **state)
{
	(void)state;
	for (unsigned n = 1; n <= 2; n++) {
		short_runs = n;
		disabled_by_test(2, "gemm/wrong-small,gemm/wrong-large");
	}
	short_runs = 1000000;
	assert_int_equal(disabled_by_test(0, ""), 0);
	assert_true(short_runs < 1000000);
	short_runs = 0;
}

static unsigned n_references;

static void count_reference(const struct op_args *args)
{
	n_references++;
	op_by_name("gemm")->reference(args);
}

static struct op counted;

static bool sample_counted(kops_dtype dtype, struct op_args *args)
{
	bool takes = op_by_name("gemm")->sample(dtype, args);

	args->op = &counted;
	return takes;
}

/* A health check needs no reference on the loop, and finds a wrong result after right ones. */
static void the_answer_is_computed_once(void **state)
{
	static const char *const pinned[] = {"small", "small", "wrong-small", "small"};
	struct canary *c;

	(void)state;
	counted = *op_by_name("gemm");
	counted.reference = count_reference;
	counted.sample = sample_counted;
	c = canary_new(&counted, KOPS_F32);
	for (unsigned i = 0; i < sizeof pinned / sizeof pinned[0]; i++) {
		unsigned before = n_references;
		struct run *run = canary_prepare(c, pinned[i]);
		assert_int_equal(n_references - before, i == 0);
		assert_int_equal(plan_run(&plain, run), 0);
		start(NULL, run);
		assert_int_equal(canary_is_right(c), strcmp(pinned[i], "small") == 0);
	}
	canary_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(wrong_kernels_are_disabled_whatever_their_size),
	    cmocka_unit_test(a_lack_of_memory_is_no_fault_of_a_kernel),
	    cmocka_unit_test(the_answer_is_computed_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
