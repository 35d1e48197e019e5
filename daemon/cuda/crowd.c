/* crowd.c: one launch for small ops of several runs. */
#include "cuda/crowd.h"

#include <nvtx3/nvToolsExt.h>

#include "cuda/lane.h"
#include "cuda/words.h"
#include "plan/mover.h"

/* ---- Who may join ---- */

bool cuda_crowd_suits(const struct device_state *dev, struct run *run)
{
	struct stage *stage = run->planned;

	if (!run->repeats || run->timed || run->state || run->n_ops != 1 || run->ops[0].together <= 1 ||
	    !cuda_is_short(run))
		return false;
	stage_begin(stage, &dev->info.direct);
	return stage_is_recordable(stage) && stage_scratch_bytes(stage) == 0;
}

static bool holds_queue(const struct crowd *crowd, uint64_t queue)
{
	for (unsigned i = 0; i < crowd->n; i++)
		if (crowd->outs[i]->run->lane == queue)
			return true;
	return false;
}

/* A queue's runs go one after the other. */
bool cuda_crowd_takes(struct device_state *dev, const struct run *run)
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

bool cuda_crowd_join(struct device_state *dev, struct run *run)
{
	struct crowd *crowd = &dev->crowd;
	struct out *out = cuda_out_take(dev);

	if (!out)
		return false;
	if (crowd->n == 0)
		crowd->lane = cuda_lane_for(dev, run);
	cuda_out_begin(out, run, false);
	out->stage = run->planned;
	cuda_lane_use(crowd->lane, out->stage);
	stage_begin_part(out->stage, 0, 0, &crowd->args[crowd->n]); /* enqueues nothing: all is in its place */
	crowd->outs[crowd->n++] = out;
	return true;
}

static unsigned views_of(const struct op_args *args)
{
	return args->op->n_operands;
}

/* ---- Graphs ---- */

/*
 * To launch the same graph again takes the host 1.5 us, a kernel and its number 4.5. With four streams busy the
 * end of a graph is seen after 8 us, that of a kernel after 18. A graph with its parameters set anew takes 3.6
 * and 15. Measured on an H100.
 */

#define RECORDED_AFTER 3  /* crowds of a size on a lane */
#define REPLACED_AFTER 64 /* that it is not for; and as many after it could not be recorded */

static struct crowd_graph *graph_of(struct device_state *dev, const struct crowd *crowd, unsigned n)
{
	return &dev->crowd_graphs[crowd->lane - dev->lanes][n];
}

/* Kernels are chosen by where the first op's operands are, too. */
static bool is_for(const struct crowd_graph *graph, const struct crowd *crowd)
{
	const struct op_args *first = &crowd->args[0];

	if (!graph->exec || graph->kernel != crowd->outs[0]->run->ops[0].kernel ||
	    !op_args_alike(&graph->args, first))
		return false;
	for (unsigned v = 0; v < views_of(first); v++)
		if (((uintptr_t)graph->args.views[v].data ^ (uintptr_t)first->views[v].data) % 256)
			return false;
	return true;
}

static int launch_crowd(const struct crowd *crowd, unsigned n, void *const *addresses)
{
	const struct kernel *kernel = crowd->outs[0]->run->ops[0].kernel;
	const struct op_args *args[TOGETHER_MAX] = {NULL};
	struct launch launch = cuda_lane_launch(crowd->lane, crowd->outs[0]);
	int rc;

	launch.addresses = addresses;
	for (unsigned i = 0; i < n; i++)
		args[i] = &crowd->args[i];
	nvtxRangePushA(kernel->name);
	rc = kernel->launch_together(args, n, &launch);
	nvtxRangePop();
	return rc;
}

/* False: it cannot be. */
static bool record_crowd(struct crowd_graph *graph, const struct crowd *crowd, unsigned n)
{
	cudaStream_t stream = crowd->lane->stream;
	cudaGraph_t recorded = NULL;
	cudaError_t error;
	int rc;

	if (graph->exec)
		cudaGraphExecDestroy(graph->exec);
	graph->exec = NULL;
	graph->kernel = crowd->outs[0]->run->ops[0].kernel;
	graph->args = crowd->args[0];
	graph->missed = 0;
	graph->patience = REPLACED_AFTER;
	if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess) {
		rc = launch_crowd(crowd, n, graph->words->addresses);
		if (rc == 0)
			rc = cuda_signal(&graph->words->through, 1, NULL, stream);
		error = cudaStreamEndCapture(stream, &recorded);
		if (rc == 0 && error == cudaSuccess)
			cudaGraphInstantiate(&graph->exec, recorded, 0);
		if (recorded)
			cudaGraphDestroy(recorded);
	}
	cudaGetLastError();
	return graph->exec != NULL;
}

/* NULL: there is none for this crowd, or it is in flight. */
static struct crowd_graph *find_graph(struct device_state *dev, const struct crowd *crowd, unsigned n)
{
	struct crowd_graph *graph = n > 1 && n <= CROWD_GRAPH_OPS ? graph_of(dev, crowd, n) : NULL;

	if (!graph || graph->out)
		return NULL;
	if (!is_for(graph, crowd) && (++graph->missed < graph->patience || !record_crowd(graph, crowd, n)))
		return NULL;
	graph->missed = 0;
	return graph;
}

/* False: the GPU did not take it. */
static bool launch_crowd_graph(struct crowd_graph *graph, const struct crowd *crowd, unsigned n)
{
	unsigned n_views = views_of(&graph->args);
	cudaError_t error;

	__atomic_store_n(&graph->words->through, 0, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < n; i++)
		for (unsigned v = 0; v < n_views; v++)
			graph->words->addresses[i * n_views + v] = crowd->args[i].views[v].data;
	nvtxRangePushA(graph->kernel->name);
	error = cudaGraphLaunch(graph->exec, crowd->lane->stream);
	nvtxRangePop();
	graph->out = error == cudaSuccess;
	if (graph->out)
		crowd->lane->issued++;
	else
		cudaGetLastError();
	return graph->out;
}

cudaError_t cuda_crowd_open(struct device_state *dev)
{
	const unsigned n = CUDA_LANES * (CROWD_GRAPH_OPS + 1);
	cudaError_t error =
	    cudaHostAlloc((void **)&dev->crowd_words, n * sizeof *dev->crowd_words, cudaHostAllocMapped);

	for (unsigned i = 0; error == cudaSuccess && i < n; i++)
		dev->crowd_graphs[i / (CROWD_GRAPH_OPS + 1)][i % (CROWD_GRAPH_OPS + 1)] =
		    (struct crowd_graph){.words = &dev->crowd_words[i], .patience = RECORDED_AFTER};
	return error;
}

void cuda_crowd_close(struct device_state *dev)
{
	for (unsigned lane = 0; lane < CUDA_LANES; lane++)
		for (unsigned n = 0; n <= CROWD_GRAPH_OPS; n++)
			if (dev->crowd_graphs[lane][n].exec)
				cudaGraphExecDestroy(dev->crowd_graphs[lane][n].exec);
	cudaFreeHost(dev->crowd_words);
}

/* ---- Starting ---- */

/* One number tells the end of all. graph: which launched them; NULL: none. */
static void push_crowd(const struct crowd *crowd, unsigned n, struct crowd_graph *graph, int rc)
{
	struct lane *lane = crowd->lane;

	for (unsigned i = 0; i < n; i++) {
		struct out *out = crowd->outs[i];

		out->word = graph ? &graph->words->through : &lane->words->through;
		out->number = graph ? 1 : lane->numbered;
		out->crowd_graph = i == n - 1 ? graph : NULL;
		out->sharers = n;
		out->status = rc < 0 ? cuda_not_started(out->run, 0, rc) : 0;
		out->run->next_op = 1;
		out->run->as_graph = graph != NULL;
		cuda_lane_push(lane, out);
	}
}

static unsigned count_idle(const struct device_state *dev)
{
	unsigned idle = 0;

	for (unsigned i = 0; i < CUDA_LANES_SHORT; i++)
		idle += dev->lanes[i].load.out == 0;
	return idle;
}

unsigned cuda_crowd_dissolve(struct device_state *dev, struct run *ret_runs[CUDA_LANES_SHORT])
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

void cuda_crowd_start(struct device_state *dev)
{
	struct crowd *crowd = &dev->crowd;
	unsigned n = crowd->n;
	struct crowd_graph *graph;
	cudaError_t error = cudaSuccess;
	int rc = 0;

	if (n == 0)
		return;
	crowd->n = 0;
	graph = find_graph(dev, crowd, n);
	if (graph && !launch_crowd_graph(graph, crowd, n))
		graph = NULL;
	if (!graph) {
		rc = launch_crowd(crowd, n, NULL);
		error = cuda_lane_number(dev, crowd->lane);
	}
	push_crowd(crowd, n, graph, rc);
	if (rc < 0)
		cudaGetLastError();
	if (error != cudaSuccess || rc == KOPS_E_FAULT)
		cuda_give_up(dev, error != cudaSuccess ? error : cudaErrorUnknown);
}
