/* choice.h: which of a GPU's streams a run goes to, and whether it has to wait. Asks no GPU. */
#ifndef KOPS_CUDA_CHOICE_H
#define KOPS_CUDA_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#define CUDA_LANES      4
#define CUDA_LANES_HIGH 2     /* the first ones: what is on them goes before what is on the others */
#define CUDA_LONG_US    150.0 /* runs planned to be longer keep off these */

struct lane_load {
	unsigned out, long_out; /* runs; those of them that are long */
};

/* The one with the fewest runs among those that it may go to: while long runs are in flight, short ones keep to
 * high priority. */
static inline unsigned cuda_choose_lane(const struct lane_load loads[CUDA_LANES], bool is_long)
{
	unsigned first = is_long ? CUDA_LANES_HIGH : 0, end = CUDA_LANES, best = first;
	bool any_long = false;

	for (unsigned i = 0; i < CUDA_LANES; i++)
		any_long |= loads[i].long_out > 0;
	if (!is_long && any_long)
		end = CUDA_LANES_HIGH;
	for (unsigned i = first + 1; i < end; i++) {
		bool is_free = is_long || loads[i].long_out == 0,
		     best_is = is_long || loads[best].long_out == 0;

		if (is_free == best_is ? loads[i].out < loads[best].out : is_free)
			best = i;
	}
	return best;
}

/* The longest that a long run is held back beside the time until the last one before it has ended. */
#define CUDA_HELD_MOST_NS 50000000u

/*
 * A gap between long runs, in which memory can be unpinned. long_out: those in flight on any device;
 * unpinning: calls that wait for the gap or use it; drained_ns: when long_out last became 0.
 */
struct cuda_gap {
	unsigned long_out, unpinning;
	uint64_t drained_ns;
};

/*
 * Returns true if a long run has to wait that could have started at since_ns. Those who unpin all the time must
 * not keep others from computing.
 */
static inline bool cuda_gap_holds(const struct cuda_gap *gap, uint64_t since_ns, uint64_t now_ns)
{
	uint64_t from_ns = gap->drained_ns > since_ns ? gap->drained_ns : since_ns;

	return gap->unpinning > 0 && (gap->long_out > 0 || now_ns < from_ns + CUDA_HELD_MOST_NS);
}

#endif
