#include <math.h>

#include "common/cuda.h"
#include "fitted.h"
#include "softmax/pieces.h"
#include "softmax/ring.h"

#define SCALE_MAX 1e38 /* fused multiplies it by log2 e */

CUDA_LAUNCH(softmax_fused);
CUDA_TOGETHER(softmax_fused_together);
uint64_t softmax_fused_workspace(const struct op_args *args);
CUDA_LAUNCH(softmax_online);
CUDA_LAUNCH(softmax_coalesced);
CUDA_LAUNCH(softmax_blockreduce);
CUDA_LAUNCH(softmax_naive);

static bool supports_plain(const struct op_args *args, const char **ret_why_not)
{
	*ret_why_not = "takes no mask";
	return !softmax_is_masked(args);
}

static bool supports_apart(const struct op_args *args, const char **ret_why_not)
{
	if (!supports_plain(args, ret_why_not))
		return false;
	if (!view_same(&args->views[SOFTMAX_X], &args->views[SOFTMAX_Y]))
		return true;
	*ret_why_not = "cannot work in place: its threads read whole rows while others write theirs";
	return false;
}

static bool is_sparse(const struct view *v)
{
	return v->shape[v->rank - 1] > 1 && v->strides[v->rank - 1] != 1;
}

/*
 * Returns true if each element's addresses in x and y differ by a multiple of 16 bytes, as far as offsets and
 * strides tell before the addresses are known.
 */
static bool lie_alike(const struct op_args *args)
{
	const struct view *x = &args->views[SOFTMAX_X], *y = &args->views[SOFTMAX_Y];
	uint64_t apart = x->offset - y->offset;

	for (uint32_t d = 0; d + 1 < x->rank; d++)
		if (x->shape[d] > 1)
			apart |= ((uint64_t)x->strides[d] - (uint64_t)y->strides[d]) * dtype_size(x->dtype);
	return apart % 16 == 0;
}

static bool supports_fused(const struct op_args *args, const char **ret_why_not)
{
	double scale = fabs(args->params.softmax.scale);

	if (args->views[SOFTMAX_X].dtype == KOPS_F64) {
		*ret_why_not = "takes f32, f16 and bf16 only";
		return false;
	}
	if (!supports_plain(args, ret_why_not))
		return false;
	if (is_sparse(&args->views[SOFTMAX_X]) || is_sparse(&args->views[SOFTMAX_Y])) {
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

static bool supports_pieces(const struct op_args *args, const char **ret_why_not)
{
	*ret_why_not = "takes up to 1048576 rows";
	return view_elements(op_output_const(args)) == 0 || softmax_rows(args) <= SOFTMAX_PIECE_ROWS;
}

/* ---- How long they take: fitted.h has the constants ---- */

/* Time of exponentials of f64 and the operations beside them: an estimate that was never measured. */
static double f64_ns(const struct op_args *args, double exponentials)
{
	const double operations = 40;

	return cuda_f64_ns(args, exponentials * operations);
}

#define SECTOR     32     /* bytes; the least that the GPU reads or writes */
#define KEPT_BYTES 131072 /* longest rows that are still in a cache when they are read again */

static double row_bytes(const struct op_args *args)
{
	const struct view *y = &args->views[SOFTMAX_Y];

	return (double)y->shape[y->rank - 1] * (double)dtype_size(y->dtype);
}

static double rows_of(const struct op_args *args)
{
	const struct view *y = &args->views[SOFTMAX_Y];

	return (double)view_elements(y) / (double)y->shape[y->rank - 1];
}

static double bytes_ns(const struct op_args *args, double share)
{
	struct cost cost;

	args->op->cost(args, &cost);
	return cuda_ns_of_bytes(cost.bytes, share);
}

static double ring_ns(const struct op_args *args)
{
	return fitted.ring.launch_ns + bytes_ns(args, fitted.ring.share);
}

/* Each block has a row, or up to 64 KiB of it; a row beyond 128 KiB has a cluster. */
static double fused_ns(const struct op_args *args)
{
	const double short_bytes = 4096, block_bytes = 65536;
	double rows = rows_of(args), length = row_bytes(args), blocks = rows * ceil(length / block_bytes);
	bool is_kept = length <= KEPT_BYTES;
	double share = is_kept ? fitted.fused.kept_share : fitted.fused.long_share;
	double launch_ns = length <= short_bytes ? fitted.fused.short_ns
	                   : is_kept             ? fitted.fused.kept_ns
	                                         : fitted.fused.long_ns;

	return launch_ns + bytes_ns(args, share) * fmax(cuda_multiprocessors() / blocks, 1);
}

/* ---- Kernels that give each row of the matrix a warp or a block ---- */

#define SHORT_BYTES 2048
#define LONG        8192

static double wave_clocks(const struct op_args *args, const struct fitted_passes *p, double rows)
{
	double columns = (double)args->views[SOFTMAX_Y].shape[args->views[SOFTMAX_Y].rank - 1];
	double share = rows / cuda_multiprocessors(),
	       halved = dtype_size(args->views[SOFTMAX_Y].dtype) > 2 ? 1 : fitted.passes.halved;

	return rows > 0 ? columns * (p->alone + p->together * share * halved) : 0;
}

static double passes_clocks(const struct op_args *args, const struct fitted_passes *p)
{
	double columns = (double)args->views[SOFTMAX_Y].shape[args->views[SOFTMAX_Y].rank - 1];
	double rows = rows_of(args), sms = cuda_multiprocessors(), waves = floor(rows / sms);

	if (row_bytes(args) <= SHORT_BYTES)
		return rows / sms * (p->row + p->lines * ceil(columns / 32));
	if (columns <= LONG)
		return fmax(rows / sms, 1) * columns * p->element;
	return waves * wave_clocks(args, p, sms) + wave_clocks(args, p, rows - waves * sms);
}

/* Elements apart take a sector each. */
static double blocks_ns(const struct op_args *args, const struct fitted_passes *p)
{
	const double launch_ns =
	    row_bytes(args) <= SHORT_BYTES ? fitted.passes.short_ns : fitted.passes.long_ns;
	const struct view *x = &args->views[SOFTMAX_X], *y = &args->views[SOFTMAX_Y];
	bool sparse = is_sparse(x) || is_sparse(y);
	double factor = sparse ? SECTOR / (double)dtype_size(y->dtype) : 1;

	return launch_ns + f64_ns(args, 2 * (double)view_elements(y)) +
	       fmax(passes_clocks(args, p) / cuda_clocks_per_ns(),
	            factor * bytes_ns(args, fitted.passes.share));
}

/*
 * At the memory's rate, if there are enough long pieces for all multiprocessors. In a short piece a block's
 * threads have few elements each, but join their results as in a long one. Elements apart take a sector each.
 */
static double pass_ns(const struct op_args *args, bool writes)
{
	const struct view *y = op_output_const(args);
	double size = (double)dtype_size(y->dtype), bytes = is_sparse(&args->views[SOFTMAX_X]) ? SECTOR : size;
	double pieces = (double)softmax_pieces_of_row(args), blocks = rows_of(args) * pieces;
	double steps = ceil((double)y->shape[y->rank - 1] / pieces / SOFTMAX_STEP_COLUMNS);
	double clocks = blocks * (steps * fitted.pieces.step + (writes ? 0 : fitted.pieces.join));

	if (softmax_is_masked(args))
		bytes += is_sparse(&args->views[SOFTMAX_MASK]) ? SECTOR : size;
	if (writes)
		bytes += is_sparse(y) ? SECTOR : size;
	return fmax(cuda_ns_of_bytes((double)view_elements(y) * bytes, fitted.pieces.share),
	            cuda_ns_of_clocks(clocks) + f64_ns(args, (double)view_elements(y))) *
	       fmax(2 * cuda_multiprocessors() / blocks, 1);
}

static double pieces_ns(const struct op_args *args)
{
	enum softmax_pass pass = args->params.softmax.pass;
	double ns = 0;

	if (pass != SOFTMAX_WRITE)
		ns += 2 * fitted.pieces.launch_ns + fitted.pieces.row_ns * rows_of(args) + pass_ns(args, false);
	if (pass != SOFTMAX_SUM)
		ns += fitted.pieces.launch_ns + pass_ns(args, true);
	return ns;
}

static double online_ns(const struct op_args *args)
{
	return blocks_ns(args, &fitted.online);
}

static double coalesced_ns(const struct op_args *args)
{
	return blocks_ns(args, &fitted.coalesced);
}

/* The lanes of a warp read chunks of the row that are as far apart as the chunks are long. */
static double blockreduce_ns(const struct op_args *args)
{
	return blocks_ns(args, &fitted.blockreduce);
}

/* Each thread visits all elements of its row. Beyond the threads that fit, they take turns. */
static double naive_ns(const struct op_args *args)
{
	const struct view *y = &args->views[SOFTMAX_Y];
	double elements = fmax((double)view_elements(y), fitted.by_elements.full * cuda_multiprocessors());
	double clocks = fitted.by_elements.element + (double)y->shape[y->rank - 1] * fitted.by_elements.visit;

	return fitted.by_elements.launch_ns + f64_ns(args, elements * (double)y->shape[y->rank - 1]) +
	       fmax(cuda_ns_of_clocks(elements * clocks), cuda_memory_ns(args));
}

/* ---- Kernels ---- */

static const struct kernel kernels[] = {
    {
        .name = "ring",
        .idea = "as fused for long rows: all multiprocessors keep pieces of several rows, reading one, writing "
                "another",
        .dtypes = "f32 f16 bf16",
        .takes = "as fused, rows of more than 128 KiB, to some 12 MiB",
        .supports = supports_ring,
        .workspace = softmax_ring_workspace,
        .time_ns = ring_ns,
        .launch = softmax_ring,
    },
    {
        .name = "fused",
        .idea =
            "each element read and written once, 128 bits at a time: threads, a block or a cluster keep a row",
        .dtypes = "f32 f16 bf16",
        .takes = "rows of unit stride, x and y alike to 16 bytes; no mask",
        .supports = supports_fused,
        .workspace = softmax_fused_workspace,
        .time_ns = fused_ns,
        .launch = softmax_fused,
        .together_max = cuda_together_max,
        .launch_together = softmax_fused_together,
    },
    {
        .name = "pieces",
        .idea = "few rows by all multiprocessors: sums of pieces, then results; of a long row a part at a time",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "any strides, up to 1048576 rows",
        .supports = supports_pieces,
        .workspace = softmax_pieces_workspace,
        .time_ns = pieces_ns,
        .launch = softmax_pieces,
        .carries = true,
    },
    {
        .name = "online",
        .idea = "one pass for max and sum together, the sum rescaled when the max grows; else as coalesced",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "any strides",
        .supports = cuda_supports_any,
        .time_ns = online_ns,
        .launch = softmax_online,
    },
    {
        .name = "coalesced",
        .idea = "a warp or a block per row, neighbouring threads on neighbouring elements",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "any strides, no mask",
        .supports = supports_plain,
        .time_ns = coalesced_ns,
        .launch = softmax_coalesced,
    },
    {
        .name = "blockreduce",
        .idea = "a block per row, a contiguous chunk per thread, tree reduction in shared memory",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "any strides, no mask",
        .supports = supports_plain,
        .time_ns = blockreduce_ns,
        .launch = softmax_blockreduce,
    },
    {
        .name = "naive",
        .idea = "one thread per element, each finding its row's max and sum anew",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "any strides, not in place, no mask",
        .supports = supports_apart,
        .time_ns = naive_ns,
        .launch = softmax_naive,
    },
};

const struct kernel_list softmax_cuda_kernels = {kernels, sizeof(kernels) / sizeof(kernels[0])};
