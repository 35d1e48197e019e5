/*
 * operands.h: memory for the operands of a step, several sets of it, filled with random numbers.
 *
 * The sets of one operand lie one after another in one buffer. All of it is filled from one block of random
 * numbers, copied again and again from a start of its own for each operand, so that filling costs a
 * copy on the device, whatever the size. Blocks are no multiple of usual rows, so rows differ.
 */
#ifndef KOPS_BENCH_OPERANDS_H
#define KOPS_BENCH_OPERANDS_H

#include "bench.h"

/* Fills a dense array of this process with numbers from [-1, 1). */
void bench_fill(const kops_view *view, uint64_t seed);

struct operands {
	struct step step; /* set 0 */
	size_t n_sets;
	uint64_t stride_bytes[STEP_OPERANDS_MAX]; /* from set to set: inputs, then the output at the end */
	kops_buffer *buffers[STEP_OPERANDS_MAX];
};

/*
 * Memory of the device, or SHARED host to host, for up to most_sets sets of operands with the shapes of
 * `shape`, filled. Fewer sets where there is no room for more. Free with operands_free(), allowed on a zeroed
 * one.
 */
int operands_make(struct bench *b, const struct step *shape, size_t most_sets, struct operands *ret);
void operands_free(struct operands *operands);

/*
 * Sets to be used in turn so that between two uses of one more than four times the device's cache passes, and
 * whether so many sets do that.
 */
size_t operands_cold_sets(const struct bench *b, uint64_t footprint_bytes);
bool operands_are_cold(const struct bench *b, uint64_t footprint_bytes, size_t n_sets);

/* The step on operands of a set. */
struct step operands_step(const struct operands *operands, size_t set);

/* Fills the output of set 0 with NaN. */
int operands_poison(struct bench *b, const struct operands *operands);

#endif
