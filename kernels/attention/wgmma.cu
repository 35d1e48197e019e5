/*
 * attention of f16 and bf16 on Hopper's tensor cores, after FlashAttention-3 (J. Shah et al., 2024): o =
 * softmax(scale q kT) v.
 *
 *   kernel  idea                                      tiles, threads            bound
 *   wgmma   the copy engine brings tiles of keys and  128 queries, 384; by 128  power and the tensor cores;
 *           values; two or three warpgroups multiply  keys, head_dim 192 and   head_dim 64: exponentials
 *           and weigh them, and take turns            256: 64; head_dim 64 also
 *                                                     192 queries by 96, 512
 *
 * Exponentials are relative to the largest score of some tile before, not of all: looking for the largest costs
 * a third of what the exponentials do. Only where their sum gets large they are made again, relative to
 * a larger score (weigh()).
 *
 * Where tiles see different numbers of keys, as with causal, those with the most come first, and blocks take
 * the next one when they are done. Otherwise block b takes every n-th.
 *
 * Measured, H200, bf16: 16 heads of 4096 queries and keys 712 TFLOP/s, causal 559; of head_dim 64 487 and 400;
 * 1.07 to 1.29 x cuDNN (docs/kernels.md). What else was tried: docs/lab/attention.md.
 */
#include "attention/wgmma_plan.h"

#include <math.h>

#include "attention/wgmma/kernel.cuh"
#include "attention/wgmma/plan.cuh"
#include "common/launch.cuh"
#include "fitted.h"

namespace
{

/* By head_dim and value_dim, whichever is larger. */
using cut_64 = attention_cut<64, 96, 3, 4, 2, 950, 4300>;
using low_cut_64 = attention_cut<64, 128, 2, 4, 2, 1030, 2700>; /* fewer queries in a tile */
using cut_128 = attention_cut<128, 128, 2, 2, 2, 1330, 2700>;
using cut_192 = attention_cut<192, 64, 2, 2, 2, 1020, 4800>;
using cut_256 = attention_cut<256, 64, 2, 2, 1, 1270, 6000>;

/* ---- What the copy engine can take ---- */

/* Rows that begin at multiples of 16 bytes, and none of which is another. */
bool has_mapped_rows(const view *v)
{
	bool fits =
	    (uintptr_t)v->data % 16 == 0 && v->offset % 16 == 0 && (v->shape[3] <= 1 || v->strides[3] == 1);

	for (unsigned d = 0; d < 4; d++)
		fits &= v->shape[d] > 0 && v->shape[d] <= MAP_EXTENT_MAX;
	for (unsigned d = 0; d < 3; d++)
		fits &= v->shape[d] <= 1 || map_stride(v->strides[d], 2);
	return fits;
}

/* ---- The launch ---- */

__global__ void clear_taken(unsigned *taken)
{
	let_next_kernel_come();
	await_kernel_before();
	*taken = 0;
}

template <class CUT, class T>
int launch_kernel_of(const op_args *args, const wgmma_plan &plan, const struct launch *launch)
{
	const view *v = args->views;
	wgmma_work w = work_of(args, plan);
	unsigned blocks = (unsigned)cuda_multiprocessors_to_keep(launch, (int)cuda_multiprocessors(), w.tiles);

	if (!map_view(&w.q, v[ATTENTION_Q], TEAM_ROWS) || !map_view(&w.k, v[ATTENTION_K], CUT::KEYS) ||
	    !map_view(&w.v, v[ATTENTION_V], CUT::KEYS) || !map_view(&w.o, v[ATTENTION_O], TEAM_ROWS))
		return KOPS_E_FAULT;
	if (w.tiles <= blocks) {
		blocks = w.tiles;
	} else if (plan.is_uneven) {
		w.taken = (unsigned *)launch->workspace;
		launch_kernel(clear_taken, {dim3(1), dim3(1)}, cuda_stream(launch), w.taken);
	}
	cudaFuncSetAttribute(attend_mapped<CUT, T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
	                     CUT::SHARED_BYTES);
	launch_kernel(attend_mapped<CUT, T>,
	              {dim3(blocks), dim3(CUT::THREADS), CUT::SHARED_BYTES, 1, cuda_may_be_early(launch)},
	              cuda_stream(launch), w);
	return cuda_launch_status();
}

template <class CUT, class T>
int launch_cut(const op_args *args, const wgmma_plan &plan, const struct launch *launch)
{
	bool has_more =
	    !view_is_absent(&args->views[ATTENTION_LENGTHS]) || !view_is_absent(&args->views[ATTENTION_LSE]);

	return has_more ? launch_kernel_of<cut_with_more<CUT>, T>(args, plan, launch)
	                : launch_kernel_of<CUT, T>(args, plan, launch);
}

typedef int (*launcher)(const op_args *, const wgmma_plan &, const struct launch *);

template <class T> launcher launcher_of(const wgmma_plan &plan)
{
	switch (plan.depth) {
	case 64:
		return plan.rows == cut_64::ROWS ? launch_cut<cut_64, T> : launch_cut<low_cut_64, T>;
	case 128:
		return launch_cut<cut_128, T>;
	case 192:
		return launch_cut<cut_192, T>;
	default:
		return launch_cut<cut_256, T>;
	}
}

} // namespace

extern "C" bool attention_wgmma_supports(const op_args *args, const char **ret_why_not)
{
	const view *views = args->views, *q = &views[ATTENTION_Q], *v = &views[ATTENTION_V];

	*ret_why_not = "takes f16 and bf16";
	if (dtype_size(q->dtype) != 2)
		return false;
	*ret_why_not = "takes no mask, and scales above 0";
	if (!view_is_absent(&views[ATTENTION_MASK]) || !(args->params.plain.numbers[ATTENTION_SCALE] > 0))
		return false;
	*ret_why_not = "takes head_dim and value_dim up to 256, value_dim a multiple of 8";
	if (q->shape[3] > WGMMA_DEPTH_MAX || v->shape[3] > WGMMA_DEPTH_MAX || v->shape[3] % 8 != 0)
		return false;
	*ret_why_not =
	    "needs rows of q, k, v and o that begin at multiples of 16 bytes, of elements side by side";
	for (unsigned i : {ATTENTION_Q, ATTENTION_K, ATTENTION_V, ATTENTION_O})
		if (!has_mapped_rows(&views[i]))
			return false;
	*ret_why_not = "takes up to 2^30 queries, keys and tiles";
	if (q->shape[2] > INT32_MAX / 2 || v->shape[2] > INT32_MAX / 2 ||
	    (double)q->shape[0] * (double)q->shape[1] * ceil((double)q->shape[2] / TEAM_ROWS) > TILES_MAX)
		return false;
	*ret_why_not = "needs a GPU of compute capability 9.0";
	return gemm_hopper_multiprocessors() != 0;
}

extern "C" wgmma_plan wgmma_plan_of(const op_args *args)
{
	uint64_t head_dim = args->views[ATTENTION_Q].shape[3], value_dim = args->views[ATTENTION_V].shape[3];
	uint64_t depth = head_dim > value_dim ? head_dim : value_dim;

	if (depth > 192)
		return plan_of<cut_256>(args);
	if (depth > 128)
		return plan_of<cut_192>(args);
	if (depth > 64)
		return plan_of<cut_128>(args);
	wgmma_plan high = plan_of<cut_64>(args), low = plan_of<low_cut_64>(args);
	return high.ns < low.ns ? high : low;
}

/* How many tiles have been taken. */
extern "C" uint64_t attention_wgmma_workspace(const op_args *args)
{
	return is_uneven(args) ? sizeof(unsigned) : 0;
}

extern "C" double attention_wgmma_ns(const op_args *args)
{
	const double share = 0.75, lasting = 0.35;
	double ns = cuda_clock_factor() * wgmma_plan_of(args).ns;
	struct cost cost;

	args->op->cost(args, &cost);
	return fmax(cuda_ns_of_bytes(cost.bytes, share), fitted_lasting_ns(ns, lasting));
}

extern "C" CUDA_LAUNCH(attention_wgmma)
{
	wgmma_plan plan = wgmma_plan_of(args);
	bool is_f16 = args->views[ATTENTION_O].dtype == KOPS_F16;

	return (is_f16 ? launcher_of<__half>(plan) : launcher_of<__nv_bfloat16>(plan))(args, plan, launch);
}
