#include <math.h>

#include "common/cuda.h"
#include "fitted.h"

CUDA_LAUNCH(fma_registers);

static bool supports_all(const struct op_args *args, const char **ret_why_not)
{
	(void)args;
	(void)ret_why_not;
	return true;
}

/*
 * A warp with any element puts its eight vectors through a step in as many clocks and a bit, however few there
 * are: 4.2 ns measured on an H200 for one element. The warps of a multiprocessor's quarter take turns.
 */
static double time_ns(const struct op_args *args)
{
	const double chains = 8, block_warps = 8;
	int major = cuda_device_attribute(cudaDevAttrComputeCapabilityMajor);
	int minor = cuda_device_attribute(cudaDevAttrComputeCapabilityMinor);
	int ratio = cuda_device_attribute(cudaDevAttrSingleToDoublePrecisionPerfRatio);
	double elements = (double)view_elements(op_output_const(args));
	double blocks = ceil(elements / (32 * block_warps * chains));
	double turns =
	    fmax(fmin(ceil(elements / 32), block_warps) / 4, 1) * ceil(blocks / cuda_multiprocessors());

	if (major == 7 || (major == 8 && minor == 0)) /* half as many units */
		turns *= 2;
	if (args->views[0].dtype == KOPS_F64)
		turns *= ratio > 2 ? ratio : 2;
	double ns = turns * fitted.fma.step * args->params.fma.steps / cuda_clocks_per_ns();
	return fmax(ns, cuda_memory_ns(args));
}

static const struct kernel kernels[] = {
    {
        .name = "registers",
        .idea = "eight elements per thread stay in registers for all steps",
        .dtypes = "f32 f64",
        .takes = "any strides",
        .supports = supports_all,
        .time_ns = time_ns,
        .launch = fma_registers,
    },
};

const struct kernel_list fma_cuda_kernels = {kernels, sizeof(kernels) / sizeof(kernels[0])};
