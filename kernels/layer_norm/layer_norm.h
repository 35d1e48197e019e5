/*
 * layer_norm.h: what the files of layer_norm and rms_norm share: operands, parameters, and what parts hand on.
 * Both ops are one computation, with and without subtracting the mean, and share their rules (rules.c) and
 * kernels.
 */
#ifndef KOPS_KERNELS_LAYER_NORM_H
#define KOPS_KERNELS_LAYER_NORM_H

#include "kernel.h"

#ifdef __CUDACC__
#define LAYER_NORM_ANYWHERE static __host__ __device__ __forceinline__
#else
#define LAYER_NORM_ANYWHERE static inline
#endif

enum {
	LAYER_NORM_X,
	LAYER_NORM_WEIGHT,
	LAYER_NORM_BIAS,
	LAYER_NORM_RESIDUAL,
	LAYER_NORM_Y,
	LAYER_NORM_SUM,
	LAYER_NORM_OPERANDS
};

/*
 * What is known of some elements of a row: their number, their mean, and the sum of squared deviations from it.
 * For rms_norm the mean is 0.
 */
struct layer_norm_partial {
	double count, mean, squares;
};

enum layer_norm_pass { LAYER_NORM_WHOLE, LAYER_NORM_MEASURE, LAYER_NORM_WRITE };

/* Indices into struct plain_params. */
enum { LAYER_NORM_EPS };
enum { LAYER_NORM_PASS };
enum { LAYER_NORM_GOES_ON, LAYER_NORM_IS_RMS };

static inline double layer_norm_eps(const struct op_args *args)
{
	return args->params.plain.numbers[LAYER_NORM_EPS];
}

static inline enum layer_norm_pass layer_norm_pass(const struct op_args *args)
{
	return (enum layer_norm_pass)args->params.plain.counts[LAYER_NORM_PASS];
}

/* Returns true if MEASURE continues from the stored partials. */
static inline bool layer_norm_goes_on(const struct op_args *args)
{
	return args->params.plain.flags[LAYER_NORM_GOES_ON];
}

/* Returns true if the mean is taken for 0: rms_norm. Set by check(). */
static inline bool layer_norm_is_rms(const struct op_args *args)
{
	return args->params.plain.flags[LAYER_NORM_IS_RMS];
}

static inline bool layer_norm_has_residual(const struct op_args *args)
{
	return !view_is_absent(&args->views[LAYER_NORM_RESIDUAL]);
}

static inline void layer_norm_set_pass(struct op_args *args, enum layer_norm_pass pass, bool goes_on)
{
	args->params.plain.counts[LAYER_NORM_PASS] = pass;
	args->params.plain.flags[LAYER_NORM_GOES_ON] = goes_on;
}

/*
 * Joins the measures of two sets of elements, without subtracting nearly equal numbers, however far from 0 they
 * are: T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating formulae and a pairwise algorithm for computing sample
 * variances", 1979.
 */
LAYER_NORM_ANYWHERE struct layer_norm_partial layer_norm_join(struct layer_norm_partial a,
                                                              struct layer_norm_partial b)
{
	double count = a.count + b.count, apart = b.mean - a.mean;
	struct layer_norm_partial joined = {count, a.mean + apart * (b.count / count),
	                                    a.squares + b.squares +
	                                        apart * apart * (a.count * b.count / count)};

	return a.count == 0 ? b : b.count == 0 ? a : joined;
}

/*
 * Returns true if f32 is accurate enough for a row with these squares: it can hold them, and what it lost of
 * small ones is negligible beside eps.
 */
static inline bool layer_norm_is_in_f32(double squares, double count, double eps)
{
	return squares <= 1e37 && eps <= 1e37 && (squares >= 1e-30 * count || eps >= 1e-20);
}

/* Returns true for operands of x's shape, if they are there. */
static inline bool layer_norm_has_rows(unsigned v)
{
	return v != LAYER_NORM_WEIGHT && v != LAYER_NORM_BIAS;
}

/* Number of rows of checked args, whose views have rank 4. args must have elements, as all launches do. */
static inline uint64_t layer_norm_rows(const struct op_args *args)
{
	const uint64_t *shape = args->views[LAYER_NORM_X].shape;

	return shape[0] * shape[1] * shape[2];
}

#define LAYER_NORM_KEPT_BYTES   64   /* most bytes of a row that a thread of `kept` holds */
#define LAYER_NORM_KEPT_THREADS 1024 /* most threads for a row */

#endif
