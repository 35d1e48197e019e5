/* enqueue.c: transfers, kernels and events of a run, one by one or as a graph. */
#include "cuda/enqueue.h"

#include <nvtx3/nvToolsExt.h>

#include "common/cuda.h"
#include "cuda/confined.h"
#include "cuda/graph.h"
#include "cuda/lane.h"
#include "cuda/together.h"
#include "cuda/words.h"
#include "plan/mover.h"

/*
 * The stream of a run that asked to be timed is held before its first event until all is enqueued, so that its
 * kernels follow each other without waiting for their launches; at most for HOLD_US and HOLD_OP_US for each op.
 * An op takes the host some 5 us, and 300 us where cuBLAS sees a shape for the first time.
 */
#define HOLD_US    500
#define HOLD_OP_US 20

static int launch_kernel(struct lane *lane, const struct out *out, const struct run_op *op,
                         const struct op_args *args, uint32_t part, struct launch *launch)
{
	bool confines = out->run->room == RUN_IS_CONFINED && op->kernel->takes_all;
	int rc = confines ? cuda_confined_begin(lane, launch) : 0, rc_end;

	if (rc == 0)
		rc = op->cut.n_parts <= 1
		         ? op->kernel->launch(args, launch)
		         : kernel_launch_part(op->kernel, args, &op->cut, part, launch, cuda_convert);
	rc_end = cuda_confined_end(lane, launch);
	return rc < 0 ? rc : rc_end;
}

static int launch_part(struct lane *lane, struct out *out, unsigned i, uint32_t part)
{
	const struct run_op *op = &out->run->ops[i];
	struct launch launch = cuda_lane_launch(lane, out);
	struct op_args args;
	int rc;

	if (op_is_empty(&op->args))
		return 0;
	rc = stage_begin_part(out->stage, i, part, &args);
	if (rc < 0)
		return rc;
	args.carried = (char *)launch.workspace + launch.workspace_bytes;
	nvtxRangePushA(op->kernel->name);
	rc = launch_kernel(lane, out, op, &args, part, &launch);
	nvtxRangePop();
	if (rc < 0)
		return cuda_not_started(out->run, i, rc);
	return stage_end_part(out->stage, i, part);
}

/* A slice: parts that are planned to take no longer than PART_US together, one at least; or the whole run,
 * which has no scratch memory of its own then. Between two slices nothing is computed until the host has
 * started the next one, so there should be few. */
static int launch_slice(struct lane *lane, struct out *out)
{
	struct run *run = out->run;
	bool is_one = run_is_one_slice(run);
	double us = 0;
	int rc;

	do {
		rc = launch_part(lane, out, run->next_op, run->next_part);
		us += run_mean_part_us(&run->ops[run->next_op]);
		run_advance(run);
	} while (rc == 0 && !run_is_through(run) &&
	         (is_one || us + run_mean_part_us(&run->ops[run->next_op]) <= PART_US));
	return rc;
}

/* All of a run that is recorded. To find out what goes together takes too long for a run that comes once. */
static int launch_all(struct lane *lane, struct out *out)
{
	struct run *run = out->run;
	int rc = 0;

	while (rc == 0 && !run_is_through(run)) {
		unsigned n = cuda_together_size(run);

		if (n > 1) {
			rc = cuda_together_launch(lane, out, n);
			continue;
		}
		rc = launch_part(lane, out, run->next_op, run->next_part);
		run_advance(run);
	}
	return rc;
}

/* Has the GPU note when it has come so far. In a graph kernels do that: events are nodes of 2 us each. */
static void note(const struct lane *lane, const struct out *out, enum run_moment moment)
{
	if (out->stamps)
		cuda_stamp(&out->stamps[moment], lane->stream);
	else if (out->has_events)
		cudaEventRecord(out->events[moment], lane->stream);
}

/* Operands of a run that begins. */
static int lay_out(struct device_state *dev, struct lane *lane, struct out *out)
{
	out->stage = out->run->planned;
	stage_begin(out->stage, &dev->info.direct);
	cuda_lane_use(lane, out->stage);
	return cuda_get_scratch(dev, lane, out, !run_is_one_slice(out->run));
}

/* Transfers and kernels of a slice. The end of a graph notes its last moment itself. */
static int enqueue_work(struct lane *lane, struct out *out, bool begins, bool recording)
{
	bool moves = stage_moves(out->stage);
	int rc;

	note(lane, out, RUN_BEGUN);
	rc = begins ? stage_upload_all(out->stage) : 0;
	if (rc < 0)
		return rc;
	if (moves)
		note(lane, out, RUN_UPLOADED);
	rc = recording ? launch_all(lane, out) : launch_slice(lane, out);
	if (rc < 0)
		return rc;
	if (moves || !recording)
		note(lane, out, RUN_COMPUTED);
	return run_is_through(out->run) ? stage_download_all(out->stage) : 0;
}

/* Whatever has failed, nothing is left on other streams that the lane does not wait for. */
static int enqueue_slice(struct lane *lane, struct out *out, bool begins, bool recording)
{
	int rc = stage_begin_slice(out->stage), rc_end;

	if (rc == 0)
		rc = enqueue_work(lane, out, begins, recording);
	rc_end = stage_end_slice(out->stage, rc < 0 || run_is_through(out->run));
	if (stage_moves(out->stage) && !recording)
		note(lane, out, RUN_DOWNLOADED);
	return rc < 0 ? rc : rc_end;
}

static bool is_for_graph(const struct out *out)
{
	const struct run *run = out->run;

	return run_ends_as_before(run) && !run->timed && !out->scratch && stage_is_recordable(out->stage);
}

/* False: it cannot be, and begins anew. */
static bool record(struct device_state *dev, struct lane *lane, struct out *out)
{
	struct cuda_graph *graph = cuda_graph_begin(dev, lane, out->has_events);
	int rc;

	if (!graph)
		return false;
	out->stamps = cuda_graph_stamps(graph);
	rc = enqueue_slice(lane, out, true, true);
	out->stamps = NULL;
	if (cuda_graph_end(graph, out->run, rc)) {
		out->graph = graph;
		return true;
	}
	out->run->error[0] = '\0';
	out->run->next_op = out->run->next_part = 0;
	run_begin(out->run);
	stage_begin(out->stage, &dev->info.direct);
	return false;
}

/* All that a run of one slice enqueues, by one launch. */
static int launch_graph(struct out *out)
{
	out->stamps = cuda_graph_stamps(out->graph);
	out->has_events = false;
	out->run->next_op = out->run->n_ops;
	out->run->as_graph = true;
	out->number = 1;
	return cuda_graph_launch(out->graph, &out->word);
}

static int enqueue(struct device_state *dev, struct lane *lane, struct out *out)
{
	bool begins = !out->stage;
	int rc = 0;

	if (begins)
		rc = lay_out(dev, lane, out);
	else
		cuda_lane_use(lane, out->stage); /* it goes on, on whatever lane */
	if (rc < 0)
		return rc;
	if (begins && is_for_graph(out)) {
		out->graph = cuda_graph_find(dev, lane, out->run);
		if (out->graph || record(dev, lane, out))
			return launch_graph(out);
	}
	if (out->run->timed && !stage_waits(out->stage))
		cuda_hold(&lane->words->enqueued, lane->issued + 1, HOLD_US + HOLD_OP_US * out->run->n_ops,
		          lane->stream);
	return enqueue_slice(lane, out, begins, false);
}

/* Profilers see ranges: a run by its first op, in it each kernel. Without one a range costs some ns. */
int cuda_enqueue(struct device_state *dev, struct lane *lane, struct out *out)
{
	int rc;

	nvtxRangePushA(out->run->ops[0].args.op->name);
	rc = enqueue(dev, lane, out);
	nvtxRangePop();
	return rc;
}

cudaError_t cuda_enqueue_end(struct device_state *dev, struct lane *lane, struct out *out)
{
	bool ends = out->status < 0 || run_is_through(out->run);
	cudaError_t error = out->scratch && ends ? cudaFreeAsync(out->scratch, lane->stream) : cudaSuccess;

	if (error != cudaSuccess)
		return error;
	if (out->graph && out->status == 0) {
		lane->issued++;
		return cuda_is_short(out->run) ? cudaSuccess : cuda_lane_record_end(lane, out);
	}
	out->stamps = NULL; /* of a graph that was not launched, which nobody writes */
	error = cuda_lane_number(dev, lane);
	if (error != cudaSuccess)
		return error;
	out->word = &lane->words->through;
	out->number = lane->numbered;
	return cuda_lane_record_end(lane, out);
}
