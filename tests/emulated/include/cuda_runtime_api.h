/* cuda_runtime_api.h: as much of the CUDA runtime as the emulated sources name. */
#ifndef KOPS_EMULATED_CUDA_RUNTIME_API_H
#define KOPS_EMULATED_CUDA_RUNTIME_API_H

#include <stddef.h>
#include <stdint.h>

typedef enum cudaError {
	cudaSuccess,
	cudaErrorInvalidValue,
	cudaErrorMemoryAllocation,
} cudaError_t;

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
typedef struct CUmemPoolHandle_st *cudaMemPool_t;

enum cudaMemcpyKind {
	cudaMemcpyHostToDevice = 1,
	cudaMemcpyDeviceToHost,
	cudaMemcpyDefault = 4,
};

enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost };
struct cudaPointerAttributes {
	enum cudaMemoryType type;
};

/* CUDA's own numbers, which tests/plan uses with a real GPU. */
enum cudaDeviceAttr {
	cudaDevAttrClockRate = 13,
	cudaDevAttrMultiProcessorCount = 16,
	cudaDevAttrPciBusId = 33,
	cudaDevAttrMemoryClockRate = 36,
	cudaDevAttrGlobalMemoryBusWidth = 37,
	cudaDevAttrPciDomainId = 50,
	cudaDevAttrComputeCapabilityMajor = 75,
	cudaDevAttrComputeCapabilityMinor = 76,
	cudaDevAttrSingleToDoublePrecisionPerfRatio = 87,
	cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};

#ifdef __cplusplus
extern "C" {
#endif

cudaError_t cudaPeekAtLastError(void);
cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t stream);

/* tests/plan defines these; none computes. */
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *ret, const void *address);

typedef enum cudaDriverEntryPointQueryResult {
	cudaDriverEntryPointSuccess,
} cudaDriverEntryPointQueryResult;

enum { cudaEnableDefault };

/* Knows only cuTensorMapEncodeTiled. */
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **ret_entry, unsigned version,
                                             unsigned long long flags, cudaDriverEntryPointQueryResult *ret);

#ifdef __cplusplus
}

/* ---- Words of CUDA C++ ---- */

#define __device__
#define __host__
#define __global__
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__       thread_local /* the fibers of a block share a thread: emulator.h */

/* ---- Vectors ---- */

struct alignas(8) float2 {
	float x, y;
};
struct alignas(16) double2 {
	double x, y;
};

struct alignas(16) float4 {
	float x, y, z, w;
};
struct alignas(16) uint4 {
	unsigned x, y, z, w;
};
struct uint3 {
	unsigned x, y, z;
};
struct dim3 {
	unsigned x, y, z;
	dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z)
	{
	}
};

inline float2 make_float2(float x, float y)
{
	return {x, y};
}

inline double2 make_double2(double x, double y)
{
	return {x, y};
}

inline float4 make_float4(float x, float y, float z, float w)
{
	return {x, y, z, w};
}

inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
	return {x, y, z, w};
}

/* ---- Launches ---- */

enum cudaLaunchAttributeID {
	cudaLaunchAttributeProgrammaticStreamSerialization,
	cudaLaunchAttributeClusterDimension,
};

struct cudaLaunchAttributeValue {
	int programmaticStreamSerializationAllowed;
	uint3 clusterDim;
};

struct cudaLaunchAttribute {
	cudaLaunchAttributeID id;
	cudaLaunchAttributeValue val;
};

struct cudaLaunchConfig_t {
	dim3 gridDim, blockDim;
	size_t dynamicSmemBytes;
	cudaStream_t stream;
	cudaLaunchAttribute *attrs;
	unsigned numAttrs;
};

enum cudaFuncAttribute {
	cudaFuncAttributeMaxDynamicSharedMemorySize,
	cudaFuncAttributeNonPortableClusterSizeAllowed,
};

#endif

#endif
