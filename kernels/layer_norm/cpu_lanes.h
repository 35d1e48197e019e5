/* cpu_lanes.h: short rows of layer_norm on the CPU, several at a time. */
#ifndef KOPS_KERNELS_LAYER_NORM_CPU_LANES_H
#define KOPS_KERNELS_LAYER_NORM_CPU_LANES_H

#include <stdbool.h>
#include <stdint.h>

#define LAYER_NORM_LANES         16 /* rows at a time: floats of the widest vector */
#define LAYER_NORM_LANES_COLUMNS 32 /* longest rows for which this is faster than one row at a time */

/* Element i of all rows is adjacent. */
struct layer_norm_lanes {
	_Alignas(64) float at[LAYER_NORM_LANES_COLUMNS][LAYER_NORM_LANES];
};

/*
 * Replaces the rows, of n columns, by the results; weight and bias are NULL if absent. is_rms: the mean is 0.
 * Returns a mask: bit i is set if f32 is not accurate enough for row i (layer_norm_is_in_f32()), whose lane is
 * then undefined.
 */
uint32_t layer_norm_of_lanes(struct layer_norm_lanes *rows, int64_t n, bool is_rms, const float *weight,
                             const float *bias, double eps);

#endif
