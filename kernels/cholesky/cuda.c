#include <math.h>

#include "cholesky/cholesky.h"
#include "cholesky/kernels.h"
#include "fitted.h"

static bool small_supports(const struct op_args *args, const char **ret_why_not)
{
	uint64_t n = cholesky_order(args);

	*ret_why_not = "takes orders up to 64, of c128 up to 48";
	if (n > CHOLESKY_SMALL_MAX(args->views[CHOLESKY_FACTOR].dtype))
		return false;
	*ret_why_not = "takes whole matrices";
	return cholesky_is_whole(args);
}

/* Of a matrix in shared memory: two barriers a column, and products. */
static double block_clocks(kops_dtype dtype, double n)
{
	const double of_column = 900, of_product = 0.12;
	double wide = (double)dtype_size(dtype) / 4 * dtype_components(dtype);

	return n * of_column + n * n * n / 3 * of_product * wide;
}

/* How many blocks a multiprocessor holds. */
static double blocks_at_once(double n)
{
	return n <= 32 ? 16 : 5;
}

static double small_ns(const struct op_args *args)
{
	const struct view *factor = &args->views[CHOLESKY_FACTOR];
	double n = (double)cholesky_order(args), matrices = (double)linalg_matrices(factor),
	       rounds = ceil(matrices / cuda_multiprocessors() / blocks_at_once(n));

	return fitted.reduce.launch_ns +
	       fmax(cuda_memory_ns(args),
	            rounds * block_clocks(factor->dtype, n) *
	                fmin(blocks_at_once(n), fmax(1, matrices / cuda_multiprocessors())) /
	                (n <= 32 ? 8 : 3) / cuda_clocks_per_ns());
}

/*
 * A part goes through what is left once, the first one also copies it, and the last one looks at all of it.
 * Launches for one block after the other, and as many again for halves, quarters, …: almost five for each. Of
 * orders from 1024 to 16384 in f32 and f64, an H200 took 0.75 to 0.95 of that.
 */
static double blocked_ns(const struct op_args *args)
{
	const struct view *factor = &args->views[CHOLESKY_FACTOR];
	double n = (double)(linalg_end(args) - linalg_begin(args)), unit = LINALG_SOLVED_MAX(factor->dtype),
	       blocks = ceil(n / unit), levels = ceil(log2(fmax(blocks, 1))) + 1,
	       outer = (double)factor->shape[0],
	       rounds = fmax(1, (double)factor->shape[1] / cuda_multiprocessors() / blocks_at_once(unit)),
	       passes = cholesky_is_direct(args) ? 1 + (cholesky_is_first(args) || cholesky_is_last(args)) : 3;
	struct cost cost;

	args->op->cost(args, &cost);
	return outer * blocks *
	           (4.7 * levels * LINALG_LAUNCH_NS +
	            rounds * block_clocks(factor->dtype, fmin(n, unit)) / cuda_clocks_per_ns()) +
	       2 * LINALG_LAUNCH_NS + linalg_products_ns(factor->dtype, cost.flops) +
	       linalg_pass_ns(args, CHOLESKY_A, CHOLESKY_FACTOR) * passes;
}

static bool blocked_supports(const struct op_args *args, const char **ret_why_not)
{
	return linalg_steps_are_short(args, CHOLESKY_A, CHOLESKY_FACTOR, blocked_ns, ret_why_not);
}

static const struct kernel kernels[] = {
    {
        .name = "small",
        .idea = "a block of threads for each matrix, in shared memory",
        .dtypes = "f32 f64 c64 c128",
        .takes = "any strides",
        .supports = small_supports,
        .time_ns = small_ns,
        .launch = cholesky_small,
    },
    {
        .name = "blocked",
        .idea = "halves of halves; small blocks in shared memory, products by cuBLAS",
        .dtypes = "f32 f64 c64 c128",
        .takes = "any strides",
        .supports = blocked_supports,
        .workspace = cholesky_blocked_workspace,
        .time_ns = blocked_ns,
        .launch = cholesky_blocked,
    },
};

const struct kernel_list cholesky_cuda_kernels = {kernels, sizeof(kernels) / sizeof(kernels[0])};
