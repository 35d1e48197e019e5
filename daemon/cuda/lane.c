/* lane.c: which stream a run goes to, and what is in flight on each. */
#include "cuda/lane.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "common/cuda.h"
#include "cuda/confined.h"
#include "cuda/graph.h"
#include "cuda/transfer.h"

struct lane *cuda_lane_with(struct device_state *dev, uint64_t queue)
{
	const struct out *out;

	for (unsigned i = 0; i < CUDA_LANES; i++)
		list_for_each (out, &dev->lanes[i].outs, link)
			if (out->run->lane == queue)
				return &dev->lanes[i];
	return NULL;
}

struct lane *cuda_lane_for(struct device_state *dev, const struct run *run)
{
	struct lane *with = cuda_lane_with(dev, run->lane);
	enum cuda_length length = cuda_length_of(run->plan_us, run->n_ops);
	struct lane_load loads[CUDA_LANES];
	struct lane *best;

	if (with)
		return with;
	for (unsigned i = 0; i < CUDA_LANES; i++) {
		loads[i] = dev->lanes[i].load;
		/* Short runs keep to the first of equal ones, where the graphs of crowds are. */
		loads[i].knows = length == CUDA_CHAIN && cuda_graph_is_kept(&dev->lanes[i], run);
	}
	best = &dev->lanes[cuda_choose_lane(loads, length)];
	return cuda_get_cublas_workspace(dev, best) ? best : &dev->lanes[CUDA_LANES_HIGH];
}

static void count_long(struct lane *lane, const struct run *run, int n)
{
	if (!cuda_is_long(run))
		return;
	lane->load.long_out += (unsigned)n;
	cuda_long_out_add(n);
}

void cuda_lane_push(struct lane *lane, struct out *out)
{
	list_push_last(&lane->outs, &out->link);
	lane->load.out++;
	count_long(lane, out->run, 1);
}

struct out *cuda_lane_pop(struct lane *lane)
{
	struct out *out = list_take(&lane->outs, struct out, link);

	lane->load.out--;
	count_long(lane, out->run, -1);
	POST(list_is_empty(&lane->outs) == (lane->load.out == 0));
	return out;
}

static bool make_events(struct out *out)
{
	for (unsigned i = 0; i < RUN_MOMENTS; i++)
		if (cudaEventCreate(&out->events[i]) != cudaSuccess)
			return false;
	return cudaEventCreateWithFlags(&out->ended, cudaEventDisableTiming) == cudaSuccess;
}

struct out *cuda_out_take(struct device_state *dev)
{
	struct out *out = list_take(&dev->spare, struct out, link);

	if (out)
		return out;
	out = calloc(1, sizeof(*out));
	if (out && !make_events(out)) {
		cuda_out_free(out);
		return NULL;
	}
	return out;
}

void cuda_out_begin(struct out *out, struct run *run, bool has_events)
{
	out->run = run;
	out->stamps = NULL;
	out->has_events = has_events;
	out->sharers = 1;
	out->ended_recorded = false;
	out->notifies = false;
	out->started_ns = clock_ns();
}

void cuda_out_put(struct device_state *dev, struct out *out)
{
	if (out->graph)
		cuda_graph_rest(out->graph);
	out->graph = NULL;
	if (out->crowd_graph)
		out->crowd_graph->out = false;
	out->crowd_graph = NULL;
	out->stage = NULL;
	out->scratch = NULL;
	list_push_first(&dev->spare, &out->link);
}

struct launch cuda_lane_launch(const struct lane *lane, const struct out *out)
{
	const struct stage *stage = out->stage;

	return (struct launch){
	    .workspace = stage_workspace(stage),
	    .workspace_bytes = stage->workspace_bytes,
	    .stream = (struct stream *)lane->stream,
	    .library = (struct library *)lane->cublas,
	    .over_link = stage->reads_host,
	    .multiprocessors_left = out->run->room != RUN_KEEPS_ALL ? cuda_multiprocessors_left() : 0,
	    .kept.memory = stage_kept(stage),
	};
}

int cuda_not_started(struct run *run, unsigned i, int rc)
{
	const struct run_op *op = &run->ops[i];

	snprintf(run->error, WHY_BYTES, "op %u: kernel \"%s\" of %s did not launch: %s", i, op->kernel->name,
	         op->args.op->name, cudaGetErrorString(cudaPeekAtLastError()));
	return rc;
}

void cuda_out_free(struct out *out)
{
	for (unsigned i = 0; i < RUN_MOMENTS; i++)
		if (out->events[i])
			cudaEventDestroy(out->events[i]);
	if (out->ended)
		cudaEventDestroy(out->ended);
	free(out);
}

/* ---- Copies from other devices ---- */

static cudaError_t make_mark(void **ret_mark)
{
	cudaEvent_t event = NULL;
	cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);

	*ret_mark = event;
	return error;
}

static void close_mark(void *mark)
{
	if (mark)
		cudaEventDestroy(mark);
}

/* Its copies do not wait behind uploads, which are enqueued all at once: 8192³ over two H200 takes 6.50 ms with
 * a high priority, 6.78 without. */
static cudaError_t make_stream_across(cudaStream_t *ret)
{
	int least = 0, greatest = 0;
	cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);

	return error == cudaSuccess ? cudaStreamCreateWithPriority(ret, cudaStreamNonBlocking, greatest)
	                            : error;
}

static bool open_across(struct lane *lane)
{
	struct stage_marks *marks;
	cudaError_t error;

	if (lane->across)
		return true;
	lane->across = calloc(1, sizeof *lane->across);
	if (!lane->across)
		return false;
	marks = &lane->across->marks;
	error = make_stream_across(&lane->across->stream);
	for (unsigned i = 0; i < GROWING_PARTS_MAX && error == cudaSuccess; i++) {
		error = make_mark(&marks->own[i]);
		if (error == cudaSuccess)
			error = make_mark(&marks->others[i]);
	}
	if (error == cudaSuccess && make_mark(&marks->taken) == cudaSuccess)
		return true;
	cuda_lane_close_across(lane);
	return false;
}

void cuda_lane_close_across(struct lane *lane)
{
	struct lane_across *across = lane->across;

	if (!across)
		return;
	if (across->stream) {
		cudaStreamSynchronize(across->stream);
		cudaStreamDestroy(across->stream);
	}
	for (unsigned i = 0; i < GROWING_PARTS_MAX; i++) {
		close_mark(across->marks.own[i]);
		close_mark(across->marks.others[i]);
	}
	close_mark(across->marks.taken);
	cudaGetLastError();
	free(across);
	lane->across = NULL;
}

/* ---- What runs use of a lane ---- */

void cuda_lane_use(struct lane *lane, struct stage *stage)
{
	stage->mover = &cuda_mover;
	stage->stream = (struct stream *)lane->stream;
	stage->up = (struct stream *)lane->up;
	stage->down = (struct stream *)lane->down;
	stage->mark = lane->mark;
	stage->others_out = lane->load.out > 0;
	stage->exchanges = stage->exchanges && open_across(lane);
	if (!stage->exchanges)
		return;
	stage->across = (struct stream *)lane->across->stream;
	stage->marks = &lane->across->marks;
}

cudaError_t cuda_lane_number(struct device_state *dev, struct lane *lane)
{
	CUdeviceptr word = (CUdeviceptr)(uintptr_t)&lane->words->through;

	lane->issued++;
	lane->numbered++;
	return dev->write_value(lane->stream, word, lane->numbered, 0) == CUDA_SUCCESS ? cudaSuccess
	                                                                               : cudaErrorUnknown;
}

cudaError_t cuda_lane_record_end(const struct lane *lane, struct out *out)
{
	out->ended_recorded = true;
	return cudaEventRecord(out->ended, lane->stream);
}

void cuda_lane_record_ends(const struct lane *lane)
{
	struct out *out;

	list_for_each (out, &lane->outs, link)
		if (!out->ended_recorded)
			cuda_lane_record_end(lane, out);
}

void cuda_done_push(struct device_state *dev, struct run *run, int status)
{
	run->status = status;
	list_push_last(&dev->done, &run->link);
}

struct run *cuda_done_pop(struct device_state *dev)
{
	return list_take(&dev->done, struct run, link);
}

cudaError_t cuda_lane_error(const struct lane *lane)
{
	cudaError_t error = cudaStreamQuery(lane->stream);

	if (error == cudaErrorNotReady)
		error = cudaSuccess;
	cudaGetLastError();
	return error;
}

void cuda_give_up(struct device_state *dev, cudaError_t error)
{
	struct run *held;

	if (!dev->fault[0])
		snprintf(dev->fault, WHY_BYTES, "the GPU failed: %s (%s); kopsd has to restart",
		         cudaGetErrorString(error), cudaGetErrorName(error));
	for (unsigned i = 0; i < CUDA_LANES; i++) {
		struct lane *lane = &dev->lanes[i];

		while (lane->load.out > 0) {
			struct out *out = cuda_lane_pop(lane);

			snprintf(out->run->error, WHY_BYTES, "%s", dev->fault);
			cuda_done_push(dev, out->run, KOPS_E_FAULT);
			cuda_out_put(dev, out);
		}
	}
	while ((held = list_take(&dev->held, struct run, link))) {
		snprintf(held->error, WHY_BYTES, "%s", dev->fault);
		cuda_done_push(dev, held, KOPS_E_FAULT);
	}
}
