#include "gemm/kernels.h"

#include <math.h>

#include "fitted.h"
#include "gemm/problem.h"

CUDA_LAUNCH(gemm_pipelined);
CUDA_LAUNCH(gemm_bankfree);
CUDA_LAUNCH(gemm_blocked);
CUDA_LAUNCH(gemm_tile32);
CUDA_LAUNCH(gemm_tile16);
CUDA_LAUNCH(gemm_naive);
CUDA_LAUNCH(gemm_complex);

static bool supports_f32(const struct op_args *args, const char **ret_why_not)
{
	*ret_why_not = "takes f32 only";
	return args->views[0].dtype == KOPS_F32;
}

static bool supports_real(const struct op_args *args, const char **ret_why_not)
{
	*ret_why_not = "takes no complex numbers";
	return !gemm_is_complex(args);
}

static bool supports_complex(const struct op_args *args, const char **ret_why_not)
{
	*ret_why_not = "takes c64 and c128 only";
	return gemm_is_complex(args);
}

static bool supports_small(const struct op_args *args, const char **ret_why_not)
{
	kops_dtype dtype = args->views[0].dtype;

	*ret_why_not = "takes f16 and bf16 only";
	if (dtype != KOPS_F16 && dtype != KOPS_BF16)
		return false;
	*ret_why_not = "needs a GPU of compute capability 9.0";
	return cuda_device_attribute(cudaDevAttrComputeCapabilityMajor) >= 9;
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
 * Where it adds up sums of 8 in f64, that makes up for what they lose where later products take away what
 * earlier ones added, if there are enough of them. For vectors cuBLAS has kernels that add up in another order.
 */
static bool simt_accurate(const struct op_args *args, const char **ret_why_not)
{
	struct gemm_problem p = gemm_problem_of(args);

	*ret_why_not = "may have larger errors than cublas, which splits K";
	if (!gemm_simt_sums_in_f64(args))
		return gemm_simt_is_accurate_in_f32(args);
	*ret_why_not = "may have larger errors than cublas where M or N is 1, or K 9 to 19";
	return p.m > 1 && p.n > 1 && (p.k <= 8 || p.k >= 20);
}

/* Of those that add along K from its beginning to its end, tile by tile at most. */
static bool plain_sum_accurate(const struct op_args *args, const char **ret_why_not)
{
	struct gemm_problem p = gemm_problem_of(args);

	*ret_why_not = "may have larger errors than cublas, which splits K";
	return !gemm_is_held_against_cublas(args) ||
	       ((double)p.batch * (double)p.m * (double)p.n >= 1024 * 1024 && p.k >= 32 && p.k <= 2048);
}

/* ---- How long they take: fitted.h has the constants ---- */

/* What times depend on, found out once for each. */
struct product {
	struct gemm_problem p;
	double area, k; /* elements of C; 0: C is only scaled */
	double multiprocessors, clocks_per_ns;
	double slower; /* times so much per k */
};

/*
 * How much slower than of f32 multiplications are on plain units, of GPUs that have few for f64. A complex one
 * is four real ones.
 */
static double slower_type(const struct op_args *args)
{
	double real = gemm_is_complex(args) ? 4 : 1;

	if (dtype_component(args->views[0].dtype) != KOPS_F64)
		return real;
	return real * fmax(cuda_device_attribute(cudaDevAttrSingleToDoublePrecisionPerfRatio) / 2.0, 1);
}

static struct product product_of(const struct op_args *args)
{
	struct product product = {.p = gemm_problem_of(args), .multiprocessors = cuda_multiprocessors()};

	product.area = (double)product.p.batch * (double)product.p.m * (double)product.p.n;
	product.k = gemm_has_product(args) ? (double)product.p.k : 0;
	product.clocks_per_ns = cuda_clocks_per_ns();
	product.slower = slower_type(args);
	return product;
}

static double blocks_ns(const struct product *product, const struct fitted_blocks *blocks, double splits,
                        double write)
{
	const struct gemm_problem *p = &product->p;
	double side = blocks->side, area = side * side;
	double n_blocks = (double)p->batch * ceil((double)p->m / side) * ceil((double)p->n / side);
	double waves = ceil(n_blocks * splits / product->multiprocessors);
	double per_k = product->slower * fmax(blocks->per_k, waves * area * 2 / blocks->flops);

	return (per_k * product->k / splits + waves * area * write) / product->clocks_per_ns;
}

/* ---- cuBLAS ---- */

/* thin: times so much, where its blocks suit a thin C less. */
static double cublas_product_ns(const struct op_args *args, const struct product *product,
                                const struct fitted_cublas *t, double thin)
{
	double part_ns = cuda_ns_of_bytes(product->area * t->sum, 1), least = INFINITY;
	struct cost cost;

	args->op->cost(args, &cost);
	for (size_t i = 0; i < sizeof t->blocks / sizeof t->blocks[0]; i++)
		for (int splits = 1; splits <= 29 && (splits == 1 || product->k >= splits * t->part_min);
		     splits += 1 + splits / 8) {
			double joining = splits > 1 ? t->joining_ns + splits * part_ns : 0;
			least =
			    fmin(least, joining + thin * blocks_ns(product, &t->blocks[i], splits, t->write));
		}
	return t->launch_ns + fitted_lasting_ns(least, t->lasting) + cuda_ns_of_bytes(cost.bytes * t->read, 1);
}

static double cublas_plain_ns(const struct op_args *args, const struct product *product)
{
	double m = (double)product->p.m, n = (double)product->p.n, shorter = fmin(m, n), longer = fmax(m, n);
	double k = product->k, area = product->area, thin = 1;
	bool is_real = !gemm_is_complex(args);

	if (longer > 2 * shorter && shorter <= 128)
		thin = shorter > 64 ? fitted.cublas.thin_128 : fitted.cublas.thin_64;
	if (is_real && k < 57 && area * k < 6e6 && (area < 25e3 || longer < 5.2 * shorter))
		return fitted.cublas.short_ns + area * fitted.cublas.short_element_ns;
	double ns = cublas_product_ns(args, product, &fitted.cublas_f32, thin);
	return is_real && k <= 256 && area * k <= 0x1p21 ? fmin(ns, fitted.cublas.small_ns) : ns;
}

/* Whether lines of a matrix of so many rows and columns begin between multiples of n elements. */
static bool has_loose_lines(const struct gemm_operand *o, uint64_t rows, uint64_t cols, int n)
{
	return rows > 1 && cols > 1 && (o->row == 1 ? o->col : o->row) % n != 0;
}

static bool has_loose_operands(const struct gemm_problem *p, int n)
{
	return has_loose_lines(&p->a, p->m, p->k, n) || has_loose_lines(&p->b, p->k, p->n, n) ||
	       has_loose_lines(&p->c, p->m, p->n, n);
}

/* How many times as long as with lines at multiples of 16 bytes a product of 16-bit numbers takes. */
static double cublas_slower_by_lines(const struct gemm_problem *p)
{
	if (has_loose_operands(p, 2))
		return fitted.cublas.odd;
	return has_loose_operands(p, 8) ? fitted.cublas.loose : 1;
}

/* For f32 as bf16 it takes its kernels for tf32. */
static double cublas_tensor_ns(const struct op_args *args, const struct product *product)
{
	const struct fitted_cublas *of_f32 =
	    gemm_has_aligned_lines(args) ? &fitted.cublas_tf32 : &fitted.cublas_unaligned;

	if (args->views[0].dtype == KOPS_F32)
		return cublas_product_ns(args, product, of_f32, 1);
	return cublas_product_ns(args, product, &fitted.cublas_16, cublas_slower_by_lines(&product->p));
}

/* Reads the sums, of f32 or f64, and writes C. */
static double finish_ns(const struct op_args *args, double area)
{
	const double launch_ns = 2000;

	return launch_ns + cuda_ns_of_bytes(area * (double)(dtype_size(args->views[GEMM_C].dtype) + 8), 1);
}

static double cublas_ns(const struct op_args *args)
{
	kops_dtype dtype = args->views[0].dtype;
	bool is_plain =
	    dtype == KOPS_F64 || gemm_is_complex(args) || (dtype == KOPS_F32 && !gemm_may_round(args));
	struct product product = product_of(args);
	double ns = is_plain ? cublas_plain_ns(args, &product) : cublas_tensor_ns(args, &product);
	return fmax(ns, cuda_memory_ns(args)) + (gemm_finishes(args) ? finish_ns(args, product.area) : 0);
}

/* ---- Those on tensor cores, and simt: their sources estimate the cuts that they choose among ---- */

/* Where the operands do not fit it takes four times as long: that is known when it runs. */
static double f16x3_ns(const struct op_args *args)
{
	return fmax(gemm_f16x3_ns(args), cuda_memory_ns(args));
}

static double f16x3_kept_ns(const struct op_args *whole, const struct op_args *part,
                            const struct op_args *fresh)
{
	return fmax(gemm_f16x3_kept_ns(whole, part, fresh), cuda_memory_ns(part));
}

static double real_ns(const struct op_args *args)
{
	return fmax(gemm_real_ns(args), cuda_memory_ns(args));
}

static double bf16x6_ns(const struct op_args *args)
{
	return fmax(gemm_bf16x6_ns(args), cuda_memory_ns(args));
}

static double wgmma_ns(const struct op_args *args)
{
	return fmax(gemm_wgmma_ns(args), cuda_memory_ns(args));
}

static double small_ns(const struct op_args *args)
{
	return fmax(gemm_small_ns(args), cuda_memory_ns(args));
}

static double shifted_ns(const struct op_args *args)
{
	return fmax(gemm_shifted_ns(args), cuda_memory_ns(args));
}

static double ragged_ns(const struct op_args *args)
{
	return fmax(gemm_ragged_ns(args), cuda_memory_ns(args));
}

static double simt_ns(const struct op_args *args)
{
	return fmax(gemm_simt_ns(args), cuda_memory_ns(args));
}

/* ---- Those with one size of blocks ---- */

static double plain_ns(const struct op_args *args, const struct fitted_plain *t, bool reads_lines)
{
	struct product product = product_of(args);
	double slower = !reads_lines ? t->apart : !gemm_has_aligned_lines(args) ? t->unaligned : 1;
	int per_piece = (int)(16 / dtype_size(args->views[GEMM_C].dtype));
	bool is_loose = has_loose_lines(&product.p.c, product.p.m, product.p.n, per_piece);
	double write = t->write * (is_loose ? t->loose : 1);
	return t->launch_ns + fmax(slower * blocks_ns(&product, &t->blocks, 1, write), cuda_memory_ns(args));
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

static double pipelined_ns(const struct op_args *args)
{
	return plain_ns(args, &fitted.pipelined, reads_lines(args));
}

static double bankfree_ns(const struct op_args *args)
{
	return plain_ns(args, &fitted.bankfree, reads_lines(args));
}

static double blocked_ns(const struct op_args *args)
{
	return plain_ns(args, &fitted.blocked, reads_lines(args));
}

static double tile32_ns(const struct op_args *args)
{
	return plain_ns(args, &fitted.tile32, reads_tile_lines(args));
}

static double tile16_ns(const struct op_args *args)
{
	return plain_ns(args, &fitted.tile16, reads_tile_lines(args));
}

/* Its warps read 32 columns of B, and one element of A for all. */
static double naive_ns(const struct op_args *args)
{
	const struct fitted_plain *t = args->views[0].dtype == KOPS_F32 ? &fitted.naive : &fitted.naive_others;

	return plain_ns(args, t, gemm_problem_of(args).b.col == 1);
}

static const struct kernel kernels[] = {
    {
        .name = "f16x3",
        .idea = "each f32 as the sum of two f16, three products of them on the tensor cores, fp32 accuracy",
        .dtypes = "f32",
        .takes = "any strides, not 0 along K in both A and B; K of at least 64, products of some size",
        .supports = gemm_f16x3_supports,
        .workspace = gemm_f16x3_workspace,
        .kept_bytes = gemm_f16x3_kept_bytes,
        .kept_ns = f16x3_kept_ns,
        .time_ns = f16x3_ns,
        .launch = gemm_f16x3,
        .tensor_cores = true,
    },
    {
        .name = "bf16x6",
        .idea = "as f16x3 with three bf16 and six products, for numbers of any range in one line",
        .dtypes = "f32",
        .takes = "any strides, not 0 along K in both A and B; K of at least 768, products of some size",
        .supports = gemm_bf16x6_supports,
        .workspace = gemm_bf16x6_workspace,
        .time_ns = bf16x6_ns,
        .launch = gemm_bf16x6,
        .tensor_cores = true,
    },
    {
        .name = "real",
        .idea = "c64 as a product of real numbers with twice the K and the columns, by f16x3",
        .dtypes = "c64",
        .takes = "any strides of A and B, C without gaps, real alpha and beta; K of at least 32, products of "
                 "some size",
        .supports = gemm_real_supports,
        .workspace = gemm_real_workspace,
        .time_ns = real_ns,
        .launch = gemm_real,
        .tensor_cores = true,
    },
    {
        .name = "wgmma",
        .idea = "tiles by the copy engine and wgmma, C by the copy engine during the next tile",
        .dtypes = "f16 bf16 f32",
        .takes =
            "row- or column-major matrices; f32 at precision tf32 and bf16, lines at multiples of 16 bytes, "
            "A by rows or B by columns",
        .supports = gemm_wgmma_supports,
        .workspace = gemm_wgmma_workspace,
        .time_ns = wgmma_ns,
        .launch = gemm_wgmma,
        .tensor_cores = true,
    },
    {
        .name = "small",
        .idea = "blocks of 32x32 without tensor maps, four warps by mma.sync, many products in one launch",
        .dtypes = "f16 bf16",
        .takes = "any strides",
        .supports = supports_small,
        .time_ns = small_ns,
        .launch = gemm_small,
        .carries = true,
        .together_max = gemm_small_together_max,
        .launch_together = gemm_small_together,
    },
    {
        .name = "shifted",
        .idea = "lines that begin anywhere, by the copy engine and shifted into place; wgmma; K split over all "
                "multiprocessors",
        .dtypes = "f16 bf16",
        .takes = "row- or column-major matrices, K of at least 8",
        .supports = gemm_shifted_supports,
        .workspace = gemm_shifted_workspace,
        .time_ns = shifted_ns,
        .launch = gemm_shifted,
    },
    {
        .name = "ragged",
        .idea = "few rows or columns, lines that begin anywhere; pieces by cp.async, fragments number by "
                "number, mma.sync",
        .dtypes = "f16 bf16",
        .takes = "row- or column-major matrices with M or N of at most 64, C with any strides",
        .supports = gemm_ragged_supports,
        .workspace = gemm_ragged_workspace,
        .time_ns = ragged_ns,
        .launch = gemm_ragged,
        .carries = true,
    },
    {
        .name = "simt",
        .idea =
            "plain FMAs without register bank conflicts, tiles by the copy engine, K split where C is small",
        .dtypes = "f32",
        .takes = "row- or column-major matrices, not of stride 0 along K in both A and B",
        .supports = supports_simt,
        .accurate = simt_accurate,
        .workspace = gemm_simt_workspace,
        .takes_all = true,
        .time_ns = simt_ns,
        .launch = gemm_simt,
        .together_max = gemm_simt_together_max,
        .launch_together = gemm_simt_together,
    },
    {
        .name = "cublas",
        .idea = "cublasGemmEx",
        .dtypes = "f32 f64 f16 bf16 c64 c128",
        .takes = "row- or column-major matrices; conjugates that lie the other way round than C",
        .supports = gemm_cublas_supports,
        .workspace = gemm_cublas_workspace,
        .first_ns = gemm_cublas_first_ns,
        .takes_all = true,
        .time_ns = cublas_ns,
        .launch = gemm_cublas,
    },
    {
        .name = "pipelined",
        .idea = "as bankfree, the next tiles fetched during the arithmetic on these",
        .dtypes = "f32",
        .takes = "any strides, not 0 along K in both A and B",
        .supports = supports_plain_sum,
        .accurate = plain_sum_accurate,
        .time_ns = pipelined_ns,
        .launch = gemm_pipelined,
    },
    {
        .name = "bankfree",
        .idea = "as blocked, shared memory laid out for 128-bit reads without bank conflicts",
        .dtypes = "f32",
        .takes = "any strides, not 0 along K in both A and B",
        .supports = supports_plain_sum,
        .accurate = plain_sum_accurate,
        .time_ns = bankfree_ns,
        .launch = gemm_bankfree,
    },
    {
        .name = "blocked",
        .idea = "128x128 block per CUDA block, 8x8 elements per thread, shared tiles 8 deep",
        .dtypes = "f32",
        .takes = "any strides, not 0 along K in both A and B",
        .supports = supports_plain_sum,
        .accurate = plain_sum_accurate,
        .time_ns = blocked_ns,
        .launch = gemm_blocked,
    },
    {
        .name = "tile32",
        .idea = "32x32 shared tiles of A and B, one element of C per thread",
        .dtypes = "f32",
        .takes = "any strides",
        .supports = supports_f32,
        .accurate = plain_sum_accurate,
        .time_ns = tile32_ns,
        .launch = gemm_tile32,
    },
    {
        .name = "tile16",
        .idea = "16x16 shared tiles of A and B, one element of C per thread",
        .dtypes = "f32",
        .takes = "any strides",
        .supports = supports_f32,
        .accurate = plain_sum_accurate,
        .time_ns = tile16_ns,
        .launch = gemm_tile16,
    },
    {
        .name = "naive",
        .idea = "one thread per element of C, operands from global memory",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "any strides",
        .supports = supports_real,
        .accurate = plain_sum_accurate,
        .time_ns = naive_ns,
        .launch = gemm_naive,
        .carries = true,
    },
    {
        .name = "complex",
        .idea = "one thread per element of a complex C, operands from global memory",
        .dtypes = "c64 c128",
        .takes = "any strides, any conjugates",
        .supports = supports_complex,
        .time_ns = naive_ns,
        .launch = gemm_complex,
    },
};

const struct kernel_list gemm_cuda_kernels = {kernels, sizeof(kernels) / sizeof(kernels[0])};
