#include <math.h>

#include "attention/f16x3.h"
#include "attention/flash.h"
#include "attention/split.h"
#include "attention/tiles.h"
#include "attention/wgmma_plan.h"
#include "common/cuda.h"

CUDA_LAUNCH(attention_f16x3); /* f16x3.cu */
CUDA_LAUNCH(attention_flash); /* flash.cu */
CUDA_LAUNCH(attention_rows);  /* rows.cu */
CUDA_LAUNCH(attention_tiles); /* tiles.cu */
CUDA_LAUNCH(attention_wgmma); /* wgmma.cu */

/* ---- How long they take, in ns on an H200 ---- */

/* Each part of a query writes what it found, and a launch reads it. */
static double join_ns(uint64_t found_bytes)
{
	const double launch_ns = 3000, share = 0.75;

	return found_bytes > 0 ? launch_ns + cuda_ns_of_bytes(2 * (double)found_bytes, share) : 0;
}

/* The mean of all queries: causal ones and those of windows see a part of the keys. */
static double keys_of_query(const struct op_args *args, const struct cost *cost)
{
	const struct view *q = &args->views[ATTENTION_Q], *v = &args->views[ATTENTION_V];
	double columns = (double)q->shape[3] + (double)v->shape[3],
	       heads = (double)q->shape[0] * (double)q->shape[1];

	return cost->flops / (2 * fmax(columns, 1)) / fmax(heads, 1) / fmax((double)q->shape[2], 1);
}

/* A block goes through key tiles one after another; a multiprocessor has up to two at a time. */
static double flash_ns(const struct op_args *args)
{
	const double launch_ns = 4000, first_clocks = 2500, share = 0.75;
	struct flash_plan p = flash_plan_of(args);
	double depth = (double)(args->views[ATTENTION_Q].shape[3] > args->views[ATTENTION_V].shape[3]
	                            ? args->views[ATTENTION_Q].shape[3]
	                            : args->views[ATTENTION_V].shape[3]);
	double padded = depth <= 64 ? 64 : depth <= 128 ? 128 : 256;
	double blocks = (double)(p.units * p.tiles) * p.parts;
	struct cost cost;

	args->op->cost(args, &cost);
	double steps = ceil(fmax(keys_of_query(args, &cost), 1) / FLASH_KEYS / p.parts + 0.5);
	double larger = p.block_rows > 64 ? 1.65 : 1;
	double step_clocks = larger * (1200 + 26 * padded); /* of two blocks of a multiprocessor */
	double rounds = ceil(blocks / (2 * cuda_multiprocessors()));

	return launch_ns * cuda_clock_factor() + join_ns(attention_flash_workspace(args)) +
	       fmax(cuda_ns_of_bytes(cost.bytes, share),
	            cuda_ns_of_clocks(cuda_multiprocessors() * rounds * (first_clocks + steps * step_clocks)));
}

/*
 * As flash_ns(). A block waits for memory and barriers: with fewer than two or three on a multiprocessor it is
 * no sooner done.
 */
static double tiles_ns(const struct op_args *args)
{
	const double launch_ns = 4000, first_clocks = 1000, share = 0.75, clocks_per_column = 92;
	const struct view *q = &args->views[ATTENTION_Q], *v = &args->views[ATTENTION_V];
	struct tiles_plan p = tiles_plan_of(args);
	double blocks = (double)p.units * (double)p.row_tiles * p.parts;
	bool is_deep = q->shape[3] > 64 || v->shape[3] > 64;
	double padded = (double)q->shape[3] + (is_deep ? 128 : 64);
	struct cost cost;

	args->op->cost(args, &cost);
	double steps = ceil(fmax(keys_of_query(args, &cost), 1) / TILES_EDGE / p.parts + 0.5);
	double clocks = first_clocks + steps * clocks_per_column * padded;
	double rounds = fmax(blocks / cuda_multiprocessors(), is_deep ? 2 : 3);

	return launch_ns * cuda_clock_factor() + join_ns(attention_tiles_workspace(args)) +
	       fmax(cuda_ns_of_bytes(cost.bytes, share),
	            cuda_ns_of_clocks(cuda_multiprocessors() * rounds * clocks));
}

/* ---- rows ---- */

static bool rows_supports(const struct op_args *args, const char **ret_why_not)
{
	*ret_why_not = "takes up to 2^31 queries and keys";
	return args->views[ATTENTION_Q].shape[2] <= INT32_MAX / 2 &&
	       args->views[ATTENTION_K].shape[2] <= INT32_MAX / 2;
}

/* Warps go through the keys of a query, or of a part of them, one after another. */
static double rows_ns(const struct op_args *args)
{
	const double launch_ns = 4000, clocks_per_term = 0.65, clocks_per_key = 50;
	const struct view *q = &args->views[ATTENTION_Q], *o = &args->views[ATTENTION_O];
	double parts = attention_rows_parts(args);
	double queries = (double)q->shape[0] * (double)q->shape[1] * (double)q->shape[2];
	double keys = queries * (double)args->views[ATTENTION_K].shape[2];
	double clocks = keys * ((double)(q->shape[3] + o->shape[3]) * clocks_per_term + clocks_per_key);
	double slower = q->dtype == KOPS_F64 ? 2 : 1, warps = 32 * cuda_multiprocessors();

	return launch_ns * cuda_clock_factor() + join_ns(attention_rows_workspace(args)) +
	       fmax(cuda_memory_ns(args),
	            cuda_ns_of_clocks(slower * clocks * fmax(warps / fmax(queries * parts, 1), 1)));
}

static const struct kernel kernels[] = {
    {
        .name = "wgmma",
        .idea = "tiles by the copy engine; warpgroups multiply and weigh them in turns",
        .dtypes = "f16 bf16",
        .takes = "aligned rows, head_dim to 256, no mask; on Hopper",
        .supports = attention_wgmma_supports,
        .workspace = attention_wgmma_workspace,
        .time_ns = attention_wgmma_ns,
        .launch = attention_wgmma,
    },
    {
        .name = "flash",
        .idea = "tiles of scores on tensor cores, the softmax carried along in registers; few queries: parts "
                "of keys",
        .dtypes = "f16 bf16",
        .takes = "aligned rows, head_dim to 256",
        .supports = attention_flash_supports,
        .workspace = attention_flash_workspace,
        .time_ns = flash_ns,
        .launch = attention_flash,
        .carries = true,
    },
    {
        .name = "f16x3",
        .idea = "each f32 as two f16: three products on tensor cores for scores, and three for values",
        .dtypes = "f32",
        .takes = "any strides, head_dim to 128, no mask; on Hopper",
        .supports = attention_f16x3_supports,
        .workspace = attention_f16x3_workspace,
        .time_ns = attention_f16x3_ns,
        .launch = attention_f16x3,
    },
    {
        .name = "tiles",
        .idea =
            "tiles of scores by FMAs from shared memory, the softmax carried along; few blocks: parts of keys",
        .dtypes = "f32 f16 bf16",
        .takes = "any strides, head_dim to 128",
        .supports = attention_tiles_supports,
        .workspace = attention_tiles_workspace,
        .time_ns = tiles_ns,
        .launch = attention_tiles,
        .carries = true,
    },
    {
        .name = "rows",
        .idea = "a warp for each query or part of its keys, the softmax carried along",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "any strides",
        .supports = rows_supports,
        .workspace = attention_rows_workspace,
        .time_ns = rows_ns,
        .launch = attention_rows,
        .carries = true,
    },
};

const struct kernel_list attention_cuda_kernels = {kernels, sizeof(kernels) / sizeof(kernels[0])};
