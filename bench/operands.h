/*
 * operands.h: memory for several sets of a step's operands, filled with random numbers.
 *
 * The sets of one operand lie one after another in one buffer. The buffer is filled with copies of one block of
 * random numbers, each operand's from another start. So filling costs a copy on the device, whatever the size.
 * The block's length is no multiple of usual rows, so rows differ.
 */
#ifndef KOPS_BENCH_OPERANDS_H
#define KOPS_BENCH_OPERANDS_H

#include "bench.h"

/* Distributions: in [-1, 1); N(0,1); N(0,1) with one number in 100 a thousand times as large; e^N(0,2²). */
enum bench_input { INPUT_UNIFORM, INPUT_NORMAL, INPUT_OUTLIERS, INPUT_LOGNORMAL };

extern const char *const bench_input_names[]; /* in the order of the enum; NULL ends them */

/* Fills a dense array of this process with random numbers. */
void bench_fill(const kops_view *view, enum bench_input input, uint64_t seed);

struct operands {
	struct step step; /* set 0 */
	size_t n_sets;
	uint64_t stride_bytes[STEP_OPERANDS_MAX]; /* from set to set: inputs, then the output */
	kops_buffer *buffers[STEP_OPERANDS_MAX];
};

/*
 * Allocates and fills up to most_sets sets of operands with the shapes of `shape`, in the device's memory, or
 * SHARED for host to host. Makes fewer sets if there is no room. Free with operands_free(), which also accepts
 * zeros.
 */
int operands_make(struct bench *b, const struct step *shape, size_t most_sets, struct operands *ret);
void operands_free(struct operands *operands);

/*
 * Returns how many sets to use in turn, so that more than four times the device's cache passes between two uses
 * of a set. The other function tells whether so many sets do that.
 */
size_t operands_cold_sets(const struct bench *b, uint64_t footprint_bytes);
bool operands_are_cold(const struct bench *b, uint64_t footprint_bytes, size_t n_sets);

/* Returns the step on the operands of a set. */
struct step operands_step(const struct operands *operands, size_t set);

/* Fills the output of set 0 with NaN. */
int operands_poison(struct bench *b, const struct operands *operands);

#endif
