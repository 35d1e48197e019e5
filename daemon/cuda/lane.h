/*
 * lane.h: the CUDA streams of a device, and what is in flight on each.
 *
 * A device has CUDA_LANES streams, some of high priority, for short runs. A run goes to the stream that already
 * holds runs of its queue, which keeps their order, else to the one with the fewest (choice.h). Each stream has
 * a cuBLAS handle of its own: a handle has one workspace, and two streams writing it at once would spoil each
 * other's results.
 *
 * What is in flight on a stream is a queue in the order in which it was enqueued; a run that failed on the way
 * takes its place in it too, since the GPU may still be working for it.
 */
#ifndef KOPS_CUDA_LANE_H
#define KOPS_CUDA_LANE_H

#include "cuda/gpu.h"
#include "kernel.h"

#define CUDA_SHORT_US 100.0 /* a run planned to be shorter is timed by the host: four events cost it 6 µs */

static inline bool cuda_is_short(const struct run *run)
{
	return run->plan_us < CUDA_SHORT_US;
}

static inline bool cuda_is_long(const struct run *run)
{
	return cuda_length_of(run->plan_us, run->n_ops) != CUDA_SHORT;
}

/* The lane that holds runs of this queue; NULL: none does. */
struct lane *cuda_lane_with(struct device_state *dev, uint64_t queue);
/* The one of its queue, or the one that cuda_choose_lane() says. */
struct lane *cuda_lane_for(struct device_state *dev, const struct run *run);
void cuda_lane_push(struct lane *lane, struct out *out);
/* The first in flight; NULL: none is. */
static inline struct out *cuda_lane_first(const struct lane *lane)
{
	return list_first(&lane->outs, struct out, link);
}
/* The first in flight is no longer. */
struct out *cuda_lane_pop(struct lane *lane);
/* That it transfers by this lane from here on. */
void cuda_lane_use(struct lane *lane, struct stage *stage);
/* Its streams must not be in use. */
void cuda_lane_close_across(struct lane *lane);
/* What kernels need to know to be launched for `out` here. */
struct launch cuda_lane_launch(const struct lane *lane, const struct out *out);
/* Has the GPU write the lane's next number, which lane->numbered is from here on, when it has come so far. */
cudaError_t cuda_lane_number(struct device_state *dev, struct lane *lane);
/* An error that outlives its call. */
cudaError_t cuda_lane_error(const struct lane *lane);

/*
 * For notify(). It costs a microsecond, and nobody sleeps through a short run. So the end of short ones is
 * recorded when somebody asks for it, or a longer run comes behind.
 */
cudaError_t cuda_lane_record_end(const struct lane *lane, struct out *out);
void cuda_lane_record_ends(const struct lane *lane);

/* A spare one or a new one. NULL: out of memory. */
struct out *cuda_out_take(struct device_state *dev);
/* A slice of the run begins. has_events: it is to be timed by the GPU. */
void cuda_out_begin(struct out *out, struct run *run, bool has_events);
void cuda_out_put(struct device_state *dev, struct out *out);
void cuda_out_free(struct out *out);
/* Writes the run's error: op i's kernel did not start. Returns rc. */
int cuda_not_started(struct run *run, unsigned i, int rc);

/* Runs that are back without having been in flight. */
void cuda_done_push(struct device_state *dev, struct run *run, int status);
struct run *cuda_done_pop(struct device_state *dev);
/* Fails what is in flight and remembers why: the context is lost. */
void cuda_give_up(struct device_state *dev, cudaError_t error);

#endif
