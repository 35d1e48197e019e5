#include <math.h>

#include "common/cuda.h"
#include "fitted.h"
#include "reduce/split.h"

CUDA_LAUNCH(reduce_rows);
CUDA_LAUNCH(reduce_strided);

bool reduce_supports_rows(const struct op_args *args, const char **ret_why_not)
{
	const struct view *x = &args->views[0];

	if (x->shape[x->rank - 1] <= 1 || x->strides[x->rank - 1] == 1)
		return true;
	*ret_why_not = "needs the elements of a row side by side";
	return false;
}

static uint64_t workspace_rows(const struct op_args *args)
{
	struct reduce_split s = reduce_split_rows(args);

	return reduce_partials_bytes(&s, sizeof(double));
}

static uint64_t workspace_strided(const struct op_args *args)
{
	struct reduce_split s = reduce_split_tiles(args);

	return reduce_partials_bytes(&s, sizeof(double));
}

/* ---- How long they take: fitted.h has the constants ---- */

/* Adds the limit by the number of rows, which bounds short rows. */
static double split_ns(const struct reduce_split *s, double elements_ns, double arithmetic_ns)
{
	return fitted.reduce.launch_ns * (s->splits > 1 ? 2 : 1) +
	       fmax(fmax(elements_ns, arithmetic_ns), (double)s->rows * fitted.reduce.row_ns);
}

/* If rows are too few for all multiprocessors, some stay idle. */
double reduce_split_rows_ns(const struct op_args *args, double arithmetic_ns)
{
	struct reduce_split s = reduce_split_rows(args);
	double sms = cuda_multiprocessors();
	double pieces = (double)s.rows * s.splits, bytes;

	bytes = (double)view_elements(&args->views[0]) * (double)dtype_size(args->views[0].dtype);
	return split_ns(&s, cuda_ns_of_bytes(bytes, fitted.reduce.share) * fmax(2 * sms / pieces, 1),
	                arithmetic_ns);
}

/* Elements apart are fetched by sectors of 32 bytes; lanes are on neighbouring rows. */
double reduce_split_tiles_ns(const struct op_args *args, double arithmetic_ns)
{
	const double sector = 32;
	const struct view *x = &args->views[0];
	struct reduce_split s = reduce_split_tiles(args);
	double sms = cuda_multiprocessors();
	double tiles = ceil((double)s.rows / REDUCE_TILE_ROWS) * s.splits;
	double size = (double)dtype_size(x->dtype), apart, share = fitted.reduce.apart,
	       clocks = fitted.reduce.step;

	if (x->strides[x->rank - 1] == 1) { /* lanes are far apart, and return to each sector too late */
		if ((double)x->shape[x->rank - 1] * size > 2 * sector)
			clocks = fitted.reduce.far;
		else
			share = fitted.reduce.near;
	}
	for (uint32_t d = 0; d + 1 < x->rank; d++)
		if (x->shape[d] > 1 && x->strides[d] == 1)
			share = fitted.reduce.neighbours; /* lanes are on neighbouring elements */
	apart = fmax(fmin(view_blocks(x, 32) * sector, (double)view_elements(x) * sector),
	             (double)view_elements(x) * size);
	clocks *= ceil((double)s.rows / REDUCE_TILE_ROWS) * (double)s.columns / sms;
	return split_ns(
	    &s, fmax(cuda_ns_of_bytes(apart, share), clocks / cuda_clocks_per_ns()) * fmax(4 * sms / tiles, 1),
	    arithmetic_ns);
}

/* Products are made in f64. */
static double arithmetic_ns(const struct op_args *args)
{
	double elements = (double)view_elements(&args->views[0]);

	return args->params.reduce.kind == KOPS_PROD ? cuda_ns_of_f64(elements) : cuda_f64_ns(args, elements);
}

static double rows_ns(const struct op_args *args)
{
	return reduce_split_rows_ns(args, arithmetic_ns(args));
}

static double strided_ns(const struct op_args *args)
{
	return reduce_split_tiles_ns(args, arithmetic_ns(args));
}

static const struct kernel kernels[] = {
    {
        .name = "rows",
        .idea = "elements side by side: a part of a warp, a warp or a block for each row, or several blocks",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "rows of unit stride",
        .supports = reduce_supports_rows,
        .workspace = workspace_rows,
        .time_ns = rows_ns,
        .launch = reduce_rows,
        .carries = true,
    },
    {
        .name = "strided",
        .idea = "a warp's lanes on neighbouring rows, eight warps along them",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "any strides",
        .supports = cuda_supports_any,
        .workspace = workspace_strided,
        .time_ns = strided_ns,
        .launch = reduce_strided,
        .carries = true,
    },
};

const struct kernel_list reduce_cuda_kernels = {kernels, sizeof(kernels) / sizeof(kernels[0])};
