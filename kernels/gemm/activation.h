/*
 * activation.h: the activations of gemm, for all devices.
 *
 *   relu       max(v, 0)
 *   gelu       v · Φ(v), where Φ is the distribution function of the standard normal distribution
 *   gelu_tanh  v · (1 + tanh(√(2/π) · (v + 0.044715 · v³))) / 2, an approximation of it
 *   silu       v · σ(v), where σ(z) = 1 / (1 + e^-z)
 *
 * D. Hendrycks, K. Gimpel, "Gaussian Error Linear Units", 2016. NaN stays NaN. The last three are NaN at
 * -Infinity, as 0 times Infinity is.
 *
 * In f32 the last three are v · σ(v · P(v²)) with a polynomial P for each: 1 for silu; of degree 1 for
 * gelu_tanh, exactly; and for gelu one that was fitted to log(Φ / (1 - Φ)) / v so that the largest error of Φ
 * is smallest. That is 2.9e-8, half a unit in the last place of 1. So all of them are one short formula without
 * a choice for each element. Beyond |v| = 6.5 they are v and 0 to that accuracy, and v² is taken for 6.5²
 * there.
 */
#ifndef KOPS_KERNELS_GEMM_ACTIVATION_H
#define KOPS_KERNELS_GEMM_ACTIVATION_H

#include <math.h>

#include "kernel.h"

#define ACTIVATION_TERMS      7
#define ACTIVATION_SQUARE_MAX 42.25f

/* Coefficients of P, by rising powers, in the order of enum gemm_activation. */
static const float activation_terms[][ACTIVATION_TERMS] = {
    {0}, /* none */
    {0}, /* relu */
    {1.595769882920714f, 7.266616914821242e-2f, -6.518995174339232e-5f, -1.1061238707156968e-4f,
     7.929488754389184e-6f, -2.645266713696599e-7f, 3.5123412272065964e-9f},
    {1.5957691216057308f, 7.135481627260025e-2f},
    {1},
};

#ifdef __CUDACC__
#define ACTIVATION_ANYWHERE static __host__ __device__ __forceinline__
#else
#define ACTIVATION_ANYWHERE static inline
#endif

/* The definition. */
ACTIVATION_ANYWHERE double activation_of(enum gemm_activation activation, double v)
{
	switch (activation) {
	case GEMM_ACTIVATION_RELU:
		return v < 0 ? 0 : v;
	case GEMM_ACTIVATION_GELU:
		return v * (0.5 * erfc(-v * M_SQRT1_2));
	case GEMM_ACTIVATION_GELU_TANH:
		return v / (1 + exp(-2 * (M_2_SQRTPI * M_SQRT1_2) * (v + 0.044715 * v * v * v)));
	case GEMM_ACTIVATION_SILU:
		return v / (1 + exp(-v));
	case GEMM_ACTIVATION_NONE:
		break;
	}
	return v;
}

#undef ACTIVATION_ANYWHERE

#endif
