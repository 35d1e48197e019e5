#include "cublas.h"

#include <math.h>

#include "f16x3.h"
#include "problem.h"
#include "wgmma.h"

CUDA_LAUNCH(gemm_simt);
CUDA_LAUNCH(gemm_simt2);
uint64_t gemm_simt2_workspace(const struct op_args *args);
CUDA_LAUNCH(gemm_pipelined);
CUDA_LAUNCH(gemm_bankfree);
CUDA_LAUNCH(gemm_blocked);
CUDA_LAUNCH(gemm_tile32);
CUDA_LAUNCH(gemm_tile16);
CUDA_LAUNCH(gemm_naive);

static bool supports_all(const struct op_args *args, const char **ret_why_not)
{
	(void)args;
	(void)ret_why_not;
	return true;
}

static bool supports_f32(const struct op_args *args, const char **ret_why_not)
{
	*ret_why_not = "takes f32 only";
	return args->views[0].dtype == KOPS_F32;
}

/* One sum per element of C, as in cuBLAS: where all its terms are equal, it rounds the same way every time. */
static bool supports_plain_sum(const struct op_args *args, const char **ret_why_not)
{
	struct gemm_problem p = gemm_problem_of(args);

	if (!supports_f32(args, ret_why_not))
		return false;
	*ret_why_not = "needs a stride other than 0 along K in A or B: its long sums of equal terms drift";
	return p.a.col != 0 || p.b.row != 0;
}

/* Lines that the copy engine brings, as far as can be known before there is an address. */
static bool has_aligned_lines(const struct gemm_operand *o, uint64_t rows, uint64_t cols, uint64_t offset)
{
	int64_t apart = o->col == 1 ? o->row : o->col;
	uint64_t lines = o->col == 1 ? rows : cols;

	return (o->col == 1 || o->row == 1) && (lines == 1 || (apart > 0 && apart % 4 == 0)) && o->batch >= 0 &&
	       o->batch % 4 == 0 && offset % 16 == 0;
}

static bool supports_simt(const struct op_args *args, const char **ret_why_not)
{
	struct gemm_problem p = gemm_problem_of(args);

	if (!supports_plain_sum(args, ret_why_not))
		return false;
	*ret_why_not = "needs lines of A and B without gaps that begin at multiples of 16 bytes";
	if (!has_aligned_lines(&p.a, p.m, p.k, args->views[0].offset) ||
	    !has_aligned_lines(&p.b, p.k, p.n, args->views[1].offset))
		return false;
	*ret_why_not = "needs a GPU of compute capability 9.0";
	return cuda_device_attribute(cudaDevAttrComputeCapabilityMajor) >= 9;
}

/*
 * Where cuBLAS leaves multiprocessors idle. On an H200, K being 1024, simt reaches 1.11 and 1.18 times its
 * speed on 512² and 1024² elements of C, with smaller errors. On 128² and 256² it is a little ahead too, but
 * there cuBLAS splits K further and has the smaller errors; beyond it reaches 0.93 to 1.01. Far from that K
 * nothing was measured.
 */
static bool simt_worthwhile(const struct op_args *args, const char **ret_why_not)
{
	struct gemm_problem p = gemm_problem_of(args);
	double c = (double)p.batch * (double)p.m * (double)p.n;

	*ret_why_not = "uses no tensor cores, as precision tf32 and bf16 allow";
	if (args->params.gemm.precision == KOPS_PRECISION_TF32 ||
	    args->params.gemm.precision == KOPS_PRECISION_BF16)
		return false;
	*ret_why_not = "is ahead of cublas where C has 512x512 to 1024x1024 elements and K is 512 to 2048";
	return c >= 512 * 512 && c <= 1024 * 1024 && p.k >= 512 && p.k <= 2048;
}

/*
 * Where C is small cuBLAS splits K, and shorter sums have smaller errors. As measured on an H200 at K = 1024
 * the others are no worse from so many elements of C on. Of much longer sums nothing is known.
 */
static bool sums_as_well_as_cublas(const struct op_args *args, double elements, const char **ret_why_not)
{
	struct gemm_problem p = gemm_problem_of(args);

	*ret_why_not = "may have larger errors than cublas, which splits K where C is small or K is long";
	return args->views[0].dtype != KOPS_F32 || args->params.gemm.precision != KOPS_PRECISION_F32 ||
	       (p.k <= 2048 && (double)p.batch * (double)p.m * (double)p.n >= elements);
}

static bool simt_accurate(const struct op_args *args, const char **ret_why_not)
{
	return sums_as_well_as_cublas(args, 512 * 512, ret_why_not);
}

/* Of those that add along K from its beginning to its end. */
static bool plain_sum_accurate(const struct op_args *args, const char **ret_why_not)
{
	return sums_as_well_as_cublas(args, 1024 * 1024, ret_why_not);
}

/* ---- How long a row takes: two thirds of the speed measured on an H200 ---- */

struct pace {
	double rows, cols; /* of a block of C; computed in full where C has fewer */
	double tflops;     /* of many blocks */
	double ns_per_k;   /* of one block alone: it waits for memory, however little it computes */
};

/* What cost() would take at full rates. */
static double ideal_ns(const struct op_args *args)
{
	kops_dtype dtype = args->views[0].dtype;
	double tflops = dtype == KOPS_F32 ? 50 : dtype == KOPS_F64 ? 33 : 670;
	struct cost cost;

	args->op->cost(args, &cost);
	return fmax(cost.flops / (tflops * 1e3), cost.bytes / 4.2e3);
}

static double time_ns(const struct op_args *args, const struct pace *pace)
{
	struct gemm_problem p = gemm_problem_of(args);
	double blocks = (double)p.batch * ceil((double)p.m / pace->rows) * ceil((double)p.n / pace->cols);
	double k = gemm_has_product(args) ? (double)p.k : 0;

	return 2 * blocks * pace->rows * pace->cols * k / (pace->tflops * 1e3) + k * pace->ns_per_k;
}

static double slowdown(const struct op_args *args, const struct pace *pace)
{
	return fmax(time_ns(args, pace) / ideal_ns(args), 1);
}

/* Whether neighbours along some axis of A and of B are neighbours in memory. */
static bool reads_lines(const struct op_args *args)
{
	struct gemm_problem p = gemm_problem_of(args);

	return (p.a.row == 1 || p.a.col == 1) && (p.b.row == 1 || p.b.col == 1);
}

/* The same for the axes along which the threads of a tile lie. */
static bool reads_tile_lines(const struct op_args *args)
{
	struct gemm_problem given = gemm_problem_of(args), p = gemm_by_rows(&given);

	return p.a.col == 1 && p.b.col == 1;
}

/* Faster than what cost() counts with. Where the operands do not fit it takes four times as long. */
static double f16x3_slowdown(const struct op_args *args)
{
	return time_ns(args, &(struct pace){256, 128, 150, 25}) / ideal_ns(args);
}

static double bf16x6_slowdown(const struct op_args *args)
{
	return time_ns(args, &(struct pace){256, 128, 70, 50}) / ideal_ns(args);
}

static double wgmma_slowdown(const struct op_args *args)
{
	bool tf32 = args->views[0].dtype == KOPS_F32;

	return time_ns(args, &(struct pace){128, 256, tf32 ? 250 : 450, tf32 ? 15 : 7}) / ideal_ns(args);
}

static double simt_slowdown(const struct op_args *args)
{
	return slowdown(args, &(struct pace){32, 32, reads_lines(args) ? 16 : 4, 100});
}

static double simt2_slowdown(const struct op_args *args)
{
	return slowdown(args, &(struct pace){128, 128, 25, 200});
}

static double pipelined_slowdown(const struct op_args *args)
{
	return slowdown(args, &(struct pace){128, 128, reads_lines(args) ? 24 : 9, 200});
}

static double bankfree_slowdown(const struct op_args *args)
{
	return slowdown(args, &(struct pace){128, 128, reads_lines(args) ? 21 : 8, 240});
}

static double blocked_slowdown(const struct op_args *args)
{
	return slowdown(args, &(struct pace){128, 128, reads_lines(args) ? 14 : 8, 290});
}

static double tile32_slowdown(const struct op_args *args)
{
	return slowdown(args, &(struct pace){32, 32, reads_tile_lines(args) ? 5.8 : 2.5, 70});
}

static double tile16_slowdown(const struct op_args *args)
{
	return slowdown(args, &(struct pace){16, 16, reads_tile_lines(args) ? 5.4 : 1.2, 60});
}

/* Its warps read 32 columns of B, and one element of A for all. */
static double naive_slowdown(const struct op_args *args)
{
	return slowdown(args, &(struct pace){8, 32, gemm_problem_of(args).b.col == 1 ? 2.3 : 0.16, 90});
}

static const struct kernel rows[] = {
    {
        .name = "f16x3",
        .idea = "each f32 as the sum of two f16, three products of them on the tensor cores, fp32 accuracy",
        .dtypes = "f32",
        .takes = "any strides, not 0 along K in both A and B; K of at least 64, products of some size",
        .supports = gemm_f16x3_supports,
        .worthwhile = gemm_f16x3_worthwhile,
        .workspace = gemm_f16x3_workspace,
        .launch = gemm_f16x3,
        .tensor_cores = true,
        .slowdown = f16x3_slowdown,
    },
    {
        .name = "bf16x6",
        .idea = "as f16x3 with three bf16 and six products, for numbers of any range in one line",
        .dtypes = "f32",
        .takes = "any strides, not 0 along K in both A and B; K of at least 64, products of some size",
        .supports = gemm_bf16x6_supports,
        .worthwhile = gemm_bf16x6_worthwhile,
        .workspace = gemm_bf16x6_workspace,
        .launch = gemm_bf16x6,
        .tensor_cores = true,
        .slowdown = bf16x6_slowdown,
    },
    {
        .name = "wgmma",
        .idea = "tiles by the copy engine and wgmma, C by the copy engine during the next tile",
        .dtypes = "f16 bf16 f32",
        .takes = "row- or column-major matrices, lines at multiples of 16 bytes; f32 at precision tf32, A by "
                 "rows or B by columns",
        .supports = gemm_wgmma_supports,
        .worthwhile = gemm_wgmma_worthwhile,
        .launch = gemm_wgmma,
        .tensor_cores = true,
        .slowdown = wgmma_slowdown,
    },
    {
        .name = "simt",
        .idea = "plain FMAs without register bank conflicts, tiles by the copy engine, K split in clusters",
        .dtypes = "f32",
        .takes = "row- or column-major matrices, lines at multiples of 16 bytes",
        .supports = supports_simt,
        .worthwhile = simt_worthwhile,
        .accurate = simt_accurate,
        .launch = gemm_simt,
        .slowdown = simt_slowdown,
    },
    {
        .name = "cublas",
        .idea = "cublasGemmEx",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "row- or column-major matrices",
        .supports = gemm_cublas_supports,
        .launch = gemm_cublas,
    },
    {
        .name = "simt2",
        .idea = "as simt for large products: operands turned beforehand, a short loop of FMAs alone",
        .dtypes = "f32",
        .takes = "row- or column-major matrices, lines at multiples of 16 bytes",
        .supports = supports_simt,
        .workspace = gemm_simt2_workspace,
        .launch = gemm_simt2,
        .slowdown = simt2_slowdown,
    },
    {
        .name = "pipelined",
        .idea = "as bankfree, the next tiles fetched during the arithmetic on these",
        .dtypes = "f32",
        .takes = "any strides, not 0 along K in both A and B",
        .supports = supports_plain_sum,
        .accurate = plain_sum_accurate,
        .launch = gemm_pipelined,
        .slowdown = pipelined_slowdown,
    },
    {
        .name = "bankfree",
        .idea = "as blocked, shared memory laid out for 128-bit reads without bank conflicts",
        .dtypes = "f32",
        .takes = "any strides, not 0 along K in both A and B",
        .supports = supports_plain_sum,
        .accurate = plain_sum_accurate,
        .launch = gemm_bankfree,
        .slowdown = bankfree_slowdown,
    },
    {
        .name = "blocked",
        .idea = "128x128 block per CUDA block, 8x8 elements per thread, shared tiles 8 deep",
        .dtypes = "f32",
        .takes = "any strides, not 0 along K in both A and B",
        .supports = supports_plain_sum,
        .accurate = plain_sum_accurate,
        .launch = gemm_blocked,
        .slowdown = blocked_slowdown,
    },
    {
        .name = "tile32",
        .idea = "32x32 shared tiles of A and B, one element of C per thread",
        .dtypes = "f32",
        .takes = "any strides",
        .supports = supports_f32,
        .accurate = plain_sum_accurate,
        .launch = gemm_tile32,
        .slowdown = tile32_slowdown,
    },
    {
        .name = "tile16",
        .idea = "16x16 shared tiles of A and B, one element of C per thread",
        .dtypes = "f32",
        .takes = "any strides",
        .supports = supports_f32,
        .accurate = plain_sum_accurate,
        .launch = gemm_tile16,
        .slowdown = tile16_slowdown,
    },
    {
        .name = "naive",
        .idea = "one thread per element of C, operands from global memory",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "any strides",
        .supports = supports_all,
        .accurate = plain_sum_accurate,
        .launch = gemm_naive,
        .slowdown = naive_slowdown,
    },
};

const struct kernel_list gemm_cuda_rows = {rows, sizeof(rows) / sizeof(rows[0])};
