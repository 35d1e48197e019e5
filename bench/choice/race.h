/*
 * race.h: compares all kernels of an op on one set of operands. A first look at each finds those near the
 * fastest; only these are measured with care.
 */
#ifndef KOPS_BENCH_CHOICE_RACE_H
#define KOPS_BENCH_CHOICE_RACE_H

#include "cases.h"
#include "operands.h"

/*
 * The kernels that run. Learns which to leave out: one that was many times slower than the fastest on a shape
 * of no more work, if a look at it would take long.
 */
struct race_field {
	struct bench_kernels kernels;
	bool settled; /* as in struct measurement */
	struct {
		double work, slowness; /* FLOPs and bytes; times the fastest, 0: never so slow */
	} slow[BENCH_KERNELS_MAX];     /* the shape of the least work on which it was that slow */
};

struct race {
	struct bench_row *rows; /* those that ran; first the one that kopsd chose by itself */
	size_t n, best; /* n is 0 if kopsd refused: note says why. best: among those that kopsd may choose */
	bool alone;     /* all others were left out */
	char note[256];
};

/* Forgets all kernels, since another op, dtype or precision begins. */
void race_field_reset(struct race_field *field);

/*
 * Measures over all sets of the operands in turn, with `reps` samples of kernels near the fastest. Returns 0 or
 * KOPS_E_*; a kernel that refuses is no failure. Free with race_free(), which also accepts zeros.
 */
int race_run(struct bench *b, struct race_field *field, const struct operands *operands, uint64_t reps,
             bool check, struct race *ret);
void race_free(struct race *race);

/*
 * Returns by how many percent kopsd's choice takes longer than the fastest kernel that it may choose. Kernels
 * whose errors may be larger than the precision allows do not compete.
 */
double race_loss_percent(const struct race *race);

#endif
