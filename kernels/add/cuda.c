#include "common/cuda.h"

CUDA_LAUNCH(add_float4x);
CUDA_LAUNCH(add_float4);
CUDA_LAUNCH(add_scalar);

static bool supports_type(const struct op_args *args, const char **ret_why_not)
{
	if (args->views[0].dtype != KOPS_F64)
		return true;
	*ret_why_not = "takes f32, f16 and bf16 only";
	return false;
}

/* From memory float4x is 6 % ahead up to here, from L2 as fast; beyond float4 is. */
static bool is_for_few(const struct op_args *args, const char **ret_why_not)
{
	const struct view *y = &args->views[2];
	int multiprocessors = cuda_device_attribute(cudaDevAttrMultiProcessorCount);

	*ret_why_not = "leaves to float4 what keeps more threads busy";
	return view_elements(y) * dtype_size(y->dtype) <= (uint64_t)multiprocessors * 20480;
}

static const struct kernel rows[] = {
    {
        .name = "float4x",
        .idea = "four independent 128-bit accesses of each view per thread",
        .dtypes = "f32 f16 bf16",
        .takes = "any strides; one element per thread where the views are not aligned runs",
        .supports = supports_type,
        .worthwhile = is_for_few,
        .launch = add_float4x,
    },
    {
        .name = "float4",
        .idea = "one 128-bit access of each view per thread",
        .dtypes = "f32 f16 bf16",
        .takes = "any strides; one element per thread where the views are not aligned runs",
        .supports = supports_type,
        .launch = add_float4,
    },
    {
        .name = "scalar",
        .idea = "one element per thread",
        .dtypes = "f32 f16 bf16",
        .takes = "any strides",
        .supports = supports_type,
        .launch = add_scalar,
    },
};

const struct kernel_list add_cuda_rows = {rows, sizeof(rows) / sizeof(rows[0])};
