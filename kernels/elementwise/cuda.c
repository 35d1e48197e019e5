/* cuda.c: estimates how long the kernels of elementwise.cuh take. fitted.h has the constants. */
#include <math.h>

#include "common/cuda.h"
#include "elementwise/elementwise.h"
#include "fitted.h"

double elementwise_scalar_ns(const struct op_args *args)
{
	struct cost cost;

	args->op->cost(args, &cost);
	double moved_ns = fmax(cuda_ns_of_bytes(cost.bytes, fitted.add.elements), cuda_memory_ns(args));
	return fitted.add.launch_ns + fmax(moved_ns, fmax(cuda_ns_of_clocks(cost.flops * fitted.add.clocks),
	                                                  cuda_f64_ns(args, cost.flops)));
}

/* Views that are not dense are computed element by element. */
double elementwise_float4_ns(const struct op_args *args)
{
	struct cost cost;

	for (unsigned v = 0; v < args->op->n_operands; v++)
		if (!view_is_dense(&args->views[v]))
			return elementwise_scalar_ns(args);
	args->op->cost(args, &cost);
	return fitted.add.launch_ns +
	       fmax(cuda_ns_of_bytes(cost.bytes, fitted.add.vectors), cuda_f64_ns(args, cost.flops));
}

/* float4x begins sooner, as it has fewer threads, but ends later if there is work for more. */
double elementwise_float4x_ns(const struct op_args *args)
{
	const struct view *y = op_output_const(args);
	double bytes = (double)view_elements(y) * (double)dtype_size(y->dtype);

	return elementwise_float4_ns(args) +
	       (bytes > fitted.add.few * cuda_multiprocessors() ? fitted.add.sooner_ns : -fitted.add.sooner_ns);
}
