/* plan.cuh: what the host decides where blocks of teams go through tiles, and what it tells them. */
#ifndef KOPS_KERNELS_ATTENTION_WGMMA_PLAN_CUH
#define KOPS_KERNELS_ATTENTION_WGMMA_PLAN_CUH

#include <float.h>
#include <math.h>

#include "attention/wgmma/form.cuh"
#include "common/launch.cuh"
#include "gemm/map.cuh"

namespace
{

constexpr double SECTION_BYTES = 0x1p25; /* of keys and values: half of L2 */
constexpr double TILES_MAX = 0x1p30;

inline uint64_t section_of(const op_args *args, uint64_t units)
{
	const view *k = &args->views[ATTENTION_K], *v = &args->views[ATTENTION_V];
	double group = (double)args->views[ATTENTION_Q].shape[1] / (double)k->shape[1];
	double bytes =
	    (double)k->shape[2] * (double)(k->shape[3] + v->shape[3]) * (double)dtype_size(k->dtype) / group;

	return (uint64_t)fmax(fmin(floor(SECTION_BYTES / bytes), (double)units), 1);
}

/* Tiles of keys that a tile sees: in the mean, of some of them, and at most. */
struct key_tiles {
	double mean, most;
};

template <class CUT> key_tiles key_tiles_of(const op_args *args, uint64_t row_tiles)
{
	const uint64_t samples = row_tiles < 64 ? row_tiles : 64;
	int queries = (int)args->views[ATTENTION_Q].shape[2];
	attention_rule rule = attention_rule_of(args);
	key_tiles all = {0, 0};

	for (uint64_t i = 0; i < samples; i++) {
		int row = (int)(row_tiles * (2 * i + 1) / (2 * samples) * CUT::ROWS);
		int last = queries - row < CUT::ROWS ? queries - 1 : row + CUT::ROWS - 1;
		wgmma_keys keys = wgmma_keys_of(&rule, row, last, CUT::KEYS);
		double n = keys.end > keys.begin ? keys.end - keys.begin : 0;

		all.mean += n / (double)samples;
		all.most = fmax(all.most, n);
	}
	return all;
}

/* Uneven tiles: blocks end at about the same time, but not before the largest does. */
template <class CUT> double ns_of(const op_args *args, const wgmma_plan &plan)
{
	const double launch_ns = 3000, clear_ns = 2000, blocks = cuda_multiprocessors();
	double tiles = (double)plan.units * (double)plan.row_tiles;
	key_tiles keys = key_tiles_of<CUT>(args, plan.row_tiles);
	double mean_ns = CUT::TILE_NS + keys.mean * CUT::STEP_NS,
	       most_ns = CUT::TILE_NS + keys.most * CUT::STEP_NS;

	if (!plan.is_uneven || tiles <= blocks)
		return launch_ns + ceil(tiles / blocks) * most_ns;
	return launch_ns + clear_ns + fmax(most_ns, tiles / blocks * mean_ns + CUT::TILE_NS / 2.0);
}

/* Whether some tiles see more keys than others. */
inline bool is_uneven(const op_args *args)
{
	attention_rule rule = attention_rule_of(args);

	return rule.causal || rule.window > 0 || !view_is_absent(&args->views[ATTENTION_LENGTHS]);
}

template <class CUT> wgmma_plan plan_of(const op_args *args)
{
	const view *q = &args->views[ATTENTION_Q];
	uint64_t units = q->shape[0] * q->shape[1], row_tiles = (q->shape[2] + CUT::ROWS - 1) / CUT::ROWS;
	wgmma_plan plan = {CUT::DEPTH,      CUT::ROWS, CUT::KEYS, units, row_tiles, section_of(args, units),
	                   is_uneven(args), 0};

	plan.ns = ns_of<CUT>(args, plan);
	return plan;
}

inline wgmma_work work_of(const op_args *args, const wgmma_plan &plan)
{
	const view *q = &args->views[ATTENTION_Q], *lengths = &args->views[ATTENTION_LENGTHS],
	           *lse = &args->views[ATTENTION_LSE];
	wgmma_work w = {};
	double factor;

	w.rule = attention_rule_of(args);
	factor = w.rule.scale * 1.4426950408889634;
	w.factor = (float)fmax(fmin(factor, (double)FLT_MAX), (double)FLT_MIN);
	w.queries = (int)q->shape[2];
	w.heads = (unsigned)q->shape[1];
	w.first_head = (unsigned)args->params.plain.numbers[ATTENTION_HEAD];
	w.group = (unsigned)args->params.plain.numbers[ATTENTION_GROUP];
	w.units = (unsigned)plan.units;
	w.row_tiles = (unsigned)plan.row_tiles;
	w.section = (unsigned)plan.section;
	w.tiles = w.units * w.row_tiles;
	w.lengths = (const int32_t *)lengths->data;
	w.lengths_apart = lengths->strides[0];
	w.lse = (float *)lse->data;
	for (int d = 0; d < 3; d++)
		w.lse_strides[d] = lse->strides[d];
	return w;
}

/* In boxes of a line of 128 bytes and so many rows. */
inline bool map_view(CUtensorMap *map, const view &v, unsigned rows)
{
	encode_map encode = map_encoder();
	cuuint64_t extents[4], strides[3];
	cuuint32_t box[4] = {LINE_COLUMNS, rows, 1, 1}, steps[4] = {1, 1, 1, 1};

	for (int d = 0; d < 4; d++)
		extents[d] = v.shape[3 - d];
	for (int d = 0; d < 3; d++)
		strides[d] = v.shape[2 - d] > 1 ? (cuuint64_t)v.strides[2 - d] * 2 : 16;
	return encode &&
	       encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, v.data, extents, strides, box, steps,
	              CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
	              CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

} // namespace

#endif
