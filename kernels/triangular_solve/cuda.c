#include <math.h>

#include "linalg/batch.h"
#include "linalg/linalg.h"
#include "triangular_solve/kernels.h"
#include "triangular_solve/operands.h"

/* Of columns of one block: an FMA of each element of the triangle, which four threads read from shared memory.
 */
static double columns_ns(const struct view *x, double n)
{
	const double of_product = 2.5, of_row = 550, columns = 32,
	             at_once = 8; /* clocks; blocks of a multiprocessor */
	double wide = (double)dtype_size(x->dtype) / 4 * dtype_components(x->dtype),
	       blocks = (double)x->shape[1] * ceil((double)x->shape[3] / columns),
	       multiprocessors = cuda_multiprocessors(), rounds = ceil(blocks / multiprocessors / at_once),
	       beside = fmin(fmax(blocks / multiprocessors, 1), at_once);

	return rounds * (n * of_row + n * n / 8 * of_product * wide) * fmax(1, beside / 2) /
	       cuda_clocks_per_ns();
}

static double blocked_ns(const struct op_args *args)
{
	const struct view *x = &args->views[SOLVE_X];
	double n = (double)(linalg_end(args) - linalg_begin(args)), unit = LINALG_SOLVED_MAX(x->dtype),
	       blocks = ceil(n / unit);
	struct op_args touched;
	struct cost cost;

	args->op->cost(args, &cost);
	triangular_solve_touched(args, &touched);
	return (double)x->shape[0] * blocks * (2 * LINALG_LAUNCH_NS + columns_ns(x, fmin(n, unit))) +
	       LINALG_LAUNCH_NS + linalg_products_ns(x->dtype, cost.flops) +
	       cuda_memory_ns(&touched) * (triangular_solve_workspace(args) > 0 ? 3 : 1);
}

static const struct kernel kernels[] = {
    {
        .name = "blocked",
        .idea = "halves of halves; small triangles in shared memory, products by cuBLAS",
        .dtypes = "f32 f64 c64 c128",
        .takes = "any strides",
        .supports = cuda_supports_any,
        .workspace = triangular_solve_workspace,
        .time_ns = blocked_ns,
        .launch = triangular_solve_blocked,
    },
};

const struct kernel_list triangular_solve_cuda_kernels = {kernels, sizeof(kernels) / sizeof(kernels[0])};
