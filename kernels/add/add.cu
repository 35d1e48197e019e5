/* add's kernels: pairwise.cuh. */
#include "pairwise/pairwise.cuh"

struct sum {
	template <typename T> static __device__ __forceinline__ T of(T a, T b)
	{
		return a + b;
	}
};

PAIRWISE_KERNELS(add, sum)
