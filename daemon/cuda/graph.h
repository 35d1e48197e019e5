/*
 * graph.h: what a run that comes again enqueues, recorded as a CUDA graph and launched by one call.
 *
 * A run is recorded when it is started again, once for each lane that it comes to: the lane's scratch memory
 * and the workspace of its cuBLAS are in the graph. Recorded are runs of one slice whose host memory is all
 * pinned; others are enqueued call by call, as first runs are.
 *
 * Graphs take memory of the GPU and of CUDA, some 10 KB a node. A device's graphs together have at most
 * CUDA_GRAPH_NODES_MAX nodes, and there are CUDA_GRAPHS_MAX; those launched least recently go first.
 *
 * A graph belongs to its run's stage and goes with it, on the loop thread. All else happens on the device's.
 */
#ifndef KOPS_CUDA_GRAPH_H
#define KOPS_CUDA_GRAPH_H

#include "cuda/gpu.h"

#define CUDA_GRAPH_NODES_MAX 8192u

/* The graph of a run for this lane and its scratch memory, as the run's stage has it. NULL: there is none. */
struct cuda_graph *cuda_graph_find(struct device_state *dev, const struct lane *lane, struct run *run);

/* Returns true if the lane has a graph of the run, which may yet prove to be stale. */
bool cuda_graph_is_kept(const struct lane *lane, const struct run *run);

/*
 * From here on what is enqueued on the lane is recorded, not run. timed: it notes its moments, enum
 * run_moment. NULL: CUDA refuses.
 */
struct cuda_graph *cuda_graph_begin(struct device_state *dev, const struct lane *lane, bool timed);

/*
 * Ends recording the run; the graph becomes the run's, and makes older ones go. rc: how enqueueing went. False:
 * the graph is gone, and the run's stage remembers not to try again.
 */
bool cuda_graph_end(struct cuda_graph *graph, struct run *run, int rc);

/*
 * 0 or KOPS_E_FAULT. It is in flight until cuda_graph_rest(); *ret_word is 0 until the GPU is through with it,
 * and 1 then.
 */
int cuda_graph_launch(struct cuda_graph *graph, const uint32_t **ret_word);
void cuda_graph_rest(struct cuda_graph *graph);

/*
 * For a thread that looks out for the end of a long run, again and again: launches a graph that does nothing,
 * so that what a launch takes is in this CPU's caches when the next run is to be started. They are shared with
 * other machines of a host: where these are busy, a launch took 7 us after 5 ms of waiting, 2 after 0.1 ms, and
 * takes 4 with this.
 */
void cuda_graph_make_rehearsal(struct device_state *dev); /* once; where CUDA refuses there are none */
void cuda_graph_rehearse(struct device_state *dev);
void cuda_graph_end_rehearsals(struct device_state *dev);

/* Where it writes its moments. NULL: it is not timed. */
uint64_t *cuda_graph_stamps(const struct cuda_graph *graph);

#endif
