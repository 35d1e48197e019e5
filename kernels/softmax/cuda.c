#include "cuda_rows.h"

CUDA_LAUNCH(softmax_coalesced);

static bool supports_f32(const struct op_args *args, const char **ret_why_not)
{
	if (args->views[0].dtype == KOPS_F32)
		return true;
	*ret_why_not = "takes f32 only";
	return false;
}

static const struct kernel rows[] = {
    {
        .name = "coalesced",
        .idea = "a warp or a block per row, neighbouring threads on neighbouring elements",
        .dtypes = "f32",
        .supports = supports_f32,
        .launch = softmax_coalesced,
    },
};

const struct kernel_list softmax_cuda_rows = {rows, sizeof(rows) / sizeof(rows[0])};
