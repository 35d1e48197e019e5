/* The self-test of kernels at start, on a backend whose kernels are the ops' references, right or spoiled. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "device/canary.h"

enum { LARGE_ELEMENTS = 500000 };

static uint64_t disabled;
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

/* Wrong in the last element. */
static int compute_wrongly(const struct op_args *args, const struct launch *launch)
{
	const struct view *out = op_output_const(args);
	size_t size = dtype_size(out->dtype);
	char *last = (char *)out->data + (view_elements(out) - 1) * size;

	compute(args, launch);
	memset(last, 0x3d, size);
	return 0;
}

static const struct kernel kernels[] = {
    {.name = "small", .supports = takes_small, .launch = compute},
    {.name = "large", .supports = takes_large_f32, .launch = compute},
    {.name = "wrong-small", .supports = takes_small, .launch = compute_wrongly},
    {.name = "wrong-large", .supports = takes_large_f32, .launch = compute_wrongly},
    {.name = "none", .supports = takes_nothing, .launch = compute_wrongly},
};

static const struct kernel_list *list_of(const struct op *op)
{
	static const struct kernel_list gemm = {kernels, sizeof kernels / sizeof kernels[0]}, none = {NULL, 0};

	return strcmp(op->name, "gemm") == 0 ? &gemm : &none;
}

static void disable(struct backend_device *dev, const struct op *op, unsigned kernel)
{
	(void)dev;
	(void)op;
	disabled |= (uint64_t)1 << kernel;
}

static int plan(const struct backend_device *dev, struct run *run, unsigned first, unsigned end)
{
	struct run_op *op = &run->ops[0];

	(void)dev;
	assert_true(first == 0 && end == 1 && run->n_ops == 1);
	return kernel_choose(list_of(op->args.op), &op->args, op->pinned, NULL, 0, &op->kernel, op->why);
}

static void start(struct backend_device *dev, struct run *run)
{
	struct op_args args = run->ops[0].args;

	(void)dev;
	for (unsigned i = 0; i < args.op->n_operands; i++)
		args.views[i].data = memory_at(args.views[i].space, args.views[i].offset);
	run->status = run->ops[0].kernel->launch(&args, NULL);
	finished = run;
}

static struct run *poll(struct backend_device *dev)
{
	struct run *run = finished;

	(void)dev;
	finished = NULL;
	return run;
}

static void wrong_kernels_are_disabled_whatever_their_size(void **state)
{
	const struct backend backend = {
	    .kernels = list_of, .disable = disable, .plan = plan, .start = start, .poll = poll};
	char failed[WHY_BYTES];

	(void)state;
	assert_int_equal(canary_self_test(&backend, NULL, failed), 2);
	assert_string_equal(failed, "gemm/wrong-small,gemm/wrong-large");
	assert_int_equal(disabled, 1 << 2 | 1 << 3);
}

static unsigned short_runs; /* so many have no memory yet */

static int plan_or_run_short(const struct backend_device *dev, struct run *run, unsigned first, unsigned end)
{
	if (short_runs > 0) {
		short_runs--;
		return KOPS_E_NOMEM;
	}
	return plan(dev, run, first, end);
}

/* Once it is tried again; for good it is neither blamed nor passed. */
static void a_lack_of_memory_is_no_fault_of_a_kernel(void **state)
{
	const struct backend backend = {
	    .kernels = list_of, .disable = disable, .plan = plan_or_run_short, .start = start, .poll = poll};
	char failed[WHY_BYTES];

	(void)state;
	for (short_runs = 1; short_runs <= 2; short_runs++) {
		unsigned n = short_runs;

		disabled = 0;
		assert_int_equal(canary_self_test(&backend, NULL, failed), 2);
		assert_string_equal(failed, "gemm/wrong-small,gemm/wrong-large");
		short_runs = n;
	}
	disabled = 0;
	short_runs = 1000000;
	assert_int_equal(canary_self_test(&backend, NULL, failed), 0);
	assert_string_equal(failed, "");
	assert_int_equal(disabled, 0);
	assert_true(short_runs < 1000000);
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

/* A health check costs the loop no reference, and finds a wrong result after right ones. */
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
		assert_int_equal(plan(NULL, run, 0, run->n_ops), 0);
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
