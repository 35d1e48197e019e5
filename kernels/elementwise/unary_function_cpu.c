#include "elementwise/unary_function_cpu.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "common/cpu.h"

/*
 * exp(v), relative error below 2 ulp where the result is normal; infinite and 0 where it is out of range; NaN
 * stays. 2^n may be out of range where the result is not, so it comes in two factors.
 */
static inline float exp_any(float v)
{
	float t = v > 89 ? 89 : v < -104 ? -104 : v;
	uint32_t bits;
	float p = cpu_exp_parts(t, &bits);
	int32_t n = (int32_t)bits;

	n = n > 129 ? 129 : n < -151 ? -151 : n; /* that of NaN may be anything */
	return p * cpu_power_of_two((uint32_t)(n >> 1)) * cpu_power_of_two((uint32_t)(n - (n >> 1)));
}

/*
 * log(v), relative error below 2 ulp. v = 2^n · (1 + f) with 1 + f between √½ and √2. With s = f / (2 + f),
 * log(1 + f) = 2 · artanh(s) = f - s · (f - R), and R is four terms of the series, whose error is 4e-9. That is
 * arranged so that no large numbers cancel, with ln 2 in two parts.
 */
static inline float log_any(float v)
{
	const uint32_t root = 0x3f3504f3; /* bits of √½ */
	bool subnormal = v < FLT_MIN;
	float normal = subnormal ? v * 0x1p23f : v;
	uint32_t bits;
	float f;

	memcpy(&bits, &normal, sizeof bits);
	int32_t n = (int32_t)(bits - root) >> 23;
	bits -= (uint32_t)n << 23;
	memcpy(&f, &bits, sizeof f);
	f -= 1;
	float k = (float)(subnormal ? n - 23 : n), s = f / (2 + f), square = s * s, half = 0.5f * f * f;
	float r = square * (2.0f / 3 + square * (2.0f / 5 + square * (2.0f / 7 + square * (2.0f / 9))));
	float y = k * 0.693359375f + (f - (half - (s * (half + r) + k * -2.12194440e-4f)));

	y = v <= FLT_MAX ? y : v; /* +Infinity, NaN */
	y = v == 0 ? -INFINITY : y;
	return v < 0 ? NAN : y;
}

static inline float sigmoid(float z)
{
	float e = cpu_exp_negative(z < 0 ? z : -z);

	return (z < 0 ? e : 1) / (1 + e);
}

/*
 * tanh(v), relative error below 4 ulp. Up to 0.625, where 1 - e^-2v would cancel, it is v · (1 + v² · Q(v²)),
 * also of -0; Q was fitted so that the largest relative error is smallest, 5e-9.
 */
static inline float tanh_any(float v)
{
	float z = fabsf(v), square = v * v, e = cpu_exp_negative(-2 * z);
	float q = -0.00564830326f;

	q = q * square + 0.0205898138f;
	q = q * square - 0.0537251223f;
	q = q * square + 0.133312744f;
	q = q * square - 0.333332761f;
	float small = v * (1 + square * q), large = copysignf((1 - e) / (1 + e), v);
	return z < 0.625f ? small : large;
}

/* v · σ(v · P(v²)): see unary_function.h. */
static inline float bent(float v, const float *terms)
{
	float square = v * v, p = terms[UNARY_TERMS - 1];

	square = square > UNARY_SQUARE_MAX ? UNARY_SQUARE_MAX : square;
	for (int t = UNARY_TERMS - 2; t >= 0; t--)
		p = p * square + terms[t];
	return v * sigmoid(v * p);
}

static inline float relu(float v)
{
	return v < 0 ? 0 : v;
}

static inline double relu_f64(double v)
{
	return v < 0 ? 0 : v;
}

/* ---- Loops ---- */

#define LOOP(name, type, of)                                                                                   \
	CPU_CLONES static void name(type *v, int64_t n)                                                        \
	{                                                                                                      \
		_Pragma("omp simd") for (int64_t i = 0; i < n; i++) v[i] = of(v[i]);                           \
	}

LOOP(apply_relu, float, relu)
LOOP(apply_sigmoid, float, sigmoid)
LOOP(apply_tanh, float, tanh_any)
LOOP(apply_exp, float, exp_any)
LOOP(apply_log, float, log_any)
LOOP(apply_sqrt, float, sqrtf)
LOOP(apply_abs, float, fabsf)
LOOP(apply_relu_f64, double, relu_f64)
LOOP(apply_sqrt_f64, double, sqrt)
LOOP(apply_abs_f64, double, fabs)

CPU_CLONES static void bend(float *v, int64_t n, const float *terms)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		v[i] = bent(v[i], terms);
}

void unary_apply_f32(enum unary_function function, float *v, int64_t n)
{
	static void (*const loops[])(float *v, int64_t n) = {
	    [UNARY_RELU] = apply_relu, [UNARY_SIGMOID] = apply_sigmoid, [UNARY_TANH] = apply_tanh,
	    [UNARY_EXP] = apply_exp,   [UNARY_LOG] = apply_log,         [UNARY_SQRT] = apply_sqrt,
	    [UNARY_ABS] = apply_abs};
	const float *terms = unary_terms_of(function);

	if (terms)
		bend(v, n, terms);
	else if (function != UNARY_NONE)
		loops[function](v, n);
}

void unary_apply_f64(enum unary_function function, double *v, int64_t n)
{
	switch (function) {
	case UNARY_NONE:
		return;
	case UNARY_RELU:
		apply_relu_f64(v, n);
		return;
	case UNARY_SQRT:
		apply_sqrt_f64(v, n);
		return;
	case UNARY_ABS:
		apply_abs_f64(v, n);
		return;
	default:
		for (int64_t i = 0; i < n; i++)
			v[i] = unary_of(function, v[i]);
	}
}

double unary_element_ns(enum unary_function function, kops_dtype dtype)
{
	bool is_cheap = function <= UNARY_RELU || function == UNARY_ABS || function == UNARY_SQRT;

	if (dtype == KOPS_F64)
		return is_cheap ? 1 : 20;
	return is_cheap ? 0.3 : 1;
}
