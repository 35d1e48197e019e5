/*
 * batch.h: matrices of CUDA kernels, and what the blocked algorithms of several ops are made of.
 *
 * A blocked algorithm halves its matrices until a kernel takes a block as one: so most of the work is products
 * of large blocks, which cuBLAS computes. Everything is enqueued; nothing is decided by the host on the way.
 */
#ifndef KOPS_LINALG_BATCH_H
#define KOPS_LINALG_BATCH_H

#include "common/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Matrices of one shape, equally far apart. Strides in elements. */
struct linalg_batch {
	char *data;
	kops_dtype dtype;
	uint64_t n, rows, cols;
	int64_t batch, row, col;
};

/* Rows and columns of the largest block that solving takes as one: a triangle that fits into shared memory. */
#define LINALG_SOLVED_MAX(dtype) ((dtype) == KOPS_C128 ? 32u : 64u)

/* x = T⁻¹·x, T the lower triangle of t, or its conjugate. unit: the diagonal is 1 and not read. */
struct linalg_solve {
	struct linalg_batch t, x;
	bool conjugated, unit;
};

/* Enqueues for a triangle of at most LINALG_SOLVED_MAX. (solve.cu) */
int linalg_solve_block(const struct linalg_solve *s, const struct launch *launch);

/* ---- blocked.c ---- */

/* The matrices of a view of rank 4 along its axis 1, of index `outer` along axis 0. */
struct linalg_batch linalg_batch_of(const struct view *v, uint64_t outer);

struct linalg_batch linalg_batch_block(const struct linalg_batch *m, uint64_t row, uint64_t col, uint64_t rows,
                                       uint64_t cols);
struct linalg_batch linalg_batch_transposed(const struct linalg_batch *m);

/* Whether rows or columns are runs of elements, as cuBLAS takes them. */
bool linalg_has_runs(const struct view *v);

/* Where a block of n is halved: at a multiple of `unit`, which is less than n. */
uint64_t linalg_half(uint64_t n, uint64_t unit);

/* Enqueue c -= a·b, with conjugates of a or of b; and what linalg_solve says. */
int linalg_subtract_product(const struct linalg_batch *a, bool conj_a, const struct linalg_batch *b,
                            bool conj_b, const struct linalg_batch *c, const struct launch *launch);
int linalg_solve_all(const struct linalg_solve *s, const struct launch *launch);

/*
 * For supports: whether a step on one matrix takes no longer than others' jobs may wait for it, 40 ms. Input a
 * is what the first step reads, and output v what others do.
 */
bool linalg_steps_are_short(const struct op_args *args, unsigned a, unsigned v,
                            double (*time_ns)(const struct op_args *args), const char **ret_why_not);

/* For time_ns: what a part of a factorisation reads and writes of the matrices behind `v` once, the first part
 * of those of input `a`. */
double linalg_pass_ns(const struct op_args *args, unsigned a, unsigned v);

/* For time_ns: of so many real operations in products of blocks, and of launches. */
double linalg_products_ns(kops_dtype dtype, double flops);
#define LINALG_LAUNCH_NS 2500.0

#ifdef __cplusplus
}
#endif

#endif
