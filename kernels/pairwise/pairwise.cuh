/*
 * y of two inputs element by element; broadcast operands come with strides 0. f16 and bf16 are computed in f32
 * and rounded once.
 *
 *   kernel   idea                                      threads  bound
 *   scalar   one element per thread, any strides       256      blocks per second
 *   float4   128 bits per access where all three       512      HBM 4.2 TB/s (read + written); in L2 the coming
 *            views are runs that share their                    and going of blocks: 2048 blocks of 128 threads
 *            alignment, single elements at both ends;           take 3.6 us, 512 of 512 2.3
 *            else as scalar
 *   float4x  the same, four accesses of each view per  64       the same
 *            thread: eight loads are under way before
 *            the first is waited for; one if there are few
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

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <string.h>

#include "common/launch.cuh"
#include "common/together.cuh"

namespace
{

constexpr unsigned ELEMENT_THREADS = 256;
constexpr uint64_t GRID_MAX = 1u << 20;

/* An element: the 16-bit types by way of f32, rounded once. OPERATION::of() has two float or two double. */
template <typename OPERATION, typename T> __device__ __forceinline__ T combine(T a, T b)
{
	if constexpr (sizeof(T) == 2)
		return (T)OPERATION::of((float)a, (float)b);
	else
		return OPERATION::of(a, b);
}

/* 128 bits of elements. */
template <typename OPERATION, typename T> __device__ __forceinline__ uint4 combine_vectors(uint4 a, uint4 b)
{
	constexpr int N = sizeof(uint4) / sizeof(T);
	T u[N], v[N];

	memcpy(u, &a, sizeof a);
	memcpy(v, &b, sizeof b);
#pragma unroll
	for (int i = 0; i < N; i++)
		u[i] = combine<OPERATION>(u[i], v[i]);
	memcpy(&a, u, sizeof a);
	return a;
}

/* UNROLL vectors, THREADS apart. All are loaded before the first is stored: y may be a or b. */
template <typename OPERATION, typename T, int THREADS, int UNROLL, bool WHOLE>
__device__ __forceinline__ void combine_chunk(const uint4 *a, const uint4 *b, uint4 *y, uint64_t i,
                                              uint64_t vectors)
{
	uint4 u[UNROLL], v[UNROLL];

#pragma unroll
	for (int k = 0; k < UNROLL; k++)
		if (WHOLE || i + k * THREADS < vectors) {
			u[k] = a[i + k * THREADS];
			v[k] = b[i + k * THREADS];
		}
#pragma unroll
	for (int k = 0; k < UNROLL; k++)
		if (WHOLE || i + k * THREADS < vectors)
			y[i + k * THREADS] = combine_vectors<OPERATION, T>(u[k], v[k]);
}

/* No __restrict__ here: y may be a or b. */
template <typename OPERATION, typename T, int THREADS, int UNROLL, unsigned OPS>
__global__ void __launch_bounds__(THREADS) combine_runs(const __grid_constant__ operands<3, OPS> where,
                                                        uint64_t head, uint64_t vectors, uint64_t count)
{
	const T *a = (const T *)where.at(0, blockIdx.y), *b = (const T *)where.at(1, blockIdx.y);
	T *y = (T *)where.at(2, blockIdx.y);
	constexpr uint64_t CHUNK = (uint64_t)THREADS * UNROLL;
	uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
	uint64_t tail = head + vectors * (sizeof(uint4) / sizeof(T));
	const uint4 *a4 = (const uint4 *)(a + head), *b4 = (const uint4 *)(b + head);
	uint4 *y4 = (uint4 *)(y + head);

	await_kernel_before();
	for (uint64_t at = blockIdx.x * CHUNK; at < vectors; at += gridDim.x * CHUNK)
		if (at + CHUNK <= vectors)
			combine_chunk<OPERATION, T, THREADS, UNROLL, true>(a4, b4, y4, at + threadIdx.x,
			                                                   vectors);
		else
			combine_chunk<OPERATION, T, THREADS, UNROLL, false>(a4, b4, y4, at + threadIdx.x,
			                                                    vectors);
	if (i < head)
		y[i] = combine<OPERATION>(a[i], b[i]);
	if (i < count - tail)
		y[tail + i] = combine<OPERATION>(a[tail + i], b[tail + i]);
	let_next_kernel_come();
}

template <typename OPERATION, typename T, typename Index, unsigned OPS>
__global__ void __launch_bounds__(ELEMENT_THREADS)
    combine_elements(const __grid_constant__ operands<3, OPS> where, cuda_axes axes, Index count)
{
	const T *a = (const T *)where.at(0, blockIdx.y), *b = (const T *)where.at(1, blockIdx.y);
	T *y = (T *)where.at(2, blockIdx.y);
	Index step = (Index)gridDim.x * ELEMENT_THREADS;

	for (Index i = (Index)blockIdx.x * ELEMENT_THREADS + threadIdx.x; i < count; i += step) {
		Index rest = i;
		int64_t at_a = 0, at_b = 0, at_y = 0;

		for (uint32_t d = 0; d < axes.rank; d++) {
			Index extent = (Index)axes.extent[d];
			int64_t at = (int64_t)(d + 1 < axes.rank ? rest % extent : rest);

			rest = d + 1 < axes.rank ? rest / extent : 0;
			at_a += at * axes.strides[0][d];
			at_b += at * axes.strides[1][d];
			at_y += at * axes.strides[2][d];
		}
		y[at_y] = combine<OPERATION>(a[at_a], b[at_b]);
	}
}

unsigned grid_of(uint64_t work, uint64_t per_block)
{
	uint64_t blocks = (work + per_block - 1) / per_block;

	if (blocks == 0)
		return 1;
	return (unsigned)(blocks < GRID_MAX ? blocks : GRID_MAX);
}

unsigned misalignment(const void *p)
{
	return (unsigned)((uintptr_t)p % sizeof(uint4));
}

/* All three are one run of elements, and reach a 16-byte boundary together. */
bool takes_vectors(const view *views, const cuda_axes &axes)
{
	if (axes.rank != 1)
		return false;
	for (int v = 0; v < 3; v++)
		if (axes.strides[v][0] != 1 || misalignment(views[v].data) != misalignment(views[2].data))
			return false;
	return misalignment(views[2].data) % dtype_size(views[2].dtype) == 0;
}

template <typename OPERATION, typename T, int THREADS, int UNROLL, unsigned OPS>
void launch_runs(const operands<3, OPS> &where, uint64_t head, uint64_t vectors, uint64_t count,
                 cudaStream_t stream)
{
	launch_kernel(combine_runs<OPERATION, T, THREADS, UNROLL, OPS>,
	              {dim3(grid_of(vectors, (uint64_t)THREADS * UNROLL), where.n), dim3(THREADS)}, stream,
	              where, head, vectors, count);
}

/* Where no multiprocessor gets a second block by that, threads take one access each. */
template <typename OPERATION, typename T, int THREADS, int UNROLL, unsigned OPS>
void launch_vectors(const operands<3, OPS> &where, const void *y, uint64_t count, cudaStream_t stream)
{
	uint64_t head = (sizeof(uint4) - misalignment(y)) % sizeof(uint4) / sizeof(T);
	uint64_t vectors;

	if (head > count)
		head = count;
	vectors = (count - head) * sizeof(T) / sizeof(uint4);
	if (UNROLL > 1 && vectors * where.n <= THREADS * cuda_multiprocessors())
		launch_runs<OPERATION, T, THREADS, 1>(where, head, vectors, count, stream);
	else
		launch_runs<OPERATION, T, THREADS, UNROLL>(where, head, vectors, count, stream);
}

template <typename OPERATION, typename T, unsigned OPS>
void launch_elements(const operands<3, OPS> &where, const cuda_axes &axes, uint64_t count, cudaStream_t stream)
{
	dim3 grid(grid_of(count, ELEMENT_THREADS), where.n);

	/* A 32-bit index must not wrap when the last step is added to it. */
	if (count < (1u << 30))
		combine_elements<OPERATION, T, uint32_t>
		    <<<grid, ELEMENT_THREADS, 0, stream>>>(where, axes, (uint32_t)count);
	else
		combine_elements<OPERATION, T, uint64_t>
		    <<<grid, ELEMENT_THREADS, 0, stream>>>(where, axes, count);
}

/* views: of one of the ops, as they are alike. UNROLL 0: elements only. */
template <typename OPERATION, typename T, int THREADS, int UNROLL, unsigned OPS>
void launch_as(const operands<3, OPS> &where, const view *views, cudaStream_t stream)
{
	uint64_t count = view_elements(&views[2]);
	cuda_axes axes;

	cuda_axes_of(views, 3, &axes);
	if constexpr (UNROLL > 0)
		if (takes_vectors(views, axes)) {
			launch_vectors<OPERATION, T, THREADS, UNROLL>(where, views[2].data, count, stream);
			return;
		}
	launch_elements<OPERATION, T>(where, axes, count, stream);
}

template <typename OPERATION, int THREADS, int UNROLL, unsigned OPS>
int launch_by_type(const operands<3, OPS> &where, const view *views, const struct launch *launch)
{
	cudaStream_t stream = cuda_stream(launch);

	switch (views[2].dtype) {
	case KOPS_F16:
		launch_as<OPERATION, __half, THREADS, UNROLL>(where, views, stream);
		break;
	case KOPS_BF16:
		launch_as<OPERATION, __nv_bfloat16, THREADS, UNROLL>(where, views, stream);
		break;
	case KOPS_F32:
		launch_as<OPERATION, float, THREADS, UNROLL>(where, views, stream);
		break;
	case KOPS_F64:
		launch_as<OPERATION, double, THREADS, UNROLL>(where, views, stream);
		break;
	default:
		return KOPS_E_UNSUPPORTED;
	}
	return cuda_launch_status();
}

} // namespace

#define PAIRWISE_KERNEL(name, operation, threads, unroll)                                                      \
	extern "C" CUDA_LAUNCH(name)                                                                           \
	{                                                                                                      \
		return launch_by_type<operation, threads, unroll>(operands_of<3>(args), args->views, launch);  \
	}                                                                                                      \
	extern "C" CUDA_TOGETHER(name##_together)                                                              \
	{                                                                                                      \
		return launch_by_type<operation, threads, unroll>(operands_of<3>(args, n, launch),             \
		                                                  args[0]->views, launch);                     \
	}

#define PAIRWISE_KERNELS(NAME, operation)                                                                      \
	PAIRWISE_KERNEL(NAME##_scalar, operation, 0, 0)                                                        \
	PAIRWISE_KERNEL(NAME##_float4, operation, 512, 1)                                                      \
	PAIRWISE_KERNEL(NAME##_float4x, operation, 64, 4)

#endif
