/* cuda_bf16.h: as much of bf16 in CUDA C++ as the emulated sources name. */
#ifndef KOPS_EMULATED_CUDA_BF16_H
#define KOPS_EMULATED_CUDA_BF16_H

#include "emulated_half.h"

using __nv_bfloat16 = emulator::half<f32_to_bf16, bf16_to_f32>;
using __nv_bfloat162 = emulator::half_pair<__nv_bfloat16>;

inline __nv_bfloat16 __float2bfloat16_rn(float value)
{
	return value;
}

inline float __bfloat162float(__nv_bfloat16 value)
{
	return value;
}

inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value)
{
	return value.bits;
}

inline float2 __bfloat1622float2(__nv_bfloat162 pair)
{
	return {pair.x, pair.y};
}

inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
	return {x, y};
}

inline __nv_bfloat162 __float22bfloat162_rn(float2 pair)
{
	return {pair.x, pair.y};
}

#endif
