/*
 * accuracy.h: the parts of check_accuracy, which holds the errors of one kernel of gemm against those of
 * another.
 *
 *   distribution.c    the data
 *   duel.c            one problem, computed by the kernel, by its peer, in float64 and by a plain loop
 *   contest.c         which of two results has larger errors
 *   check_accuracy.c  options, cases, lines
 */
#ifndef KOPS_ACCURACY_H
#define KOPS_ACCURACY_H

#include <stdbool.h>
#include <stdint.h>

#include "check.h"

/* ---- Data ---- */

#define DISTRIBUTIONS 16

enum operand { OPERAND_A, OPERAND_B };

/* Of what A and B are filled from: lines are the rows of A and the columns of B. */
struct source {
	uint64_t seed;
	uint64_t lines[2], depth;
};

const char *distribution_name(unsigned d);
/* It has NaN or Inf, or makes some: only finite, +Inf, -Inf and NaN can be told from each other. */
bool distribution_is_classes(unsigned d);
/* Dense, lines one after the other if along_k. */
void distribution_fill(unsigned d, const struct source *source, enum operand operand, float *to, bool along_k);

/* ---- Contests ---- */

/* Sums over the elements of each line of C of own² - peer²: what such elements share makes them err alike. */
struct lines {
	double *excess;
	uint64_t n;
};

/* The errors of the kernel and of its peer, element by element of the same results. */
struct contest {
	double *own, *peer;
	uint64_t n, room;
	struct lines rows, cols;
};

/* Of the element at (row, col): several draws of a case number their lines on. False when memory is short. */
bool contest_add(struct contest *c, uint64_t row, uint64_t col, double own, double peer);
void contest_free(struct contest *c);

struct score {
	uint64_t n;
	double own_max, peer_max, own_rms, peer_rms;
	uint64_t above; /* own errors larger than all of the peer's */
	double excess;  /* sum of own² - peer² over the elements */
	double spread;  /* where both err alike, excess is about that */
};

void contest_score(const struct contest *c, struct score *ret);

/* exact: the peer cannot do better, and chance is no excuse. */
bool score_max_holds(const struct score *s, bool exact);
bool score_rms_holds(const struct score *s, bool exact);

/* Cases of few elements, which say little alone. */
struct pool {
	unsigned cases;
	double excess, squares;
	int larger; /* cases in which own_max was the larger one, less those in which it was the smaller one */
	unsigned decided;
};

void pool_add(struct pool *p, const struct score *s);
bool pool_max_holds(const struct pool *p);
bool pool_rms_holds(const struct pool *p);

/* ---- Duels ---- */

#define SEQUENTIAL "sequential" /* a peer that is no kernel: one fmaf() after the other along K */

/* A problem of gemm in f32. Its matrices are dense. */
struct duel {
	unsigned distribution;
	uint64_t seed, m, n, k;
	bool transposed[3]; /* A, B, C: column-major */
	double alpha, beta; /* as f32 has them */
	unsigned draws;     /* how often, each time with other numbers */
	const char *kernel; /* "": auto */
	const char *peer;   /* a kernel, or SEQUENTIAL */
	unsigned keep_bits; /* of the operands that the kernel gets; 0: all */
};

enum outcome { DUEL_FOUGHT, DUEL_SAME_KERNEL, DUEL_REFUSED, DUEL_BROKEN };

struct duel_result {
	enum outcome outcome;
	const char *kernel; /* that ran */
	struct contest peer;
	struct contest sequential;  /* on a sample of the elements; empty where that is the peer */
	uint64_t elements, differ;  /* for distributions of classes: compared, of another class */
	char why[CHECK_TEXT_BYTES]; /* what the kernel is refused for, what broke, which element differs */
};

/* To be freed in every case. */
void duel_fight(struct target *t, const struct duel *d, struct duel_result *ret);
void duel_result_free(struct duel_result *r);

#endif
