/* cuda.h: the table of the CUDA kernels of an op that computes element by element
 * (elementwise.cuh). */
#ifndef KOPS_ELEMENTWISE_CUDA_H
#define KOPS_ELEMENTWISE_CUDA_H

#include "common/cuda.h"
#include "elementwise/elementwise.h"

static bool elementwise_supports(const struct op_args *args, const char **ret_why_not)
{
	(void)args;
	(void)ret_why_not;
	return true;
}

/* Defines NAME_cuda_kernels from the functions that ELEMENTWISE_KERNELS(NAME, ...) defines. */
#define ELEMENTWISE_CUDA_KERNELS(NAME)                                                                         \
	CUDA_LAUNCH(NAME##_float4x);                                                                           \
	CUDA_TOGETHER(NAME##_float4x_together);                                                                \
	CUDA_LAUNCH(NAME##_float4);                                                                            \
	CUDA_TOGETHER(NAME##_float4_together);                                                                 \
	CUDA_LAUNCH(NAME##_scalar);                                                                            \
	CUDA_TOGETHER(NAME##_scalar_together);                                                                 \
	static const struct kernel kernels[] = {                                                               \
	    {.name = "float4x",                                                                                \
	     .idea = "four independent 128-bit accesses of each view per thread",                              \
	     .dtypes = "f32 f64 f16 bf16",                                                                     \
	     .takes = "any strides; one element per thread where the views are not aligned runs",              \
	     .supports = elementwise_supports,                                                                 \
	     .time_ns = elementwise_float4x_ns,                                                                \
	     .launch = NAME##_float4x,                                                                         \
	     .together_max = cuda_together_max,                                                                \
	     .launch_together = NAME##_float4x_together},                                                      \
	    {.name = "float4",                                                                                 \
	     .idea = "one 128-bit access of each view per thread",                                             \
	     .dtypes = "f32 f64 f16 bf16",                                                                     \
	     .takes = "any strides; one element per thread where the views are not aligned runs",              \
	     .supports = elementwise_supports,                                                                 \
	     .time_ns = elementwise_float4_ns,                                                                 \
	     .launch = NAME##_float4,                                                                          \
	     .together_max = cuda_together_max,                                                                \
	     .launch_together = NAME##_float4_together},                                                       \
	    {.name = "scalar",                                                                                 \
	     .idea = "one element per thread",                                                                 \
	     .dtypes = "f32 f64 f16 bf16",                                                                     \
	     .takes = "any strides",                                                                           \
	     .supports = elementwise_supports,                                                                 \
	     .time_ns = elementwise_scalar_ns,                                                                 \
	     .launch = NAME##_scalar,                                                                          \
	     .together_max = cuda_together_max,                                                                \
	     .launch_together = NAME##_scalar_together},                                                       \
	};                                                                                                     \
	const struct kernel_list NAME##_cuda_kernels = {kernels, sizeof(kernels) / sizeof(kernels[0])}

#endif
