/* emulated_half.h: what f16 and bf16 of CUDA C++ have in common. */
#ifndef KOPS_EMULATED_HALF_H
#define KOPS_EMULATED_HALF_H

#include "common/half.h"
#include "cuda_runtime_api.h"

namespace emulator
{

template <uint16_t (*NARROW)(float), float (*WIDEN)(uint16_t)> struct half {
	uint16_t bits;

	half() = default;
	half(float value) : bits(NARROW(value))
	{
	}
	operator float() const
	{
		return WIDEN(bits);
	}
};

template <class HALF> struct alignas(4) half_pair {
	HALF x, y;
};

} // namespace emulator

#endif
