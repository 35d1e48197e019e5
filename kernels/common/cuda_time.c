/* cuda_time.c: what this thread's GPU can do, for the kernels' time functions. See cuda.h. */
#include <math.h>

#include "common/cuda.h"
#include "fitted.h"

#define LINE_BYTES 64   /* bytes of device memory that an element far from others takes */
#define LEAST_RATE 1e-9 /* drivers may report absurd values; times stay finite */

static double at_least(double rate, double otherwise)
{
	return rate > LEAST_RATE ? rate : otherwise;
}

double cuda_multiprocessors(void)
{
	return at_least(cuda_device_attribute(cudaDevAttrMultiProcessorCount), 1);
}

double cuda_clocks_per_ns(void)
{
	return at_least(cuda_device_attribute(cudaDevAttrClockRate) * 1e-6, 1);
}

double cuda_clock_factor(void)
{
	return fitted.gpu.clock / cuda_clocks_per_ns();
}

double cuda_bytes_per_ns(void)
{
	double clock_ghz = cuda_device_attribute(cudaDevAttrMemoryClockRate) * 1e-6;
	double bus_bytes = cuda_device_attribute(cudaDevAttrGlobalMemoryBusWidth) / 8.0;

	return at_least(2 * clock_ghz * bus_bytes, 500);
}

double cuda_ns_of_bytes(double bytes, double share)
{
	return bytes / (share * cuda_bytes_per_ns());
}

double cuda_ns_of_clocks(double clocks)
{
	return clocks / (cuda_multiprocessors() * cuda_clocks_per_ns());
}

/*
 * Uses the ratio of f32's and f64's speed that the GPU reports; a multiprocessor does 128 f32 operations per
 * clock. No constant is fitted to ops on f64 yet.
 */
double cuda_ns_of_f64(double operations)
{
	const double f32_per_clock = 128;
	double ratio = at_least(cuda_device_attribute(cudaDevAttrSingleToDoublePrecisionPerfRatio), 2);
	return cuda_ns_of_clocks(operations * ratio / f32_per_clock);
}

double cuda_f64_ns(const struct op_args *args, double operations)
{
	return op_output_const(args)->dtype == KOPS_F64 ? cuda_ns_of_f64(operations) : 0;
}

double cuda_memory_ns(const struct op_args *args)
{
	double bytes = 0, scattered = 0;

	for (unsigned v = 0; v < args->op->n_operands; v++) {
		bytes += LINE_BYTES * view_blocks(&args->views[v], LINE_BYTES);
		if (!view_is_dense(&args->views[v]))
			scattered = (double)view_elements(op_output_const(args));
	}
	return cuda_ns_of_bytes(bytes, fitted.memory.share) +
	       cuda_ns_of_clocks(scattered * fitted.memory.of_scattered);
}
