#include "cuda/graph.h"

#include <stdlib.h>

#include "base/clock.h"
#include "cuda/words.h"

#define REHEARSE_NS    50000u
#define REHEARSE_NODES 3 /* as a product has */

/*
 *     RECORDING ──cuda_graph_end()──→ KEPT ⇄ OUT (cuda_graph_launch(), cuda_graph_rest())
 *         └────────────────────────────┴───────→ destroyed
 *
 * Invariants: a graph is KEPT or OUT exactly while it is in both lists. It can then be launched, and
 * graphs.nodes counts its nodes. Its word is in no list from cuda_graph_begin() on. A graph that is OUT is
 * neither dropped nor launched.
 */
struct cuda_graph {
	struct device_state *dev;
	struct stage *stage;
	const struct lane *lane;
	const void *scratch; /* in it; NULL: none is */
	cudaGraphExec_t exec;
	size_t nodes;
	struct graph_word *word;
	bool timed, out;
	enum run_room room;
	struct list_link link;   /* in the stage's */
	struct list_link by_use; /* in the device's, by last launch */
};

static const void *scratch_of(const struct stage *stage)
{
	return stage_scratch_bytes(stage) ? stage->scratch : NULL;
}

/* ---- The device's graphs; under graphs.lock ---- */

static bool is_kept(const struct cuda_graph *graph)
{
	INVARIANT(list_has(&graph->link) == list_has(&graph->by_use));
	INVARIANT(!list_has(&graph->by_use) || (graph->exec && graph->stage && graph->word));
	return list_has(&graph->by_use);
}

static void graph_was_used(struct cuda_graph *graph)
{
	list_remove(&graph->by_use);
	list_push_first(&graph->dev->graphs.by_use, &graph->by_use);
}

/* One that is in no list. */
static void destroy_graph(struct cuda_graph *graph)
{
	PRE(!is_kept(graph) && !graph->out);
	if (graph->exec)
		cudaGraphExecDestroy(graph->exec);
	cudaGetLastError();
	if (graph->word)
		list_push_first(&graph->dev->graphs.free_words, &graph->word->link);
	free(graph);
}

static void drop(struct cuda_graph *graph)
{
	struct graphs *all = &graph->dev->graphs;

	PRE(is_kept(graph) && !graph->out && all->nodes >= graph->nodes);
	list_remove(&graph->link);
	list_remove(&graph->by_use);
	all->nodes -= graph->nodes;
	destroy_graph(graph);
}

static bool graphs_have_room(const struct graphs *all, size_t nodes, bool word)
{
	return all->nodes + nodes <= CUDA_GRAPH_NODES_MAX && (!word || !list_is_empty(&all->free_words));
}

/* For so many nodes and words more. False: those that are left are in flight. */
static bool make_room_for_graph(struct graphs *all, size_t nodes, bool word)
{
	struct cuda_graph *graph = list_last(&all->by_use, struct cuda_graph, by_use), *newer;

	for (; graph && !graphs_have_room(all, nodes, word); graph = newer) {
		newer = list_prev(graph, by_use);
		if (!graph->out)
			drop(graph);
	}
	return graphs_have_room(all, nodes, word);
}

/* ---- One run's ---- */

/* As run->forget_plan. */
static void forget_graphs(struct run *run)
{
	struct stage *stage = run->planned;
	struct device_state *dev = stage->graphs_of;
	struct cuda_graph *graph;

	cuda_use_device(dev->index);
	pthread_mutex_lock(&dev->graphs.lock);
	while ((graph = list_first(&stage->graphs, struct cuda_graph, link)))
		drop(graph);
	pthread_mutex_unlock(&dev->graphs.lock);
	stage_free(stage);
}

static struct cuda_graph *graph_for(const struct lane *lane, const struct run *run)
{
	const struct stage *stage = run->planned;
	struct cuda_graph *graph;

	list_for_each (graph, &stage->graphs, link)
		if (graph->lane == lane && graph->room == run->room)
			return graph;
	return NULL;
}

bool cuda_graph_is_kept(const struct lane *lane, const struct run *run)
{
	return graph_for(lane, run) != NULL;
}

struct cuda_graph *cuda_graph_find(struct device_state *dev, const struct lane *lane, struct run *run)
{
	struct stage *stage = run->planned;
	struct cuda_graph *graph = graph_for(lane, run);

	if (!graph)
		return NULL;
	pthread_mutex_lock(&dev->graphs.lock);
	graph_was_used(graph);
	if (graph->scratch != scratch_of(stage)) { /* the lane has other memory by now */
		drop(graph);
		graph = NULL;
	}
	pthread_mutex_unlock(&dev->graphs.lock);
	return graph;
}

static void discard_recording(struct cuda_graph *graph)
{
	struct graphs *all = &graph->dev->graphs;

	pthread_mutex_lock(&all->lock);
	destroy_graph(graph);
	pthread_mutex_unlock(&all->lock);
}

static struct graph_word *take_word(struct graphs *all)
{
	struct graph_word *word = NULL;

	pthread_mutex_lock(&all->lock);
	if (make_room_for_graph(all, 0, true))
		word = list_take(&all->free_words, struct graph_word, link);
	pthread_mutex_unlock(&all->lock);
	return word;
}

struct cuda_graph *cuda_graph_begin(struct device_state *dev, const struct lane *lane, bool timed)
{
	struct cuda_graph *graph = calloc(1, sizeof(*graph));

	if (!graph)
		return NULL;
	graph->dev = dev;
	graph->lane = lane;
	graph->timed = timed;
	graph->word = take_word(&dev->graphs);
	if (graph->word &&
	    cudaStreamBeginCapture(lane->stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess)
		return graph;
	discard_recording(graph);
	return NULL;
}

/* What was recorded, made ready to be launched; last it writes that it is through. */
static bool instantiate(struct cuda_graph *graph, int rc)
{
	uint64_t *stamp = graph->timed ? &graph->word->stamps[cuda_last_moment(graph->stage)] : NULL;
	bool ends = rc == 0 && cuda_signal(&graph->word->through, 1, stamp, graph->lane->stream) == 0;
	cudaGraph_t recorded = NULL;
	cudaError_t error = cudaStreamEndCapture(graph->lane->stream, &recorded);

	if (!ends)
		error = cudaErrorStreamCaptureInvalidated;
	if (error == cudaSuccess)
		error = cudaGraphGetNodes(recorded, NULL, &graph->nodes);
	if (error == cudaSuccess)
		error = cudaGraphInstantiate(&graph->exec, recorded, 0);
	if (recorded)
		cudaGraphDestroy(recorded);
	cudaGetLastError();
	return graph->exec != NULL;
}

static bool keep(struct cuda_graph *graph, struct run *run)
{
	struct graphs *all = &graph->dev->graphs;
	bool fits;

	pthread_mutex_lock(&all->lock);
	fits = make_room_for_graph(all, graph->nodes, false);
	if (fits) {
		graph->stage->graphs_of = graph->dev;
		list_push_first(&graph->stage->graphs, &graph->link);
		list_push_first(&all->by_use, &graph->by_use);
		all->nodes += graph->nodes;
		run->forget_plan = forget_graphs;
	}
	pthread_mutex_unlock(&all->lock);
	return fits;
}

bool cuda_graph_end(struct cuda_graph *graph, struct run *run, int rc)
{
	PRE(!is_kept(graph) && !graph->out && graph->word);
	graph->stage = run->planned;
	graph->room = run->room;
	graph->scratch = scratch_of(graph->stage);
	if (instantiate(graph, rc) && keep(graph, run)) {
		POST(is_kept(graph) && !graph->out);
		return true;
	}
	graph->stage->unrecordable = true;
	discard_recording(graph);
	return false;
}

int cuda_graph_launch(struct cuda_graph *graph, const uint32_t **ret_word)
{
	PRE(is_kept(graph) && !graph->out);
	graph->out = true;
	__atomic_store_n(&graph->word->through, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&graph->word->stamps[cuda_last_moment(graph->stage)], 0, __ATOMIC_RELAXED);
	*ret_word = &graph->word->through;
	return cudaGraphLaunch(graph->exec, graph->lane->stream) == cudaSuccess ? 0 : KOPS_E_FAULT;
}

void cuda_graph_rest(struct cuda_graph *graph)
{
	PRE(is_kept(graph) && graph->out);
	graph->out = false;
}

/* ---- Rehearsals ---- */

static cudaError_t disable_nodes(cudaGraphExec_t exec, cudaGraph_t recorded)
{
	cudaGraphNode_t nodes[REHEARSE_NODES];
	size_t n = REHEARSE_NODES;
	cudaError_t error = cudaGraphGetNodes(recorded, nodes, &n);

	for (size_t i = 0; error == cudaSuccess && i < n; i++)
		error = cudaGraphNodeSetEnabled(exec, nodes[i], 0);
	return error;
}

/* Of kernels that are disabled: to launch it takes the host what others take, and the GPU nothing. */
void cuda_graph_make_rehearsal(struct device_state *dev)
{
	cudaGraphExec_t *rehearsal = &dev->graphs.rehearsal;
	cudaGraph_t recorded = NULL;

	if (cudaStreamBeginCapture(dev->memory_stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess)
		return;
	for (unsigned i = 0; i < REHEARSE_NODES; i++)
		cuda_stamp(dev->graphs.words->stamps, dev->memory_stream);
	if (cudaStreamEndCapture(dev->memory_stream, &recorded) == cudaSuccess &&
	    cudaGraphInstantiate(rehearsal, recorded, 0) == cudaSuccess &&
	    disable_nodes(*rehearsal, recorded) != cudaSuccess) {
		cudaGraphExecDestroy(*rehearsal);
		*rehearsal = NULL;
	}
	if (recorded)
		cudaGraphDestroy(recorded);
	cudaGetLastError();
}

void cuda_graph_rehearse(struct device_state *dev)
{
	uint64_t now = clock_ns();

	if (!dev->graphs.rehearsal || now - dev->graphs.rehearsed_ns < REHEARSE_NS)
		return;
	dev->graphs.rehearsed_ns = now;
	cudaGraphLaunch(dev->graphs.rehearsal, dev->memory_stream);
	cudaGetLastError();
}

void cuda_graph_end_rehearsals(struct device_state *dev)
{
	if (dev->graphs.rehearsal)
		cudaGraphExecDestroy(dev->graphs.rehearsal);
}

uint64_t *cuda_graph_stamps(const struct cuda_graph *graph)
{
	return graph->timed ? graph->word->stamps : NULL;
}
