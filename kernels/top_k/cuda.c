#include <math.h>

#include "common/cuda.h"
#include "fitted.h"
#include "top_k/split.h"

CUDA_LAUNCH(top_k_select);

/*
 * Instructions for an element's key and its comparison, of 128 lanes. Sorting takes some hundred instructions
 * of a warp for each row, or some ten thousand clocks of a quarter of a multiprocessor. Not measured yet.
 */
static double arithmetic_clocks(const struct op_args *args, const struct top_k_split *s)
{
	const double instructions = 14, lanes = 128, of_warp = 800, of_block = 8000;
	double words = args->views[TOP_K_X].dtype == KOPS_F64 ? 2 : 1,
	       sorts = s->by_warps ? of_warp * 32 / lanes
	                           : of_block / 4 * (top_k_count(args) > TOP_K_THREADS ? 4 : 1);

	return (double)view_elements(&args->views[TOP_K_X]) * instructions * words / lanes +
	       (double)s->rows * s->splits * sorts;
}

static double time_ns(const struct op_args *args)
{
	struct top_k_split s = top_k_split_of(args);
	double blocks = s.by_warps ? ceil((double)s.rows * 32 / TOP_K_THREADS) : (double)s.rows * s.splits;
	double idle = fmax(cuda_multiprocessors() / fmax(blocks, 1), 1);

	return fitted.reduce.launch_ns * (s.splits > 1 ? 2 : 1) +
	       fmax(cuda_memory_ns(args), cuda_ns_of_clocks(arithmetic_clocks(args, &s))) * idle;
}

static const struct kernel kernels[] = {
    {
        .name = "select",
        .idea = "thresholds and sorted candidates: a warp or a block for each row, or several blocks",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "any strides",
        .supports = cuda_supports_any,
        .workspace = top_k_workspace,
        .time_ns = time_ns,
        .launch = top_k_select,
        .carries = true,
    },
};

const struct kernel_list top_k_cuda_kernels = {kernels, sizeof(kernels) / sizeof(kernels[0])};
