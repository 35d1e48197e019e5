/* launch.cuh: launches with attributes. */
#ifndef KOPS_KERNELS_GEMM_LAUNCH_H
#define KOPS_KERNELS_GEMM_LAUNCH_H

#include <stdint.h>

#include <cuda_runtime_api.h>

namespace
{

/* early: begins while the kernel before still runs, and waits for it itself. */
template <class T>
void launch_kernel(void (*kernel)(T), const T &argument, uint64_t blocks, int threads, int shared, int cluster,
                   bool early, cudaStream_t stream)
{
	cudaLaunchAttribute attributes[2] = {};
	cudaLaunchConfig_t config = {};

	attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
	attributes[0].val.programmaticStreamSerializationAllowed = early;
	attributes[1].id = cudaLaunchAttributeClusterDimension;
	attributes[1].val.clusterDim.x = cluster;
	attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
	config.gridDim = dim3((unsigned)blocks);
	config.blockDim = dim3(threads);
	config.dynamicSmemBytes = shared;
	config.stream = stream;
	config.attrs = attributes;
	config.numAttrs = cluster > 1 ? 2 : 1;
	cudaLaunchKernelEx(&config, kernel, argument);
}

} // namespace

#endif
