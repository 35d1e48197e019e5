/*
 * half.h: converts f16 and bf16 to and from f32 and f64, in integer arithmetic. Rounds to nearest even, and
 * keeps subnormals, infinities and NaN (but not its payload). Branch-free, so that loops vectorise. The f16
 * pair follows M. Dukhan's FP16 library (fp16_ieee_to_fp32_value and its inverse).
 */
#ifndef KOPS_HALF_H
#define KOPS_HALF_H

#include <stdint.h>
#include <string.h>

#include "kops_types.h"

static inline float half_float(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof f);
	return f;
}

static inline uint32_t half_bits(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof bits);
	return bits;
}

static inline float bf16_to_f32(uint16_t h)
{
	return half_float((uint32_t)h << 16);
}

static inline uint16_t f32_to_bf16(float f)
{
	uint32_t bits = half_bits(f);
	uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
	uint32_t nan = (bits >> 16) | 0x40u;

	return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

static inline float f16_to_f32(uint16_t h)
{
	uint32_t w = (uint32_t)h << 16, sign = w & 0x80000000u, twice = w + w;
	uint32_t normal = half_bits(half_float((twice >> 4) + (0xe0u << 23)) * 0x1.0p-112f);
	uint32_t subnormal = half_bits(half_float((twice >> 17) | (126u << 23)) - 0.5f);

	return half_float(sign | (twice < (1u << 27) ? subnormal : normal));
}

static inline uint16_t f32_to_f16(float f)
{
	uint32_t w = half_bits(f), sign = w >> 16 & 0x8000u, twice = w + w;
	/* Overflows to infinity if f16 does; exact otherwise. */
	float base = (half_float(w & 0x7fffffffu) * 0x1.0p+112f) * 0x1.0p-110f;
	uint32_t bias = twice & 0xff000000u;

	/* Adding a power of two whose last bit is f16's rounds to nearest even. */
	bias = bias < 0x71000000u ? 0x71000000u : bias;
	uint32_t sum = half_bits(half_float((bias >> 1) + 0x07800000u) + base);
	uint32_t rounded = (sum >> 13 & 0x7c00u) + (sum & 0xfffu);
	return (uint16_t)(sign | (twice > 0xff000000u ? 0x7e00u : rounded));
}

/*
 * Rounds to f32 with the last bit set if d lies between two numbers: rounding that again to fewer bits is
 * exact.
 */
static inline float half_round_to_odd(double d)
{
	float f = (float)d;
	double back = (double)f;

	if (back == d || d != d)
		return f;
	uint32_t bits = half_bits(f);
	if ((back > d) == (d > 0)) /* away from zero: step back */
		bits--;
	return half_float(bits | 1u);
}

/* Returns element i of an array in float64; 0 for a type that is no real number. */
static inline double half_load(const void *array, kops_dtype dtype, int64_t i)
{
	switch (dtype) {
	case KOPS_F32:
		return ((const float *)array)[i];
	case KOPS_F64:
		return ((const double *)array)[i];
	case KOPS_F16:
		return f16_to_f32(((const uint16_t *)array)[i]);
	case KOPS_BF16:
		return bf16_to_f32(((const uint16_t *)array)[i]);
	default:
		return 0;
	}
}

/* Rounds once, to nearest even. Stores nothing for a type that is no real number. */
static inline void half_store(void *array, kops_dtype dtype, int64_t i, double value)
{
	switch (dtype) {
	case KOPS_F32:
		((float *)array)[i] = (float)value;
		break;
	case KOPS_F64:
		((double *)array)[i] = value;
		break;
	case KOPS_F16:
		((uint16_t *)array)[i] = f32_to_f16(half_round_to_odd(value));
		break;
	case KOPS_BF16:
		((uint16_t *)array)[i] = f32_to_bf16(half_round_to_odd(value));
		break;
	default:
		break;
	}
}

/* Convert n elements of f16 or bf16 to f32, and back. The arrays must not overlap. (half.c) */
void half_widen(float *to, const void *from, kops_dtype dtype, int64_t n);
void half_narrow(void *to, kops_dtype dtype, const float *from, int64_t n);

#endif
