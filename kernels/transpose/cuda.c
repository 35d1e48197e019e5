#include "cuda_rows.h"

CUDA_LAUNCH(transpose_padded);

static bool supports_f32(const struct op_args *args, const char **ret_why_not)
{
	if (args->views[0].dtype == KOPS_F32)
		return true;
	*ret_why_not = "takes f32 only";
	return false;
}

static const struct kernel rows[] = {
    {
        .name = "padded",
        .idea = "32x32 tile through shared memory, padded against bank conflicts",
        .dtypes = "f32",
        .supports = supports_f32,
        .launch = transpose_padded,
    },
};

const struct kernel_list transpose_cuda_rows = {rows, sizeof(rows) / sizeof(rows[0])};
