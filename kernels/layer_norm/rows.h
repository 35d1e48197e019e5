/* rows.h: the elements of rows in layer_norm and rms_norm, for the reference and for the CPU. */
#ifndef KOPS_KERNELS_LAYER_NORM_ROWS_H
#define KOPS_KERNELS_LAYER_NORM_ROWS_H

#include "common/half.h"
#include "layer_norm/layer_norm.h"

/* Where some elements of a row are in the views that have rows, in elements from a view's first. */
struct layer_norm_place {
	int64_t of[LAYER_NORM_OPERANDS];
};

static inline struct layer_norm_place layer_norm_row(const struct op_args *args, uint64_t row)
{
	struct layer_norm_place place = {{0}};

	for (unsigned v = 0; v < LAYER_NORM_OPERANDS; v++)
		if (args->views[v].rank == 4)
			place.of[v] = view_row(&args->views[v], row);
	return place;
}

static inline struct layer_norm_place layer_norm_column(const struct op_args *args,
                                                        struct layer_norm_place place, int64_t column)
{
	for (unsigned v = 0; v < LAYER_NORM_OPERANDS; v++)
		if (args->views[v].rank == 4)
			place.of[v] += column * args->views[v].strides[3];
	return place;
}

/* Returns element i from there on of x, or of x + residual, rounded to their type. */
static inline double layer_norm_element(const struct op_args *args, const struct layer_norm_place *at,
                                        int64_t i)
{
	const struct view *x = &args->views[LAYER_NORM_X], *residual = &args->views[LAYER_NORM_RESIDUAL];
	double value = half_load(x->data, x->dtype, at->of[LAYER_NORM_X] + i * x->strides[3]), rounded;

	if (view_is_absent(residual))
		return value;
	half_store(&rounded, x->dtype, 0,
	           value + half_load(residual->data, x->dtype,
	                             at->of[LAYER_NORM_RESIDUAL] + i * residual->strides[3]));
	return half_load(&rounded, x->dtype, 0);
}

#endif
