/* cuda_fp16.h: as much of f16 in CUDA C++ as the emulated sources name. */
#ifndef KOPS_EMULATED_CUDA_FP16_H
#define KOPS_EMULATED_CUDA_FP16_H

#include "emulated_half.h"

using __half = emulator::half<f32_to_f16, f16_to_f32>;
using __half2 = emulator::half_pair<__half>;

inline __half __float2half_rn(float value)
{
	return value;
}

inline float __half2float(__half value)
{
	return value;
}

inline unsigned short __half_as_ushort(__half value)
{
	return value.bits;
}

inline float2 __half22float2(__half2 pair)
{
	return {pair.x, pair.y};
}

inline __half2 __floats2half2_rn(float x, float y)
{
	return {x, y};
}

inline __half2 __float22half2_rn(float2 pair)
{
	return {pair.x, pair.y};
}

#endif
