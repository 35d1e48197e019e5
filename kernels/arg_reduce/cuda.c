#include "common/cuda.h"
#include "reduce/split.h"

#define PARTIAL_BYTES 16 /* of an element's key and its index: arg_reduce.cu */

CUDA_LAUNCH(arg_reduce_rows);
CUDA_LAUNCH(arg_reduce_strided);

static uint64_t workspace_rows(const struct op_args *args)
{
	struct reduce_split s = reduce_split_rows(args);

	return reduce_partials_bytes(&s, PARTIAL_BYTES);
}

static uint64_t workspace_strided(const struct op_args *args)
{
	struct reduce_split s = reduce_split_tiles(args);

	return reduce_partials_bytes(&s, PARTIAL_BYTES);
}

/* Instructions for an element's key and its comparison, of 128 lanes. Not measured yet. */
static double arithmetic_ns(const struct op_args *args)
{
	const double instructions = 12, lanes = 128;
	double words = args->views[0].dtype == KOPS_F64 ? 2 : 1;

	return cuda_ns_of_clocks((double)view_elements(&args->views[0]) * instructions * words / lanes);
}

static double rows_ns(const struct op_args *args)
{
	return reduce_split_rows_ns(args, arithmetic_ns(args));
}

static double strided_ns(const struct op_args *args)
{
	return reduce_split_tiles_ns(args, arithmetic_ns(args));
}

static const struct kernel kernels[] = {
    {
        .name = "rows",
        .idea = "elements side by side: a part of a warp, a warp or a block for each row, or several blocks",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "rows of unit stride",
        .supports = reduce_supports_rows,
        .workspace = workspace_rows,
        .time_ns = rows_ns,
        .launch = arg_reduce_rows,
        .carries = true,
    },
    {
        .name = "strided",
        .idea = "a warp's lanes on neighbouring rows, eight warps along them",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "any strides",
        .supports = cuda_supports_any,
        .workspace = workspace_strided,
        .time_ns = strided_ns,
        .launch = arg_reduce_strided,
        .carries = true,
    },
};

const struct kernel_list arg_reduce_cuda_kernels = {kernels, sizeof(kernels) / sizeof(kernels[0])};
