#include <math.h>

#include "common/cuda.h"
#include "fitted.h"
#include "search/refine.h"
#include "search/split.h"
#include "search/wgmma_plan.h"

CUDA_LAUNCH(search_lanes);
CUDA_LAUNCH(search_refine);
CUDA_LAUNCH(search_wgmma);

/* Whether it is bound by memory, by reads of the base from L2 for each group of queries, or by FMA.
 * Fitted on an H200.
 */
static double time_ns(const struct op_args *args)
{
	const double lanes = 128, shared = 14, l2_rate = 1.5;
	const struct view *base = &args->views[SEARCH_BASE];
	struct search_split s = search_split_of(args);
	double products = (double)s.groups * SEARCH_TOGETHER * (double)s.rows * (double)s.columns,
	       bytes = (double)view_elements(base) * (double)dtype_size(base->dtype) * (double)s.groups,
	       idle = fmax(cuda_multiprocessors() / ((double)s.groups * (double)s.pieces), 1),
	       ns = fmax(cuda_ns_of_clocks(products * shared / lanes), cuda_ns_of_bytes(bytes, l2_rate));

	return 2 * fitted.reduce.launch_ns + fmax(ns, cuda_memory_ns(args)) * idle;
}

static const struct kernel kernels[] = {
    {
        .name = "lanes",
        .idea = "eight queries and four rows in each warp, by FMA, and a threshold for each query",
        .dtypes = "f32 f16 bf16",
        .takes = "any strides",
        .supports = cuda_supports_any,
        .workspace = search_workspace,
        .time_ns = time_ns,
        .launch = search_lanes,
        .carries = true,
    },
    {
        .name = "refine",
        .idea = "products of tf32, and scores in f32 of the rows that may be among the best by these",
        .dtypes = "f32",
        .takes = "k up to 32, rows at multiples of 16 bytes, up to 2048 columns",
        .supports = search_refine_supports,
        .workspace = search_refine_workspace,
        .time_ns = search_refine_ns,
        .launch = search_refine,
        .carries = true,
    },
    {
        .name = "wgmma",
        .idea = "products of tensor cores, whose scores stay in registers, and a list for each query",
        .dtypes = "f16 bf16",
        .takes = "k up to 64, rows at multiples of 16 bytes, up to 4096 columns",
        .supports = search_wgmma_supports,
        .workspace = search_wgmma_workspace,
        .time_ns = search_wgmma_ns,
        .launch = search_wgmma,
        .carries = true,
    },
};

const struct kernel_list search_cuda_kernels = {kernels, sizeof(kernels) / sizeof(kernels[0])};
