/*
 * cases.h: problems of an op that are known by their shape alone, for `kops-client tune` and kops-bench, and
 * what the latter measures: part of the op's descriptor. What is left out of that is as for an op that goes
 * over elements of a matrix, such as copy.
 */
#ifndef KOPS_CLI_OP_CASES_H
#define KOPS_CLI_OP_CASES_H

#include <stdbool.h>
#include <stdint.h>

#include "kops.h"

struct step;

/* Shapes of --random: extents from low to high whose product is at most `elements`. */
struct bench_span {
	uint64_t low[3], high[3], elements;
};

/* A part of a result of rank 2. */
struct bench_block {
	uint64_t row, rows, column, columns;
};

struct bench_cases {
	const char *what;     /* "softmax of rows": for -h */
	const char *form;     /* of a shape; NULL: ROWSxCOLUMNS */
	const char *examples; /* lines for -h */
	const char *seed;     /* --table seed: the shapes, with commas between; the first is small */
	unsigned n_extents;   /* 0: 2 */
	uint64_t alone;       /* what one number leaves out; 0: the same number again */
	uint64_t most[3];     /* extents; 0: 2^40 */
	struct bench_span random, random_cpu; /* the CPU's ends where it takes as long as a GPU does */
	bool counts_flops; /* judged by its FLOPs, 2 times the product of the extents; else by bytes */
	bool is_measure;   /* what others are compared with: it has no peer */
	/* The op's kernels that the others are compared with; NULL: a copy of as many bytes is. */
	const char *peer_gpu, *peer_cpu;
	bool reads_rows; /* each element comes from a whole row of the first input */
	bool whole_rows; /* the result is checked by whole rows */
	/* Sets views (kops_tensor() without buffer) and settings. NULL: all operands are of the shape. */
	void (*operands)(struct step *step, kops_dtype dtype, const uint64_t *extents);
	/* Cuts the inputs to what a block of the result comes from. NULL: the same block. */
	void (*cut)(struct step *part, const struct bench_block *at);
};

#endif
