/* cuda.h: as much of the CUDA driver's interface as the emulated sources name: tensor maps, and a type. */
#ifndef KOPS_EMULATED_CUDA_H
#define KOPS_EMULATED_CUDA_H

#include <stdint.h>

typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;

typedef enum CUresult {
	CUDA_SUCCESS,
	CUDA_ERROR_INVALID_VALUE,
} CUresult;

typedef struct CUgreenCtx_st *CUgreenCtx;

typedef struct CUtensorMap {
	__attribute__((aligned(64))) cuuint64_t opaque[16];
} CUtensorMap;

typedef enum CUtensorMapDataType {
	CU_TENSOR_MAP_DATA_TYPE_UINT16,
	CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
	CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
} CUtensorMapDataType;

typedef enum CUtensorMapInterleave { CU_TENSOR_MAP_INTERLEAVE_NONE } CUtensorMapInterleave;

typedef enum CUtensorMapSwizzle {
	CU_TENSOR_MAP_SWIZZLE_NONE,
	CU_TENSOR_MAP_SWIZZLE_32B,
	CU_TENSOR_MAP_SWIZZLE_64B,
	CU_TENSOR_MAP_SWIZZLE_128B,
} CUtensorMapSwizzle;

typedef enum CUtensorMapL2promotion { CU_TENSOR_MAP_L2_PROMOTION_L2_256B } CUtensorMapL2promotion;

typedef enum CUtensorMapFloatOOBfill { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE } CUtensorMapFloatOOBfill;

#endif
