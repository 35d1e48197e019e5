/* cuda.c: what layer_norm's and rms_norm's kernels for GPUs take, and how long; cuda.h has their table. */
#include "layer_norm/cuda.h"

#include <math.h>

bool layer_norm_supports_kept(const struct op_args *args, const char **ret_why_not)
{
	const struct view *v = args->views;

	for (unsigned i = 0; i < args->op->n_operands; i++) {
		uint32_t last = v[i].rank - 1;

		if (!view_is_absent(&v[i]) && v[i].shape[last] > 1 && v[i].strides[last] != 1) {
			*ret_why_not = "needs the elements of each row and vector side by side";
			return false;
		}
	}
	*ret_why_not = "takes rows of up to 64 KiB";
	return v[LAYER_NORM_X].shape[3] * dtype_size(v[LAYER_NORM_X].dtype) <=
	       LAYER_NORM_KEPT_BYTES * LAYER_NORM_KEPT_THREADS;
}

bool layer_norm_supports_pieces(const struct op_args *args, const char **ret_why_not)
{
	(void)args;
	(void)ret_why_not;
	return true;
}

/* ---- How long they take, in ns and shares of the memory's rate of an H200 ---- */

#define SECTOR 32 /* bytes; the least that the GPU reads or writes */

double layer_norm_kept_ns(const struct op_args *args)
{
	const double launch_ns = 3200, share = 0.8, row_clocks = 1400;
	const struct view *x = &args->views[LAYER_NORM_X];
	double rows = (double)layer_norm_rows(args);
	double threads =
	    exp2(ceil(log2((double)x->shape[3] * (double)dtype_size(x->dtype) / LAYER_NORM_KEPT_BYTES + 4)));
	double beside = fmax(floor(1024 / threads), 1); /* rows of a multiprocessor at a time */
	struct cost cost;

	args->op->cost(args, &cost);
	return launch_ns * cuda_clock_factor() +
	       fmax(cuda_ns_of_bytes(cost.bytes, share), cuda_ns_of_clocks(rows * row_clocks / beside));
}

/* Elements apart take a sector each. */
static double pass_ns(const struct op_args *args, bool writes)
{
	const double share = 0.6, step_clocks = 700, join_clocks = 1500;
	const struct view *x = &args->views[LAYER_NORM_X];
	double size = (double)dtype_size(x->dtype), rows = (double)layer_norm_rows(args), bytes = 0;
	double blocks = rows * (double)layer_norm_pieces_of_row(args);
	double steps = ceil((double)view_elements(x) / blocks / LAYER_NORM_PIECE_COLUMNS);

	for (unsigned v = 0; v < (writes ? LAYER_NORM_OPERANDS : LAYER_NORM_Y); v++)
		if (layer_norm_has_rows(v) && !view_is_absent(&args->views[v]))
			bytes += args->views[v].strides[3] == 1 ? size : SECTOR;
	return fmax(cuda_ns_of_bytes((double)view_elements(x) * bytes, share),
	            cuda_ns_of_clocks(blocks * (steps * step_clocks + (writes ? 0 : join_clocks)))) *
	       fmax(2 * cuda_multiprocessors() / blocks, 1);
}

double layer_norm_pieces_ns(const struct op_args *args)
{
	const double launch_ns = 2500, row_ns = 2;
	enum layer_norm_pass pass = layer_norm_pass(args);
	double ns = 0;

	if (pass != LAYER_NORM_WRITE)
		ns += 2 * launch_ns * cuda_clock_factor() + row_ns * (double)layer_norm_rows(args) +
		      pass_ns(args, false);
	if (pass != LAYER_NORM_MEASURE)
		ns += launch_ns * cuda_clock_factor() + pass_ns(args, true);
	return ns;
}

LAYER_NORM_CUDA_KERNELS(layer_norm);
