#include "gemm/cublas.h"

#include <math.h>

#include "gemm/f16x3.h"
#include "gemm/problem.h"
#include "gemm/simt.h"
#include "gemm/wgmma.h"

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

static bool supports_simt(const struct op_args *args, const char **ret_why_not)
{
	struct gemm_problem p = gemm_problem_of(args);

	if (!supports_plain_sum(args, ret_why_not))
		return false;
	*ret_why_not = "needs lines of A and B without gaps";
	if ((p.a.row != 1 && p.a.col != 1) || (p.b.row != 1 && p.b.col != 1))
		return false;
	*ret_why_not = "needs a GPU of compute capability 9.0";
	return cuda_device_attribute(cudaDevAttrComputeCapabilityMajor) >= 9;
}

/*
 * cuBLAS splits K where C is small, where K is long, and again where K is very short, and shorter sums have
 * smaller errors. So what is no worse than cuBLAS, by check_accuracy on an H200, is so for some problems only;
 * the others are not held against it.
 */
static bool is_held_against_cublas(const struct op_args *args, const char **ret_why_not)
{
	*ret_why_not = "may have larger errors than cublas, which splits K";
	return args->views[0].dtype == KOPS_F32 && args->params.gemm.precision == KOPS_PRECISION_F32;
}

/* It splits K itself, but less than cuBLAS does for small C. */
static bool simt_accurate(const struct op_args *args, const char **ret_why_not)
{
	struct gemm_problem p = gemm_problem_of(args);

	return !is_held_against_cublas(args, ret_why_not) ||
	       (p.m >= 32 && p.n >= 32 && (double)p.batch * (double)p.m * (double)p.n >= 512 * 512 &&
	        p.k >= 128 && p.k < 512);
}

/* Of those that add along K from its beginning to its end, tile by tile at most. */
static bool plain_sum_accurate(const struct op_args *args, const char **ret_why_not)
{
	struct gemm_problem p = gemm_problem_of(args);

	return !is_held_against_cublas(args, ret_why_not) ||
	       ((double)p.batch * (double)p.m * (double)p.n >= 1024 * 1024 && p.k >= 32 && p.k <= 2048);
}

/* ---- How long a row takes, for the choice: fitted to what was measured on an H200 ---- */

/*
 * Rows that compute C in square blocks, spread over 132 multiprocessors. A block alone waits for memory,
 * however little it computes; many are as fast as the multiprocessors together. Of each wave of blocks the
 * writing takes time, too.
 */
struct blocks {
	double side, ns_per_k, tflops;
};

static double blocks_ns(const struct gemm_problem *p, const struct blocks *blocks, double splits,
                        double write_ns)
{
	double side = blocks->side, waves;

	waves = ceil((double)p->batch * ceil((double)p->m / side) * ceil((double)p->n / side) * splits / 132);
	return fmax(blocks->ns_per_k, waves * side * side * 2 * 132 / (blocks->tflops * 1e3)) * (double)p->k /
	           splits +
	       waves * side * side * write_ns;
}

/*
 * cuBLAS, as if it took the fastest of some blocks and of all ways to split K, 29 at most, parts of `part_min`
 * at least; each block stands for several that it has. Splitting takes a second launch, and the sum of the
 * parts some time per element.
 */
struct cublas_times {
	double launch_ns, joining_ns, sum_ns, write_ns, part_min;
	double bytes_per_ns; /* of memory; INFINITY: that does not count */
	struct blocks blocks[3];
};

/* thin: times so much, as its blocks suit a thin C less. */
static double cublas_product_ns(const struct op_args *args, const struct cublas_times *t, double thin)
{
	struct gemm_problem p = gemm_problem_of(args);
	double k = (double)p.k, area = (double)p.batch * (double)p.m * (double)p.n, least = INFINITY;
	struct cost cost;

	args->op->cost(args, &cost);
	for (size_t i = 0; i < sizeof(t->blocks) / sizeof(t->blocks[0]); i++)
		for (int splits = 1; splits <= 29 && (splits == 1 || k >= splits * t->part_min);
		     splits += 1 + splits / 8) {
			double joining = splits > 1 ? t->joining_ns + splits * area * t->sum_ns : 0;
			double blocks = blocks_ns(&p, &t->blocks[i], splits, t->write_ns);
			least = fmin(least, joining + thin * blocks);
		}
	return t->launch_ns + least + cost.bytes / t->bytes_per_ns;
}

/* Where C is small and K very short it splits K needlessly. */
static double cublas_plain_ns(const struct op_args *args)
{
	static const struct cublas_times times = {
	    .launch_ns = 3.45e3,
	    .joining_ns = 4.13e3,
	    .sum_ns = 8.7e-4,
	    .write_ns = 0.152,
	    .part_min = 20.25,
	    .bytes_per_ns = INFINITY,
	    .blocks = {{32, 36.7, 26.2}, {64, 54.1, 44.8}, {128, 58, 50.2}}};
	struct gemm_problem p = gemm_problem_of(args);
	double m = (double)p.m, n = (double)p.n, k = (double)p.k, shorter = fmin(m, n), longer = fmax(m, n);
	double area = (double)p.batch * m * n, thin = 1;

	if (longer > 2 * shorter && shorter <= 128)
		thin = shorter > 64 ? 1.07 : 1.14;
	if (k < 57 && area * k < 6e6 && (area < 25e3 || longer < 5.2 * shorter))
		return 6.73e3 + area * 0.0135;
	double ns = cublas_product_ns(args, &times, thin);
	return k <= 256 && area * k <= 0x1p21 ? fmin(ns, 7.64e3) : ns;
}

/* On tensor cores. For f32 as bf16 it takes its rows for tf32. */
static double cublas_tensor_ns(const struct op_args *args)
{
	static const struct cublas_times
	    unaligned =
	        {3865, 3025, 6.5e-4, 0.176, 140, 10990, {{32, 9.6, 23.7}, {64, 13.4, 29.5}, {128, 18.5, 123}}},
	    tf32 = {3658, 3556, 4.9e-4, 0.0996, 26, 5479, {{32, 14.7, 140}, {64, 5.4, 133}, {128, 7.4, 426}}},
	    bits_16 = {
	        3792, 3972, 1.2e-3, 0.041, 48.7, 7605, {{32, 1.5, 283}, {64, 2.1, 902}, {128, 4.8, 414}}};
	const struct cublas_times *of_f32 = gemm_has_aligned_lines(args) ? &tf32 : &unaligned;

	return cublas_product_ns(args, args->views[0].dtype == KOPS_F32 ? of_f32 : &bits_16, 1);
}

static double cublas_ns(const struct op_args *args)
{
	kops_dtype dtype = args->views[0].dtype;
	bool is_plain = dtype == KOPS_F64 || (dtype == KOPS_F32 && !gemm_may_round(args));

	return is_plain ? cublas_plain_ns(args) : cublas_tensor_ns(args);
}

static double pipelined_ns(const struct op_args *args)
{
	struct gemm_problem p = gemm_problem_of(args);

	return 2.9e3 + (gemm_has_aligned_lines(args) ? 1 : 1.26) *
	                   blocks_ns(&p, &(struct blocks){128, 105, 47}, 1, 0.107);
}

static double tile16_ns(const struct op_args *args)
{
	struct gemm_problem p = gemm_problem_of(args);

	return 2.8e3 + blocks_ns(&p, &(struct blocks){16, 38, 7.9}, 1, 1.4);
}

/* Of types that have no tiles. */
static double naive_ns(const struct op_args *args)
{
	struct gemm_problem p = gemm_problem_of(args);

	if (args->views[0].dtype == KOPS_F32)
		return INFINITY;
	return 2.6e3 + blocks_ns(&p, &(struct blocks){16, 53.9, 4.7}, 1, 1.7);
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

/* ns as a multiple of that. A C without elements takes no time either way. */
static double slower_by(const struct op_args *args, double ns)
{
	double ideal = ideal_ns(args);

	return ideal > 0 ? ns / ideal : 1;
}

static double slowdown(const struct op_args *args, const struct pace *pace)
{
	return fmax(slower_by(args, time_ns(args, pace)), 1);
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
	return slower_by(args, time_ns(args, &(struct pace){256, 128, 150, 25}));
}

static double bf16x6_slowdown(const struct op_args *args)
{
	return slower_by(args, time_ns(args, &(struct pace){256, 128, 70, 50}));
}

static double wgmma_slowdown(const struct op_args *args)
{
	bool tf32 = args->views[0].dtype == KOPS_F32;

	return slower_by(args, time_ns(args, &(struct pace){128, 256, tf32 ? 250 : 450, tf32 ? 15 : 7}));
}

/* Where C has fewer tiles than there are multiprocessors, much depends on how it splits K. */
static double cublas_slowdown(const struct op_args *args)
{
	struct gemm_problem p = gemm_problem_of(args);
	bool thin = (double)p.batch * ceil((double)p.m / 64) * ceil((double)p.n / 64) < 132;

	return fmax(slower_by(args, (thin ? 2.5 : 1.1) * cublas_ns(args)), 1);
}

static double simt_slowdown(const struct op_args *args)
{
	return slowdown(args, &(struct pace){32, 32, reads_lines(args) ? 16 : 4, 100});
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
        .expected_ns = gemm_f16x3_ns,
        .workspace = gemm_f16x3_workspace,
        .launch = gemm_f16x3,
        .tensor_cores = true,
        .slowdown = f16x3_slowdown,
    },
    {
        .name = "bf16x6",
        .idea = "as f16x3 with three bf16 and six products, for numbers of any range in one line",
        .dtypes = "f32",
        .takes = "any strides, not 0 along K in both A and B; K of at least 768, products of some size",
        .supports = gemm_bf16x6_supports,
        .expected_ns = gemm_bf16x6_ns,
        .workspace = gemm_bf16x6_workspace,
        .launch = gemm_bf16x6,
        .tensor_cores = true,
        .slowdown = bf16x6_slowdown,
    },
    {
        .name = "wgmma",
        .idea = "tiles by the copy engine and wgmma, C by the copy engine during the next tile",
        .dtypes = "f16 bf16 f32",
        .takes =
            "row- or column-major matrices, lines at multiples of 16 bytes; f32 at precision tf32 and bf16, "
            "A by rows or B by columns",
        .supports = gemm_wgmma_supports,
        .expected_ns = gemm_wgmma_ns,
        .launch = gemm_wgmma,
        .tensor_cores = true,
        .slowdown = wgmma_slowdown,
    },
    {
        .name = "simt",
        .idea =
            "plain FMAs without register bank conflicts, tiles by the copy engine, K split where C is small",
        .dtypes = "f32",
        .takes = "row- or column-major matrices, not of stride 0 along K in both A and B",
        .supports = supports_simt,
        .accurate = simt_accurate,
        .expected_ns = gemm_simt_ns,
        .workspace = gemm_simt_workspace,
        .launch = gemm_simt,
        .slowdown = simt_slowdown,
    },
    {
        .name = "cublas",
        .idea = "cublasGemmEx",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "row- or column-major matrices",
        .supports = gemm_cublas_supports,
        .expected_ns = cublas_ns,
        .launch = gemm_cublas,
        .slowdown = cublas_slowdown,
    },
    {
        .name = "pipelined",
        .idea = "as bankfree, the next tiles fetched during the arithmetic on these",
        .dtypes = "f32",
        .takes = "any strides, not 0 along K in both A and B",
        .supports = supports_plain_sum,
        .accurate = plain_sum_accurate,
        .expected_ns = pipelined_ns,
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
        .expected_ns = tile16_ns,
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
        .expected_ns = naive_ns,
        .launch = gemm_naive,
        .slowdown = naive_slowdown,
    },
};

const struct kernel_list gemm_cuda_rows = {rows, sizeof(rows) / sizeof(rows[0])};
