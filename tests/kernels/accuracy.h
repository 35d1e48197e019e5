/*
 * accuracy.h: the parts of check_accuracy, which compares the errors of one kernel of gemm with another's.
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

#define DISTRIBUTIONS 21

enum operand { OPERAND_A, OPERAND_B };

/* What A and B are filled from; lines are the rows of A and the columns of B. */
struct source {
	uint64_t seed;
	uint64_t lines[2], depth;
};

const char *distribution_name(unsigned d);
/* Returns true if the data have or make NaN or Inf: then only finite, +Inf, -Inf and NaN can be compared. */
bool distribution_is_classes(unsigned d);
/* Fills a dense operand; its lines follow each other if along_k. */
void distribution_fill(unsigned d, const struct source *source, enum operand operand, float *to, bool along_k);

/* ---- Contests ---- */

/* Sums of own² - peer² over each line of C: elements that share a line err alike. */
struct lines {
	double *excess;
	uint64_t n;
};

/* The errors of the kernel and its peer, element by element of the same results. */
struct contest {
	double *own, *peer;
	uint64_t n, room;
	struct lines rows, cols;
};

/*
 * Adds the element at (row, col). Further draws of a case continue the numbers of lines. Returns false if out
 * of memory.
 */
bool contest_add(struct contest *c, uint64_t row, uint64_t col, double own, double peer);
void contest_free(struct contest *c);

struct score {
	uint64_t n;
	double own_max, peer_max, own_rms, peer_rms;
	uint64_t above; /* number of own errors larger than all of the peer's */
	double excess;  /* sum of own² - peer² over the elements */
	double spread;  /* size of excess that is usual if both err alike */
};

void contest_score(const struct contest *c, struct score *ret);

/* exact: the peer rounds correctly, so chance excuses nothing. */
bool score_max_holds(const struct score *s, bool exact);
bool score_rms_holds(const struct score *s, bool exact);

/* Cases of few elements, which prove little alone. */
struct pool {
	unsigned cases;
	double excess, squares;
	int larger; /* cases with the larger own_max, minus cases with the smaller one */
	unsigned decided;
};

void pool_add(struct pool *p, const struct score *s);
bool pool_max_holds(const struct pool *p);
bool pool_rms_holds(const struct pool *p);

/* ---- Duels ---- */

#define SEQUENTIAL "sequential" /* a peer that is no kernel: one fmaf() after another along K */

/* A problem of gemm in f32. Its matrices are dense. */
struct duel {
	unsigned distribution;
	uint64_t seed, m, n, k;
	bool transposed[3]; /* A, B, C: column-major */
	double alpha, beta; /* rounded to f32 */
	unsigned draws;     /* how often to repeat with other numbers */
	const char *kernel; /* "": auto */
	const char *peer;   /* a kernel, or SEQUENTIAL */
	unsigned keep_bits; /* significant bits of the kernel's operands; 0: all */
};

enum outcome { DUEL_FOUGHT, DUEL_SAME_KERNEL, DUEL_REFUSED, DUEL_BROKEN };

struct duel_result {
	enum outcome outcome;
	const char *kernel; /* the kernel that ran */
	struct contest peer;
	struct contest sequential;  /* on a sample of the elements; empty if SEQUENTIAL is the peer */
	uint64_t elements, differ;  /* for distributions of classes: compared, and of another class */
	char why[CHECK_TEXT_BYTES]; /* why the kernel refused, what failed, or which element differs */
};

/* *ret must be freed in every case. */
void duel_fight(struct target *t, const struct duel *d, struct duel_result *ret);
void duel_result_free(struct duel_result *r);

#endif
