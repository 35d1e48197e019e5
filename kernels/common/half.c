/* half.c: converts arrays of f16 and bf16 to and from f32, in vectors. */
#include "common/half.h"

#include "common/cpu.h"

CPU_CLONES static void widen_f16(float *restrict to, const uint16_t *restrict from, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		to[i] = f16_to_f32(from[i]);
}

CPU_CLONES static void widen_bf16(float *restrict to, const uint16_t *restrict from, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		to[i] = bf16_to_f32(from[i]);
}

CPU_CLONES static void narrow_f16(uint16_t *restrict to, const float *restrict from, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		to[i] = f32_to_f16(from[i]);
}

CPU_CLONES static void narrow_bf16(uint16_t *restrict to, const float *restrict from, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		to[i] = f32_to_bf16(from[i]);
}

void half_widen(float *to, const void *from, kops_dtype dtype, int64_t n)
{
	if (dtype == KOPS_F16)
		widen_f16(to, from, n);
	else
		widen_bf16(to, from, n);
}

void half_narrow(void *to, kops_dtype dtype, const float *from, int64_t n)
{
	if (dtype == KOPS_F16)
		narrow_f16(to, from, n);
	else
		narrow_bf16(to, from, n);
}
