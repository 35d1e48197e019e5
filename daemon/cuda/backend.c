/*
 * backend.c: NVIDIA GPUs, as the module kops-cuda.so.
 *
 * A device has LANES CUDA streams. A run goes to the stream that already holds runs of its lane, which
 * keeps their order, else to the stream with the fewest. Each stream has a cuBLAS handle of its own: a
 * handle has one workspace, and two streams writing it at once would spoil each other's results.
 *
 * A run is enqueued in slices of some PART_US, most in one: uploads, kernels, downloads, and last the number of
 * the slice, written by the GPU into a word of pinned memory. poll() compares that word. What is out on a
 * stream is a queue in that order; a run that failed on the way takes its place in it too, since the GPU may
 * still be working for it.
 *
 * Errors that leave the CUDA context broken (illegal addresses, hardware faults) show up in
 * cudaStreamQuery(), which poll() asks every millisecond. From then on every run fails with KOPS_E_FAULT: only
 * a new process gets a new context.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "common/cuda.h"
#include "cuda/gpu.h"
#include "cuda/graph.h"
#include "cuda/words.h"

#define QUERY_NS 1000000u /* between looks for errors while runs are out */
#define COLD_US  400.0    /* of runs after which a launch finds nothing in the caches */

#define SHORT_US 100.0 /* a run planned to be shorter is timed by the host: four events cost it 6 µs */

/*
 * The stream of a run that asked to be timed is held before its first event until all is enqueued, so that its
 * kernels follow each other without waiting for their launches; at most for HOLD_US and HOLD_OP_US for each op.
 * An op takes the host some 5 us, and 300 us where cuBLAS sees a shape for the first time.
 */
#define HOLD_US    500
#define HOLD_OP_US 20

/*
 * Up to where using host memory in place beats copying it. Measured on an H200 over PCIe 5 x16, from start() to
 * poll(), in place against copied: gemm 64×64×64 27 µs against 34, 96×96×96 26 against 35, 128×128×128 47
 * against 38; add 1024² 237 against 256, 2048² 731 against 949; softmax 2048² 574 against 647, 4096² 2690
 * against 2537.
 */
static const struct cuda_direct direct_limits = {.streaming_max_bytes = 16 << 20,
                                                 .reusing_max_bytes = 40 << 10};
/* ---- Starting ---- */

static bool is_short(const struct run *run)
{
	return run->plan_us < SHORT_US;
}

/* The lane that holds runs of this queue; NULL: none does. */
static struct lane *lane_with(struct backend_device *dev, uint64_t queue)
{
	for (unsigned i = 0; i < CUDA_LANES; i++)
		for (const struct out *out = dev->lanes[i].head; out; out = out->next)
			if (out->run->lane == queue)
				return &dev->lanes[i];
	return NULL;
}

static struct lane *lane_for(struct backend_device *dev, uint64_t queue)
{
	struct lane *with = lane_with(dev, queue), *best = &dev->lanes[0];

	for (unsigned i = 1; i < CUDA_LANES; i++)
		if (dev->lanes[i].n_out < best->n_out)
			best = &dev->lanes[i];
	return with ? with : best;
}

static bool make_events(struct out *out)
{
	return run_events_create(&out->events) == 0 &&
	       cudaEventCreateWithFlags(&out->ended, cudaEventDisableTiming) == cudaSuccess;
}

static struct out *take_out(struct backend_device *dev)
{
	struct out *out = dev->spare;

	if (out) {
		dev->spare = out->next;
		return out;
	}
	out = calloc(1, sizeof(*out));
	if (out && !make_events(out)) {
		cuda_free_out(out);
		return NULL;
	}
	return out;
}

static void put_out(struct backend_device *dev, struct out *out)
{
	if (out->graph)
		cuda_graph_rest(out->graph);
	out->graph = NULL;
	out->stage = NULL;
	out->scratch = NULL;
	out->next = dev->spare;
	dev->spare = out;
}

static struct launch launch_of(const struct lane *lane, const struct out *out)
{
	return (struct launch){
	    .workspace = out->stage->scratch + out->stage->copies_bytes,
	    .workspace_bytes = out->stage->workspace_bytes,
	    .stream = lane->stream,
	    .library = lane->cublas,
	};
}

static int not_started(struct run *run, unsigned i, int rc)
{
	const struct run_op *op = &run->ops[i];

	snprintf(run->error, WHY_BYTES, "op %u: kernel \"%s\" of %s did not start: %s", i, op->kernel->name,
	         op->args.op->name, cudaGetErrorString(cudaPeekAtLastError()));
	return rc;
}

static int launch_part(struct lane *lane, struct out *out, unsigned i, uint32_t part)
{
	const struct run_op *op = &out->run->ops[i];
	struct launch launch = launch_of(lane, out);
	struct op_args whole, args;
	int rc;

	if (view_elements(op_output_const(&op->args)) == 0)
		return 0;
	rc = cuda_stage_begin_op(out->stage, i, &whole);
	if (rc < 0)
		return rc;
	op_part(&whole, &op->cut, part, &args);
	rc = op->kernel->launch(&args, &launch);
	if (rc < 0)
		return not_started(out->run, i, rc);
	cuda_stage_end_op(out->stage, i);
	return 0;
}

/* Neither touches what the other writes. */
static bool are_independent(const struct op_args *a, const struct op_args *b)
{
	const struct view *of_a = op_output_const(a), *of_b = op_output_const(b);

	for (unsigned v = 0; v <= a->op->n_inputs; v++)
		if (view_overlap(of_a, &b->views[v]) || view_overlap(&a->views[v], of_b))
			return false;
	return true;
}

/* How many ops from the next on may be one launch. */
static unsigned group_size(const struct run *run)
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

/* The next op, and of the n - 1 behind it those that are like it by where their operands are now, too. */
static int launch_group(struct lane *lane, struct out *out, unsigned n)
{
	struct run *run = out->run;
	const struct kernel *kernel = run->ops[run->next_op].kernel;
	const struct op_args *pointers[TOGETHER_MAX] = {NULL};
	struct op_args args[TOGETHER_MAX];
	struct launch launch = launch_of(lane, out);
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
		return not_started(run, first, rc);
	for (unsigned i = 0; i < alike; i++)
		cuda_stage_end_op(out->stage, first + i);
	run->next_op += alike;
	return 0;
}

static double part_us(const struct run_op *op)
{
	return op->plan_us / (op->cut.n_parts ? op->cut.n_parts : 1);
}

/* A slice: parts that are planned to take no longer than PART_US together, one at least. */
static int launch_slice(struct lane *lane, struct out *out)
{
	struct run *run = out->run;
	double us = 0;
	int rc;

	do {
		rc = launch_part(lane, out, run->next_op, run->next_part);
		us += part_us(&run->ops[run->next_op]);
		run_advance(run);
	} while (rc == 0 && !run_is_through(run) && us + part_us(&run->ops[run->next_op]) <= PART_US);
	return rc;
}

/* All of a run that is recorded. To find out what goes together takes too long for a run that comes once. */
static int launch_all(struct lane *lane, struct out *out)
{
	struct run *run = out->run;
	int rc = 0;

	while (rc == 0 && !run_is_through(run)) {
		unsigned n = group_size(run);

		if (n > 1) {
			rc = launch_group(lane, out, n);
			continue;
		}
		rc = launch_part(lane, out, run->next_op, run->next_part);
		run_advance(run);
	}
	return rc;
}

/* While a graph is recorded the events are nodes of it, which the device records each time. */
static void stamp(const struct lane *lane, cudaEvent_t event, bool recording)
{
	cudaEventRecordWithFlags(event, lane->stream,
	                         recording ? cudaEventRecordExternal : cudaEventRecordDefault);
}

/* Whether the run is to be enqueued in one slice. */
static bool is_one_slice(const struct run *run)
{
	double us = 0;

	for (unsigned i = 0; i < run->n_ops; i++)
		us += run->ops[i].plan_us;
	return us <= PART_US;
}

static void use_lane(struct cuda_stage *stage, const struct lane *lane)
{
	stage->stream = lane->stream;
	stage->others_out = lane->n_out > 0;
}

/* Operands of a run that begins. */
static int lay_out(struct backend_device *dev, struct lane *lane, struct out *out)
{
	out->stage = out->run->planned;
	cuda_stage_begin(out->stage, &direct_limits);
	use_lane(out->stage, lane);
	return cuda_get_scratch(dev, lane, out, !is_one_slice(out->run));
}

/* A slice: transfers and kernels. */
static int enqueue_slice(struct lane *lane, struct out *out, bool begins, bool recording)
{
	const struct run_events *events = out->timed_by;
	bool moves = cuda_stage_moves(out->stage);
	int rc;

	if (events)
		stamp(lane, events->begun, recording);
	rc = begins ? cuda_stage_upload_all(out->stage) : 0;
	if (rc < 0)
		return rc;
	if (events && moves)
		stamp(lane, events->uploaded, recording);
	rc = recording ? launch_all(lane, out) : launch_slice(lane, out);
	if (rc < 0)
		return rc;
	if (events)
		stamp(lane, events->computed, recording);
	rc = run_is_through(out->run) ? cuda_stage_download_all(out->stage) : 0;
	if (events && moves)
		stamp(lane, events->downloaded, recording);
	return rc;
}

static bool is_for_graph(const struct out *out)
{
	const struct run *run = out->run;

	return run->repeats && !run->timed && !out->scratch && is_one_slice(run) &&
	       cuda_stage_is_recordable(out->stage);
}

/* False: it cannot be, and begins anew. */
static bool record(struct backend_device *dev, struct lane *lane, struct out *out)
{
	const struct run_events *timed_by = out->timed_by;
	struct cuda_graph *graph = cuda_graph_begin(dev, lane, timed_by != NULL);
	int rc;

	if (!graph)
		return false;
	out->timed_by = cuda_graph_events(graph);
	rc = enqueue_slice(lane, out, true, true);
	out->timed_by = timed_by;
	if (cuda_graph_end(graph, out->run, rc)) {
		out->graph = graph;
		return true;
	}
	out->run->error[0] = '\0';
	out->run->next_op = out->run->next_part = 0;
	cuda_stage_begin(out->stage, &direct_limits);
	return false;
}

/* All that a run of one slice enqueues, by one launch. */
static int launch_graph(struct out *out)
{
	out->timed_by = cuda_graph_events(out->graph);
	out->run->next_op = out->run->n_ops;
	out->run->as_graph = true;
	out->number = 1;
	return cuda_graph_launch(out->graph, &out->word);
}

static int enqueue(struct backend_device *dev, struct lane *lane, struct out *out)
{
	bool begins = !out->stage;
	int rc = 0;

	if (begins)
		rc = lay_out(dev, lane, out);
	else
		use_lane(out->stage, lane); /* it goes on, on whatever lane */
	if (rc < 0)
		return rc;
	if (begins && is_for_graph(out)) {
		out->graph = cuda_graph_find(dev, lane, out->run);
		if (out->graph || record(dev, lane, out))
			return launch_graph(out);
	}
	if (out->run->timed && !cuda_stage_waits(out->stage))
		cuda_hold(&lane->words->enqueued, lane->issued + 1, HOLD_US + HOLD_OP_US * out->run->n_ops,
		          lane->stream);
	return enqueue_slice(lane, out, begins, false);
}

static void push_done(struct backend_device *dev, struct run *run, int status)
{
	run->status = status;
	run->next = NULL;
	*dev->done_tail = run;
	dev->done_tail = &run->next;
}

/* Fails what is out and remembers why: the context is lost. */
static void give_up(struct backend_device *dev, cudaError_t error)
{
	if (!dev->fault[0])
		snprintf(dev->fault, WHY_BYTES, "the GPU failed: %s (%s); kopsd has to restart",
		         cudaGetErrorString(error), cudaGetErrorName(error));
	for (unsigned i = 0; i < CUDA_LANES; i++) {
		struct lane *lane = &dev->lanes[i];

		for (struct out *out = lane->head, *next; out; out = next) {
			next = out->next;
			snprintf(out->run->error, WHY_BYTES, "%s", dev->fault);
			push_done(dev, out->run, KOPS_E_FAULT);
			put_out(dev, out);
		}
		lane->head = NULL;
		lane->tail = &lane->head;
		lane->n_out = 0;
	}
}

/* An error that outlives its call. */
static cudaError_t broken(const struct lane *lane)
{
	cudaError_t error = cudaStreamQuery(lane->stream);

	if (error == cudaErrorNotReady)
		error = cudaSuccess;
	cudaGetLastError();
	return error;
}

/* For notify(). */
static cudaError_t record_end(const struct lane *lane, struct out *out)
{
	out->ended_recorded = true;
	return cudaEventRecord(out->ended, lane->stream);
}

/*
 * It costs a microsecond, and nobody sleeps through a short run. So the end of short ones is recorded when
 * somebody asks for it, or a longer run comes behind.
 */
static void record_ends(const struct lane *lane)
{
	for (struct out *out = lane->head; out; out = out->next)
		if (!out->ended_recorded)
			record_end(lane, out);
}

/* The end of a run on its stream, failed ones included: what they enqueued has to be through first. */
static cudaError_t enqueue_end(struct backend_device *dev, struct lane *lane, struct out *out)
{
	bool ends = out->status < 0 || run_is_through(out->run);
	cudaError_t error = out->scratch && ends ? cudaFreeAsync(out->scratch, lane->stream) : cudaSuccess;

	if (error != cudaSuccess)
		return error;
	lane->issued++;
	if (out->graph && out->status == 0)
		return is_short(out->run) ? cudaSuccess : record_end(lane, out);
	out->word = &lane->words->through;
	out->number = lane->issued;
	if (dev->write_value(lane->stream, (CUdeviceptr)(uintptr_t)&lane->words->through, out->number, 0) !=
	    CUDA_SUCCESS)
		return cudaErrorUnknown;
	return record_end(lane, out);
}

static void push_out(struct lane *lane, struct out *out)
{
	out->next = NULL;
	*lane->tail = out;
	lane->tail = &out->next;
	lane->n_out++;
}

static const char *sentence_of(int status)
{
	return status == KOPS_E_NOMEM ? "out of memory while the job was enqueued" : "CUDA refused the job";
}

static void start_alone(struct backend_device *dev, struct run *run)
{
	struct lane *lane = lane_for(dev, run->lane);
	struct out *out = run->state ? run->state : take_out(dev);
	cudaError_t error;

	run->state = NULL;
	if (!out) {
		snprintf(run->error, WHY_BYTES, "out of memory");
		push_done(dev, run, KOPS_E_NOMEM);
		return;
	}
	out->run = run;
	out->sharers = 1;
	out->timed_by = run->timed || !is_short(run) ? &out->events : NULL;
	out->ended_recorded = false;
	out->started_ns = clock_ns();
	if (!is_short(run))
		record_ends(lane);
	out->status = enqueue(dev, lane, out);
	if (out->status < 0 && !run->error[0])
		snprintf(run->error, WHY_BYTES, "%s: %s", sentence_of(out->status),
		         cudaGetErrorString(cudaPeekAtLastError()));
	if (out->status < 0)
		cudaGetLastError();
	__atomic_store_n(&lane->words->enqueued, lane->issued + 1, __ATOMIC_RELEASE);
	error = enqueue_end(dev, lane, out);
	push_out(lane, out);
	if (error == cudaSuccess && out->status == KOPS_E_FAULT)
		error = broken(lane);
	if (error != cudaSuccess)
		give_up(dev, error);
}

/* ---- Together ---- */

/* All that waits in the crowd, by one launch. Alone it is better off as a graph. */
static void start_crowd(struct backend_device *dev)
{
	struct crowd *crowd = &dev->crowd;
	const struct op_args *args[TOGETHER_MAX] = {NULL};
	struct lane *lane = crowd->lane;
	unsigned n = crowd->n;
	const struct kernel *kernel;
	struct launch launch;
	CUresult written;
	int rc;

	crowd->n = 0;
	if (n == 1) {
		struct run *run = crowd->outs[0]->run;

		put_out(dev, crowd->outs[0]);
		start_alone(dev, run);
	}
	if (n <= 1)
		return;
	kernel = crowd->outs[0]->run->ops[0].kernel;
	launch = launch_of(lane, crowd->outs[0]);
	for (unsigned i = 0; i < n; i++)
		args[i] = &crowd->args[i];
	rc = kernel->launch_together(args, n, &launch);
	written =
	    dev->write_value(lane->stream, (CUdeviceptr)(uintptr_t)&lane->words->through, ++lane->issued, 0);
	for (unsigned i = 0; i < n; i++) {
		struct out *out = crowd->outs[i];

		out->word = &lane->words->through;
		out->number = lane->issued;
		out->sharers = n;
		out->status = rc < 0 ? not_started(out->run, 0, rc) : 0;
		out->run->next_op = 1;
		push_out(lane, out);
	}
	if (rc < 0)
		cudaGetLastError();
	if (written != CUDA_SUCCESS || rc == KOPS_E_FAULT)
		give_up(dev, cudaErrorUnknown);
}

static bool is_for_crowd(const struct run *run)
{
	const struct cuda_stage *stage = run->planned;

	return run->repeats && !run->timed && run->n_ops == 1 && is_short(run) && run->ops[0].together > 1 &&
	       cuda_stage_is_recordable(stage) && cuda_stage_scratch_bytes(stage) == 0;
}

/* A queue's runs go one after the other. */
static bool goes_with(const struct crowd *crowd, const struct run *run)
{
	const struct run *first = crowd->outs[0]->run;

	if (crowd->n == first->ops[0].together || run->ops[0].kernel != first->ops[0].kernel ||
	    !op_args_alike(&run->ops[0].args, &first->ops[0].args))
		return false;
	for (unsigned i = 0; i < crowd->n; i++)
		if (crowd->outs[i]->run->lane == run->lane)
			return false;
	return true;
}

/* False: it has to be started by itself. */
static bool join_crowd(struct backend_device *dev, struct run *run)
{
	struct crowd *crowd = &dev->crowd;
	struct lane *with = lane_with(dev, run->lane);
	struct out *out;

	cuda_stage_begin(run->planned, &direct_limits);
	if (!is_for_crowd(run))
		return false;
	if (crowd->n > 0 && ((with && with != crowd->lane) || !goes_with(crowd, run)))
		start_crowd(dev);
	out = take_out(dev);
	if (!out)
		return false;
	if (crowd->n == 0)
		crowd->lane = lane_for(dev, run->lane);
	out->run = run;
	out->stage = run->planned;
	out->timed_by = NULL;
	out->ended_recorded = false;
	out->started_ns = clock_ns();
	use_lane(out->stage, crowd->lane);
	cuda_stage_begin_op(out->stage, 0, &crowd->args[crowd->n]); /* enqueues nothing: all is in its place */
	crowd->outs[crowd->n++] = out;
	return true;
}

static void gpu_start(struct backend_device *dev, struct run *run)
{
	run->error[0] = '\0';
	run->as_graph = false;
	run_begin(run);
	if (dev->fault[0]) {
		snprintf(run->error, WHY_BYTES, "%s", dev->fault);
		push_done(dev, run, KOPS_E_FAULT);
		return;
	}
	cudaSetDevice(dev->index);
	if (run->repeats && !run->state && join_crowd(dev, run))
		return;
	start_crowd(dev);
	start_alone(dev, run);
}

/* ---- Finishing ---- */

static double between_us(cudaEvent_t from, cudaEvent_t to)
{
	float ms = 0;

	return cudaEventElapsedTime(&ms, from, to) == cudaSuccess ? (double)ms * 1e3 : 0;
}

/* A run that was not worth four events counts as computing from end to end; of those that went together each
 * has its share. */
static void add_times(struct run *run, const struct out *out)
{
	const struct run_events *by = out->timed_by;
	double upload_us = 0, compute_us, download_us = 0;

	if (by && !cuda_stage_moves(out->stage)) {
		compute_us = between_us(by->begun, by->computed);
	} else if (by) {
		upload_us = between_us(by->begun, by->uploaded);
		compute_us = between_us(by->uploaded, by->computed);
		download_us = between_us(by->computed, by->downloaded);
	} else {
		compute_us = clock_us(out->started_ns, clock_ns()) / out->sharers;
	}
	run->upload_us += upload_us;
	run->compute_us += compute_us;
	run->download_us += download_us;
	run->slice_us = upload_us + compute_us + download_us;
}

static struct run *finish(struct backend_device *dev, struct lane *lane)
{
	struct out *out = lane->head;
	struct run *run = out->run;

	lane->head = out->next;
	if (!lane->head)
		lane->tail = &lane->head;
	lane->n_out--;
	run->status = out->status;
	if (run->status == 0)
		add_times(run, out);
	if (run->status == 0 && !run_is_through(run))
		run->state = out;
	else
		put_out(dev, out);
	return run;
}

static void gpu_abandon(struct backend_device *dev, struct run *run)
{
	struct out *out = run->state;

	if (!out)
		return;
	cudaSetDevice(dev->index);
	if (out->scratch)
		cudaFreeAsync(out->scratch, dev->memory_stream);
	cudaGetLastError();
	run->state = NULL;
	put_out(dev, out);
}

static bool is_through(const struct lane *lane)
{
	const struct out *out = lane->head;

	return out && (int32_t)(__atomic_load_n(out->word, __ATOMIC_ACQUIRE) - out->number) >= 0;
}

/* Looks for a broken context now and then; a run that it took down never writes its number. */
static void look_for_errors(struct backend_device *dev)
{
	uint64_t now = clock_ns();

	if (now - dev->queried_ns < QUERY_NS)
		return;
	dev->queried_ns = now;
	for (unsigned i = 0; i < CUDA_LANES; i++) {
		cudaError_t error = dev->lanes[i].head ? broken(&dev->lanes[i]) : cudaSuccess;

		if (error != cudaSuccess) {
			give_up(dev, error);
			return;
		}
	}
}

static struct run *pop_done(struct backend_device *dev)
{
	struct run *run = dev->done;

	if (!run)
		return NULL;
	dev->done = run->next;
	if (!dev->done)
		dev->done_tail = &dev->done;
	return run;
}

static bool has_long_out(const struct backend_device *dev)
{
	for (unsigned i = 0; i < CUDA_LANES; i++)
		if (dev->lanes[i].head && dev->lanes[i].head->run->plan_us >= COLD_US)
			return true;
	return false;
}

static struct run *gpu_poll(struct backend_device *dev)
{
	start_crowd(dev);
	if (dev->done)
		return pop_done(dev);
	for (unsigned i = 0; i < CUDA_LANES; i++)
		if (is_through(&dev->lanes[i]))
			return finish(dev, &dev->lanes[i]);
	look_for_errors(dev);
	if (has_long_out(dev))
		cuda_graph_rehearse(dev);
	return pop_done(dev);
}

/* One notify(): shared by the host calls on all lanes, of which the first wakes and the last frees. */
struct waker {
	void (*wake)(void *arg);
	void *arg;
	unsigned users;
	bool woken;
};

static void drop_waker(struct waker *waker)
{
	if (__atomic_sub_fetch(&waker->users, 1, __ATOMIC_ACQ_REL) == 0)
		free(waker);
}

static void CUDART_CB on_finished(void *data)
{
	struct waker *waker = data;

	if (!__atomic_exchange_n(&waker->woken, true, __ATOMIC_ACQ_REL))
		waker->wake(waker->arg);
	drop_waker(waker);
}

/* After the lane's first run: not on its stream, where the call would come after all its runs. */
static void notify_lane(struct lane *lane, struct waker *waker)
{
	__atomic_add_fetch(&waker->users, 1, __ATOMIC_ACQ_REL);
	record_ends(lane);
	if (cudaStreamWaitEvent(lane->waker, lane->head->ended, 0) == cudaSuccess &&
	    cudaLaunchHostFunc(lane->waker, on_finished, waker) == cudaSuccess)
		return;
	cudaGetLastError();
	drop_waker(waker);
}

static void gpu_notify(struct backend_device *dev, void (*wake)(void *arg), void *arg)
{
	struct waker *waker;

	if (dev->done) {
		wake(arg);
		return;
	}
	waker = malloc(sizeof(*waker));
	if (!waker) {
		wake(arg); /* the caller looks again at once, and asks again */
		return;
	}
	*waker = (struct waker){.wake = wake, .arg = arg, .users = 1};
	cudaSetDevice(dev->index);
	for (unsigned i = 0; i < CUDA_LANES; i++)
		if (dev->lanes[i].head)
			notify_lane(&dev->lanes[i], waker);
	drop_waker(waker);
}

static const struct backend cuda_backend = {
    .abi = BACKEND_ABI,
    .kind = "gpu",
    .count = cuda_count,
    .open = cuda_open,
    .close = cuda_close,
    .describe = cuda_describe,
    .kernels = cuda_kernels,
    .disable = cuda_disable,
    .plan = cuda_plan,
    .rivals = cuda_rivals,
    .start = gpu_start,
    .abandon = gpu_abandon,
    .poll = gpu_poll,
    .notify = gpu_notify,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
};

__attribute__((visibility("default"))) const struct backend *kops_backend(void);

const struct backend *kops_backend(void)
{
	return &cuda_backend;
}
