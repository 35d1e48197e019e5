/*
 * race.h: all kernels of an op against each other on one set of operands. A first look at each tells
 * which are near the fastest; only those are measured with care.
 */
#ifndef KOPS_BENCH_CHOICE_RACE_H
#define KOPS_BENCH_CHOICE_RACE_H

#include "cases.h"
#include "operands.h"

/*
 * Who runs. Learns whom to leave out: one that was many times slower than the fastest on a shape of no more
 * work, where a look at it would take long.
 */
struct race_field {
	struct bench_kernels kernels;
	bool settled; /* as in struct measurement */
	struct {
		double work, slowness; /* FLOPs and bytes; times the fastest, 0: never so slow */
	} slow[BENCH_KERNELS_MAX];     /* the shape of the least work on which it was that slow */
};

struct race {
	struct bench_row *rows; /* those that ran, measured; first the one that kopsd chose by itself */
	size_t n, best;         /* n is 0 where kopsd refused: note says why. best: of those kopsd may choose */
	bool alone;             /* all others were left out */
	char note[256];
};

/* Another op, dtype or precision begins: nothing is known about any kernel. */
void race_field_reset(struct race_field *field);

/*
 * Over all sets of the operands in turn; `reps` samples of those near the fastest. Free with race_free(),
 * allowed on a zeroed one. 0 or KOPS_E_*; that a kernel refuses is no failure.
 */
int race_run(struct bench *b, struct race_field *field, const struct operands *operands, uint64_t reps,
             bool check, struct race *ret);
void race_free(struct race *race);

/*
 * By how many percent the kernel that kopsd chose takes longer than the fastest that it may choose: one whose
 * errors may be larger than the precision allows does not compete.
 */
double race_loss_percent(const struct race *race);

#endif
