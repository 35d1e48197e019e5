/*
 * plan.c: which kernels run the ops of a run, how much device memory they want and how long they take. Asks
 * the device nothing but its attributes, so that tests/plan describes devices that are not there.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/cuda.h"
#include "cuda/gpu.h"
#include "device/host_pages.h"
#include "fitted.h"

static const struct kernel_list *const lists[OP_COUNT] = {
#define X(name) &name##_cuda_kernels,
#include "ops.def"
#undef X
};

const struct kernel_list *cuda_kernels(const struct op *op)
{
	static const struct kernel_list none;

	unsigned i = op_index(op);

	return i < OP_COUNT ? lists[i] : &none;
}

void cuda_disable(struct backend_device *dev, const struct op *op, unsigned kernel)
{
	unsigned i = op_index(op);

	if (i < OP_COUNT && kernel < 64)
		dev->disabled[i] |= 1ull << kernel;
}

/* Absent operands are nowhere. */
static bool is_elsewhere(const struct backend_device *dev, const struct view *v)
{
	const struct memory *m = v->space;

	return m && m->owner && m->owner != dev;
}

void cuda_plan_args(const struct op_args *args, struct op_args *ret)
{
	*ret = *args;
	for (unsigned v = 0; v < args->op->n_operands; v++) {
		const struct memory *m = args->views[v].space;
		struct cuda_layout layout;

		if (!m || m->owner)
			continue;
		cuda_layout_of(&args->views[v], &layout);
		memcpy(ret->views[v].strides, layout.strides, sizeof(layout.strides));
	}
}

/* ---- Time ---- */

#define ROW_BYTES_MIN 256 /* of a copy of rows: shorter ones are gathered one element at a time */
#define LINE_BYTES    64  /* what an element far from its neighbours takes of host memory */
#define CARRIED_SHARE 8   /* of device memory that an op may keep between its parts, at most */

static double op_us(const struct kernel *kernel, const struct op_args *args)
{
	if (op_is_empty(args))
		return 0;
	return fitted.host.launch + kernel->time_ns(args) * 1e-3;
}

static bool is_in_host_memory(const struct view *v)
{
	const struct memory *m = v->space;

	return m && m->owner == NULL;
}

/*
 * Kernels estimate what they take with their operands in place. Of operands in host memory that is left to one
 * that needs no copy of them on the device, where there is one: what is saved is more than kernels differ by.
 */
static void prefer_in_place(const struct op_args *args, struct preference *ret)
{
	const struct kernel_list *list = cuda_kernels(args->op);
	bool is_host = false;

	*ret = (struct preference){.why = "reads host memory in place"};
	for (unsigned v = 0; v < args->op->n_operands; v++)
		is_host |= is_in_host_memory(&args->views[v]);
	for (size_t i = 0; is_host && i < list->n && ret->n < PREFERRED_MAX; i++)
		if (list->kernels[i].once)
			ret->kernels[ret->n++] = (uint8_t)i;
}

/*
 * Ops that go together save more than kernels differ by alone: what a launch takes. So one that goes together
 * is taken before one that does not, where alone it takes so much longer at most.
 */
#define COMPANY_NS        1000.0
#define COMPANY_BYTES_MAX (512u << 10) /* of outputs: no kernel takes more together, so none is asked */

static bool goes_together(const struct kernel *kernel, const struct op_args *args)
{
	return kernel->together_max && kernel->together_max(args) > 1;
}

/* Leaves those that go together, if they are to be preferred; else all. Returns how many there are. */
static unsigned keep_company(const struct kernel_list *list, const struct op_args *args,
                             struct rival rivals[RIVALS_MAX], unsigned n)
{
	struct rival kept[RIVALS_MAX];
	double least = INFINITY, least_kept = INFINITY;
	unsigned n_kept = 0;

	for (unsigned i = 0; i < n; i++) {
		least = fmin(least, rivals[i].time_ns);
		if (!goes_together(&list->kernels[rivals[i].kernel], args))
			continue;
		least_kept = fmin(least_kept, rivals[i].time_ns);
		kept[n_kept++] = rivals[i];
	}
	if (n_kept == 0 || least_kept > least + COMPANY_NS)
		return n;
	memcpy(rivals, kept, n_kept * sizeof(kept[0]));
	return n_kept;
}

/* The fastest of those that go together, where it is to be preferred. */
static void prefer_company(const struct kernel_list *list, const struct op_args *args, uint64_t disabled,
                           struct preference *ret)
{
	struct rival rivals[RIVALS_MAX];
	unsigned n = keep_company(list, args, rivals, kernel_rivals(list, args, disabled, rivals)), best = 0;

	*ret = (struct preference){
	    .why = "shares a launch with ops like it; alone at most 1 us slower, by estimate"};
	for (unsigned i = 1; i < n; i++)
		if (rivals[i].time_ns < rivals[best].time_ns)
			best = i;
	if (n > 0 && goes_together(&list->kernels[rivals[best].kernel], args))
		ret->kernels[ret->n++] = (uint8_t)rivals[best].kernel;
}

static bool may_have_company(const struct run_op *op)
{
	uint64_t bytes = 0;

	for (unsigned v = op_first_output(op->args.op); v < op->args.op->n_operands; v++)
		bytes += view_elements(&op->args.views[v]) * dtype_size(op->args.views[v].dtype);
	return !op->preferred && !*op->pinned && bytes <= COMPANY_BYTES_MAX;
}

static double part_ns(const struct kernel *kernel, const struct op_args *args)
{
	return op_us(kernel, args) * 1e3;
}

static void estimate_op(struct run_op *op, const struct op_args *args, const struct part_limits *limits)
{
	op->plan_us = op_us(op->kernel, args);
	op->plan_us *= kernel_cut(op->kernel, args, limits, &op->cut);
}

/* Of an op whose kernel is chosen; another one, if that cannot be cut finely and there is one that can. */
static void estimate_cut(const struct backend_device *dev, struct run_op *op, const struct op_args *args)
{
	const struct kernel_list *list = cuda_kernels(op->args.op);
	const struct part_limits limits = {part_ns, PART_US * 1e3, dev->info.memory_bytes / CARRIED_SHARE};
	uint64_t disabled = dev->disabled[op_index(op->args.op)];
	struct preference preference;

	estimate_op(op, args, &limits);
	if (!run_is_uncut(op))
		return;
	kernel_prefer_cut(list, args, disabled, &limits, &preference);
	if (preference.n > 0 && kernel_choose(list, args, "", &preference, disabled, &op->kernel, op->why) == 0)
		estimate_op(op, args, &limits);
}

static int choose(const struct backend_device *dev, struct run_op *op, const struct op_args *args)
{
	const struct kernel_list *list = cuda_kernels(op->args.op);
	uint64_t disabled = dev->disabled[op_index(op->args.op)];
	struct preference preference;
	int rc;

	prefer_in_place(&op->args, &preference);
	rc = kernel_choose(list, args, op->pinned, op->preferred ? op->preferred : &preference, disabled,
	                   &op->kernel, op->why);
	if (rc < 0 || preference.n > 0 || !may_have_company(op) || goes_together(op->kernel, args))
		return rc;
	prefer_company(list, args, disabled, &preference);
	return preference.n == 0 ? 0
	                         : kernel_choose(list, args, "", &preference, disabled, &op->kernel, op->why);
}

static int plan_op(const struct backend_device *dev, struct run *run, unsigned i)
{
	struct run_op *op = &run->ops[i];
	const struct run_op *before = run_like_before(run, i);
	struct op_args args;
	int rc;

	if (before) {
		run_choose_again(op, before);
		op->plan_us = before->plan_us;
		op->cut = before->cut;
		op->together = before->together;
		return 0;
	}
	for (unsigned v = 0; v < op->args.op->n_operands; v++) {
		if (!is_elsewhere(dev, &op->args.views[v]))
			continue;
		snprintf(run->error, WHY_BYTES,
		         "op %u (%s) uses a RESIDENT buffer of another device; run it there, or copy the data "
		         "through a SHARED buffer",
		         i, op->args.op->name);
		return KOPS_E_DEVICE;
	}
	cuda_plan_args(&op->args, &args);
	rc = choose(dev, op, &args);
	if (rc < 0) {
		snprintf(run->error, WHY_BYTES, "%s", op->why);
		return rc;
	}
	estimate_cut(dev, op, &args);
	op->larger_errors = !kernel_is_accurate(op->kernel, &args, &(const char *){NULL});
	kernel_passed_over(cuda_kernels(op->args.op), &args, dev->disabled[op_index(op->args.op)], op->kernel,
	                   op->passed_over);
	op->together = 1;
	if (op->kernel->together_max && op->cut.n_parts <= 1 && op->plan_us > 0)
		op->together = op->kernel->together_max(&args);
	return 0;
}

unsigned cuda_rivals(const struct backend_device *dev, const struct op_args *args, struct rival ret[RIVALS_MAX])
{
	const struct kernel_list *list = cuda_kernels(args->op);
	struct op_args staged;

	cuda_use_device(dev->index); /* kernels ask what GPU it is */
	cuda_plan_args(args, &staged);
	unsigned n = kernel_rivals(list, &staged, dev->disabled[op_index(args->op)], ret);
	return keep_company(list, &staged, ret, n);
}

/* ---- Transfers ---- */

/* One way. Pinned memory is mapped; what is not is read or written by the CPU. */
static double transfer_us(const struct backend_device *dev, const struct cuda_copy *copy)
{
	const struct cuda_layout *l = &copy->layout;
	bool rows = l->rank == 0 || (l->host_stride[0] == 1 && l->extent[0] * l->element >= ROW_BYTES_MIN) ||
	            (l->rank == 1 && l->host_stride[0] == 1);
	double bytes = (double)l->bytes, lines = LINE_BYTES * view_blocks(copy->view, LINE_BYTES);

	if (copy->pinned)
		return fmax(rows ? bytes : lines, bytes) / dev->info.link_rate;
	if (rows)
		return bytes / fitted.host.pageable;
	return (bytes + lines) / fitted.host.pageable + bytes / l->element * fitted.host.gather +
	       host_pages_us(copy->view, copy->is_written);
}

static double transfers_us(const struct backend_device *dev, const struct cuda_stage *stage)
{
	double us = 0;

	for (unsigned c = 0; c < stage->n_copies; c++)
		us += (stage->copies[c].is_read + stage->copies[c].is_written) *
		      transfer_us(dev, &stage->copies[c]);
	return us;
}

/* Errs upwards: nothing stops a run that is out. */
static void estimate(const struct backend_device *dev, struct run *run, const struct cuda_stage *stage)
{
	run->plan_us = fitted.host.run + transfers_us(dev, stage);
	for (unsigned i = 0; i < run->n_ops; i++)
		run->plan_us += run->ops[i].plan_us;
}

static void forget_plan(struct run *run)
{
	cuda_stage_free(run->planned);
}

static int plan_stage(const struct backend_device *dev, struct run *run)
{
	struct cuda_stage *stage;
	int rc = cuda_stage_new(run, &stage);

	if (rc < 0) {
		snprintf(run->error, WHY_BYTES, "out of host memory");
		return rc;
	}
	run->device_bytes = cuda_stage_scratch_bytes(stage);
	estimate(dev, run, stage);
	if (run->device_bytes <= dev->info.memory_bytes) {
		run->planned = stage;
		run->forget_plan = forget_plan;
		return 0;
	}
	cuda_stage_free(stage);
	snprintf(
	    run->error, WHY_BYTES,
	    "the job needs %llu MiB of device memory, the device has %llu MiB; split it, or use device cpu",
	    (unsigned long long)(run->device_bytes >> 20), (unsigned long long)(dev->info.memory_bytes >> 20));
	return KOPS_E_NOMEM;
}

int cuda_plan(const struct backend_device *dev, struct run *run, unsigned first, unsigned end)
{
	int rc;

	if (first == 0) {
		run_forget_plan(run);
		run->error[0] = '\0';
	}
	cuda_use_device(dev->index); /* kernels ask what GPU it is */
	for (unsigned i = first; i < end; i++)
		if ((rc = plan_op(dev, run, i)) < 0)
			return rc;
	return end < run->n_ops ? 0 : plan_stage(dev, run);
}
