/*
 * Copy, y = x, by a kernel: the peer of the DMA copy, and what device memory and L2 give to one.
 *
 *   kernel  idea                                       bound              GB/s, H200: f32 2^28; x + y in L2:
 *                                                                         2, 8, 16, 32 MB; 48 and 64 MB
 *   vector  the widest access that both addresses      HBM 4.2 TB/s       4223; 1512, 3799, 5075, 5976;
 *           allow, up to 128 bits, several per         (read + written)   4173, 3947
 *           thread; single bytes at both ends
 *   copy    (copy.cu) by DMA                           the same           4232; 1622, 3777, 5140, 5817;
 *                                                                         4167, 3926
 *
 * Bytes are read + written. Device events, median of 31; in L2: a graph of 20 copies of the same bytes. L2
 * keeps 32 MB of them, no longer 48.
 */
#include "common/launch.cuh"
#include "common/together.cuh"

namespace
{

constexpr unsigned THREADS = 128;
constexpr uint64_t GRID_MAX = 1u << 20;

/* Accesses of one thread; two of 128 bits or eight of 32 are under way before the first is waited for. */
template <typename V> constexpr int UNROLL = sizeof(V) < 8 ? 8 : 2;
template <typename V> constexpr uint64_t CHUNK = (uint64_t)THREADS *UNROLL<V>;

template <typename V, bool WHOLE>
__device__ __forceinline__ void copy_chunk(const V *x, V *y, uint64_t i, uint64_t vectors)
{
	V held[UNROLL<V>];

#pragma unroll
	for (int k = 0; k < UNROLL<V>; k++)
		if (WHOLE || i + k * THREADS < vectors)
			held[k] = x[i + k * THREADS];
#pragma unroll
	for (int k = 0; k < UNROLL<V>; k++)
		if (WHOLE || i + k * THREADS < vectors)
			y[i + k * THREADS] = held[k];
}

/* Bytes: head, then vectors of V, then what is left. */
template <typename V, unsigned OPS>
__global__ void __launch_bounds__(THREADS)
    copy_run(const __grid_constant__ operands<2, OPS> where, uint64_t head, uint64_t vectors, uint64_t bytes)
{
	const char *x = (const char *)where.at(0, blockIdx.y);
	char *y = (char *)where.at(1, blockIdx.y);
	uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x, tail = head + vectors * sizeof(V);
	const V *from = (const V *)(x + head);
	V *to = (V *)(y + head);

	await_kernel_before();
	if (i < head)
		y[i] = x[i];
	if (i < bytes - tail)
		y[tail + i] = x[tail + i];
	for (uint64_t at = blockIdx.x * CHUNK<V>; at < vectors; at += gridDim.x * CHUNK<V>)
		if (at + CHUNK<V> <= vectors)
			copy_chunk<V, true>(from, to, at + threadIdx.x, vectors);
		else
			copy_chunk<V, false>(from, to, at + threadIdx.x, vectors);
	let_next_kernel_come();
}

template <typename V, unsigned OPS>
void launch_run(const operands<2, OPS> &where, const void *y, uint64_t bytes, cudaStream_t stream)
{
	uint64_t head = (sizeof(V) - (uintptr_t)y % sizeof(V)) % sizeof(V), vectors, blocks;

	if (head > bytes)
		head = bytes;
	vectors = (bytes - head) / sizeof(V);
	blocks = vectors / CHUNK<V> + 1;
	launch_kernel(copy_run<V, OPS>,
	              {dim3((unsigned)(blocks < GRID_MAX ? blocks : GRID_MAX), where.n), dim3(THREADS)}, stream,
	              where, head, vectors, bytes);
}

/* views: of one of the ops, as they are alike. */
template <unsigned OPS>
int launch_by_width(const operands<2, OPS> &where, const view *views, const struct launch *launch)
{
	const void *y = views[1].data;
	uint64_t bytes = view_elements(&views[1]) * dtype_size(views[1].dtype);
	uintptr_t apart = (uintptr_t)views[0].data - (uintptr_t)y;
	cudaStream_t stream = cuda_stream(launch);

	if (apart % 16 == 0)
		launch_run<uint4>(where, y, bytes, stream);
	else if (apart % 8 == 0)
		launch_run<uint64_t>(where, y, bytes, stream);
	else if (apart % 4 == 0)
		launch_run<uint32_t>(where, y, bytes, stream);
	else if (apart % 2 == 0)
		launch_run<uint16_t>(where, y, bytes, stream);
	else
		launch_run<uint8_t>(where, y, bytes, stream);
	return cuda_launch_status();
}

} // namespace

extern "C" CUDA_LAUNCH(copy_vector)
{
	return launch_by_width(operands_of<2>(args), args->views, launch);
}

extern "C" CUDA_TOGETHER(copy_vector_together)
{
	return launch_by_width(operands_of<2>(args, n, launch), args[0]->views, launch);
}
