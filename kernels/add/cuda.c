#include "cuda_rows.h"

CUDA_LAUNCH(add_float4);
CUDA_LAUNCH(add_scalar);

static bool supports_f32(const struct op_args *args, const char **ret_why_not)
{
	if (args->views[0].dtype == KOPS_F32)
		return true;
	*ret_why_not = "takes f32 only";
	return false;
}

static const struct kernel rows[] = {
    {
        .name = "float4",
        .idea = "128-bit accesses where the views are aligned runs, else one element per thread",
        .dtypes = "f32",
        .supports = supports_f32,
        .launch = add_float4,
    },
    {
        .name = "scalar",
        .idea = "one element per thread",
        .dtypes = "f32",
        .supports = supports_f32,
        .launch = add_scalar,
    },
};

const struct kernel_list add_cuda_rows = {rows, sizeof(rows) / sizeof(rows[0])};
