#include <math.h>

#include "fitted.h"
#include "linalg/linalg.h"
#include "lu/kernels.h"

static bool small_supports(const struct op_args *args, const char **ret_why_not)
{
	const struct view *lu = &args->views[LU_LU];
	uint64_t most = LU_SMALL_MAX(lu->dtype);

	*ret_why_not = "takes up to 64 rows and columns, of c128 up to 48";
	if (lu->shape[2] > most || lu->shape[3] > most)
		return false;
	*ret_why_not = "takes whole matrices";
	return linalg_begin(args) == 0 && linalg_end(args) == lu_pivots(args);
}

static double wide_of(const struct view *v)
{
	return (double)dtype_size(v->dtype) / 4 * dtype_components(v->dtype);
}

/* Of a matrix in shared memory: four barriers a column, and products. */
static double small_ns(const struct op_args *args)
{
	const double of_column = 700, of_product = 0.12;
	const struct view *lu = &args->views[LU_LU];
	double m = (double)lu->shape[2], n = (double)lu->shape[3], k = (double)lu_pivots(args),
	       at_once = fmax(m, n) <= 32 ? 16 : 5,
	       matrices = (double)linalg_matrices(lu) / cuda_multiprocessors(),
	       rounds = ceil(matrices / at_once);

	return fitted.reduce.launch_ns +
	       fmax(cuda_memory_ns(args), rounds * (k * of_column + k * m * n * of_product * wide_of(lu)) *
	                                      fmax(1, fmin(at_once, matrices) / 3) / cuda_clocks_per_ns());
}

/*
 * Clocks of one column of a panel, which one multiprocessor reads and writes. Where rows are runs of elements,
 * a warp's 32 rows are in 32 lines, each of which takes a turn. An H200 took 0.93 to 1.1 of that for orders of
 * 1024 to 16384 in f32, f64 and c128.
 */
static double column_clocks(const struct view *lu, double rows, double width)
{
	const double of_column = 3500, of_line = 1.45, bytes_per_clock = 40;

	if (linalg_has_runs(lu) && lu->strides[2] == 1)
		return of_column + rows * width * (double)dtype_size(lu->dtype) / bytes_per_clock;
	return of_column + rows * (width + 1) * of_line;
}

/* A part goes through what is left once, and the first one also copies it. */
static double blocked_ns(const struct op_args *args)
{
	const struct view *lu = &args->views[LU_LU];
	double k = (double)(linalg_end(args) - linalg_begin(args)),
	       rows = (double)lu->shape[2] - (double)linalg_begin(args) - k / 2, panels = ceil(k / LU_PANEL),
	       rounds = ceil((double)lu->shape[1] / cuda_multiprocessors()),
	       passes = linalg_has_runs(lu) ? 1 + (linalg_begin(args) == 0) : 3;
	struct cost cost;

	args->op->cost(args, &cost);
	return (double)lu->shape[0] *
	           (panels * 5 * LINALG_LAUNCH_NS +
	            rounds * k * column_clocks(lu, rows, fmin(k, LU_PANEL)) / cuda_clocks_per_ns()) +
	       3 * LINALG_LAUNCH_NS + linalg_products_ns(lu->dtype, cost.flops) +
	       linalg_pass_ns(args, LU_A, LU_LU) * passes;
}

static bool blocked_supports(const struct op_args *args, const char **ret_why_not)
{
	return linalg_steps_are_short(args, LU_A, LU_LU, blocked_ns, ret_why_not);
}

static const struct kernel kernels[] = {
    {
        .name = "small",
        .idea = "a block of threads for each matrix, in shared memory",
        .dtypes = "f32 f64 c64 c128",
        .takes = "any strides",
        .supports = small_supports,
        .time_ns = small_ns,
        .launch = lu_small,
    },
    {
        .name = "blocked",
        .idea = "halves of columns; panels by a block of threads, products by cuBLAS",
        .dtypes = "f32 f64 c64 c128",
        .takes = "any strides",
        .supports = blocked_supports,
        .workspace = lu_blocked_workspace,
        .time_ns = blocked_ns,
        .launch = lu_blocked,
    },
};

const struct kernel_list lu_cuda_kernels = {kernels, sizeof(kernels) / sizeof(kernels[0])};
