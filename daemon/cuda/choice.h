/* choice.h: which of a GPU's streams a run goes to, and whether it has to wait. Asks no GPU. */
#ifndef KOPS_CUDA_CHOICE_H
#define KOPS_CUDA_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#define CUDA_LANES       10 /* all are for chains but those of high priority */
#define CUDA_LANES_HIGH  2  /* the first ones: what is on them goes before what is on the others */
#define CUDA_LANES_LONG  2  /* the next ones: for other long runs, too */
#define CUDA_LANES_SHORT (CUDA_LANES_HIGH + CUDA_LANES_LONG) /* these, for short runs */
#define CUDA_LONG_US     150.0 /* runs planned to be longer keep off those of high priority */
#define CUDA_CHAIN_US    50.0  /* the mean of a chain's ops, at most */

/*
 * Long runs are planned to take more than CUDA_LONG_US. A chain is one of many short ops, which wait for each
 * other and leave most of the GPU idle: an encoder of a sentence has fifty ops of 4 us. So several chains run
 * beside each other, and other long ones only by two.
 */
enum cuda_length { CUDA_SHORT, CUDA_CHAIN, CUDA_LONG };

static inline enum cuda_length cuda_length_of(double plan_us, uint32_t n_ops)
{
	if (!(plan_us > CUDA_LONG_US))
		return CUDA_SHORT;
	return plan_us <= n_ops * CUDA_CHAIN_US ? CUDA_CHAIN : CUDA_LONG;
}

struct lane_load {
	unsigned out, long_out; /* runs; those of them that are not short */
	bool knows;             /* has a graph of the run that is to go somewhere */
};

static inline bool cuda_suits_better(const struct lane_load *a, const struct lane_load *b, bool keeps_off_long)
{
	if (keeps_off_long && (a->long_out == 0) != (b->long_out == 0))
		return a->long_out == 0;
	return a->out != b->out ? a->out < b->out : a->knows && !b->knows;
}

/*
 * The one with the fewest runs among those that it may go to, and of equal ones one that knows it: while long
 * runs are in flight, short ones keep to high priority.
 */
static inline unsigned cuda_choose_lane(const struct lane_load loads[CUDA_LANES], enum cuda_length length)
{
	unsigned first = length == CUDA_SHORT ? 0 : CUDA_LANES_HIGH, best = first;
	unsigned end = length == CUDA_CHAIN ? CUDA_LANES : CUDA_LANES_SHORT;
	bool any_long = false;

	for (unsigned i = 0; i < CUDA_LANES; i++)
		any_long |= loads[i].long_out > 0;
	if (length == CUDA_SHORT && any_long)
		end = CUDA_LANES_HIGH;
	for (unsigned i = first + 1; i < end; i++)
		if (cuda_suits_better(&loads[i], &loads[best], length == CUDA_SHORT))
			best = i;
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
