/* launch.cuh: launches with attributes. */
#ifndef KOPS_KERNELS_LAUNCH_H
#define KOPS_KERNELS_LAUNCH_H

#include "common/cuda.h"
#include "common/overlap.cuh"

namespace
{

struct launch_form {
	dim3 grid, block;
	size_t shared = 0;    /* bytes, dynamic */
	unsigned cluster = 1; /* blocks */
	bool early = true;    /* as overlap.cuh has it, where the GPU can */
};

/* A form as CUDA wants it. Not to be moved: config points into it. */
struct launch_config {
	cudaLaunchAttribute attributes[2] = {};
	cudaLaunchConfig_t config = {};

	launch_config(const launch_form &form, cudaStream_t stream)
	{
		config.gridDim = form.grid;
		config.blockDim = form.block;
		config.dynamicSmemBytes = form.shared;
		config.stream = stream;
		config.attrs = attributes;
		if (form.early && cuda_device_attribute(cudaDevAttrComputeCapabilityMajor) >= 9)
			add(cudaLaunchAttributeProgrammaticStreamSerialization)
			    ->programmaticStreamSerializationAllowed = 1;
		if (form.cluster > 1)
			add(cudaLaunchAttributeClusterDimension)->clusterDim = {form.cluster, 1, 1};
	}
	launch_config(const launch_config &) = delete;

      private:
	cudaLaunchAttributeValue *add(cudaLaunchAttributeID id)
	{
		attributes[config.numAttrs].id = id;
		return &attributes[config.numAttrs++].val;
	}
};

template <class... PARAMETERS, class... ARGUMENTS>
void launch_kernel(void (*kernel)(PARAMETERS...), const launch_form &form, cudaStream_t stream,
                   const ARGUMENTS &...arguments)
{
	launch_config c(form, stream);

	cudaLaunchKernelEx(&c.config, kernel, arguments...);
}

} // namespace

#endif
