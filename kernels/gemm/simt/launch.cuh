/* launch.cuh: launches of a shape of simt, for one product or for many together. */
#ifndef KOPS_KERNELS_GEMM_SIMT_LAUNCH_H
#define KOPS_KERNELS_GEMM_SIMT_LAUNCH_H

#include "common/launch.cuh"
#include "gemm/map.cuh"
#include "gemm/simt/kernel.cuh"

namespace
{

/* The operand's lines as the copy engine sees them, where it can. */
template <class S>
bool map_operand(CUtensorMap *map, const gemm_operand &o, bool along_k, int64_t outer_stride, int64_t k_stride,
                 uint64_t extent, const gemm_problem &p)
{
	if (p.k == 0 || (along_k ? k_stride : outer_stride) != 1)
		return false;
	return along_k ? map_lines(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, o.data,
	                           {p.k, extent, p.batch, outer_stride, o.batch}, STEP, S::SIDE,
	                           CU_TENSOR_MAP_SWIZZLE_128B)
	               : map_lines(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, o.data,
	                           {extent, p.k, p.batch, k_stride, o.batch}, S::SIDE, STEP,
	                           CU_TENSOR_MAP_SWIZZLE_NONE);
}

constexpr int RESERVED = 1024; /* bytes of shared memory, per block */

/* What the driver says of this thread's GPU, asked once for a launch: each answer takes some 30 ns. */
struct gpu {
	int processors = cuda_device_attribute(cudaDevAttrMultiProcessorCount);
	int shared = cuda_device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
	int f32_per_f64 = cuda_device_attribute(cudaDevAttrSingleToDoublePrecisionPerfRatio);
	double clock_factor = cuda_clock_factor(), bytes_per_ns = cuda_bytes_per_ns();
};

/* How many blocks of so much shared memory a multiprocessor has room for, of `most`. */
int resident_of(const gpu &gpu, int most, int bytes)
{
	int fit = (gpu.shared + RESERVED) / (bytes + RESERVED);

	return fit >= most ? most : fit > 1 ? fit : 1;
}

/* Where only some find room beside the launch before, multiprocessors get unequal numbers. With two of them to
 * each that never cost as much as a late launch. */
bool may_be_early(const gpu &gpu, int resident, double blocks)
{
	double places = (double)resident * gpu.processors;

	return resident == 2 || blocks > places || blocks * 2 <= places;
}

/* A kernel of eight: see KERNELS() of tiles.cuh; the last axis says which of two loadings. */
#define KERNELS_OF(WORK, FIRST, SECOND)                                                                        \
	{                                                                                                      \
		simt<WORK, S, false, false, FIRST>, simt<WORK, S, false, false, SECOND>,                       \
		    simt<WORK, S, false, true, FIRST>, simt<WORK, S, false, true, SECOND>,                     \
		    simt<WORK, S, true, false, FIRST>, simt<WORK, S, true, false, SECOND>,                     \
		    simt<WORK, S, true, true, FIRST>, simt<WORK, S, true, true, SECOND>                        \
	}

template <class S, class WORK>
int launch_blocks_of(WORK *w, void (*const kernels[8])(WORK), bool second, int splits, cudaStream_t stream)
{
	const gemm_problem &p = w->t.p;
	access how = access_of(p);
	void (*kernel)(WORK) = kernels[how.a_along_k * 4 + how.b_along_k * 2 + second];
	int bytes = S::bytes(how.a_along_k + how.b_along_k, splits > 1);
	uint64_t blocks = blocks_of(p, S::SIDE), most = GRID_MAX / SPLITS_MAX;
	gpu gpu;
	bool early = may_be_early(gpu, resident_of(gpu, S::RESIDENT, bytes), (double)(blocks * splits));

	w->splits = splits;
	cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
	launch_tiles(blocks, most, [&](uint64_t first, unsigned n) {
		w->t.first = first;
		launch_kernel(kernel,
		              {dim3(n * splits), dim3(S::THREADS), (size_t)bytes, (unsigned)splits, early},
		              stream, *w);
	});
	return cuda_launch_status();
}

template <class S> int launch_shape(work *w, int splits, cudaStream_t stream)
{
	static void (*const kernels[8])(work) = KERNELS_OF(work, ELEMENTS, BOXES);
	const gemm_problem &p = w->t.p;
	access how = access_of(p);
	bool mapped = map_operand<S>(&w->a_map, p.a, how.a_along_k, p.a.row, p.a.col, p.m, p) &&
	              map_operand<S>(&w->b_map, p.b, how.b_along_k, p.b.col, p.b.row, p.n, p);

	return launch_blocks_of<S>(w, kernels, mapped, splits, stream);
}

/* UNALIGNED: the loading of lines that are not aligned; PIECES: none come, and no kernels are compiled for
 * them. */
template <class S, loading UNALIGNED = ELEMENTS>
int launch_shape_together(work_together *w, bool aligned, int splits, cudaStream_t stream)
{
	static void (*const kernels[8])(work_together) = KERNELS_OF(work_together, UNALIGNED, PIECES);

	return launch_blocks_of<S>(w, kernels, aligned, splits, stream);
}

} // namespace

#endif
