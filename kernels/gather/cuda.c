#include <math.h>

#include "common/cuda.h"
#include "fitted.h"
#include "gather/gather.h"

CUDA_LAUNCH(gather_rows_wide);
CUDA_TOGETHER(gather_rows_wide_together);
CUDA_LAUNCH(gather_elements);
CUDA_TOGETHER(gather_elements_together);

static bool supports_elements(const struct op_args *args, const char **ret_why_not)
{
	return cuda_moves(args->views[GATHER_X].dtype, ret_why_not);
}

static bool supports_rows(const struct op_args *args, const char **ret_why_not)
{
	if (!cuda_moves(args->views[GATHER_X].dtype, ret_why_not))
		return false;
	*ret_why_not = "needs the elements of a row side by side, in x and in y";
	return gather_has_unit_rows(&args->views[GATHER_X]) && gather_has_unit_rows(&args->views[GATHER_Y]);
}

/* ---- How long they take: copy's constants, as neither kernel has been measured ---- */

/* Counts as many rows of x as are read. */
static double moved_ns(const struct op_args *args)
{
	struct op_args taken = *args;

	taken.views[GATHER_X] = gather_taken(args);
	return cuda_memory_ns(&taken);
}

static double rows_ns(const struct op_args *args)
{
	return fitted.copy.kernel_ns + moved_ns(args);
}

/* Clocks of divisions for each element are added. */
static double elements_ns(const struct op_args *args)
{
	const double element_clocks = 2;

	return fitted.copy.kernel_ns +
	       fmax(moved_ns(args),
	            cuda_ns_of_clocks((double)view_elements(&args->views[GATHER_Y]) * element_clocks));
}

static const struct kernel kernels[] = {
    {
        .name = "rows",
        .idea = "threads side by side move a row in pieces of up to 128 bits, several under way",
        .dtypes = "f32 f64 f16 bf16 i32 c64 c128",
        .takes = "rows of unit stride, any apart",
        .supports = supports_rows,
        .time_ns = rows_ns,
        .launch = gather_rows_wide,
        .together_max = cuda_together_max,
        .launch_together = gather_rows_wide_together,
    },
    {
        .name = "elements",
        .idea = "one element per thread",
        .dtypes = "f32 f64 f16 bf16 i32 c64 c128",
        .takes = "any strides",
        .supports = supports_elements,
        .time_ns = elements_ns,
        .launch = gather_elements,
        .together_max = cuda_together_max,
        .launch_together = gather_elements_together,
    },
};

const struct kernel_list gather_cuda_kernels = {kernels, sizeof(kernels) / sizeof(kernels[0])};
