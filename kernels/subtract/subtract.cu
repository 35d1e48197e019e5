/* subtract's kernels: pairwise.cuh. */
#include "pairwise/pairwise.cuh"

struct difference {
	template <typename T> static __device__ __forceinline__ T of(T a, T b)
	{
		return a - b;
	}
};

PAIRWISE_KERNELS(subtract, difference)
