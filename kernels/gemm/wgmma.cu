/*
 * Gemm of f16, bf16 and tf32 on Hopper's tensor cores: C = α·A·B + β·C, sums in f32.
 *
 *   kernel idea                                  tile, threads           bound
 *   wgmma  the copy engine brings swizzled       256×128 (tf32 128×256), power: at 8192³ the tensor cores are
 *          tiles; one warpgroup loads, two       384, two blocks share   busy for 97 % of a block's time, at
 *          multiply; C goes out by the copy      the 256; smaller        1.6 of 1.98 GHz, as in cuBLAS
 *          engine, in 16-bit types while the     128×192, 128×128,
 *          next tile is multiplied               128×64
 *
 * A wide tile needs 48 KiB for each 128 bytes of K, which occupy the tensor cores for 1024 clocks: 48 bytes per
 * clock and multiprocessor. Two blocks share a tile, so 32 of them come from L2. 128 multiprocessors work on
 * 2048 × 2048 of C at a time (place_of()). No more blocks are started than end together. Where all tiles are
 * multiplied at once, blocks do not share: a cluster begins and ends later than two blocks.
 *
 * Where C has few tiles, the 2, 4 or 8 blocks of a cluster split K. Each then adds up some columns, which the
 * others have written to its shared memory.
 *
 * Measured, H200: bf16 682 TFLOP/s at 2048³, 798 at 8192³; tf32 363 and 399; 0.93 to 1.28 × cuBLAS on cubes
 * (docs/kernels.md). What else was tried: docs/lab/gemm.md.
 */
#include "gemm/kernels.h"

#include <math.h>

#include <type_traits>

#include "common/launch.cuh"
#include "fitted.h"
#include "gemm/shift.cuh"
#include "gemm/tensor/kernel.cuh"
#include "gemm/tensor/layout.cuh"

namespace
{

template <element E>
using wide_cut = std::conditional_t<E == element::TF32, cut<1, 256, 1, 2, 4, 2, 8, cut_name::WIDE>,
                                    cut<2, 128, 2, 1, 4, 2, 8, cut_name::WIDE, true>>;
/* Of a loose C, which is not worth keeping results for: the multiplying threads write it themselves. */
using loose_wide_cut = cut<2, 128, 2, 1, 4, 2, 8, cut_name::WIDE>;
/* For tiles that all blocks do at the same time: a cluster begins and ends 0.5 us later than two blocks. */
using lone_cut = cut<2, 128, 1, 1, 4, 2, 8, cut_name::LONE>;
using middle_cut = cut<1, 192, 1, 1, 5, 1, 16, cut_name::MIDDLE>;
using square_cut = cut<1, 128, 1, 1, 5, 4, 12, cut_name::SQUARE>;
using narrow_cut = cut<1, 64, 1, 1, 8, 1, 16, cut_name::NARROW>;
/* Where C has few tiles. */
using split_square_cut = cut<1, 128, 1, 1, 6, 0, 12, cut_name::SQUARE, false, 8>;
using split_narrow_cut = cut<1, 64, 1, 1, 9, 0, 16, cut_name::NARROW, false, 8>;

/* ---- What the copy engine can take ---- */

bool takes(const mapped_product &mapped)
{
	placing least = is_tf32(mapped) ? placing::ALIGNED : placing::LOOSE;

	return mapped.a.lies >= least && mapped.b.lies >= least && mapped.c.lies >= least;
}

/* Whether there is a form of multiply_mapped() for it. */
bool has_form(const mapped_product &mapped)
{
	return is_tf32(mapped) ? !mapped.b.across && (mapped.a.across || !mapped.c.across) : !mapped.c.across;
}

/* ---- Copies of A and B with aligned lines ---- */

uint64_t pieces_of_line(const layout &l)
{
	return (l.length + PIECE_ELEMENTS - 1) / PIECE_ELEMENTS;
}

/* Pieces of the copy; none where there is no need for one. Not an integer: axes of stride 0 may have any
 * length.
 */
double padded_pieces(const gemm_operand &o, const layout &l, uint64_t batch)
{
	if (l.lies != placing::LOOSE)
		return 0;
	return (double)pieces_of_line(l) * (double)l.count * (double)(o.batch ? batch : 1);
}

double padded_bytes(const mapped_product &mapped)
{
	return (padded_pieces(mapped.p.a, mapped.a, mapped.p.batch) +
	        padded_pieces(mapped.p.b, mapped.b, mapped.p.batch)) *
	       PIECE_BYTES;
}

/* The copy of an operand, which the operand is from here on. Returns what lies behind it. */
char *place_copy(padding *ret, gemm_operand *o, layout *l, uint64_t batch, char *to)
{
	uint64_t pieces = (uint64_t)padded_pieces(*o, *l, batch);
	int64_t pitch = (int64_t)pieces_of_line(*l) * PIECE_ELEMENTS;
	/* As extent_of() has it, which way its axes are called does not matter. */
	gemm_operand lines = {o->data, o->batch, l->count > 1 ? l->apart : 0, 1};

	if (pieces == 0)
		return to;
	*ret = {(const char *)o->data,
	        to,
	        l->length,
	        l->count,
	        pieces,
	        l->apart,
	        o->batch,
	        pitch,
	        extent_of(lines, o->batch ? batch : 1, l->count, l->length)};
	o->data = to;
	o->batch = o->batch ? pitch * (int64_t)l->count : 0;
	l->apart = pitch;
	return to + pieces * PIECE_BYTES;
}

struct paddings {
	padding a, b;
	uint64_t a_blocks;
};

constexpr uint64_t PADDING_BLOCK = PADDING_THREADS * PADDING_PIECES;

__global__ void __launch_bounds__(PADDING_THREADS) pad_operands(const __grid_constant__ paddings all)
{
	let_next_kernel_come();
	await_kernel_before();
	if (blockIdx.x < all.a_blocks)
		pad(all.a, blockIdx.x * PADDING_BLOCK);
	else
		pad(all.b, (blockIdx.x - all.a_blocks) * PADDING_BLOCK);
}

/* Enqueues them where they are needed, and describes the product of the copies. */
void pad_loose(mapped_product *mapped, void *workspace, cudaStream_t stream)
{
	gemm_problem *p = &mapped->p;
	paddings all = {};
	char *to = (char *)workspace;
	uint64_t blocks;

	to = place_copy(&all.a, &p->a, &mapped->a, p->batch, to);
	place_copy(&all.b, &p->b, &mapped->b, p->batch, to);
	all.a_blocks = (all.a.pieces + PADDING_BLOCK - 1) / PADDING_BLOCK;
	blocks = all.a_blocks + (all.b.pieces + PADDING_BLOCK - 1) / PADDING_BLOCK;
	if (blocks > 0)
		launch_kernel(pad_operands, {dim3((unsigned)blocks), dim3(PADDING_THREADS)}, stream, all);
}

/* ---- The launch ---- */

CUtensorMapDataType map_type(element e, bool rounds)
{
	if (e != element::TF32)
		return CU_TENSOR_MAP_DATA_TYPE_UINT16;
	return rounds ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
}

/* `count` lines of 128 bytes in a box. */
bool map_layout(CUtensorMap *map, CUtensorMapDataType type, const gemm_operand &o, const layout &l,
                uint64_t batch, int count)
{
	return map_lines(map, type, o.data, {l.length, l.count, batch, l.apart, o.batch},
	                 LINE_BYTES / map_element_bytes(type), count, CU_TENSOR_MAP_SWIZZLE_128B);
}

/* Encoding the maps takes less than a microsecond each. */
template <class F>
int launch_form(const mapped_product &mapped, work w, int multiprocessors, const struct launch *launch)
{
	using CUT = typename F::CUT;
	const gemm_problem &p = mapped.p;

	if (!map_layout(&w.a, map_type(F::E, true), p.a, mapped.a, p.batch, F::A_BOX) ||
	    !map_layout(&w.b, map_type(F::E, true), p.b, mapped.b, p.batch, F::B_BOX) ||
	    (mapped.c.lies == placing::ALIGNED &&
	     !map_layout(&w.c, map_type(F::E, false), p.c, mapped.c, p.batch, F::TEAM * WARP_ROWS)))
		return KOPS_E_FAULT;
	/* No more blocks than take the same number of tiles: what else is there only burns power. */
	unsigned clusters = count_tiles<CUT>(&w, p.batch, multiprocessors).clusters;
	if (CUT::SPLITS == 1)
		clusters = count_tiles<CUT>(&w, p.batch,
		                            cuda_multiprocessors_to_keep(launch, multiprocessors,
		                                                         (uint64_t)w.tiles * CUT::SHARERS))
		               .clusters;
	unsigned blocks = cluster_blocks<CUT>(w);
	cudaFuncSetAttribute(multiply_mapped<F>, cudaFuncAttributeMaxDynamicSharedMemorySize,
	                     CUT::SHARED_BYTES);
	launch_kernel(multiply_mapped<F>,
	              {dim3(clusters * blocks), dim3(PRODUCT_THREADS), CUT::SHARED_BYTES, blocks,
	               cuda_may_be_early(launch)},
	              cuda_stream(launch), w);
	return cuda_launch_status();
}

typedef int (*launcher)(const mapped_product &, work, int, const struct launch *);

template <class CUT, element E, bool C_LOOSE> launcher launcher_by_lines(const mapped_product &mapped)
{
	static const launcher launchers[4] = {launch_form<form<CUT, E, false, false, false, C_LOOSE>>,
	                                      launch_form<form<CUT, E, false, true, false, C_LOOSE>>,
	                                      launch_form<form<CUT, E, true, false, false, C_LOOSE>>,
	                                      launch_form<form<CUT, E, true, true, false, C_LOOSE>>};

	return launchers[mapped.a.across * 2 + mapped.b.across];
}

template <class CUT, element E, bool C_LOOSE> launcher launcher_of(const mapped_product &mapped)
{
	if constexpr (E == element::TF32) {
		if (!mapped.a.across)
			return launch_form<form<CUT, E, false, false, false>>;
		return mapped.c.across ? launch_form<form<CUT, E, true, false, true>>
		                       : launch_form<form<CUT, E, true, false, false>>;
	} else {
		return launcher_by_lines<CUT, E, C_LOOSE>(mapped);
	}
}

/* One way to cut C, and K. */
struct choice {
	double ns;
	unsigned parts;
	launcher launch;
};

/* A tile of K. */
double tile_ns_of(cut_name name)
{
	const auto &t = fitted.wgmma_cuts;
	const double of[] = {t.wide, t.lone, t.middle, t.square, t.narrow};

	return of[(int)name];
}

/* Of a tile: its first bytes, products, last sums. blocks: at work, and share what L2 gives. */
template <class CUT> double tile_ns(double k_tiles, unsigned blocks, int multiprocessors)
{
	constexpr int BYTES = CUT::A_BYTES / CUT::BESIDE + CUT::B_BYTES / CUT::BELOW;
	const auto &t = fitted.wgmma_cuts;

	return CUT::ROWS * CUT::COLS * t.element +
	       k_tiles * fmax(tile_ns_of(CUT::NAME), (double)blocks * BYTES / (t.l2 * multiprocessors));
}

/* One tile for each cluster, if all find room. */
template <class CUT, element E>
choice split_choice_of(const mapped_product &mapped, work w, int multiprocessors)
{
	double begin_ns = fitted.wgmma_cuts.cluster_ns + CUT::ROWS * CUT::COLS * fitted.wgmma_cuts.joining;
	choice best = {INFINITY, 1, nullptr};

	count_tiles<CUT>(&w, mapped.p.batch, multiprocessors);
	for (unsigned parts = 2; parts <= CUT::SPLITS && parts <= w.k_tiles; parts *= 2) {
		double ns =
		    begin_ns + tile_ns<CUT>(ceil((double)w.k_tiles / parts), w.tiles * parts, multiprocessors);
		if (w.tiles <= gemm_clustered((unsigned)multiprocessors, parts) / parts && ns < best.ns)
			best = {ns, parts, launcher_of<CUT, E, false>(mapped)}; /* C is written by elements */
	}
	return best;
}

template <class CUT, element E, bool C_LOOSE>
choice choice_of(const mapped_product &mapped, work w, int multiprocessors)
{
	if constexpr (CUT::SPLITS > 1) {
		return split_choice_of<CUT, E>(mapped, w, multiprocessors);
	} else {
		double launch_ns = CUT::SHARERS > 1 ? fitted.wgmma_cuts.cluster_ns : fitted.wgmma_cuts.block_ns;
		waves waves = count_tiles<CUT>(&w, mapped.p.batch, multiprocessors);
		double each_ns = tile_ns<CUT>(w.k_tiles, waves.clusters * CUT::SHARERS, multiprocessors) +
		                 (C_LOOSE ? CUT::ROWS * CUT::COLS * fitted.wgmma_cuts.loose : 0);

		return {launch_ns + waves.count * each_ns, 1, launcher_of<CUT, E, C_LOOSE>(mapped)};
	}
}

template <element E, bool C_LOOSE, class... CUTS>
choice fastest_of(const mapped_product &mapped, const work &w, int multiprocessors)
{
	const choice choices[] = {choice_of<CUTS, E, C_LOOSE>(mapped, w, multiprocessors)...};
	choice best = choices[0];

	for (const choice &c : choices)
		if (c.ns < best.ns)
			best = c;
	return best;
}

/* Fewer cuts, as each takes long to compile. */
template <element E> choice best_finishing_of(const mapped_product &mapped, const work &w, int multiprocessors)
{
	if (E != element::TF32 && mapped.c.lies == placing::LOOSE)
		return fastest_of<E, E != element::TF32, finishing<square_cut>, finishing<split_narrow_cut>>(
		    mapped, w, multiprocessors);
	return fastest_of<E, false, finishing<wide_cut<E>>, finishing<square_cut>, finishing<split_narrow_cut>>(
	    mapped, w, multiprocessors);
}

template <element E> choice best_of(const mapped_product &mapped, const work &w, int multiprocessors)
{
	if (w.to_c.finishes())
		return best_finishing_of<E>(mapped, w, multiprocessors);
	if constexpr (E == element::TF32)
		return fastest_of<E, false, wide_cut<E>, middle_cut, square_cut, narrow_cut, split_square_cut,
		                  split_narrow_cut>(mapped, w, multiprocessors);
	else if (mapped.c.lies == placing::LOOSE)
		return fastest_of<E, true, loose_wide_cut, square_cut, split_square_cut, split_narrow_cut>(
		    mapped, w, multiprocessors);
	else
		return fastest_of<E, false, wide_cut<E>, lone_cut, middle_cut, square_cut, narrow_cut,
		                  split_square_cut, split_narrow_cut>(mapped, w, multiprocessors);
}

choice best_of(const mapped_product &mapped, const work &w, kops_dtype dtype, int multiprocessors)
{
	switch (dtype) {
	case KOPS_F16:
		return best_of<element::F16>(mapped, w, multiprocessors);
	case KOPS_BF16:
		return best_of<element::BF16>(mapped, w, multiprocessors);
	default:
		return best_of<element::TF32>(mapped, w, multiprocessors);
	}
}

/* Of the cut that has the most. */
double tiles_of(const gemm_problem &p)
{
	return (double)p.batch * ceil((double)p.m / narrow_cut::ROWS) * ceil((double)p.n / narrow_cut::COLS);
}

bool takes_type(const op_args *args)
{
	kops_dtype dtype = args->views[0].dtype;

	return dtype == KOPS_F16 || dtype == KOPS_BF16 || (dtype == KOPS_F32 && gemm_may_round(args));
}

} // namespace

extern "C" bool gemm_wgmma_supports(const op_args *args, const char **ret_why_not)
{
	mapped_product mapped = planned_product_of(args);
	const gemm_problem &p = mapped.p;

	*ret_why_not = "takes f16 and bf16, and f32 at precision tf32 and bf16";
	if (!takes_type(args))
		return false;
	*ret_why_not = "needs K > 0 and alpha other than 0"; /* NaN and Inf in A and B would be seen */
	if (p.k == 0 || args->params.gemm.alpha == 0)
		return false;
	*ret_why_not =
	    is_tf32(mapped)
	        ? "of tf32 needs lines of A, B and C without gaps that begin at multiples of 16 bytes"
	        : "needs lines of A, B and C without gaps";
	if (!takes(mapped))
		return false;
	*ret_why_not = "needs copies of A and B with aligned lines, and they would take more than 32 GiB";
	if (padded_bytes(mapped) > 0x1p35)
		return false;
	*ret_why_not = "of tf32 takes A by rows or B by columns";
	if (!has_form(mapped))
		return false;
	*ret_why_not = "needs M, N and K of at most 2^30 and a C of at most 2^31 tiles";
	if (p.m > EXTENT_MAX || p.n > EXTENT_MAX || p.k > EXTENT_MAX || p.batch > EXTENT_MAX ||
	    tiles_of(p) > (double)TILES_MAX)
		return false;
	*ret_why_not = "needs a GPU of compute capability 9.0";
	return gemm_hopper_multiprocessors() != 0;
}

/* The cuts' times are those of long jobs, at a lower clock, and of operands in L2. */
extern "C" double gemm_wgmma_ns(const op_args *args)
{
	const auto &t = fitted.wgmma;
	mapped_product mapped = planned_product_of(args);
	double padded = padded_bytes(mapped);
	work w = work_of(mapped, args);
	struct cost cost;

	args->op->cost(args, &cost);
	choice best = best_of(mapped, w, args->views[0].dtype, gemm_hopper_multiprocessors());
	double product_ns = t.of_cut * cuda_clock_factor() * best.ns;
	return t.launch_ns + fitted_lasting_ns(product_ns, t.lasting) +
	       cuda_ns_of_bytes(t.read * cost.bytes, 1) +
	       (padded > 0 ? t.pad_ns + cuda_ns_of_bytes(2 * padded, 1) : 0);
}

extern "C" uint64_t gemm_wgmma_workspace(const op_args *args)
{
	return (uint64_t)padded_bytes(planned_product_of(args));
}

extern "C" CUDA_LAUNCH(gemm_wgmma)
{
	int multiprocessors = gemm_hopper_multiprocessors();
	kops_dtype dtype = args->views[0].dtype;
	mapped_product mapped = mapped_product_of(args, gemm_problem_of(args));
	work w = work_of(mapped, args);
	choice best = best_of(mapped, w, dtype, multiprocessors);

	w.parts = best.parts;
	pad_loose(&mapped, launch->workspace, cuda_stream(launch));
	return best.launch(mapped, w, multiprocessors, launch);
}
