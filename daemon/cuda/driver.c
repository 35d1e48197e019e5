/*
 * driver.c: the driver of NVIDIA GPUs, as the module kops-cuda.so.
 *
 * start() holds small runs back as a crowd (crowd.h), or enqueues the next slice of a run (enqueue.h) on one
 * of the device's streams (lane.h). poll() compares the word that the GPU writes when a slice is through.
 *
 * Errors that leave the CUDA context broken (illegal addresses, hardware faults) show up in
 * cudaStreamQuery(), which poll() asks every millisecond. From then on every run fails with KOPS_E_FAULT: only
 * a new process gets a new context.
 */
#include <stdio.h>

#include "base/clock.h"
#include "cuda/crowd.h"
#include "cuda/enqueue.h"
#include "cuda/gpu.h"
#include "cuda/graph.h"
#include "cuda/lane.h"
#include "cuda/sensors.h"
#include "plan/mover.h"

#define QUERY_NS 1000000u /* between looks for errors while runs are in flight */
#define COLD_US  400.0    /* of runs after which a launch finds nothing in the caches */

/* ---- Starting ---- */

static const char *sentence_of(int status)
{
	return status == KOPS_E_NOMEM ? "out of memory while enqueueing the job" : "CUDA refused the job";
}

static void start_alone(struct device_state *dev, struct run *run)
{
	struct lane *lane = cuda_lane_for(dev, run);
	struct out *out = run->state ? run->state : cuda_out_take(dev);
	cudaError_t error;

	run->state = NULL;
	if (!out) {
		snprintf(run->error, WHY_BYTES, "out of memory");
		cuda_done_push(dev, run, KOPS_E_NOMEM);
		return;
	}
	cuda_out_begin(out, run, run->timed || !cuda_is_short(run));
	if (!cuda_is_short(run))
		cuda_lane_record_ends(lane);
	out->status = cuda_enqueue(dev, lane, out);
	if (out->status < 0 && !run->error[0])
		snprintf(run->error, WHY_BYTES, "%s: %s", sentence_of(out->status),
		         cudaGetErrorString(cudaPeekAtLastError()));
	if (out->status < 0)
		cudaGetLastError();
	__atomic_store_n(&lane->words->enqueued, lane->issued + 1, __ATOMIC_RELEASE);
	error = cuda_enqueue_end(dev, lane, out);
	cuda_lane_push(lane, out);
	if (error == cudaSuccess && out->status == KOPS_E_FAULT)
		error = cuda_lane_error(lane);
	if (error != cudaSuccess)
		cuda_give_up(dev, error);
}

/* Returns true while memory is to be unpinned, if the run is long or of the queue of one that waits. */
static bool is_held_back(struct device_state *dev, const struct run *run)
{
	const struct run *held;

	list_for_each (held, &dev->held, link)
		if (held->lane == run->lane)
			return true;
	if (!cuda_is_long(run))
		return false;
	if (list_is_empty(&dev->held))
		dev->held_ns = clock_ns();
	return cuda_holds_long(dev->held_ns);
}

/* Starts the long runs that were held back while memory was unpinned. */
static void start_held(struct device_state *dev)
{
	struct run *run;

	while (!cuda_holds_long(dev->held_ns) && (run = list_take(&dev->held, struct run, link)))
		start_alone(dev, run);
}

/* All that was held back to be started together. */
static void start_crowd(struct device_state *dev)
{
	struct run *alone[CUDA_LANES_SHORT];
	unsigned n = cuda_crowd_dissolve(dev, alone);

	for (unsigned i = 0; i < n; i++)
		start_alone(dev, alone[i]);
	cuda_crowd_start(dev);
}

/* False: it has to be started by itself. */
static bool join_crowd(struct device_state *dev, struct run *run)
{
	if (!cuda_crowd_suits(dev, run))
		return false;
	if (!cuda_crowd_takes(dev, run))
		start_crowd(dev);
	return cuda_crowd_join(dev, run);
}

static void gpu_start(struct device_state *dev, struct run *run)
{
	if (run->error[0]) /* else its cache line stays the loop's */
		run->error[0] = '\0';
	run->as_graph = false;
	run_begin(run);
	if (dev->fault[0]) {
		snprintf(run->error, WHY_BYTES, "%s", dev->fault);
		cuda_done_push(dev, run, KOPS_E_FAULT);
		return;
	}
	cuda_use_device(dev->index);
	if (is_held_back(dev, run)) {
		list_push_last(&dev->held, &run->link);
		return;
	}
	if (join_crowd(dev, run))
		return;
	start_crowd(dev);
	start_alone(dev, run);
}

/* ---- Finishing ---- */

static double between_us(const struct out *out, enum run_moment from, enum run_moment to)
{
	float ms = 0;

	if (out->stamps)
		return clock_us(out->stamps[from], out->stamps[to]);
	return cudaEventElapsedTime(&ms, out->events[from], out->events[to]) == cudaSuccess ? (double)ms * 1e3
	                                                                                    : 0;
}

/* A run that was not worth being timed by the GPU counts as computing from end to end; of those that went
 * together each has its share. */
static void add_times(struct run *run, const struct out *out)
{
	bool by_gpu = out->stamps || out->has_events;
	double upload_us = 0, compute_us, download_us = 0;

	if (by_gpu && !stage_moves(out->stage)) {
		compute_us = between_us(out, RUN_BEGUN, RUN_COMPUTED);
	} else if (by_gpu) {
		upload_us = between_us(out, RUN_BEGUN, RUN_UPLOADED);
		compute_us = between_us(out, RUN_UPLOADED, RUN_COMPUTED);
		download_us = between_us(out, RUN_COMPUTED, RUN_DOWNLOADED);
	} else {
		compute_us = clock_us(out->started_ns, clock_ns()) / out->sharers;
	}
	run->upload_us += upload_us;
	run->compute_us += compute_us;
	run->download_us += download_us;
	run->slice_us = upload_us + compute_us + download_us;
}

static struct run *finish_slice(struct device_state *dev, struct lane *lane)
{
	struct out *out = cuda_lane_pop(lane);
	struct run *run = out->run;

	run->status = out->status;
	if (run->status == 0)
		add_times(run, out);
	if (run->status == 0 && !run_is_through(run))
		run->state = out;
	else
		cuda_out_put(dev, out);
	return run;
}

static void gpu_abandon(struct device_state *dev, struct run *run)
{
	struct out *out = run->state;

	if (!out)
		return;
	cuda_use_device(dev->index);
	stage_abandon(out->stage);
	if (out->scratch)
		cudaFreeAsync(out->scratch, dev->memory_stream);
	cudaGetLastError();
	run->state = NULL;
	cuda_out_put(dev, out);
}

/* The time of a graph's end can come after its number. */
static bool has_time(const struct out *out)
{
	return !out->stamps ||
	       __atomic_load_n(&out->stamps[cuda_last_moment(out->stage)], __ATOMIC_RELAXED) != 0;
}

static bool is_through(const struct lane *lane)
{
	const struct out *out = cuda_lane_first(lane);

	return out && (int32_t)(__atomic_load_n(out->word, __ATOMIC_ACQUIRE) - out->number) >= 0 &&
	       has_time(out);
}

/* Looks for a broken context now and then; a run that it took down never writes its number. */
static void look_for_errors(struct device_state *dev)
{
	uint64_t now = clock_ns();

	if (now - dev->queried_ns < QUERY_NS)
		return;
	dev->queried_ns = now;
	for (unsigned i = 0; i < CUDA_LANES; i++) {
		cudaError_t error = dev->lanes[i].load.out ? cuda_lane_error(&dev->lanes[i]) : cudaSuccess;

		if (error != cudaSuccess) {
			cuda_give_up(dev, error);
			return;
		}
	}
}

static bool has_long_out(const struct device_state *dev)
{
	for (unsigned i = 0; i < CUDA_LANES; i++) {
		const struct out *first = cuda_lane_first(&dev->lanes[i]);

		if (first && first->run->plan_us >= COLD_US)
			return true;
	}
	return false;
}

static struct run *gpu_poll(struct device_state *dev)
{
	start_crowd(dev);
	start_held(dev);
	if (!list_is_empty(&dev->done))
		return cuda_done_pop(dev);
	for (unsigned i = 0; i < CUDA_LANES; i++)
		if (is_through(&dev->lanes[i]))
			return finish_slice(dev, &dev->lanes[i]);
	look_for_errors(dev);
	if (has_long_out(dev))
		cuda_graph_rehearse(dev);
	return cuda_done_pop(dev);
}

static void CUDART_CB on_finished(void *data)
{
	const struct device_state *dev = data;

	dev->wake(dev->wake_arg);
}

/*
 * When the lane's first run has ended. Not on its stream, where the call would come after all its runs. Once
 * for each run: with some fifty host calls pending, CUDA makes every caller wait until the run ends.
 */
static cudaError_t notify_lane(struct device_state *dev, struct lane *lane)
{
	struct out *first = cuda_lane_first(lane);
	cudaError_t error;

	if (!first || first->notifies)
		return cudaSuccess;
	cuda_lane_record_ends(lane);
	error = cudaStreamWaitEvent(lane->waker, first->ended, 0);
	if (error == cudaSuccess)
		error = cudaLaunchHostFunc(lane->waker, on_finished, dev);
	first->notifies = error == cudaSuccess;
	return error;
}

/* The caller looks again at once, and asks again, if it cannot be told. */
static void gpu_notify(struct device_state *dev, void (*wake)(void *arg), void *arg)
{
	if (!dev->wake) { /* it is the same each time, and host calls read it */
		dev->wake = wake;
		dev->wake_arg = arg;
	}
	if (!list_is_empty(&dev->done) || !list_is_empty(&dev->held)) {
		wake(arg);
		return;
	}
	cuda_use_device(dev->index);
	for (unsigned i = 0; i < CUDA_LANES; i++) {
		if (notify_lane(dev, &dev->lanes[i]) == cudaSuccess)
			continue;
		cudaGetLastError();
		wake(arg);
	}
}

static void set_device(const struct device_state *dev)
{
	cuda_use_device(dev->index);
}

static const struct driver cuda_driver = {
    .abi = DRIVER_ABI,
    .kind = "gpu",
    .count = cuda_count,
    .open = cuda_open,
    .close = cuda_close,
    .describe = cuda_describe,
    .sense = cuda_sense,
    .kernels = cuda_kernels,
    .enter = set_device,
    .start = gpu_start,
    .abandon = gpu_abandon,
    .get_ready = cuda_first_get_ready,
    .poll = gpu_poll,
    .notify = gpu_notify,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .peer_rate = cuda_peer_rate,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
};

__attribute__((visibility("default"))) const struct driver *kops_driver(void);

const struct driver *kops_driver(void)
{
	return &cuda_driver;
}
