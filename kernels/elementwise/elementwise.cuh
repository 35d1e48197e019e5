/*
 * elementwise.cuh: kernels of ops whose elements of y each come from one element of each input. Broadcast
 * operands come with strides 0. f16 and bf16 are computed in f32 and rounded once.
 *
 *   way       idea                                                         bound
 *   elements  one element per thread, any strides                          blocks per second
 *   runs      128 bits per access where all views are runs that share      HBM; in L2 the coming and going of
 *             their alignment, single elements at both ends                blocks
 *
 * pairwise.cuh has the figures.
 */
#ifndef KOPS_KERNELS_ELEMENTWISE_CUH
#define KOPS_KERNELS_ELEMENTWISE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <string.h>

#include "common/launch.cuh"
#include "common/rows.cuh"
#include "common/together.cuh"

namespace
{

constexpr unsigned ELEMENT_THREADS = 256;
constexpr uint64_t GRID_MAX = 1u << 20;

/*
 * OPERATION: what is computed, a parameter of the kernels. It has INPUTS, and a member apply() that takes an
 * array of N float or double of each input, and leaves the results in the first.
 */
template <class OPERATION> constexpr unsigned VIEWS = OPERATION::INPUTS + 1;

/* N elements of each input; results replace those of the first. */
template <class OPERATION, typename T, int N>
__device__ __forceinline__ void combine(const OPERATION &op, T (&elements)[OPERATION::INPUTS][N])
{
	real<T> x[OPERATION::INPUTS][N];

#pragma unroll
	for (unsigned v = 0; v < OPERATION::INPUTS; v++)
#pragma unroll
		for (int i = 0; i < N; i++)
			x[v][i] = (real<T>)elements[v][i];
	op.apply(x);
#pragma unroll
	for (int i = 0; i < N; i++)
		elements[0][i] = (T)x[0][i];
}

/* 128 bits of each input. */
template <class OPERATION, typename T>
__device__ __forceinline__ uint4 combine_vectors(const OPERATION &op, const uint4 (&vectors)[OPERATION::INPUTS])
{
	constexpr int N = sizeof(uint4) / sizeof(T);
	T elements[OPERATION::INPUTS][N];
	uint4 y;

	memcpy(elements, vectors, sizeof vectors);
	combine(op, elements);
	memcpy(&y, elements[0], sizeof y);
	return y;
}

/* Where the inputs of op number blockIdx.y are, and its y. */
template <class OPERATION, typename T> struct places {
	const T *x[OPERATION::INPUTS];
	T *y;

	template <unsigned OPS>
	__device__ __forceinline__ explicit places(const operands<VIEWS<OPERATION>, OPS> &where)
	{
#pragma unroll
		for (unsigned v = 0; v < OPERATION::INPUTS; v++)
			x[v] = (const T *)where.at(v, blockIdx.y);
		y = (T *)where.at(OPERATION::INPUTS, blockIdx.y);
	}
	/* Element i of runs. */
	__device__ __forceinline__ void combine_at(const OPERATION &op, uint64_t i) const
	{
		T elements[OPERATION::INPUTS][1];

#pragma unroll
		for (unsigned v = 0; v < OPERATION::INPUTS; v++)
			elements[v][0] = x[v][i];
		combine(op, elements);
		y[i] = elements[0][0];
	}
};

/* UNROLL vectors of runs, THREADS apart. All are loaded before the first is stored: y may be an input. */
template <class OPERATION, typename T, int THREADS, int UNROLL, bool WHOLE>
__device__ __forceinline__ void combine_chunk(const OPERATION &op, const places<OPERATION, T> &at,
                                              uint64_t head, uint64_t i, uint64_t vectors)
{
	uint4 x[UNROLL][OPERATION::INPUTS], *y = (uint4 *)(at.y + head);

#pragma unroll
	for (int k = 0; k < UNROLL; k++)
#pragma unroll
		for (unsigned v = 0; v < OPERATION::INPUTS; v++)
			if (WHOLE || i + k * THREADS < vectors)
				x[k][v] = ((const uint4 *)(at.x[v] + head))[i + k * THREADS];
#pragma unroll
	for (int k = 0; k < UNROLL; k++)
		if (WHOLE || i + k * THREADS < vectors)
			y[i + k * THREADS] = combine_vectors<OPERATION, T>(op, x[k]);
}

/* No __restrict__ here: y may be an input. */
template <class OPERATION, typename T, int THREADS, int UNROLL, unsigned OPS>
__global__ void __launch_bounds__(THREADS)
    combine_runs(const __grid_constant__ operands<VIEWS<OPERATION>, OPS> where, OPERATION op, uint64_t head,
                 uint64_t vectors, uint64_t count)
{
	places<OPERATION, T> at(where);
	constexpr uint64_t CHUNK = (uint64_t)THREADS * UNROLL;
	uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
	uint64_t tail = head + vectors * (sizeof(uint4) / sizeof(T));

	await_kernel_before();
	for (uint64_t first = blockIdx.x * CHUNK; first < vectors; first += gridDim.x * CHUNK)
		if (first + CHUNK <= vectors)
			combine_chunk<OPERATION, T, THREADS, UNROLL, true>(op, at, head, first + threadIdx.x,
			                                                   vectors);
		else
			combine_chunk<OPERATION, T, THREADS, UNROLL, false>(op, at, head, first + threadIdx.x,
			                                                    vectors);
	if (i < head)
		at.combine_at(op, i);
	if (i < count - tail)
		at.combine_at(op, tail + i);
	let_next_kernel_come();
}

template <class OPERATION, typename T, typename Index, unsigned OPS>
__global__ void __launch_bounds__(ELEMENT_THREADS)
    combine_elements(const __grid_constant__ operands<VIEWS<OPERATION>, OPS> where, OPERATION op,
                     cuda_axes axes, Index count)
{
	places<OPERATION, T> places(where);
	Index step = (Index)gridDim.x * ELEMENT_THREADS;

	for (Index i = (Index)blockIdx.x * ELEMENT_THREADS + threadIdx.x; i < count; i += step) {
		Index rest = i;
		int64_t at[VIEWS<OPERATION>] = {};
		T elements[OPERATION::INPUTS][1];

		for (uint32_t d = 0; d < axes.rank; d++) {
			Index extent = (Index)axes.extent[d];
			int64_t index = (int64_t)(d + 1 < axes.rank ? rest % extent : rest);

			rest = d + 1 < axes.rank ? rest / extent : 0;
#pragma unroll
			for (unsigned v = 0; v < VIEWS<OPERATION>; v++)
				at[v] += index * axes.strides[v][d];
		}
#pragma unroll
		for (unsigned v = 0; v < OPERATION::INPUTS; v++)
			elements[v][0] = places.x[v][at[v]];
		combine(op, elements);
		places.y[at[OPERATION::INPUTS]] = elements[0][0];
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

/* All are one run of elements, and reach a 16-byte boundary together. */
bool takes_vectors(const view *views, unsigned n, const cuda_axes &axes)
{
	const view *y = &views[n - 1];

	if (axes.rank != 1)
		return false;
	for (unsigned v = 0; v < n; v++)
		if (axes.strides[v][0] != 1 || misalignment(views[v].data) != misalignment(y->data))
			return false;
	return misalignment(y->data) % dtype_size(y->dtype) == 0;
}

template <class OPERATION, typename T, int THREADS, int UNROLL, unsigned OPS>
void launch_vectors(const operands<VIEWS<OPERATION>, OPS> &where, const OPERATION &op, const void *y,
                    uint64_t count, cudaStream_t stream)
{
	uint64_t head = (sizeof(uint4) - misalignment(y)) % sizeof(uint4) / sizeof(T);
	uint64_t vectors;

	if (head > count)
		head = count;
	vectors = (count - head) * sizeof(T) / sizeof(uint4);
	launch_kernel(combine_runs<OPERATION, T, THREADS, UNROLL, OPS>,
	              {dim3(grid_of(vectors, (uint64_t)THREADS * UNROLL), where.n), dim3(THREADS)}, stream,
	              where, op, head, vectors, count);
}

template <class OPERATION, typename T, unsigned OPS>
void launch_elements(const operands<VIEWS<OPERATION>, OPS> &where, const OPERATION &op, const cuda_axes &axes,
                     uint64_t count, cudaStream_t stream)
{
	launch_form form = {dim3(grid_of(count, ELEMENT_THREADS), where.n), dim3(ELEMENT_THREADS)};

	form.early = false; /* its blocks do next to nothing: see overlap.cuh */
	/* A 32-bit index must not wrap when the last step is added to it. */
	if (count < (1u << 30))
		launch_kernel(combine_elements<OPERATION, T, uint32_t, OPS>, form, stream, where, op, axes,
		              (uint32_t)count);
	else
		launch_kernel(combine_elements<OPERATION, T, uint64_t, OPS>, form, stream, where, op, axes,
		              count);
}

/* views: of one of the ops, as they are alike. UNROLL 0: elements only. */
template <class OPERATION, typename T, int THREADS, int UNROLL, unsigned OPS>
void launch_as(const operands<VIEWS<OPERATION>, OPS> &where, const OPERATION &op, const view *views,
               cudaStream_t stream)
{
	const view *y = &views[OPERATION::INPUTS];
	uint64_t count = view_elements(y);
	cuda_axes axes;

	cuda_axes_of(views, VIEWS<OPERATION>, &axes);
	if constexpr (UNROLL > 0)
		if (takes_vectors(views, VIEWS<OPERATION>, axes)) {
			launch_vectors<OPERATION, T, THREADS, UNROLL>(where, op, y->data, count, stream);
			return;
		}
	launch_elements<OPERATION, T>(where, op, axes, count, stream);
}

template <int THREADS, int UNROLL, class OPERATION, unsigned OPS>
int launch_by_type(const operands<VIEWS<OPERATION>, OPS> &where, const OPERATION &op, const view *views,
                   const struct launch *launch)
{
	cudaStream_t stream = cuda_stream(launch);

	switch (views[OPERATION::INPUTS].dtype) {
	case KOPS_F16:
		launch_as<OPERATION, __half, THREADS, UNROLL>(where, op, views, stream);
		break;
	case KOPS_BF16:
		launch_as<OPERATION, __nv_bfloat16, THREADS, UNROLL>(where, op, views, stream);
		break;
	case KOPS_F32:
		launch_as<OPERATION, float, THREADS, UNROLL>(where, op, views, stream);
		break;
	case KOPS_F64:
		launch_as<OPERATION, double, THREADS, UNROLL>(where, op, views, stream);
		break;
	default:
		return KOPS_E_UNSUPPORTED;
	}
	return cuda_launch_status();
}

} // namespace

/* Defines NAME and NAME_together, launch functions. operation: of the first op's args. */
#define ELEMENTWISE_KERNEL(name, operation, threads, unroll)                                                   \
	extern "C" CUDA_LAUNCH(name)                                                                           \
	{                                                                                                      \
		auto op = operation(args);                                                                     \
		return launch_by_type<threads, unroll>(operands_of<VIEWS<decltype(op)>>(args), op,             \
		                                       args->views, launch);                                   \
	}                                                                                                      \
	extern "C" CUDA_TOGETHER(name##_together)                                                              \
	{                                                                                                      \
		auto op = operation(args[0]);                                                                  \
		return launch_by_type<threads, unroll>(operands_of<VIEWS<decltype(op)>>(args, n, launch), op,  \
		                                       args[0]->views, launch);                                \
	}

/* Defines NAME_scalar, NAME_float4 and NAME_float4x, and the same _together. */
#define ELEMENTWISE_KERNELS(NAME, operation)                                                                   \
	ELEMENTWISE_KERNEL(NAME##_scalar, operation, 0, 0)                                                     \
	ELEMENTWISE_KERNEL(NAME##_float4, operation, 512, 1)                                                   \
	ELEMENTWISE_KERNEL(NAME##_float4x, operation, 64, 4)

#endif
