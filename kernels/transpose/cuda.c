#include <math.h>

#include "common/cuda.h"

CUDA_LAUNCH(transpose_vector);
CUDA_TOGETHER(transpose_vector_together);
CUDA_LAUNCH(transpose_padded);
CUDA_LAUNCH(transpose_tiled_rect);
CUDA_LAUNCH(transpose_tiled);
CUDA_LAUNCH(transpose_perelement);
CUDA_TOGETHER(transpose_perelement_together);
CUDA_LAUNCH(transpose_perrow);
CUDA_LAUNCH(transpose_serial);

/* vector.cu */
bool transpose_vector_supports(const struct op_args *args, const char **ret_why_not);

static bool supports_any(const struct op_args *args, const char **ret_why_not)
{
	(void)args;
	(void)ret_why_not;
	return true;
}

/* ---- How long they take: shares of the memory's rate, as measured on an H200 ---- */

#define AT_ONCE 2048 /* threads of a multiprocessor */

/* Of those that give a block a tile, which may be nearly empty. full_ns: later where all multiprocessors are
 * busy. */
static double tiles_ns(const struct op_args *args, double launch_ns, double full_ns, double share)
{
	const double tile_clocks = 200, side = 32;
	const struct view *y = op_output_const(args);
	double rows = (double)y->shape[y->rank - 2], cols = (double)y->shape[y->rank - 1];
	double tiles = (double)view_elements(y) / (rows * cols) * ceil(rows / side) * ceil(cols / side);
	struct cost cost;

	args->op->cost(args, &cost);
	double moved_ns = fmax(cuda_ns_of_bytes(cost.bytes, share), cuda_memory_ns(args));
	double busy = fmin((double)view_elements(y) / (AT_ONCE * cuda_multiprocessors()), 1);
	return launch_ns + busy * full_ns + fmax(moved_ns, cuda_ns_of_clocks(tiles * tile_clocks));
}

static double vector_ns(const struct op_args *args)
{
	return tiles_ns(args, 1650, 0, 0.86);
}

static double padded_ns(const struct op_args *args)
{
	return tiles_ns(args, 1650, 1400, 0.84);
}

/* Bound by the banks that meet in shared memory: clocks of a multiprocessor for each element of 2, 4, 8 bytes.
 */
static double banks_ns(const struct op_args *args, const double clocks[3])
{
	size_t size = dtype_size(op_output_const(args)->dtype);
	double elements = (double)view_elements(op_output_const(args));

	return fmax(tiles_ns(args, 1650, 1400, 0.84),
	            1650 + cuda_ns_of_clocks(elements * clocks[size == 2   ? 0
	                                                       : size == 4 ? 1
	                                                                   : 2]));
}

static double tiled_rect_ns(const struct op_args *args)
{
	static const double clocks[] = {0.79, 1.29, 1.48};

	return banks_ns(args, clocks);
}

static double tiled_ns(const struct op_args *args)
{
	static const double clocks[] = {1.83, 2.23, 2.37};

	return banks_ns(args, clocks);
}

/* As many threads as there is room for begin at once. Then each takes a sector of its own, read and written. */
static double perelement_ns(const struct op_args *args)
{
	const double launch_ns = 750, element_clocks = 5.6, sectors = 64, share = 0.96;
	double elements = (double)view_elements(op_output_const(args));
	double first = fmin(elements, AT_ONCE * cuda_multiprocessors());

	return launch_ns + cuda_ns_of_clocks(first * element_clocks) +
	       cuda_ns_of_bytes((elements - first) * sectors, share);
}

/* A step of all threads takes as long as one, until they write more than L2 takes. */
static double perrow_ns(const struct op_args *args)
{
	const double launch_ns = 900, step_clocks = 645;
	const struct view *y = op_output_const(args);
	double elements = (double)view_elements(y), steps = (double)y->shape[y->rank - 1];
	double element_clocks = dtype_size(y->dtype) == 2 ? 4.0 : dtype_size(y->dtype) == 4 ? 5.8 : 6.2;

	return launch_ns +
	       fmax(steps * step_clocks / cuda_clocks_per_ns(), cuda_ns_of_clocks(elements * element_clocks));
}

static double serial_ns(const struct op_args *args)
{
	const double launch_ns = 900, element_clocks = 83;

	return launch_ns + (double)view_elements(op_output_const(args)) * element_clocks / cuda_clocks_per_ns();
}

/* Where an op is one matrix, an axis of the grid is left to number ops by. */
static unsigned together_max(const struct op_args *args)
{
	const struct view *y = op_output_const(args);

	return view_elements(y) == y->shape[y->rank - 2] * y->shape[y->rank - 1] ? cuda_together_max(args) : 1;
}

static const struct kernel kernels[] = {
    {
        .name = "vector",
        .idea = "128-bit loads and stores, split so that each block writes whole sectors of y",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "contiguous rows on both sides; 32 rows and columns, 128 where unaligned",
        .supports = transpose_vector_supports,
        .time_ns = vector_ns,
        .launch = transpose_vector,
        .together_max = together_max,
        .launch_together = transpose_vector_together,
    },
    {
        .name = "padded",
        .idea = "tiles up to 128x128 through shared memory, padded against bank conflicts",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "any strides; large tiles where rows are contiguous",
        .supports = supports_any,
        .time_ns = padded_ns,
        .launch = transpose_padded,
    },
    {
        .name = "tiled-rect",
        .idea = "32x32 tile through shared memory, 32x8 threads",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "any strides",
        .supports = supports_any,
        .time_ns = tiled_rect_ns,
        .launch = transpose_tiled_rect,
    },
    {
        .name = "tiled",
        .idea = "32x32 tile through shared memory, a thread per element of it",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "any strides",
        .supports = supports_any,
        .time_ns = tiled_ns,
        .launch = transpose_tiled,
    },
    {
        .name = "perelement",
        .idea = "one thread per element",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "any strides",
        .supports = supports_any,
        .time_ns = perelement_ns,
        .launch = transpose_perelement,
        .together_max = together_max,
        .launch_together = transpose_perelement_together,
    },
    {
        .name = "perrow",
        .idea = "one thread per row of y",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "any strides",
        .supports = supports_any,
        .time_ns = perrow_ns,
        .launch = transpose_perrow,
    },
    {
        .name = "serial",
        .idea = "one thread moves it all",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "any strides",
        .supports = supports_any,
        .time_ns = serial_ns,
        .launch = transpose_serial,
    },
};

const struct kernel_list transpose_cuda_kernels = {kernels, sizeof(kernels) / sizeof(kernels[0])};
