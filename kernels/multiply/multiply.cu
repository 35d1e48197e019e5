/* multiply's kernels: pairwise.cuh. */
#include "pairwise/pairwise.cuh"

struct product {
	template <typename T> static __device__ __forceinline__ T of(T a, T b)
	{
		return a * b;
	}
};

PAIRWISE_KERNELS(multiply, product)
