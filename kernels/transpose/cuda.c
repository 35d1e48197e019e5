#include <math.h>

#include "common/cuda.h"
#include "fitted.h"

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
	return cuda_moves(args->views[0].dtype, ret_why_not);
}

/* ---- How long they take: fitted.h has the constants ---- */

#define AT_ONCE 2048 /* threads that a multiprocessor runs at once */

/* Time of kernels that give each block a tile, which may be nearly empty. */
static double tiles_ns(const struct op_args *args, const struct fitted_tiles *t)
{
	const double side = 32;
	const struct view *y = op_output_const(args);
	double rows = (double)y->shape[y->rank - 2], cols = (double)y->shape[y->rank - 1];
	double tiles = (double)view_elements(y) / (rows * cols) * ceil(rows / side) * ceil(cols / side);
	struct cost cost;

	args->op->cost(args, &cost);
	double moved_ns = fmax(cuda_ns_of_bytes(cost.bytes, t->share), cuda_memory_ns(args));
	double busy = fmin((double)view_elements(y) / (AT_ONCE * cuda_multiprocessors()), 1);
	return t->launch_ns + busy * t->full_ns + fmax(moved_ns, cuda_ns_of_clocks(tiles * fitted.tiles.tile));
}

static double vector_ns(const struct op_args *args)
{
	return tiles_ns(args, &fitted.vector);
}

static double padded_ns(const struct op_args *args)
{
	return tiles_ns(args, &fitted.padded);
}

/* Elements of 16 bytes count as two of 8; that was not measured. */
static double clocks_of(const struct fitted_sizes *clocks, const struct op_args *args)
{
	size_t size = dtype_size(op_output_const(args)->dtype);

	return size <= 2 ? clocks->of_2 : size <= 4 ? clocks->of_4 : clocks->of_8 * (double)size / 8;
}

/* Adds the limit by bank conflicts in shared memory. */
static double banks_ns(const struct op_args *args, const struct fitted_sizes *clocks)
{
	double elements = (double)view_elements(op_output_const(args));

	return fmax(tiles_ns(args, &fitted.padded),
	            fitted.padded.launch_ns + cuda_ns_of_clocks(elements * clocks_of(clocks, args)));
}

static double tiled_rect_ns(const struct op_args *args)
{
	return banks_ns(args, &fitted.tiled_rect);
}

static double tiled_ns(const struct op_args *args)
{
	return banks_ns(args, &fitted.tiled);
}

/* The threads that fit begin at once. Each later one reads and writes a sector of its own. */
static double perelement_ns(const struct op_args *args)
{
	double elements = (double)view_elements(op_output_const(args));
	double first = fmin(elements, AT_ONCE * cuda_multiprocessors());

	return fitted.perelement.launch_ns + cuda_ns_of_clocks(first * fitted.perelement.element) +
	       cuda_ns_of_bytes((elements - first) * fitted.perelement.bytes, fitted.perelement.share);
}

/* A step of all threads takes as long as one thread's, until they write more than L2 takes. */
static double perrow_ns(const struct op_args *args)
{
	const struct view *y = op_output_const(args);
	double elements = (double)view_elements(y), steps = (double)y->shape[y->rank - 1];
	double element_clocks = clocks_of(&fitted.perrow_elements, args);

	return fitted.perrow.launch_ns + fmax(steps * fitted.perrow.step / cuda_clocks_per_ns(),
	                                      cuda_ns_of_clocks(elements * element_clocks));
}

static double serial_ns(const struct op_args *args)
{
	return fitted.serial.launch_ns +
	       (double)view_elements(op_output_const(args)) * fitted.serial.element / cuda_clocks_per_ns();
}

/* If an op is one matrix, the grid has a free axis for the ops. */
static unsigned together_max(const struct op_args *args)
{
	const struct view *y = op_output_const(args);

	return view_elements(y) == y->shape[y->rank - 2] * y->shape[y->rank - 1] ? cuda_together_max(args) : 1;
}

static const struct kernel kernels[] = {
    {
        .name = "vector",
        .idea = "128-bit loads and stores, split so that each block writes whole sectors of y",
        .dtypes = "f32 f64 f16 bf16 i32 c64 c128",
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
        .dtypes = "f32 f64 f16 bf16 i32 c64 c128",
        .takes = "any strides; large tiles where rows are contiguous",
        .supports = supports_any,
        .time_ns = padded_ns,
        .launch = transpose_padded,
    },
    {
        .name = "tiled-rect",
        .idea = "32x32 tile through shared memory, 32x8 threads",
        .dtypes = "f32 f64 f16 bf16 i32 c64 c128",
        .takes = "any strides",
        .supports = supports_any,
        .time_ns = tiled_rect_ns,
        .launch = transpose_tiled_rect,
    },
    {
        .name = "tiled",
        .idea = "32x32 tile through shared memory, a thread per element of it",
        .dtypes = "f32 f64 f16 bf16 i32 c64 c128",
        .takes = "any strides",
        .supports = supports_any,
        .time_ns = tiled_ns,
        .launch = transpose_tiled,
    },
    {
        .name = "perelement",
        .idea = "one thread per element",
        .dtypes = "f32 f64 f16 bf16 i32 c64 c128",
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
        .dtypes = "f32 f64 f16 bf16 i32 c64 c128",
        .takes = "any strides",
        .supports = supports_any,
        .time_ns = perrow_ns,
        .launch = transpose_perrow,
    },
    {
        .name = "serial",
        .idea = "one thread moves it all",
        .dtypes = "f32 f64 f16 bf16 i32 c64 c128",
        .takes = "any strides",
        .supports = supports_any,
        .time_ns = serial_ns,
        .launch = transpose_serial,
    },
};

const struct kernel_list transpose_cuda_kernels = {kernels, sizeof(kernels) / sizeof(kernels[0])};
