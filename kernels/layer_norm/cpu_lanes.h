/* cpu_lanes.h: short rows of layer_norm on the CPU, several at a time. */
#ifndef KOPS_KERNELS_LAYER_NORM_CPU_LANES_H
#define KOPS_KERNELS_LAYER_NORM_CPU_LANES_H

#include <stdint.h>

#define LAYER_NORM_LANES         16 /* rows at a time: floats of the widest vector */
#define LAYER_NORM_LANES_COLUMNS 32 /* up to which that is faster than a row after the other */

/* Element i of each row side by side. */
struct layer_norm_lanes {
	_Alignas(64) float at[LAYER_NORM_LANES_COLUMNS][LAYER_NORM_LANES];
};

/*
 * Replaces the rows, of n columns, by the result; weight and bias are NULL where there is none. Bit i of what
 * it returns is set where f32 does not do for row i (layer_norm_is_in_f32()), whose lane then means nothing.
 */
uint32_t layer_norm_of_lanes(struct layer_norm_lanes *rows, int64_t n, const float *weight, const float *bias,
                             double eps);

#endif
