#include "cuda_rows.h"

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

static const struct kernel rows[] = {
    {
        .name = "float4",
        .idea = "one 128-bit access of each view per thread",
        .dtypes = "f32 f16 bf16",
        .takes = "any strides; one element per thread where the views are not aligned runs",
        .supports = supports_type,
        .launch = add_float4,
    },
    {
        .name = "float4x",
        .idea = "two independent 128-bit accesses of each view per thread",
        .dtypes = "f32 f16 bf16",
        .takes = "any strides; one element per thread where the views are not aligned runs",
        .supports = supports_type,
        .launch = add_float4x,
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
