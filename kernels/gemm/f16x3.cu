/*
 * Gemm at fp32 accuracy on Hopper's tensor cores: f32, C = α·A·B + β·C. Measured on an H200, resident, all
 * passes counted, TFLOP/s at 1024³, 2048³, 4096³ and 8192³.
 *
 *   kernel idea                                  tile, threads          bound                      measured
 *   f16x3  each f32 as a sum of two f16, scaled  256×128×32, 384, two   power: the three products  54 142
 *          by line; lo·hi + hi·lo + hi·hi in     blocks share A; small  run at 227, tensor cores   195 213;
 *          wgmma, added to f32 sums every 32     products 128×128, two  busy for 9 clocks in 10,   cublas 34
 *          of K; any strides                     blocks split K         but at 1.5 of 1.98 GHz     50 51 51
 *   bf16x6 each f32 as a sum of three bf16,      the same, 72 KiB a     power: six products, each  46 98
 *          which hold lines of almost any range  stage instead of 48,   with 3/4 of the bytes of   121 122
 *          whole; the six largest products       three instead of four  f16x3's
 *   f64    widened, products and sums in f64     128×128×8, 256, 64×32  DMMA at 2/3 of its rate:   16 38
 *          on the tensor cores (f64.cuh): where  per warp               the barrier of each tile   42 44
 *          nothing else is accurate                                     of K
 *
 * Three kernels do it. measure_lines finds the largest magnitude of each line. split_lines cuts the operands
 * into terms (split.cuh). multiply_terms (product.cuh) does the work. The first two take a tenth of the time at
 * 8192³, a third at 2048³.
 *
 * The GPU decides which split is accurate, for each region of 256 × 256 of C; kernels whose terms are wanted
 * nowhere return at once. Where the numbers of a line differ too much for two f16, f16x3 cuts them again and
 * multiplies as bf16x6 does (from K = 768 and 2^31 FMAs on). multiply_f64 takes lines that three bf16 do not
 * hold either, NaN and infinities, and lines that are mostly zeros or mostly negligible beside the largest.
 *
 * Errors against cuBLAS, and what else was tried: docs/lab/gemm.md.
 */
#include "gemm/kernels.h"

#include <math.h>

#include "common/launch.cuh"
#include "fitted.h"
#include "gemm/f16x3/f64.cuh"
#include "gemm/f16x3/product.cuh"

namespace
{

/* ---- Where the operands do not fit: the same product in f64 ---- */

struct fallback {
	gemm_task t;
	uint64_t blocks;
	survey found;
};

template <bool A_ALONG_K, bool B_ALONG_K, int WIDTH>
__global__ void __launch_bounds__(THREADS, 1) multiply_f64(fallback f)
{
	__shared__ __align__(16) float a_tile[2][DEPTH * F64_PITCH], b_tile[2][DEPTH * F64_PITCH];

	await_kernel_before();
	terms of_all = f.found.of_all();
	if (of_all != BY_REGION && of_all != F64)
		return;
	for (; f.t.first + blockIdx.x < f.blocks; f.t.first += gridDim.x) {
		place at = place_of<EDGE, F64_BAND>(f.t);
		if (of_all == BY_REGION && f.found.at(at.batch, at.row, at.col) != F64)
			continue;
		f64_block<A_ALONG_K, B_ALONG_K, WIDTH>(f.t, at, a_tile, b_tile);
		__syncthreads();
	}
}

/* ---- The launches ---- */

/* What lies where in the workspace. */
struct workspace_layout {
	gemm_problem p;
	split_task split;
	float4 *sums;
	/* From the beginning: what starts as zeros, all but the sums, and all. */
	uint64_t zeroed, split_bytes, bytes;
};

/* The lines of operand i of a product by rows, or some of them. */
split_operand split_operand_of(const gemm_problem &p, int i, const void *data, uint64_t lines)
{
	gemm_operand o = i == 0 ? p.a : p.b;
	split_operand s = {};

	o.data = (void *)data;
	s.data = (const float *)data;
	s.batch_stride = o.batch;
	s.line_stride = i == 0 ? o.row : o.col;
	s.k_stride = i == 0 ? o.col : o.row;
	s.batches = o.batch ? p.batch : 1;
	s.lines = lines;
	s.depth = p.k;
	s.padded_lines = round_up(lines, LINES_UNIT);
	s.padded_depth = round_up(p.k, DEPTH_UNIT);
	s.along_k = along_k(s.k_stride, s.line_stride);
	s.vectors = s.along_k && has_vectors(o, s.k_stride, s.line_stride, p.k);
	return s;
}

/* terms: of the largest tiles to come. base: NULL where only the sizes matter. */
workspace_layout workspace_layout_of(const op_args *args, int terms, char *base)
{
	gemm_problem given = gemm_problem_of(args);
	workspace_layout layout = {};
	uint64_t at = 0;

	layout.p = gemm_by_rows(&given);
	const gemm_problem &p = layout.p;
	split_operand *operands = layout.split.operands;
	operands[0] = split_operand_of(p, 0, p.a.data, p.m);
	operands[1] = split_operand_of(p, 1, p.b.data, p.n);
	for (int i = 0; i < 2; i++) {
		uint64_t lines = operands[i].batches * operands[i].padded_lines;
		layout.split.found.all[i] = (findings *)(base + at);
		layout.split.found.regions[i] = layout.split.found.all[i] + 1;
		layout.split.found.batch_lines[i] = operands[i].batches > 1 ? operands[i].padded_lines : 0;
		at += round_up((1 + lines / REGION) * sizeof(findings), 256);
	}
	for (int i = 0; i < 2; i++) {
		uint64_t lines = operands[i].batches * operands[i].padded_lines;
		operands[i].largest = (unsigned *)(base + at);
		operands[i].nonzeros = operands[i].largest + lines;
		operands[i].losses = operands[i].nonzeros + lines;
		operands[i].small = operands[i].losses + lines;
		at += 4 * lines * sizeof(unsigned);
	}
	layout.zeroed = at;
	for (int i = 0; i < 2; i++) {
		operands[i].tiles = (uint4 *)(base + at);
		at += operands[i].batches * operands[i].padded_lines * operands[i].padded_depth * 2 * terms;
	}
	layout.split_bytes = at;
	layout.sums = (float4 *)(base + at);
	if (p.k > SEGMENT * TILE_DEPTH)
		at += (uint64_t)gemm_hopper_multiprocessors() * KEPT_BYTES;
	layout.bytes = at;
	return layout;
}

void launch_split(void (*kernel)(split_task), uint64_t (*blocks_of)(const split_operand &), split_task t,
                  uint64_t most_blocks, bool early, cudaStream_t stream)
{
	uint64_t first = blocks_of(t.operands[0]), blocks = first + blocks_of(t.operands[1]);

	t.blocks_of_first = (unsigned)first;
	t.blocks = (unsigned)blocks;
	if (blocks == 0)
		return;
	launch_kernel(
	    kernel,
	    {dim3((unsigned)(blocks < most_blocks ? blocks : most_blocks)), dim3(SPLIT_THREADS), 0, 1, early},
	    stream, t);
}

/* What the passes count begins at zero. */
void launch_zeros(const workspace_layout &layout, cudaStream_t stream)
{
	cudaMemsetAsync(layout.split.found.all[0], 0, layout.zeroed, stream);
}

/* The first pass. */
void launch_measure(const split_task &fresh, cudaStream_t stream)
{
	launch_split(measure_lines, measure_blocks, fresh, UINT64_MAX, false, stream);
}

/* Tiles of C, those of a cluster counted as one. */
template <class CUT> void count_tiles(product *p, uint64_t batch)
{
	p->row_tiles = (p->m + CUT::ROWS - 1) / CUT::ROWS;
	p->col_tiles = round_up((p->n + CUT::COLS - 1) / CUT::COLS, CUT::SHARERS);
	p->tiles = batch * p->row_tiles * p->col_tiles / CUT::SHARERS;
}

template <class CUT>
void launch_product(product p, uint64_t batch, int multiprocessors, const struct launch *launch)
{
	uint64_t blocks;
	int to_keep;

	count_tiles<CUT>(&p, batch);
	blocks = p.tiles * CUT::CLUSTER;
	to_keep = cuda_multiprocessors_to_keep(launch, multiprocessors, blocks);
	/* consume_terms() wants a cluster for each tile. */
	if (CUT::SPLITS == 1 && blocks > (uint64_t)to_keep)
		blocks = to_keep / CUT::CLUSTER * CUT::CLUSTER;
	cudaFuncSetAttribute(multiply_terms<CUT>, cudaFuncAttributeMaxDynamicSharedMemorySize,
	                     CUT::SHARED_BYTES);
	launch_kernel(multiply_terms<CUT>,
	              {dim3((unsigned)blocks), dim3(PRODUCT_THREADS), CUT::SHARED_BYTES, CUT::CLUSTER,
	               cuda_may_be_early(launch)},
	              cuda_stream(launch), p);
}

/* How long multiply_terms() takes, in ns of the GPU that was fitted on. */
template <class CUT> double product_ns(product p, uint64_t batch, int multiprocessors)
{
	count_tiles<CUT>(&p, batch);
	return ceil((double)p.tiles * CUT::CLUSTER / multiprocessors) *
	       (fitted.f16x3_cuts.tile + (double)p.k_tiles * CUT::tile_ns());
}

template <class FORMAT> bool wants_large_cut(const product &p, uint64_t batch, int multiprocessors)
{
	return product_ns<large_cut<FORMAT>>(p, batch, multiprocessors) <
	       product_ns<small_cut<FORMAT>>(p, batch, multiprocessors);
}

/* split: of all lines. */
product product_of(const gemm_problem &of, const split_task &split, float4 *sums, const op_args *args)
{
	const split_operand *operands = split.operands;
	product p = {};

	p.c = of.c;
	p.to_c = epilogue_of<float>(args, of);
	p.c_pairs = p.c.col == 1 && p.c.row % 2 == 0 && p.c.batch % 2 == 0 && (uintptr_t)p.c.data % 8 == 0;
	p.m = of.m;
	p.n = of.n;
	p.k_tiles = operands[0].padded_depth / TILE_DEPTH;
	p.a_batch = operands[0].batches > 1 ? operands[0].padded_lines : 0;
	p.b_batch = operands[1].batches > 1 ? operands[1].padded_lines : 0;
	p.a = operands[0].tiles;
	p.b = operands[1].tiles;
	p.a_largest = operands[0].largest;
	p.b_largest = operands[1].largest;
	p.kept = sums;
	p.found = split.found;
	return p;
}

/* Cuts up what is fresh of the operands and multiplies, where this format is due. */
template <class FORMAT>
void launch_format(const gemm_problem &of, const split_task &fresh, const split_task &all, float4 *sums,
                   const op_args *args, const struct launch *launch)
{
	int multiprocessors = gemm_hopper_multiprocessors();
	uint64_t most = FORMAT::TERMS == 2 ? UINT64_MAX : 3 * (uint64_t)multiprocessors;
	product p = product_of(of, all, sums, args);

	launch_split(split_lines<FORMAT>, split_blocks, fresh, most, cuda_may_be_early(launch),
	             cuda_stream(launch));
	if (wants_large_cut<FORMAT>(p, of.batch, multiprocessors))
		launch_product<large_cut<FORMAT>>(p, of.batch, multiprocessors, launch);
	else
		launch_product<small_cut<FORMAT>>(p, of.batch, multiprocessors, launch);
}

void launch_fallback(const survey &found, const op_args *args, const struct launch *launch)
{
	int multiprocessors = gemm_hopper_multiprocessors();
	static void (*const kernels[8])(fallback) = KERNELS(multiply_f64);
	fallback f = {gemm_task_of(args), 0, found};
	access how = access_of(f.t.p);
	uint64_t most;

	f.blocks = blocks_of(f.t.p, EDGE);
	most = (uint64_t)cuda_multiprocessors_to_keep(launch, multiprocessors, f.blocks);
	launch_kernel(kernels[how.a_along_k * 4 + how.b_along_k * 2 + how.vectors],
	              {dim3((unsigned)(f.blocks < most ? f.blocks : most)), dim3(THREADS), 0, 1,
	               cuda_may_be_early(launch)},
	              cuda_stream(launch), f);
}

/* ---- Parts that keep their pairs ---- */

/* Operand i of a product by rows. */
const view &view_of(const op_args *args, const gemm_problem &given, int i)
{
	return args->views[(i == 0) != gemm_is_turned(&given) ? GEMM_A : GEMM_B];
}

/* What is fresh of the operands of a part (struct launch), which has them in that order. */
split_task fresh_of(const op_args *part, const op_args *fresh)
{
	gemm_problem given = gemm_problem_of(part), p = gemm_by_rows(&given);
	split_task t = {};

	for (int i = 0; i < 2; i++) {
		const view &v = view_of(fresh, given, i);
		bool is_a = &v == &fresh->views[GEMM_A];

		if (!view_is_absent(&v))
			t.operands[i] = split_operand_of(p, i, v.data, v.shape[v.rank - (is_a ? 2 : 1)]);
	}
	return t;
}

/* Has the lines of operand i of a task, if there are any, lie where they belong in the whole product's. */
void lie_in(const split_task &whole, int i, split_task *t)
{
	const split_operand &w = whole.operands[i];
	split_operand &o = t->operands[i];
	uint64_t first = o.line_stride ? (uint64_t)((o.data - w.data) / o.line_stride) : 0;

	o.largest = w.largest + first;
	o.nonzeros = w.nonzeros + first;
	o.losses = w.losses + first;
	o.small = w.small + first;
	o.tiles = w.tiles + first / TILE_LINES * (w.padded_depth / TILE_DEPTH) * (PAIRS_BYTES / sizeof(uint4));
	t->found.all[i] = whole.found.all[i];
	t->found.regions[i] = whole.found.regions[i] + first / REGION;
}

/*
 * Pairs lie in the memory that parts keep, with what was found in them: for all lines of the whole product, of
 * which the fresh ones are cut up now. Triples, which are seldom wanted, are cut up anew for each part, in its
 * workspace.
 */
void use_kept(const op_args *args, const struct launch *launch, split_task *triples, split_task *pairs,
              split_task *fresh)
{
	workspace_layout whole =
	    workspace_layout_of(launch->kept.whole, f16_pairs::TERMS, (char *)launch->kept.memory);

	if (launch->kept.begins)
		launch_zeros(whole, cuda_stream(launch));
	*fresh = fresh_of(args, launch->kept.fresh);
	for (int i = 0; i < 2; i++) {
		lie_in(whole.split, i, pairs);
		lie_in(whole.split, i, fresh);
		triples->operands[i].largest = pairs->operands[i].largest;
		triples->operands[i].nonzeros = pairs->operands[i].nonzeros;
		triples->found.all[i] = pairs->found.all[i];
		triples->found.regions[i] = pairs->found.regions[i];
	}
}

/* ---- The kernels' conditions ---- */

/* Numbers to be cut up. Not an integer: axes of stride 0 may have any length. */
double numbers_of(const split_task &split)
{
	double n = 0;

	for (const split_operand &o : split.operands)
		n += (double)o.batches * (double)o.padded_lines * (double)o.padded_depth;
	return n;
}

/* What lies where if there is no workspace yet. */
workspace_layout sizes_of(const op_args *args)
{
	return workspace_layout_of(args, 0, nullptr);
}

/* How long the operands' terms are multiplied, at the clock of short work. */
template <class FORMAT> double multiply_ns(const op_args *args)
{
	int multiprocessors = gemm_hopper_multiprocessors();
	workspace_layout layout = sizes_of(args);
	product p = product_of(layout.p, layout.split, nullptr, args);

	return fmin(product_ns<large_cut<FORMAT>>(p, layout.p.batch, multiprocessors),
	            product_ns<small_cut<FORMAT>>(p, layout.p.batch, multiprocessors)) *
	       fitted.f16x3.of_cut * cuda_clock_factor();
}

/* numbers: that are cut up for it. whole: what lasts so long that the clock falls, of which it may be a part.
 */
template <class FORMAT> double format_ns(const op_args *args, double numbers, const op_args *whole)
{
	const auto &t = fitted.f16x3;
	workspace_layout layout = sizes_of(args);
	product p = product_of(layout.p, layout.split, nullptr, args);
	double passes = numbers * (4 + 4 + 2 * FORMAT::TERMS) * t.passes;
	double per_element = !p.c_pairs ? t.write_single : p.c.row % 8 ? t.write_within : t.write_sectors;
	double writing = per_element * (double)layout.p.batch * (double)p.m * (double)p.n;

	return t.launch_ns + multiply_ns<FORMAT>(args) * FORMAT::lasting(multiply_ns<FORMAT>(whole)) +
	       cuda_ns_of_bytes(passes + writing, 1);
}

template <class FORMAT> double format_ns(const op_args *args)
{
	return format_ns<FORMAT>(args, numbers_of(sizes_of(args).split), args);
}

/* terms: as in workspace_layout_of(). */
bool supports(const op_args *args, int terms, const char **ret_why_not)
{
	gemm_problem p = gemm_problem_of(args);

	*ret_why_not = "takes f32 only";
	if (args->views[0].dtype != KOPS_F32)
		return false;
	*ret_why_not = "is not for precision ieee";
	if (args->params.gemm.precision == KOPS_PRECISION_IEEE)
		return false;
	*ret_why_not = "needs K of at least 64 and alpha other than 0"; /* below, cuBLAS has smaller errors */
	if (p.k < 64 || args->params.gemm.alpha == 0)
		return false;
	*ret_why_not = "needs a stride other than 0 along K in A or B: its long sums of equal terms drift";
	if (p.a.col == 0 && p.b.row == 0)
		return false;
	*ret_why_not = "is for larger products: where C is small, cublas splits K and has smaller errors";
	if ((double)p.batch * (double)p.m * (double)p.n < 768 * 768)
		return false;
	*ret_why_not = "needs a GPU of compute capability 9.0";
	if (gemm_hopper_multiprocessors() == 0)
		return false;
	*ret_why_not =
	    "needs 4 bytes of workspace per element of A and B, or 6, and would take more than 32 GiB";
	if (numbers_of(sizes_of(args).split) * 2 * terms > 0x1p35)
		return false;
	*ret_why_not =
	    "leaves products of more than 1e15 FLOPs to others: on unfit operands they would take too long";
	return 2.0 * (double)p.batch * (double)p.m * (double)p.n * (double)p.k <= 1e15;
}

/* In shorter sums errors may be larger than cuBLAS's. */
bool are_long_sums(const gemm_problem &p)
{
	return p.k >= bf16_triples::LONG;
}

/* Whether f16x3 goes on with bf16_triples. Not in small products, which take longer by the 3 µs of two kernels
 * that mostly have nothing to do. */
bool wants_triples(const op_args *args)
{
	gemm_problem p = gemm_problem_of(args);

	return are_long_sums(p) && (double)p.batch * (double)p.m * (double)p.n * (double)p.k >= 0x1p31;
}

int f16x3_terms(const op_args *args)
{
	return wants_triples(args) ? bf16_triples::TERMS : f16_pairs::TERMS;
}

} // namespace

extern "C" bool gemm_f16x3_supports(const op_args *args, const char **ret_why_not)
{
	return supports(args, f16x3_terms(args), ret_why_not);
}

extern "C" double gemm_f16x3_ns(const op_args *args)
{
	return format_ns<f16_pairs>(args);
}

extern "C" uint64_t gemm_f16x3_workspace(const op_args *args)
{
	return workspace_layout_of(args, f16x3_terms(args), nullptr).bytes;
}

/* Lines of a part have to fill regions, unless they are the last. */
extern "C" uint64_t gemm_f16x3_kept_bytes(const op_args *whole, const op_cut *cut)
{
	for (unsigned axis = 0; axis < whole->op->n_part_axes; axis++)
		if (cut->axes[axis].n > 1 &&
		    (cut->axes[axis].chunk % LINES_UNIT != 0 || cut->axes[axis].first % LINES_UNIT != 0))
			return 0;
	return gemm_problem_of(whole).batch == 1
	           ? workspace_layout_of(whole, f16_pairs::TERMS, nullptr).split_bytes
	           : 0;
}

extern "C" double gemm_f16x3_kept_ns(const op_args *whole, const op_args *part, const op_args *fresh)
{
	return format_ns<f16_pairs>(part, numbers_of(fresh_of(part, fresh)), whole);
}

extern "C" CUDA_LAUNCH(gemm_f16x3)
{
	workspace_layout layout = workspace_layout_of(args, f16x3_terms(args), (char *)launch->workspace);
	split_task &triples = layout.split;

	triples.found.pairs_tried = true;
	triples.found.triples_tried = wants_triples(args);
	launch_zeros(layout, cuda_stream(launch));
	split_task pairs = triples, fresh = triples;
	if (launch->kept.memory)
		use_kept(args, launch, &triples, &pairs, &fresh);
	launch_measure(fresh, cuda_stream(launch));
	launch_format<f16_pairs>(layout.p, fresh, pairs, layout.sums, args, launch);
	if (triples.found.triples_tried)
		launch_format<bf16_triples>(layout.p, triples, triples, layout.sums, args, launch);
	launch_fallback(triples.found, args, launch);
	return cuda_launch_status();
}

extern "C" bool gemm_bf16x6_supports(const op_args *args, const char **ret_why_not)
{
	if (!supports(args, bf16_triples::TERMS, ret_why_not))
		return false;
	*ret_why_not = "needs K of at least 768: in shorter sums its errors may be larger than cublas's";
	return are_long_sums(gemm_problem_of(args));
}

extern "C" double gemm_bf16x6_ns(const op_args *args)
{
	return format_ns<bf16_triples>(args);
}

extern "C" uint64_t gemm_bf16x6_workspace(const op_args *args)
{
	return workspace_layout_of(args, bf16_triples::TERMS, nullptr).bytes;
}

extern "C" CUDA_LAUNCH(gemm_bf16x6)
{
	workspace_layout layout = workspace_layout_of(args, bf16_triples::TERMS, (char *)launch->workspace);
	split_task &split = layout.split;

	split.found.triples_tried = true;
	launch_zeros(layout, cuda_stream(launch));
	launch_measure(split, cuda_stream(launch));
	launch_format<bf16_triples>(layout.p, split, split, layout.sums, args, launch);
	launch_fallback(split.found, args, launch);
	return cuda_launch_status();
}
