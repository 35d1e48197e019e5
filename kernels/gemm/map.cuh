/* map.cuh: tensor maps: how the copy engine is told where a matrix lies in memory. */
#ifndef KOPS_KERNELS_GEMM_MAP_H
#define KOPS_KERNELS_GEMM_MAP_H

#include <cuda.h>

#include "gemm/problem.h"

namespace
{

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
