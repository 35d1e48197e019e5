/*
 * attention of f32 at f32's accuracy on Hopper's tensor cores: o = softmax(scale q kT) v.
 *
 *   kernel  idea                                      tiles, threads           bound
 *   f16x3   each f32 as a sum of two f16, scaled by   128 queries, 384; by 64  the tensor cores and power
 *           rows, tiles or columns; three products    keys, head_dim to 64:
 *           for q kT, and three for weights times v,  128
 *           whose sums go on in f32 registers
 *
 * split_operands (split.cuh) cuts q, k and v into pairs and finds out whether these are accurate. attend_pairs
 * (kernel.cuh) multiplies. Where pairs do not fit, the kernel `tiles` computes all in its place: its blocks
 * look at what was found, and mostly end at once.
 *
 * Errors of a result are those of f32, relative to the largest weight of 64 or 128 keys times the largest value
 * of a column there.
 */
#include "attention/f16x3.h"

#include <math.h>

#include "attention/f16x3/kernel.cuh"
#include "attention/f16x3/split.cuh"
#include "attention/tiles.h"
#include "attention/wgmma/plan.cuh"
#include "common/launch.cuh"

namespace
{

/* By head_dim and value_dim, whichever is larger. */
using cut_64 = pairs_cut<64, 128, 2, 2250, 10000>;
using cut_128 = pairs_cut<128, 64, 2, 2400, 15000>;

constexpr int DEPTH_MAX = 128;
constexpr double WORKSPACE_MAX = 0x1p35;
constexpr uint64_t SPLIT_GRID_MAX = 1u << 30;

/* ---- The workspace ---- */

uint64_t units_of(const view *v)
{
	return v->shape[0] * v->shape[1];
}

/* How many tiles of so many rows there are in each unit. */
uint64_t tiles_of(const view *v, int rows)
{
	return (v->shape[2] + (uint64_t)rows - 1) / (uint64_t)rows;
}

uint64_t round_up(uint64_t n)
{
	return (n + 255) / 256 * 256;
}

/* What lies where from `base` on; its bytes. base: NULL where only these matter. */
template <class CUT> uint64_t lay_out(const op_args *args, char *base, split_work *ret)
{
	const view *q = &args->views[ATTENTION_Q], *k = &args->views[ATTENTION_K];
	uint64_t at = round_up(sizeof(split_found));
	halves *operands[] = {&ret->q, &ret->k, &ret->v};

	ret->q_tiles = tiles_of(q, CUT::KEYS);
	ret->key_tiles = tiles_of(k, CUT::KEYS);
	ret->key_heads = (int64_t)k->shape[1];
	ret->q_blocks = units_of(q) * ret->q_tiles;
	ret->key_blocks = units_of(k) * ret->key_tiles;
	ret->blocks = ret->q_blocks + 2 * ret->key_blocks;
	ret->found = (split_found *)base;
	const uint64_t rows[] = {units_of(q) * q->shape[2], units_of(k) * k->shape[2],
	                         units_of(k) * k->shape[2]};
	const uint64_t factors[] = {rows[0], ret->key_blocks, ret->key_blocks * CUT::COLUMNS};

	for (int i = 0; i < 3; i++) {
		operands[i]->factors = (float *)(base + at);
		at += round_up(factors[i] * sizeof(float));
		operands[i]->rows = (__half *)(base + at);
		at += round_up(rows[i] * CUT::DEPTH * sizeof(__half));
	}
	return at;
}

bool is_deep(const op_args *args)
{
	return args->views[ATTENTION_Q].shape[3] > 64 || args->views[ATTENTION_V].shape[3] > 64;
}

/* Without factors. Not an integer: axes of stride 0 may have any length. */
double bytes_of_pairs(const op_args *args)
{
	const view *q = &args->views[ATTENTION_Q], *k = &args->views[ATTENTION_K];
	double rows = (double)q->shape[0] * (double)q->shape[1] * (double)q->shape[2] +
	              2 * (double)k->shape[0] * (double)k->shape[1] * (double)k->shape[2];

	return rows * 2 * (is_deep(args) ? cut_128::DEPTH : cut_64::DEPTH);
}

/* ---- The launch ---- */

/* Rows of pairs, as the copy engine sees them. */
template <class CUT> bool map_rows(CUtensorMap *map, const view &of, const __half *rows, unsigned box_rows)
{
	view v = of;

	v.data = (void *)rows;
	v.shape[3] = CUT::DEPTH;
	v.strides[3] = 1;
	v.strides[2] = CUT::DEPTH;
	v.strides[1] = (int64_t)v.shape[2] * CUT::DEPTH;
	v.strides[0] = (int64_t)v.shape[1] * v.strides[1];
	return map_view(map, v, box_rows);
}

template <class CUT> int launch_pairs(const op_args *args, const wgmma_plan &plan, const struct launch *launch)
{
	const view *views = args->views;
	cudaStream_t stream = cuda_stream(launch);
	split_work split = {};
	pairs_work w = {};

	lay_out<CUT>(args, (char *)launch->workspace, &split);
	(wgmma_work &)w = work_of(args, plan);
	split.p = problem_of(args);
	split.factor = w.factor;
	w.to = tensor_of(views[ATTENTION_O]);
	w.values = split.p.values;
	w.key_heads = (unsigned)split.key_heads;
	w.key_tiles = (unsigned)split.key_tiles;
	w.q_factors = split.q.factors;
	w.k_factors = split.k.factors;
	w.v_factors = split.v.factors;
	w.found = split.found;
	if (!map_rows<CUT>(&w.q, views[ATTENTION_Q], split.q.rows, TEAM_ROWS) ||
	    !map_rows<CUT>(&w.k, views[ATTENTION_K], split.k.rows, CUT::KEYS) ||
	    !map_rows<CUT>(&w.v, views[ATTENTION_V], split.v.rows, CUT::KEYS))
		return KOPS_E_FAULT;

	unsigned blocks = (unsigned)cuda_multiprocessors_to_keep(launch, (int)cuda_multiprocessors(), w.tiles);

	if (w.tiles <= blocks)
		blocks = w.tiles;
	else if (plan.is_uneven)
		w.taken = &split.found->taken;
	cudaMemsetAsync(split.found, 0, sizeof *split.found, stream);
	launch_kernel(split_operands<CUT::COLUMNS, CUT::KEYS>,
	              {dim3((unsigned)(split.blocks < SPLIT_GRID_MAX ? split.blocks : SPLIT_GRID_MAX)),
	               dim3(SPLIT_THREADS), 0, 1, false},
	              stream, split);
	cudaFuncSetAttribute(attend_pairs_mapped<CUT>, cudaFuncAttributeMaxDynamicSharedMemorySize,
	                     CUT::SHARED_BYTES);
	launch_kernel(attend_pairs_mapped<CUT>,
	              {dim3(blocks), dim3(CUT::THREADS), CUT::SHARED_BYTES, 1, cuda_may_be_early(launch)},
	              stream, w);
	return attention_tiles_otherwise(args, split.found, launch);
}

} // namespace

extern "C" bool attention_f16x3_supports(const op_args *args, const char **ret_why_not)
{
	const view *views = args->views, *q = &views[ATTENTION_Q], *k = &views[ATTENTION_K],
	           *v = &views[ATTENTION_V];
	double scale = args->params.plain.numbers[ATTENTION_SCALE];

	*ret_why_not = "takes f32";
	if (q->dtype != KOPS_F32)
		return false;
	*ret_why_not = "takes no mask, and scales from 2^-24 to 2^23";
	if (!view_is_absent(&views[ATTENTION_MASK]) || !(scale >= 0x1p-24 && scale <= 0x1p23))
		return false;
	*ret_why_not = "takes head_dim and value_dim up to 128, and no empty operands";
	if (q->shape[3] > DEPTH_MAX || v->shape[3] > DEPTH_MAX || view_elements(q) == 0 ||
	    view_elements(k) == 0 || view_elements(v) == 0)
		return false;
	*ret_why_not = "takes up to 2^30 queries, keys and tiles";
	if (q->shape[2] > INT32_MAX / 2 || v->shape[2] > INT32_MAX / 2 ||
	    (double)q->shape[0] * (double)q->shape[1] * ceil((double)q->shape[2] / TEAM_ROWS) > TILES_MAX)
		return false;
	*ret_why_not =
	    "needs 4 bytes of workspace for each number of q, k and v, and would take more than 32 GiB";
	if (bytes_of_pairs(args) > WORKSPACE_MAX)
		return false;
	*ret_why_not = "needs a GPU of compute capability 9.0";
	return gemm_hopper_multiprocessors() != 0;
}

extern "C" uint64_t attention_f16x3_workspace(const op_args *args)
{
	split_work split;

	return is_deep(args) ? lay_out<cut_128>(args, nullptr, &split) : lay_out<cut_64>(args, nullptr, &split);
}

/* The pass before the products reads as much as it writes. */
extern "C" double attention_f16x3_ns(const op_args *args)
{
	const double launches_ns = 6000, share = 0.75;
	double ns = (is_deep(args) ? plan_of<cut_128>(args) : plan_of<cut_64>(args)).ns;

	return (launches_ns + ns) * cuda_clock_factor() + cuda_ns_of_bytes(2 * bytes_of_pairs(args), share);
}

extern "C" CUDA_LAUNCH(attention_f16x3)
{
	return is_deep(args) ? launch_pairs<cut_128>(args, plan_of<cut_128>(args), launch)
	                     : launch_pairs<cut_64>(args, plan_of<cut_64>(args), launch);
}
