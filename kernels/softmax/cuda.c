#include <math.h>

#include "common/cuda.h"
#include "softmax/ring.h"

#define SCALE_MAX 1e38 /* fused multiplies it by log2 e */

CUDA_LAUNCH(softmax_fused);
uint64_t softmax_fused_workspace(const struct op_args *args);
CUDA_LAUNCH(softmax_online);
CUDA_LAUNCH(softmax_coalesced);
CUDA_LAUNCH(softmax_blockreduce);
CUDA_LAUNCH(softmax_naive);

static bool supports_floats(const struct op_args *args, const char **ret_why_not)
{
	if (args->views[0].dtype != KOPS_F64)
		return true;
	*ret_why_not = "takes f32, f16 and bf16 only";
	return false;
}

static bool supports_apart(const struct op_args *args, const char **ret_why_not)
{
	if (!supports_floats(args, ret_why_not))
		return false;
	if (!view_same(&args->views[0], &args->views[1]))
		return true;
	*ret_why_not = "cannot work in place: its threads read whole rows while others write theirs";
	return false;
}

static bool is_sparse(const struct view *v)
{
	return v->shape[v->rank - 1] > 1 && v->strides[v->rank - 1] != 1;
}

/*
 * Whether the places of each element in x and in y differ by whole vectors, however far they are, as far as can
 * be told before the addresses are known.
 */
static bool lie_alike(const struct op_args *args)
{
	const struct view *x = &args->views[0], *y = &args->views[1];
	uint64_t apart = x->offset - y->offset;

	for (uint32_t d = 0; d + 1 < x->rank; d++)
		if (x->shape[d] > 1)
			apart |= ((uint64_t)x->strides[d] - (uint64_t)y->strides[d]) * dtype_size(x->dtype);
	return apart % 16 == 0;
}

static bool supports_fused(const struct op_args *args, const char **ret_why_not)
{
	double scale = fabs(args->params.softmax.scale);

	if (!supports_floats(args, ret_why_not))
		return false;
	if (is_sparse(&args->views[0]) || is_sparse(&args->views[1])) {
		*ret_why_not = "needs the elements of a row side by side";
		return false;
	}
	if (!lie_alike(args)) {
		*ret_why_not = "needs x and y to lie alike to 16 bytes in every row";
		return false;
	}
	if (scale > 0 && scale <= SCALE_MAX)
		return true;
	*ret_why_not = "needs a scale other than 0, of at most 1e38";
	return false;
}

static bool supports_ring(const struct op_args *args, const char **ret_why_not)
{
	return supports_fused(args, ret_why_not) && softmax_ring_takes(args, ret_why_not);
}

/* ---- Slowness, as measured on an H200 and half as much again ---- */

#define BYTES_PER_NS 4200.0 /* full rate, as in struct kernel.slowdown */
#define SMS          132
#define SECTOR       32     /* bytes; the least that is read or written */
#define ROW_NS       0.7    /* of a warp or a block that has nothing to do */
#define ELEMENT_NS   0.012  /* naive: of a thread that has nothing to do, … */
#define VISIT_NS     0.0011 /* … for each element of the row, … */
#define FULL         74000  /* … with as many threads as that or more */

static double full_rate_ns(const struct op_args *args)
{
	struct cost cost;

	args->op->cost(args, &cost);
	return cost.bytes / BYTES_PER_NS;
}

/*
 * Of the rungs that give each row of the matrix a warp or a block. factor: where elements are side by side and
 * rows no fewer than SMs. Elements apart take a sector each; where rows are fewer, SMs are idle.
 */
static double slowdown_of_blocks(const struct op_args *args, double factor, double row_ns)
{
	const struct view *x = &args->views[0], *y = &args->views[1];
	double elements = (double)view_elements(y), rows;

	if (elements == 0)
		return 1;
	rows = elements / (double)y->shape[y->rank - 1];
	if (is_sparse(x) || is_sparse(y))
		factor *= SECTOR / (double)dtype_size(y->dtype);
	if (rows < SMS)
		factor *= SMS / rows;
	return factor + rows * row_ns / full_rate_ns(args);
}

/* A row is one block's, or up to some 64 KiB of it are. */
static double slowdown_fused(const struct op_args *args)
{
	const double block_bytes = 65536, factor = 1.5;
	const struct view *y = &args->views[1];
	double elements = (double)view_elements(y);

	if (elements == 0)
		return 1;
	double row_bytes = (double)y->shape[y->rank - 1] * (double)dtype_size(y->dtype);
	double rows = elements / (double)y->shape[y->rank - 1], blocks = rows * ceil(row_bytes / block_bytes);
	return factor * fmax(SMS / blocks, 1) + rows * ROW_NS / 32 / full_rate_ns(args);
}

static double slowdown_online(const struct op_args *args)
{
	return slowdown_of_blocks(args, 3, ROW_NS);
}

static double slowdown_coalesced(const struct op_args *args)
{
	return slowdown_of_blocks(args, 5, ROW_NS);
}

/* A load of its warps asks for up to 32 sectors, and its blocks have at least four warps. */
static double slowdown_blockreduce(const struct op_args *args)
{
	return slowdown_of_blocks(args, 36, 4 * ROW_NS);
}

static double slowdown_naive(const struct op_args *args)
{
	const struct view *y = &args->views[1];
	double elements = (double)view_elements(y), cols = (double)y->shape[y->rank - 1];

	if (elements == 0)
		return 1;
	if (elements < FULL)
		elements = FULL;
	return 1 + elements * (ELEMENT_NS + cols * VISIT_NS) / full_rate_ns(args);
}

/* ---- Rows ---- */

static const struct kernel rows[] = {
    {
        .name = "ring",
        .idea = "as fused for long rows: all multiprocessors keep pieces of several rows, reading one, writing "
                "another",
        .dtypes = "f32 f16 bf16",
        .takes = "as fused, rows of more than 128 KiB, to some 12 MiB",
        .supports = supports_ring,
        .workspace = softmax_ring_workspace,
        .launch = softmax_ring,
    },
    {
        .name = "fused",
        .idea =
            "each element read and written once, 128 bits at a time: threads, a block or a cluster keep a row",
        .dtypes = "f32 f16 bf16",
        .takes = "rows of unit stride, x and y alike to 16 bytes",
        .supports = supports_fused,
        .workspace = softmax_fused_workspace,
        .launch = softmax_fused,
        .slowdown = slowdown_fused,
    },
    {
        .name = "online",
        .idea = "one pass for max and sum together, the sum rescaled when the max grows; else as coalesced",
        .dtypes = "f32 f16 bf16",
        .takes = "any strides",
        .supports = supports_floats,
        .launch = softmax_online,
        .slowdown = slowdown_online,
    },
    {
        .name = "coalesced",
        .idea = "a warp or a block per row, neighbouring threads on neighbouring elements",
        .dtypes = "f32 f16 bf16",
        .takes = "any strides",
        .supports = supports_floats,
        .launch = softmax_coalesced,
        .slowdown = slowdown_coalesced,
    },
    {
        .name = "blockreduce",
        .idea = "a block per row, a contiguous chunk per thread, tree reduction in shared memory",
        .dtypes = "f32 f16 bf16",
        .takes = "any strides",
        .supports = supports_floats,
        .launch = softmax_blockreduce,
        .slowdown = slowdown_blockreduce,
    },
    {
        .name = "naive",
        .idea = "one thread per element, each finding its row's max and sum anew",
        .dtypes = "f32 f16 bf16",
        .takes = "any strides, not in place",
        .supports = supports_apart,
        .launch = softmax_naive,
        .slowdown = slowdown_naive,
    },
};

const struct kernel_list softmax_cuda_rows = {rows, sizeof(rows) / sizeof(rows[0])};
