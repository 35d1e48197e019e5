/* together.c: one launch for several small ops. */
#include "cuda/together.h"

#include <nvtx3/nvToolsExt.h>

#include "cuda/lane.h"

/* ---- Ops of one run ---- */

/* Neither touches what the other writes. */
static bool are_independent(const struct op_args *a, const struct op_args *b)
{
	const struct view *of_a = op_output_const(a), *of_b = op_output_const(b);

	for (unsigned v = 0; v <= a->op->n_inputs; v++)
		if (view_overlap(of_a, &b->views[v]) || view_overlap(&a->views[v], of_b))
			return false;
	return true;
}

unsigned cuda_together_size(const struct run *run)
{
	const struct run_op *first = &run->ops[run->next_op];
	unsigned most = run->n_ops - run->next_op, n = 1;

	for (most = most < first->together ? most : first->together; n < most; n++) {
		const struct run_op *op = &first[n];

		if (op->kernel != first->kernel || !op_args_alike(&op->args, &first->args))
			return n;
		for (unsigned i = 0; i < n; i++)
			if (!are_independent(&first[i].args, &op->args))
				return n;
	}
	return n;
}

int cuda_together_launch(struct lane *lane, struct out *out, unsigned n)
{
	struct run *run = out->run;
	const struct kernel *kernel = run->ops[run->next_op].kernel;
	const struct op_args *pointers[TOGETHER_MAX] = {NULL};
	struct op_args args[TOGETHER_MAX];
	struct launch launch = cuda_lane_launch(lane, out);
	unsigned first = run->next_op, alike = 0;
	int rc;

	for (; alike < n; alike++) {
		rc = cuda_stage_begin_op(out->stage, first + alike, &args[alike]);
		if (rc < 0)
			return rc;
		if (!op_args_alike(&args[alike], &args[0]))
			break;
		pointers[alike] = &args[alike];
	}
	rc = alike > 1 ? kernel->launch_together(pointers, alike, &launch) : kernel->launch(&args[0], &launch);
	if (rc < 0)
		return cuda_not_started(run, first, rc);
	for (unsigned i = 0; i < alike; i++)
		cuda_stage_end_op(out->stage, first + i);
	run->next_op += alike;
	return 0;
}

/* ---- Runs of several clients and queues ---- */

bool cuda_crowd_suits(const struct backend_device *dev, struct run *run)
{
	struct cuda_stage *stage = run->planned;

	if (!run->repeats || run->timed || run->state || run->n_ops != 1 || run->ops[0].together <= 1 ||
	    !cuda_is_short(run))
		return false;
	cuda_stage_begin(stage, &dev->direct);
	return cuda_stage_is_recordable(stage) && cuda_stage_scratch_bytes(stage) == 0;
}

static bool holds_queue(const struct crowd *crowd, uint64_t queue)
{
	for (unsigned i = 0; i < crowd->n; i++)
		if (crowd->outs[i]->run->lane == queue)
			return true;
	return false;
}

/* A queue's runs go one after the other. */
bool cuda_crowd_takes(struct backend_device *dev, const struct run *run)
{
	const struct crowd *crowd = &dev->crowd;
	const struct run_op *first, *op = &run->ops[0];
	const struct lane *with;

	if (crowd->n == 0)
		return true;
	first = &crowd->outs[0]->run->ops[0];
	with = cuda_lane_with(dev, run->lane);
	return crowd->n < first->together && (!with || with == crowd->lane) && op->kernel == first->kernel &&
	       op_args_alike(&op->args, &first->args) && !holds_queue(crowd, run->lane);
}

bool cuda_crowd_join(struct backend_device *dev, struct run *run)
{
	struct crowd *crowd = &dev->crowd;
	struct out *out = cuda_out_take(dev);

	if (!out)
		return false;
	if (crowd->n == 0)
		crowd->lane = cuda_lane_for(dev, run->lane);
	cuda_out_begin(out, run, false);
	out->stage = run->planned;
	cuda_lane_use(crowd->lane, out->stage);
	cuda_stage_begin_op(out->stage, 0, &crowd->args[crowd->n]); /* enqueues nothing: all is in its place */
	crowd->outs[crowd->n++] = out;
	return true;
}

static int launch_crowd(const struct crowd *crowd, unsigned n)
{
	const struct kernel *kernel = crowd->outs[0]->run->ops[0].kernel;
	const struct op_args *args[TOGETHER_MAX] = {NULL};
	struct launch launch = cuda_lane_launch(crowd->lane, crowd->outs[0]);

	int rc;

	for (unsigned i = 0; i < n; i++)
		args[i] = &crowd->args[i];
	nvtxRangePushA(kernel->name);
	rc = kernel->launch_together(args, n, &launch);
	nvtxRangePop();
	return rc;
}

/* One number tells the end of all. */
static void push_crowd(const struct crowd *crowd, unsigned n, int rc)
{
	struct lane *lane = crowd->lane;

	for (unsigned i = 0; i < n; i++) {
		struct out *out = crowd->outs[i];

		out->word = &lane->words->through;
		out->number = lane->issued;
		out->sharers = n;
		out->status = rc < 0 ? cuda_not_started(out->run, 0, rc) : 0;
		out->run->next_op = 1;
		cuda_lane_push(lane, out);
	}
}

static unsigned count_idle(const struct backend_device *dev)
{
	unsigned idle = 0;

	for (unsigned i = 0; i < CUDA_LANES; i++)
		idle += dev->lanes[i].n_out == 0;
	return idle;
}

unsigned cuda_crowd_dissolve(struct backend_device *dev, struct run *ret_runs[CUDA_LANES])
{
	struct crowd *crowd = &dev->crowd;
	unsigned n = crowd->n;

	if (n > 1 && n > count_idle(dev))
		return 0;
	for (unsigned i = 0; i < n; i++) {
		ret_runs[i] = crowd->outs[i]->run;
		cuda_out_put(dev, crowd->outs[i]);
	}
	crowd->n = 0;
	return n;
}

void cuda_crowd_start(struct backend_device *dev)
{
	struct crowd *crowd = &dev->crowd;
	unsigned n = crowd->n;
	cudaError_t error;
	int rc;

	if (n == 0)
		return;
	crowd->n = 0;
	rc = launch_crowd(crowd, n);
	error = cuda_lane_number(dev, crowd->lane);
	push_crowd(crowd, n, rc);
	if (rc < 0)
		cudaGetLastError();
	if (error != cudaSuccess || rc == KOPS_E_FAULT)
		cuda_give_up(dev, cudaErrorUnknown);
}
