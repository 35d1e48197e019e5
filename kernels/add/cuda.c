#include <math.h>

#include "common/cuda.h"
#include "fitted.h"

CUDA_LAUNCH(add_float4x);
CUDA_TOGETHER(add_float4x_together);
CUDA_LAUNCH(add_float4);
CUDA_TOGETHER(add_float4_together);
CUDA_LAUNCH(add_scalar);
CUDA_TOGETHER(add_scalar_together);

static bool supports_any(const struct op_args *args, const char **ret_why_not)
{
	(void)args;
	(void)ret_why_not;
	return true;
}

/* ---- How long they take: fitted.h has the constants ---- */

static double scalar_ns(const struct op_args *args)
{
	struct cost cost;

	args->op->cost(args, &cost);
	double moved_ns = fmax(cuda_ns_of_bytes(cost.bytes, fitted.add.elements), cuda_memory_ns(args));
	return fitted.add.launch_ns + fmax(moved_ns, fmax(cuda_ns_of_clocks(cost.flops * fitted.add.clocks),
	                                                  cuda_f64_ns(args, cost.flops)));
}

/* Views that are no runs are added element by element. */
static double float4_ns(const struct op_args *args)
{
	struct cost cost;

	for (unsigned v = 0; v < args->op->n_operands; v++)
		if (!view_is_dense(&args->views[v]))
			return scalar_ns(args);
	args->op->cost(args, &cost);
	return fitted.add.launch_ns +
	       fmax(cuda_ns_of_bytes(cost.bytes, fitted.add.vectors), cuda_f64_ns(args, cost.flops));
}

/* With fewer threads it begins sooner; what keeps more threads busy ends later. */
static double float4x_ns(const struct op_args *args)
{
	const struct view *y = &args->views[2];
	double bytes = (double)view_elements(y) * (double)dtype_size(y->dtype);

	return float4_ns(args) +
	       (bytes > fitted.add.few * cuda_multiprocessors() ? fitted.add.sooner_ns : -fitted.add.sooner_ns);
}

static const struct kernel kernels[] = {
    {
        .name = "float4x",
        .idea = "four independent 128-bit accesses of each view per thread",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "any strides; one element per thread where the views are not aligned runs",
        .supports = supports_any,
        .time_ns = float4x_ns,
        .launch = add_float4x,
        .together_max = cuda_together_max,
        .launch_together = add_float4x_together,
    },
    {
        .name = "float4",
        .idea = "one 128-bit access of each view per thread",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "any strides; one element per thread where the views are not aligned runs",
        .supports = supports_any,
        .time_ns = float4_ns,
        .launch = add_float4,
        .together_max = cuda_together_max,
        .launch_together = add_float4_together,
    },
    {
        .name = "scalar",
        .idea = "one element per thread",
        .dtypes = "f32 f64 f16 bf16",
        .takes = "any strides",
        .supports = supports_any,
        .time_ns = scalar_ns,
        .launch = add_scalar,
        .together_max = cuda_together_max,
        .launch_together = add_scalar_together,
    },
};

const struct kernel_list add_cuda_kernels = {kernels, sizeof(kernels) / sizeof(kernels[0])};
