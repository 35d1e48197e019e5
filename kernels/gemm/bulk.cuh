/*
 * bulk.cuh: tiles of a matrix by the bulk copy engine (TMA), and the barriers in shared memory on which such
 * copies complete.
 */
#ifndef KOPS_KERNELS_GEMM_BULK_H
#define KOPS_KERNELS_GEMM_BULK_H

#include <cuda.h>

#include "problem.h"

namespace
{

__device__ __forceinline__ uint32_t shared_address(const void *p)
{
	return (uint32_t)__cvta_generic_to_shared(p);
}

__device__ __forceinline__ void barrier_init(uint64_t *barrier, unsigned arrivals)
{
	asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
	             : "memory");
}

/* Before the first copy on barriers just initialised. */
__device__ __forceinline__ void barriers_visible()
{
	asm volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(uint64_t *barrier)
{
	asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

/* Arrives, and has the barrier wait for this many bytes of copies. */
__device__ __forceinline__ void barrier_expect(uint64_t *barrier, unsigned bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
	             "r"(bytes)
	             : "memory");
}

/* Arrives once the cp.asyncs of this thread are done. */
__device__ __forceinline__ void barrier_arrive_copied(uint64_t *barrier)
{
	asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(barrier))
	             : "memory");
}

/* Until the phase of this parity is over. */
__device__ __forceinline__ void barrier_wait(uint64_t *barrier, unsigned parity)
{
	asm volatile("{\n\t"
	             ".reg .pred done;\n"
	             "again:\n\t"
	             "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n\t"
	             "@!done bra again;\n\t"
	             "}" ::"r"(shared_address(barrier)),
	             "r"(parity)
	             : "memory");
}

/* The box of the map at (x, y, z), x along its lines. */
__device__ __forceinline__ void copy_box(float *to, const CUtensorMap *map, int x, int y, int z,
                                         uint64_t *barrier)
{
	asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
	             "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(to)),
	             "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier))
	             : "memory");
}

/* One element, or a zero. */
__device__ __forceinline__ void copy_element(float *to, const float *from, bool there)
{
	asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from),
	             "r"(there ? 4 : 0)
	             : "memory");
}

typedef CUresult (*encode_map)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                               const cuuint64_t *, const cuuint32_t *, const cuuint32_t *,
                               CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                               CUtensorMapFloatOOBfill);

/* The module does not link the driver. NULL if it is too old. */
inline encode_map map_encoder()
{
	static void *found;
	cudaDriverEntryPointQueryResult status;
	void *entry = NULL;

	if (!found && cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
	                                               cudaEnableDefault, &status) == cudaSuccess)
		found = entry;
	return (encode_map)found;
}

/* Lines of neighbouring elements: an operand as the copy engine sees it. */
struct lines {
	uint64_t length, count, batch;
	int64_t apart, batch_apart;
};

constexpr uint64_t MAP_EXTENT_MAX = 0x7fffffff;
constexpr int64_t MAP_STRIDE_MAX = (int64_t)1 << 37; /* elements */

inline int map_element_bytes(CUtensorMapDataType type)
{
	return type == CU_TENSOR_MAP_DATA_TYPE_UINT16 ? 2 : 4;
}

inline bool map_stride(int64_t stride, int element_bytes)
{
	return stride > 0 && stride < MAP_STRIDE_MAX && stride * element_bytes % 16 == 0;
}

/* Boxes of box_length × box_count elements of 2 or 4 bytes from data on. False where the engine cannot. */
inline bool map_lines(CUtensorMap *map, CUtensorMapDataType type, void *data, lines l, unsigned box_length,
                      unsigned box_count, CUtensorMapSwizzle swizzle)
{
	encode_map encode = map_encoder();
	int bytes = map_element_bytes(type);

	if (l.count == 1)
		l.apart = 16;
	if (l.batch_apart == 0 || l.batch == 1)
		l.batch = 1, l.batch_apart = 16;
	if (!encode || (uintptr_t)data % 16 != 0 || !map_stride(l.apart, bytes) ||
	    !map_stride(l.batch_apart, bytes) || l.length == 0 || l.length > MAP_EXTENT_MAX ||
	    l.count > MAP_EXTENT_MAX || l.batch > MAP_EXTENT_MAX)
		return false;
	cuuint64_t extents[3] = {l.length, l.count, l.batch};
	cuuint64_t strides[2] = {(cuuint64_t)(l.apart * bytes), (cuuint64_t)(l.batch_apart * bytes)};
	cuuint32_t box[3] = {box_length, box_count, 1}, steps[3] = {1, 1, 1};
	return encode(map, type, 3, data, extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
	              CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

} // namespace

#endif
