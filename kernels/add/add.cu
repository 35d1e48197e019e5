/*
 * Add, y = a + b; broadcast operands come with strides 0.
 *
 *   rung    idea                                        bound              measured, H200
 *   float4  128 bits per access where all three views   HBM 4.3 TB/s       2^28 elements: 4358 GB/s
 *           are runs that share their alignment, single (read + written)   2^25: 4067 GB/s
 *           elements at both ends; else as scalar
 *   scalar  one element per thread, any strides         the same
 */
#include "cuda_rows.h"

namespace
{

constexpr unsigned THREADS = 256;

/* No __restrict__ here: y may be a or b. */
__global__ void __launch_bounds__(THREADS)
    add_vectors(const float *a, const float *b, float *y, uint64_t head, uint64_t vectors, uint64_t count)
{
	uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x, step = (uint64_t)gridDim.x * THREADS;
	uint64_t tail = head + 4 * vectors;
	const float4 *a4 = (const float4 *)(a + head), *b4 = (const float4 *)(b + head);
	float4 *y4 = (float4 *)(y + head);

	if (i < head)
		y[i] = a[i] + b[i];
	if (i < count - tail)
		y[tail + i] = a[tail + i] + b[tail + i];
	for (; i < vectors; i += step) {
		float4 u = a4[i], v = b4[i];

		y4[i] = make_float4(u.x + v.x, u.y + v.y, u.z + v.z, u.w + v.w);
	}
}

template <typename Index>
__global__ void __launch_bounds__(THREADS)
    add_elements(const float *a, const float *b, float *y, cuda_axes axes, Index count)
{
	Index step = (Index)gridDim.x * THREADS;

	for (Index i = (Index)blockIdx.x * THREADS + threadIdx.x; i < count; i += step) {
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
		y[at_y] = a[at_a] + b[at_b];
	}
}

unsigned grid_of(uint64_t work, uint64_t limit)
{
	uint64_t blocks = (work + THREADS - 1) / THREADS;

	if (blocks == 0)
		return 1;
	return (unsigned)(blocks < limit ? blocks : limit);
}

unsigned misalignment(const void *p)
{
	return (unsigned)((uintptr_t)p % 16);
}

/* All three are one run of elements, and reach a 16-byte boundary together. */
bool takes_vectors(const view *views, const cuda_axes &axes)
{
	if (axes.rank != 1)
		return false;
	for (int v = 0; v < 3; v++)
		if (axes.strides[v][0] != 1 || misalignment(views[v].data) != misalignment(views[2].data))
			return false;
	return misalignment(views[2].data) % sizeof(float) == 0;
}

void launch_vectors(const view *views, uint64_t count, cudaStream_t stream)
{
	uint64_t head = (16 - misalignment(views[2].data)) % 16 / sizeof(float);
	uint64_t vectors;

	if (head > count)
		head = count;
	vectors = (count - head) / 4;
	add_vectors<<<grid_of(vectors, 1u << 20), THREADS, 0, stream>>>(
	    (const float *)views[0].data, (const float *)views[1].data, (float *)views[2].data, head, vectors,
	    count);
}

void launch_elements(const view *views, const cuda_axes &axes, uint64_t count, cudaStream_t stream)
{
	const float *a = (const float *)views[0].data, *b = (const float *)views[1].data;
	float *y = (float *)views[2].data;
	unsigned grid = grid_of(count, 1u << 20);

	/* A 32-bit index must not wrap when the last step is added to it. */
	if (count < (1u << 30))
		add_elements<uint32_t><<<grid, THREADS, 0, stream>>>(a, b, y, axes, (uint32_t)count);
	else
		add_elements<uint64_t><<<grid, THREADS, 0, stream>>>(a, b, y, axes, count);
}

} // namespace

extern "C" CUDA_LAUNCH(add_float4)
{
	cudaStream_t stream = (cudaStream_t)launch->stream;
	uint64_t count = view_elements(&args->views[2]);
	cuda_axes axes;

	cuda_axes_of(args->views, 3, &axes);
	if (takes_vectors(args->views, axes))
		launch_vectors(args->views, count, stream);
	else
		launch_elements(args->views, axes, count, stream);
	return cuda_launch_status();
}

extern "C" CUDA_LAUNCH(add_scalar)
{
	cuda_axes axes;

	cuda_axes_of(args->views, 3, &axes);
	launch_elements(args->views, axes, view_elements(&args->views[2]), (cudaStream_t)launch->stream);
	return cuda_launch_status();
}
