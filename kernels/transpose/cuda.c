#include <math.h>

#include "common/cuda.h"

CUDA_LAUNCH(transpose_vector);
CUDA_LAUNCH(transpose_padded);
CUDA_LAUNCH(transpose_tiled_rect);
CUDA_LAUNCH(transpose_tiled);
CUDA_LAUNCH(transpose_perelement);
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

/* As measured on an H200: up to here what counts is how soon the first element is there. */
static bool is_for_many_elements(const struct op_args *args, const char **ret_why_not)
{
	*ret_why_not = "is for more than 48 Ki elements: fewer are moved the fastest one by one";
	return view_elements(op_output_const(args)) > 48 << 10;
}

/* ns as a multiple of the time that the bytes of args take at the device's full rate. */
static double slowdown_of(const struct op_args *args, double ns)
{
	const double bytes_per_ns = 4200;
	struct cost cost;

	args->op->cost(args, &cost);
	return cost.bytes > 0 ? ns * bytes_per_ns / cost.bytes : 1;
}

/* Of the rungs that give a block a tile, which may be nearly empty. */
static double slowdown_tiles(const struct op_args *args)
{
	const double factor = 1.2, ns_per_tile = 0.8, side = 32;
	const struct view *y = op_output_const(args);
	double rows = (double)y->shape[y->rank - 2], cols = (double)y->shape[y->rank - 1];
	double matrices = rows * cols > 0 ? (double)view_elements(y) / (rows * cols) : 0;

	return factor + slowdown_of(args, ns_per_tile * matrices * ceil(rows / side) * ceil(cols / side));
}

static double slowdown_serial(const struct op_args *args)
{
	const double ns_per_element = 100;

	return slowdown_of(args, ns_per_element * (double)view_elements(op_output_const(args)));
}

/* A step of all threads takes as long as one, until some ten thousand of them write more than L2 takes. */
static double slowdown_perrow(const struct op_args *args)
{
	const double ns_per_step = 600, ns_per_element = 0.06;
	const struct view *y = op_output_const(args);
	double elements = (double)view_elements(y), steps = (double)y->shape[y->rank - 1];

	return slowdown_of(args, ns_per_step * steps + ns_per_element * elements);
}

static double slowdown_perelement(const struct op_args *args)
{
	const double ns_per_element = 0.03;

	return slowdown_of(args, ns_per_element * (double)view_elements(op_output_const(args)));
}

static const struct kernel rows[] = {
    {
        .name = "vector",
        .idea = "128-bit loads and stores, split so that each block writes whole sectors of y",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "contiguous rows on both sides; 32 rows and columns, 128 where unaligned",
        .supports = transpose_vector_supports,
        .worthwhile = is_for_many_elements,
        .launch = transpose_vector,
        .slowdown = slowdown_tiles,
    },
    {
        .name = "padded",
        .idea = "tiles up to 128x128 through shared memory, padded against bank conflicts",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "any strides; large tiles where rows are contiguous",
        .supports = supports_any,
        .worthwhile = is_for_many_elements,
        .launch = transpose_padded,
        .slowdown = slowdown_tiles,
    },
    {
        .name = "tiled-rect",
        .idea = "32x32 tile through shared memory, 32x8 threads",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "any strides",
        .supports = supports_any,
        .worthwhile = is_for_many_elements,
        .launch = transpose_tiled_rect,
        .slowdown = slowdown_tiles,
    },
    {
        .name = "tiled",
        .idea = "32x32 tile through shared memory, a thread per element of it",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "any strides",
        .supports = supports_any,
        .worthwhile = is_for_many_elements,
        .launch = transpose_tiled,
        .slowdown = slowdown_tiles,
    },
    {
        .name = "perelement",
        .idea = "one thread per element",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "any strides",
        .supports = supports_any,
        .launch = transpose_perelement,
        .slowdown = slowdown_perelement,
    },
    {
        .name = "perrow",
        .idea = "one thread per row of y",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "any strides",
        .supports = supports_any,
        .launch = transpose_perrow,
        .slowdown = slowdown_perrow,
    },
    {
        .name = "serial",
        .idea = "one thread moves it all",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "any strides",
        .supports = supports_any,
        .launch = transpose_serial,
        .slowdown = slowdown_serial,
    },
};

const struct kernel_list transpose_cuda_rows = {rows, sizeof(rows) / sizeof(rows[0])};
