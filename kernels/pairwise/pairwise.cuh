/*
 * y of two inputs element by element, by the kernels of elementwise.cuh.
 *
 *   kernel   idea                                      threads  bound
 *   scalar   one element per thread, any strides       256      blocks per second
 *   float4   128 bits per access where all three       512      HBM 4.2 TB/s (read + written); in L2 the coming
 *            views are runs that share their                    and going of blocks: 2048 blocks of 128 threads
 *            alignment, single elements at both ends;           take 3.6 us, 512 of 512 2.3
 *            else as scalar
 *   float4x  the same, four accesses of each view per  64       the same
 *            thread: eight loads are under way before
 *            the first is waited for
 *
 * Measured, H200, add, one launch after another, us:
 *
 *   f32            64 Ki  256 Ki  512 Ki  1 Mi  4 Mi  16 Mi     in L2: 64 Ki  256 Ki  512 Ki  1 Mi  4 Mi
 *   float4         1.71   2.27    3.10    4.68  13.3  47.5             1.10   1.28    1.68    2.28  11.8
 *   float4x        1.65   2.10    2.95    4.45  13.4  47.9             1.07   1.31    1.74    2.50  11.7
 *   PyTorch 2.11   2.05   2.57    3.38    4.83  13.6  48.1             1.32   1.60    1.88    2.52  11.9
 *
 * From 2^26 elements on float4 is 0.2 % ahead. What else was tried: docs/lab/moves.md.
 */
#ifndef KOPS_PAIRWISE_CUH
#define KOPS_PAIRWISE_CUH

#include "elementwise/elementwise.cuh"

namespace
{

/* OF::of() has two float or two double. */
template <class OF> struct pairwise {
	static constexpr unsigned INPUTS = 2;

	template <typename F, int N> __device__ __forceinline__ void apply(F (&x)[INPUTS][N]) const
	{
#pragma unroll
		for (int i = 0; i < N; i++)
			x[0][i] = OF::of(x[0][i], x[1][i]);
	}
};

template <class OF> pairwise<OF> pairwise_of(const op_args *)
{
	return {};
}

} // namespace

#define PAIRWISE_KERNELS(NAME, of) ELEMENTWISE_KERNELS(NAME, pairwise_of<of>)

#endif
