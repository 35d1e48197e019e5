/*
 * unary_function.h: functions of one number, for all devices: what unary computes. The first ones are gemm's
 * activations too.
 *
 *   relu       max(v, 0)
 *   gelu       v · Φ(v), where Φ is the distribution function of the standard normal distribution
 *   gelu_tanh  v · (1 + tanh(√(2/π) · (v + 0.044715 · v³))) / 2, an approximation of it
 *   silu       v · σ(v), where σ(z) = 1 / (1 + e^-z)
 *   sigmoid    σ(v)
 *
 * D. Hendrycks, K. Gimpel, "Gaussian Error Linear Units", 2016. NaN stays NaN. gelu, gelu_tanh and silu are NaN
 * at -Infinity, as 0 times Infinity is.
 *
 * In f32 these three are v · σ(v · P(v²)) with a polynomial P for each: 1 for silu; of degree 1 for gelu_tanh,
 * exactly; and for gelu one that was fitted to log(Φ / (1 - Φ)) / v so that the largest error of Φ is smallest.
 * That is 2.9e-8, half a unit in the last place of 1. So all of them are one short formula without a choice for
 * each element. Beyond |v| = 6.5 they are v and 0 to that accuracy, and v² is taken for 6.5² there.
 */
#ifndef KOPS_KERNELS_UNARY_FUNCTION_H
#define KOPS_KERNELS_UNARY_FUNCTION_H

#include <math.h>

#include "kernel.h"

#define UNARY_TERMS      7
#define UNARY_SQUARE_MAX 42.25f

/* In the order of the enumeration, as C++ has no array designators. */
static const char *const unary_names[UNARY_FUNCTIONS] = {"none", "relu", "gelu", "gelu_tanh", "silu", "sigmoid",
                                                         "tanh", "exp",  "log",  "sqrt",      "abs"};

/* Coefficients of P, by rising powers. */
static const float unary_terms[GEMM_ACTIVATIONS][UNARY_TERMS] = {
    {0}, /* none */
    {0}, /* relu */
    {1.595769882920714f, 7.266616914821242e-2f, -6.518995174339232e-5f, -1.1061238707156968e-4f,
     7.929488754389184e-6f, -2.645266713696599e-7f, 3.5123412272065964e-9f},
    {1.5957691216057308f, 7.135481627260025e-2f},
    {1},
};

/* Returns the coefficients; NULL if the function is not of that form. */
static inline const float *unary_terms_of(enum unary_function function)
{
	return function >= UNARY_GELU && function < GEMM_ACTIVATIONS ? unary_terms[function] : NULL;
}

#ifdef __CUDACC__
#define UNARY_ANYWHERE static __host__ __device__ __forceinline__
#else
#define UNARY_ANYWHERE static inline
#endif

/* The definitions: of gemm's activations, whose kernels have no code for the others; of all. */
UNARY_ANYWHERE double unary_activation_of(enum unary_function function, double v)
{
	switch (function) {
	case UNARY_RELU:
		return v < 0 ? 0 : v;
	case UNARY_GELU:
		return v * (0.5 * erfc(-v * M_SQRT1_2));
	case UNARY_GELU_TANH:
		return v / (1 + exp(-2 * (M_2_SQRTPI * M_SQRT1_2) * (v + 0.044715 * v * v * v)));
	case UNARY_SILU:
		return v / (1 + exp(-v));
	default:
		return v;
	}
}

UNARY_ANYWHERE double unary_of(enum unary_function function, double v)
{
	switch (function) {
	case UNARY_SIGMOID:
		return 1 / (1 + exp(-v));
	case UNARY_TANH:
		return tanh(v);
	case UNARY_EXP:
		return exp(v);
	case UNARY_LOG:
		return log(v);
	case UNARY_SQRT:
		return sqrt(v);
	case UNARY_ABS:
		return fabs(v);
	default:
		return unary_activation_of(function, v);
	}
}

#undef UNARY_ANYWHERE

#endif
