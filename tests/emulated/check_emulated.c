/*
 * check_emulated: compares CUDA kernels for Hopper with their op's reference, on an emulated GPU (emulator.h).
 * The sources are those of the CUDA module; CUDA itself is not needed.
 *
 * Exit status: 0 right, 1 wrong, 2 usage.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/f16x3.h"
#include "attention/flash.h"
#include "attention/split.h"
#include "attention/tiles.h"
#include "attention/wgmma_plan.h"
#include "cases.h"
#include "check.h"
#include "cholesky/kernels.h"
#include "emulated.h"
#include "gemm/kernels.h"
#include "gemm/problem.h"
#include "layer_norm/pieces.h"
#include "lu/kernels.h"
#include "reduce/split.h"
#include "search/refine.h"
#include "search/split.h"
#include "search/wgmma_plan.h"
#include "seed.h"
#include "softmax/pieces.h"
#include "softmax/ring.h"
#include "top_k/split.h"
#include "triangular_solve/kernels.h"

#define WORKSPACE_ALIGNMENT 256
#define GUARD_BYTES         256
#define GUARD               0x5a

CUDA_LAUNCH(gemm_pipelined);
CUDA_LAUNCH(gemm_complex);
CUDA_LAUNCH(softmax_online);
CUDA_LAUNCH(softmax_coalesced);
CUDA_LAUNCH(softmax_blockreduce);
CUDA_LAUNCH(softmax_fused);
CUDA_TOGETHER(softmax_fused_together);
CUDA_TOGETHER(copy_vector_together);
uint64_t softmax_fused_workspace(const struct op_args *args);
CUDA_LAUNCH(layer_norm_kept);
CUDA_LAUNCH(gather_rows_wide);
CUDA_TOGETHER(gather_rows_wide_together);
CUDA_LAUNCH(gather_elements);
CUDA_TOGETHER(gather_elements_together);
CUDA_LAUNCH(add_float4x);
CUDA_LAUNCH(add_scalar);
CUDA_LAUNCH(subtract_float4);
CUDA_LAUNCH(subtract_scalar);
CUDA_LAUNCH(unary_float4x);
CUDA_TOGETHER(unary_float4x_together);
CUDA_LAUNCH(unary_scalar);
CUDA_LAUNCH(attention_rows);
CUDA_LAUNCH(attention_flash);
CUDA_LAUNCH(attention_f16x3);
CUDA_LAUNCH(attention_tiles);
CUDA_LAUNCH(attention_wgmma);
CUDA_LAUNCH(reduce_rows);
CUDA_LAUNCH(reduce_strided);
CUDA_LAUNCH(arg_reduce_rows);
CUDA_LAUNCH(search_lanes);
CUDA_LAUNCH(search_refine);
CUDA_LAUNCH(search_wgmma);
CUDA_LAUNCH(top_k_select);
CUDA_LAUNCH(arg_reduce_strided);

/* ---- Rows ---- */

/* Launches what simt uses for larger products than these. */
static int launch_simt_large(const struct op_args *args, const struct launch *launch)
{
	int status;

	return gemm_simt_large(args, launch, &status) ? status : KOPS_E_FAULT;
}

static uint32_t axis_of_batch(const struct op_args *args)
{
	return strcmp(args->op->name, "gemm") == 0 ? 0 : op_output_const(args)->rank - 2;
}

static unsigned size_of_batch(const struct op_args *args)
{
	return (unsigned)op_output_const(args)->shape[axis_of_batch(args)];
}

/* Makes as many ops of a batch of products or rows, for one launch. */
static void each_of_batch(const struct op_args *args, struct op_args ret[], const struct op_args *pointers[])
{
	uint32_t axis = axis_of_batch(args);

	for (unsigned i = 0; i < size_of_batch(args); i++) {
		ret[i] = *args;
		pointers[i] = &ret[i];
		op_narrow(&ret[i], axis, i, 1);
	}
}

static unsigned together_max(const struct op_args *args)
{
	if (strcmp(args->op->name, "gemm") != 0)
		return cuda_together_max(args);
	return args->views[0].dtype == KOPS_F32 ? gemm_simt_together_max(args) : gemm_small_together_max(args);
}

static bool are_alike(const struct op_args *args, const char **ret_why_not)
{
	unsigned n = size_of_batch(args);
	struct op_args each[TOGETHER_MAX];
	const struct op_args *pointers[TOGETHER_MAX];

	*ret_why_not = "one, or not alike";
	each_of_batch(args, each, pointers);
	for (unsigned i = 1; i < n; i++)
		if (!op_args_alike(&each[0], &each[i]))
			return false;
	return n > 1 && together_max(&each[0]) >= n;
}

typedef int (*launching)(const struct op_args *const *args, unsigned n, const struct launch *launch);

static int launch_together(launching together, const struct op_args *args, const struct launch *launch)
{
	struct op_args each[TOGETHER_MAX];
	const struct op_args *pointers[TOGETHER_MAX];

	each_of_batch(args, each, pointers);
	return together(pointers, size_of_batch(args), launch);
}

/* Gives the kernel addresses of nothing: it must look up the real ones. */
static int launch_elsewhere(launching together, const struct op_args *args, const struct launch *launch)
{
	struct op_args each[TOGETHER_MAX];
	const struct op_args *pointers[TOGETHER_MAX];
	void *addresses[TOGETHER_MAX * OP_OPERANDS_MAX];
	struct launch elsewhere = *launch;
	unsigned n = size_of_batch(args), n_views = args->op->n_operands;

	each_of_batch(args, each, pointers);
	for (unsigned i = 0; i < n; i++)
		for (unsigned v = 0; v < n_views; v++) {
			addresses[i * n_views + v] = each[i].views[v].data;
			each[i].views[v].data = (void *)(4096 + (uintptr_t)each[i].views[v].data % 256);
		}
	elsewhere.addresses = addresses;
	elsewhere.over_link = n % 2;
	return together(pointers, n, &elsewhere);
}

/* Two candidates: one tells the kernel where its ops are, the other where to look that up. */
#define TOGETHER_AND_ELSEWHERE(kernel)                                                                         \
	static int kernel##_at_once(const struct op_args *args, const struct launch *launch)                   \
	{                                                                                                      \
		return launch_together(kernel##_together, args, launch);                                       \
	}                                                                                                      \
	static int kernel##_elsewhere(const struct op_args *args, const struct launch *launch)                 \
	{                                                                                                      \
		return launch_elsewhere(kernel##_together, args, launch);                                      \
	}
TOGETHER_AND_ELSEWHERE(gemm_simt)
TOGETHER_AND_ELSEWHERE(gemm_small)
TOGETHER_AND_ELSEWHERE(softmax_fused)
TOGETHER_AND_ELSEWHERE(copy_vector)
TOGETHER_AND_ELSEWHERE(gather_rows_wide)
TOGETHER_AND_ELSEWHERE(gather_elements)
TOGETHER_AND_ELSEWHERE(unary_float4x)

/* Every element of x takes equally long; of attention, with each key. A product is one tile, so only a shorter
 * K makes it faster. */
static double work_ns(const void *on, const struct kernel *kernel, const struct op_args *args)
{
	const struct view *x = &args->views[0];

	(void)on;
	(void)kernel;
	if (strcmp(args->op->name, "attention") == 0)
		return (double)view_elements(x) * (double)args->views[ATTENTION_K].shape[2];
	return (double)(strcmp(args->op->name, "gemm") == 0 ? x->shape[x->rank - 1] : view_elements(x));
}

static bool takes_all(const struct op_args *args, const char **ret_why_not)
{
	(void)args;
	(void)ret_why_not;
	return true;
}

static const struct kernel pieces = {
    .supports = takes_all, .workspace = softmax_pieces_workspace, .launch = softmax_pieces, .carries = true};

static const struct kernel norm_pieces = {.supports = takes_all,
                                          .workspace = layer_norm_pieces_workspace,
                                          .launch = layer_norm_pieces,
                                          .carries = true};

static uint64_t bytes_of_piece(const struct op_args *args)
{
	return strcmp(args->op->name, "arg_reduce") == 0 ? 16 : sizeof(double);
}

static uint64_t workspace_strided(const struct op_args *args)
{
	struct reduce_split s = reduce_split_tiles(args);

	return reduce_partials_bytes(&s, bytes_of_piece(args));
}

static uint64_t workspace_rows(const struct op_args *args)
{
	struct reduce_split s = reduce_split_rows(args);

	return reduce_partials_bytes(&s, bytes_of_piece(args));
}

static const struct kernel strided = {
    .supports = takes_all, .workspace = workspace_strided, .launch = reduce_strided, .carries = true};

static const struct kernel arg_strided = {
    .supports = takes_all, .workspace = workspace_strided, .launch = arg_reduce_strided, .carries = true};

static const struct kernel by_rows = {
    .supports = takes_all, .workspace = attention_rows_workspace, .launch = attention_rows, .carries = true};

static const struct kernel flash = {.supports = attention_flash_supports,
                                    .workspace = attention_flash_workspace,
                                    .launch = attention_flash,
                                    .carries = true};

static const struct kernel in_tiles = {.supports = attention_tiles_supports,
                                       .workspace = attention_tiles_workspace,
                                       .launch = attention_tiles,
                                       .carries = true};

static const struct kernel mapped = {
    .supports = attention_wgmma_supports, .workspace = attention_wgmma_workspace, .launch = attention_wgmma};

static const struct kernel small = {.supports = takes_all, .launch = gemm_small, .carries = true};

static const struct kernel selecting = {
    .supports = takes_all, .workspace = top_k_workspace, .launch = top_k_select, .carries = true};

static const struct kernel searching = {
    .supports = takes_all, .workspace = search_workspace, .launch = search_lanes, .carries = true};

static const struct kernel searching_mapped = {.supports = search_wgmma_supports,
                                               .workspace = search_wgmma_workspace,
                                               .launch = search_wgmma,
                                               .carries = true};

static const struct kernel refining = {.supports = search_refine_supports,
                                       .workspace = search_refine_workspace,
                                       .launch = search_refine,
                                       .carries = true};

static const struct kernel factoring = {
    .supports = takes_all, .workspace = cholesky_blocked_workspace, .launch = cholesky_blocked};

static const struct kernel solving = {
    .supports = takes_all, .workspace = triangular_solve_workspace, .launch = triangular_solve_blocked};

static const struct kernel pivoting = {
    .supports = takes_all, .workspace = lu_blocked_workspace, .launch = lu_blocked};

static bool lu_small_supports(const struct op_args *args, const char **ret_why_not)
{
	const struct view *lu = &args->views[LU_LU];

	*ret_why_not = "too large";
	return lu->shape[2] <= LU_SMALL_MAX(lu->dtype) && lu->shape[3] <= LU_SMALL_MAX(lu->dtype);
}

static bool cholesky_small_supports(const struct op_args *args, const char **ret_why_not)
{
	const struct view *factor = &args->views[CHOLESKY_FACTOR];

	*ret_why_not = "too large";
	return factor->shape[3] <= CHOLESKY_SMALL_MAX(factor->dtype);
}

static const struct kernel *kernel_of(const struct op_args *args)
{
	const char *op = args->op->name, *why_not;

	return strcmp(op, "softmax") == 0            ? &pieces
	       : strcmp(op, "layer_norm") == 0       ? &norm_pieces
	       : strcmp(op, "rms_norm") == 0         ? &norm_pieces
	       : strcmp(op, "reduce") == 0           ? &strided
	       : strcmp(op, "arg_reduce") == 0       ? &arg_strided
	       : strcmp(op, "top_k") == 0            ? &selecting
	       : strcmp(op, "cholesky") == 0         ? &factoring
	       : strcmp(op, "triangular_solve") == 0 ? &solving
	       : strcmp(op, "lu") == 0               ? &pivoting
	       : strcmp(op, "search") == 0    ? (searching_mapped.supports(args, &why_not) ? &searching_mapped
	                                         : refining.supports(args, &why_not)       ? &refining
	                                                                                   : &searching)
	       : strcmp(op, "attention") != 0 ? &small
	       : mapped.supports(args, &why_not)                                            ? &mapped
	       : flash.supports(args, &why_not)                                             ? &flash
	       : in_tiles.supports(args, &why_not) && args->views[ATTENTION_Q].shape[2] % 2 ? &in_tiles
	                                                                                    : &by_rows;
}

/* Cuts the op as if it took too long: along its rows, its columns, or both. */
static void cut_up(const struct op_args *args, struct op_cut *ret)
{
	const double parts[] = {2, 5, 9};
	const double ns = work_ns(NULL, NULL, args);
	const struct part_limits limits = {work_ns, NULL, ns / parts[(uint64_t)ns % 3],
	                                   (uint64_t)ns % 2 ? 256 : UINT64_MAX};

	kernel_cut(kernel_of(args), args, &limits, ret);
}

static uint64_t workspace_of_parts(const struct op_args *args)
{
	struct op_cut cut;

	cut_up(args, &cut);
	return (kernel_workspace(kernel_of(args), args, &cut) + 15) / 16 * 16 + cut.carried_bytes;
}

static int launch_parts(const struct op_args *args, const struct launch *launch)
{
	struct op_args whole = *args;
	struct op_cut cut;
	int rc = 0;

	cut_up(args, &cut);
	whole.carried = (char *)launch->workspace + launch->workspace_bytes - cut.carried_bytes;
	for (uint32_t i = 0; i < cut.n_parts && rc == 0; i++)
		rc = kernel_launch_part(kernel_of(args), &whole, &cut, i, launch, cuda_convert);
	return rc;
}

static bool has_wide_sums(const struct op_args *args)
{
	return dtype_size(args->views[GEMM_C].dtype) == 2;
}

static uint64_t workspace_of_sums(const struct op_args *args)
{
	return has_wide_sums(args) ? view_elements(&args->views[GEMM_C]) * sizeof(float) : 0;
}

/* Computes the product by its reference, as a library would, and then what comes after it. */
static int finish_product(const struct op_args *args, const struct launch *launch)
{
	struct op_args product = *args;
	struct gemm_problem p = gemm_problem_of(args);
	struct view *c = &product.views[GEMM_C];

	product.views[GEMM_BIAS] = (struct view){.rank = 0};
	product.params.gemm.activation = UNARY_NONE;
	if (has_wide_sums(args)) {
		product.params.gemm.beta = 0;
		c->dtype = KOPS_F32;
		c->data = launch->workspace;
		view_make_dense(c);
		if (gemm_is_turned(&p)) {
			c->strides[1] = 1;
			c->strides[2] = (int64_t)c->shape[1];
		}
	}
	args->op->reference(&product);
	return gemm_finish(args, has_wide_sums(args) ? launch->workspace : NULL, NULL);
}

static bool has_no_mask(const struct op_args *args, const char **ret_why_not)
{
	*ret_why_not = "takes no mask";
	return !softmax_is_masked(args);
}

/* Kernels as in kernels/<op>/cuda.c, and small problems for them. Speed is not considered. */
static const struct candidate {
	const char *op, *name;
	bool (*make)(struct problem *p, struct random *r);
	unsigned slow; /* run in one of `slow` cases */
	unsigned multiprocessors[4];
	bool (*supports)(const struct op_args *args, const char **ret_why_not);
	uint64_t (*workspace)(const struct op_args *args);
	int (*launch)(const struct op_args *args, const struct launch *launch);
} kernels[] = {
    {"gemm", "f16x3", make_ordinary, 1, {2, 4, 6, 132}, NULL, gemm_f16x3_workspace, gemm_f16x3},
    {"gemm", "bf16x6", make_wide, 1, {2, 4, 6, 132}, NULL, gemm_bf16x6_workspace, gemm_bf16x6},
    {"gemm", "wgmma", make_narrow, 1, {2, 4, 6, 132}, gemm_wgmma_supports, gemm_wgmma_workspace, gemm_wgmma},
    {"gemm", "wgmma tiles", make_tiles, 4, {2, 2, 2, 2}, gemm_wgmma_supports, gemm_wgmma_workspace, gemm_wgmma},
    {"gemm",
     "wgmma loose",
     make_ragged,
     1,
     {2, 4, 6, 132},
     gemm_wgmma_supports,
     gemm_wgmma_workspace,
     gemm_wgmma},
    {"gemm",
     "wgmma loose tiles",
     make_loose_tiles,
     4,
     {2, 2, 2, 2},
     gemm_wgmma_supports,
     gemm_wgmma_workspace,
     gemm_wgmma},
    {"gemm",
     "wgmma splits",
     make_splits,
     2,
     {2, 8, 24, 132},
     gemm_wgmma_supports,
     gemm_wgmma_workspace,
     gemm_wgmma},
    {"gemm", "simt", make_ordinary, 1, {1, 8, 40, 132}, NULL, gemm_simt_workspace, gemm_simt},
    {"gemm", "simt together", make_small, 1, {1, 8, 40, 132}, are_alike, NULL, gemm_simt_at_once},
    {"gemm", "simt elsewhere", make_small, 1, {1, 8, 40, 132}, are_alike, NULL, gemm_simt_elsewhere},
    {"gemm", "small", make_small_16, 1, {1, 1, 1, 1}, NULL, NULL, gemm_small},
    {"gemm", "small in parts", make_long_sums, 1, {1, 1, 1, 1}, NULL, workspace_of_parts, launch_parts},
    {"gemm", "small together", make_small_16, 1, {1, 1, 1, 1}, are_alike, NULL, gemm_small_at_once},
    {"gemm", "small elsewhere", make_small_16, 1, {1, 1, 1, 1}, are_alike, NULL, gemm_small_elsewhere},
    {"gemm", "ragged", make_ragged, 1, {1, 1, 1, 1}, gemm_ragged_supports, gemm_ragged_workspace, gemm_ragged},
    {"gemm",
     "ragged splits",
     make_long_sums,
     1,
     {2, 8, 24, 132},
     gemm_ragged_supports,
     gemm_ragged_workspace,
     gemm_ragged},
    {"gemm",
     "shifted",
     make_ragged,
     1,
     {2, 4, 6, 132},
     gemm_shifted_supports,
     gemm_shifted_workspace,
     gemm_shifted},
    {"gemm",
     "shifted tiles",
     make_loose_tiles,
     1,
     {2, 2, 2, 2},
     gemm_shifted_supports,
     gemm_shifted_workspace,
     gemm_shifted},
    {"gemm",
     "shifted splits",
     make_long_sums,
     1,
     {2, 8, 24, 132},
     gemm_shifted_supports,
     gemm_shifted_workspace,
     gemm_shifted},
    {"gemm", "simt large", make_aligned, 1, {1, 1, 1, 1}, NULL, gemm_simt_large_workspace, launch_simt_large},
    {"gemm", "finish", make_ordinary, 1, {1, 1, 1, 1}, NULL, NULL, finish_product},
    {"gemm", "finish f64", make_small_f64, 1, {1, 1, 1, 1}, NULL, NULL, finish_product},
    {"gemm", "finish wide", make_small_16, 1, {1, 1, 1, 1}, NULL, workspace_of_sums, finish_product},
    {"gemm", "complex", make_anyhow_complex, 1, {1, 1, 1, 1}, NULL, NULL, gemm_complex},
    {"gemm", "real", make_scaled_complex, 1, {2, 4, 6, 132}, gemm_real_takes, gemm_real_workspace, gemm_real},
    {"gemm", "cublas", make_complex, 1, {1, 1, 1, 1}, gemm_cublas_supports, gemm_cublas_workspace, gemm_cublas},
    {"gemm",
     "cublas f64",
     make_small_f64,
     1,
     {1, 1, 1, 1},
     gemm_cublas_supports,
     gemm_cublas_workspace,
     gemm_cublas},
    {"gemm",
     "cublas wide",
     make_small_16,
     1,
     {1, 1, 1, 1},
     gemm_cublas_supports,
     gemm_cublas_workspace,
     gemm_cublas},
    {"gemm", "pipelined", make_ordinary, 1, {1, 1, 1, 1}, NULL, NULL, gemm_pipelined},
    {"softmax", "online", make_anyhow, 1, {1, 1, 1, 1}, NULL, NULL, softmax_online},
    {"softmax", "coalesced", make_anyhow, 1, {1, 1, 1, 1}, has_no_mask, NULL, softmax_coalesced},
    {"softmax", "blockreduce", make_anyhow, 2, {1, 1, 1, 1}, has_no_mask, NULL, softmax_blockreduce},
    {"softmax", "pieces", make_anyhow, 3, {1, 2, 5, 9}, NULL, softmax_pieces_workspace, softmax_pieces},
    {"softmax", "pieces in parts", make_anyhow, 2, {1, 2, 5, 9}, NULL, workspace_of_parts, launch_parts},
    {"layer_norm", "kept", make_normed_rows, 1, {1, 2, 5, 9}, NULL, NULL, layer_norm_kept},
    {"layer_norm",
     "norm pieces",
     make_anyhow,
     1,
     {1, 2, 5, 9},
     NULL,
     layer_norm_pieces_workspace,
     layer_norm_pieces},
    {"layer_norm", "norm in parts", make_anyhow, 2, {1, 2, 5, 9}, NULL, workspace_of_parts, launch_parts},
    {"rms_norm", "rms kept", make_normed_rows, 1, {1, 2, 5, 9}, NULL, NULL, layer_norm_kept},
    {"rms_norm",
     "rms pieces",
     make_anyhow,
     1,
     {1, 2, 5, 9},
     NULL,
     layer_norm_pieces_workspace,
     layer_norm_pieces},
    {"rms_norm", "rms in parts", make_anyhow, 2, {1, 2, 5, 9}, NULL, workspace_of_parts, launch_parts},
    {"attention", "any strides", make_anyhow, 1, {1, 2, 5, 9}, NULL, attention_rows_workspace, attention_rows},
    {"attention",
     "tiles",
     make_anyhow,
     1,
     {1, 2, 5, 132},
     attention_tiles_supports,
     attention_tiles_workspace,
     attention_tiles},
    {"attention",
     "f16x3",
     make_pairs_of_attention,
     1,
     {1, 2, 5, 132},
     attention_f16x3_supports,
     attention_f16x3_workspace,
     attention_f16x3},
    {"attention", "rows in parts", make_anyhow, 1, {1, 2, 5, 9}, NULL, workspace_of_parts, launch_parts},
    {"attention", "flash in parts", make_attention, 1, {1, 2, 40, 132}, NULL, workspace_of_parts, launch_parts},
    {"attention",
     "wgmma in parts",
     make_mapped_attention,
     1,
     {1, 2, 5, 9},
     attention_wgmma_supports,
     workspace_of_parts,
     launch_parts},
    {"attention",
     "flash",
     make_attention,
     1,
     {1, 2, 40, 132},
     attention_flash_supports,
     attention_flash_workspace,
     attention_flash},
    {"attention",
     "wgmma",
     make_mapped_attention,
     1,
     {1, 2, 5, 9},
     attention_wgmma_supports,
     attention_wgmma_workspace,
     attention_wgmma},
    {"reduce", "rows", make_reduced_rows, 1, {1, 2, 5, 9}, NULL, workspace_rows, reduce_rows},
    {"reduce", "rows, largest", make_largest_rows, 1, {1, 2, 5, 9}, NULL, workspace_rows, reduce_rows},
    {"reduce",
     "strided, largest",
     make_largest_columns,
     1,
     {1, 2, 5, 9},
     NULL,
     workspace_strided,
     reduce_strided},
    {"arg_reduce", "arg rows", make_reduced_rows, 1, {1, 2, 5, 9}, NULL, workspace_rows, arg_reduce_rows},
    {"arg_reduce", "arg strided", make_anyhow, 1, {1, 2, 5, 9}, NULL, workspace_strided, arg_reduce_strided},
    {"arg_reduce", "arg in parts", make_anyhow, 1, {1, 2, 5, 9}, NULL, workspace_of_parts, launch_parts},
    {"search", "search lanes", make_anyhow, 1, {1, 2, 5, 9}, NULL, search_workspace, search_lanes},
    {"search", "search rows", make_searched, 1, {1, 2, 5, 9}, NULL, search_workspace, search_lanes},
    {"search", "search in parts", make_anyhow, 1, {1, 2, 5, 9}, NULL, workspace_of_parts, launch_parts},
    {"search",
     "search wgmma",
     make_mapped_search,
     1,
     {1, 2, 5, 9},
     search_wgmma_supports,
     search_wgmma_workspace,
     search_wgmma},
    {"search",
     "search refine",
     make_refined_search,
     1,
     {1, 2, 5, 9},
     search_refine_supports,
     search_refine_workspace,
     search_refine},
    {"search",
     "search refine in parts",
     make_refined_search,
     1,
     {1, 2, 5, 9},
     search_refine_supports,
     workspace_of_parts,
     launch_parts},
    {"search",
     "search wgmma in parts",
     make_mapped_search,
     1,
     {1, 2, 5, 9},
     search_wgmma_supports,
     workspace_of_parts,
     launch_parts},
    {"top_k", "select", make_selected, 1, {1, 2, 5, 9}, NULL, top_k_workspace, top_k_select},
    {"top_k", "select anyhow", make_anyhow, 1, {1, 2, 5, 9}, NULL, top_k_workspace, top_k_select},
    {"top_k", "select in parts", make_selected, 1, {1, 2, 5, 9}, NULL, workspace_of_parts, launch_parts},
    {"cholesky", "cholesky small", make_anyhow, 1, {1, 2, 5, 9}, cholesky_small_supports, NULL, cholesky_small},
    {"cholesky",
     "cholesky blocked",
     make_anyhow,
     1,
     {1, 2, 5, 9},
     NULL,
     cholesky_blocked_workspace,
     cholesky_blocked},
    {"cholesky", "cholesky in parts", make_anyhow, 1, {1, 2, 5, 9}, NULL, workspace_of_parts, launch_parts},
    {"triangular_solve",
     "triangular",
     make_anyhow,
     1,
     {1, 2, 5, 9},
     NULL,
     triangular_solve_workspace,
     triangular_solve_blocked},
    {"triangular_solve",
     "triangular in parts",
     make_anyhow,
     1,
     {1, 2, 5, 9},
     NULL,
     workspace_of_parts,
     launch_parts},
    {"lu", "lu small", make_anyhow, 1, {1, 2, 5, 9}, lu_small_supports, NULL, lu_small},
    {"lu", "lu blocked", make_anyhow, 1, {1, 2, 5, 9}, NULL, lu_blocked_workspace, lu_blocked},
    {"lu", "lu in parts", make_anyhow, 1, {1, 2, 5, 9}, NULL, workspace_of_parts, launch_parts},
    {"reduce", "strided in parts", make_anyhow, 1, {1, 2, 5, 9}, NULL, workspace_of_parts, launch_parts},
    {"softmax", "fused", make_short_rows, 1, {1, 1, 1, 1}, NULL, softmax_fused_workspace, softmax_fused},
    {"softmax", "fused together", make_alike_rows, 1, {1, 1, 1, 1}, are_alike, NULL, softmax_fused_at_once},
    {"softmax", "fused elsewhere", make_alike_rows, 1, {1, 1, 1, 1}, are_alike, NULL, softmax_fused_elsewhere},
    {"copy", "vector together", make_alike_rows, 1, {1, 1, 1, 1}, are_alike, NULL, copy_vector_at_once},
    {"copy", "vector elsewhere", make_alike_rows, 1, {1, 1, 1, 1}, are_alike, NULL, copy_vector_elsewhere},
    {"gather", "gather rows", make_table, 1, {1, 1, 1, 1}, NULL, NULL, gather_rows_wide},
    {"gather", "gather elements", make_anyhow, 1, {1, 1, 1, 1}, NULL, NULL, gather_elements},
    {"gather",
     "gather rows together",
     make_aligned_table,
     1,
     {1, 1, 1, 1},
     are_alike,
     NULL,
     gather_rows_wide_at_once},
    {"gather",
     "gather elements together",
     make_aligned_table,
     1,
     {1, 1, 1, 1},
     are_alike,
     NULL,
     gather_elements_at_once},
    {"gather",
     "gather rows elsewhere",
     make_aligned_table,
     1,
     {1, 1, 1, 1},
     are_alike,
     NULL,
     gather_rows_wide_elsewhere},
    {"gather",
     "gather elements elsewhere",
     make_aligned_table,
     1,
     {1, 1, 1, 1},
     are_alike,
     NULL,
     gather_elements_elsewhere},
    {"add", "float4x", make_runs, 1, {1, 1, 1, 1}, NULL, NULL, add_float4x},
    {"add", "scalar", make_anyhow, 1, {1, 1, 1, 1}, NULL, NULL, add_scalar},
    {"subtract", "float4", make_runs, 1, {1, 1, 1, 1}, NULL, NULL, subtract_float4},
    {"subtract", "scalar", make_anyhow, 1, {1, 1, 1, 1}, NULL, NULL, subtract_scalar},
    {"unary", "float4x", make_runs, 1, {1, 1, 1, 1}, NULL, NULL, unary_float4x},
    {"unary", "scalar", make_anyhow, 1, {1, 1, 1, 1}, NULL, NULL, unary_scalar},
    {"unary", "unary together", make_alike_rows, 1, {1, 1, 1, 1}, are_alike, NULL, unary_float4x_at_once},
    {"unary", "unary elsewhere", make_alike_rows, 1, {1, 1, 1, 1}, are_alike, NULL, unary_float4x_elsewhere},
    {"softmax",
     "ring",
     make_long_rows,
     4,
     {12, 13, 14, 16},
     softmax_ring_takes,
     softmax_ring_workspace,
     softmax_ring},
    {"softmax",
     "ring around",
     make_many_rows,
     4,
     {2, 3, 4, 2},
     softmax_ring_takes,
     softmax_ring_workspace,
     softmax_ring},
};

#define KERNELS (sizeof kernels / sizeof kernels[0])

/* ---- Runs ---- */

struct settings {
	uint64_t seed;
	unsigned cases;
	int only_case; /* -1: all */
	const char *kernel;
};

/* The results of a kernel's cases. */
struct result {
	unsigned ran, refused, failed;
	double worst;
};

/* Leaves the workspace uninitialized, and checks that what lies behind it stays. */
static int launch_kernel(const struct candidate *kernel, const struct op_args *args, char why[CHECK_TEXT_BYTES])
{
	uint64_t bytes = kernel->workspace ? kernel->workspace(args) : 0;
	uint64_t room =
	    (bytes + GUARD_BYTES + WORKSPACE_ALIGNMENT - 1) / WORKSPACE_ALIGNMENT * WORKSPACE_ALIGNMENT;
	unsigned char *workspace = aligned_alloc(WORKSPACE_ALIGNMENT, room);
	const struct view *x = &args->views[0];
	struct launch launch = {.workspace = workspace,
	                        .workspace_bytes = bytes,
	                        .multiprocessors_left = x->shape[x->rank - 1] % 2}; /* some of the cases */

	snprintf(why, CHECK_TEXT_BYTES, "out of memory");
	if (!workspace)
		return KOPS_E_NOMEM;
	memset(workspace, GUARD, room);
	int rc = kernel->launch(args, &launch);
	snprintf(why, CHECK_TEXT_BYTES, "launch: status %d", rc);
	for (uint64_t i = bytes; rc == 0 && i < room; i++)
		if (workspace[i] != GUARD) {
			snprintf(why, CHECK_TEXT_BYTES, "writes behind its workspace");
			rc = KOPS_E_FAULT;
		}
	free(workspace);
	return rc;
}

static void run_kernel(const struct candidate *kernel, struct problem *p, struct verdict *ret)
{
	struct op_args args = p->args;
	struct oracle oracle = {0};

	*ret = (struct verdict){0};
	if (oracle_make(&oracle, p, ret->why)) {
		for (unsigned i = 0; i < p->n_storage; i++)
			memcpy(p->storage[i].host, p->storage[i].before, p->storage[i].bytes);
		for (unsigned i = 0; i < args.op->n_operands; i++)
			if (!view_is_absent(&args.views[i]))
				args.views[i].data = p->spaces[i]->host + args.views[i].offset;
		if (launch_kernel(kernel, &args, ret->why) == 0)
			judge(&oracle, p, ret);
	}
	oracle_free(&oracle);
}

static void check_case(const struct candidate *kernel, const struct settings *s, unsigned number,
                       struct result *result)
{
	struct random r = {s->seed * 1000003 + number};
	struct problem p = {.args.op = op_by_name(kernel->op)};
	char text[CHECK_TEXT_BYTES], again[CHECK_TEXT_BYTES + 100];
	const char *why_not;
	struct verdict verdict = {.why = "out of memory"};
	bool made = kernel->make(&p, &r);

	problem_describe(&p, text);
	snprintf(again, sizeof again, "%s\n  again: --seed %llu --kernel %s --case %u", text,
	         (unsigned long long)s->seed, kernel->name, number);
	emulated_gpu(kernel->multiprocessors[random_below(&r, 4)], random_next(&r), again);
	if (made && kernel->supports && !kernel->supports(&p.args, &why_not)) {
		result->refused++;
	} else {
		result->ran++;
		if (made)
			run_kernel(kernel, &p, &verdict);
		result->worst = verdict.worst > result->worst ? verdict.worst : result->worst;
		if (!verdict.right && result->failed++ < 3)
			printf("FAILED %s: %s\n  %s\n", kernel->name, verdict.why, again);
	}
	problem_free(&p);
}

/* Returns how many cases failed, plus one if all were refused. */
static unsigned check_kernel(const struct candidate *kernel, const struct settings *s)
{
	struct result result = {0};

	for (unsigned number = 0; number < s->cases; number++)
		if (s->only_case < 0 ? number % kernel->slow == 0 : number == (unsigned)s->only_case)
			check_case(kernel, s, number, &result);
	bool gap = s->only_case < 0 && result.ran == 0;
	printf("%-10s %-12s %6u cases %6u refused %6u failed  worst error / bound %.3f%s\n", kernel->op,
	       kernel->name, result.ran, result.refused, result.failed, result.worst,
	       gap ? "  FAILED: supports none of the problems" : "");
	return result.failed + gap;
}

/* ---- The program ---- */

static int usage(FILE *to)
{
	fputs("usage: check_emulated [options]\n"
	      "  --seed N       of the problems and the order of threads, or random (default: $KOPS_TEST_SEED, "
	      "else 1)\n"
	      "  --cases N      problems per kernel (default 12)\n"
	      "  --case N       this one only\n"
	      "  --kernel NAME  this kernel only\n",
	      to);
	return to == stdout ? 0 : 2;
}

static const struct option long_options[] = {
    {"seed", required_argument, NULL, 's'}, {"cases", required_argument, NULL, 'n'},
    {"case", required_argument, NULL, 'c'}, {"kernel", required_argument, NULL, 'r'},
    {"help", no_argument, NULL, 'h'},       {0},
};

/* Returns true to go on; else *ret_status is the exit status. */
static bool parse(int argc, char **argv, struct settings *s, int *ret_status)
{
	int c;

	while ((c = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		switch (c) {
		case 's':
			s->seed = seed_parse(optarg);
			break;
		case 'n':
			s->cases = (unsigned)strtoul(optarg, NULL, 0);
			break;
		case 'c':
			s->only_case = atoi(optarg);
			s->cases = (unsigned)s->only_case + 1;
			break;
		case 'r':
			s->kernel = optarg;
			break;
		default:
			*ret_status = usage(c == 'h' ? stdout : stderr);
			return false;
		}
	}
	return true;
}

int main(int argc, char **argv)
{
	struct settings s = {.seed = seed_of_run(), .cases = 12, .only_case = -1};
	unsigned failed = 0, checked = 0;
	int status;

	if (!parse(argc, argv, &s, &status))
		return status;
	printf("seed %llu\n", (unsigned long long)s.seed);
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; i < KERNELS; i++)
		if (!s.kernel || strcmp(s.kernel, kernels[i].name) == 0) {
			checked++;
			failed += check_kernel(&kernels[i], &s);
		}
	if (checked == 0) {
		fprintf(stderr, "there is no kernel %s here\n", s.kernel);
		return 2;
	}
	printf(failed ? "%u FAILED\n" : "all right\n", failed);
	return failed ? 1 : 0;
}
