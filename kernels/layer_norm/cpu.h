/* cpu.h: the table of the CPU's kernels of layer_norm and rms_norm; cpu.c has `vectorised`. */
#ifndef KOPS_KERNELS_LAYER_NORM_CPU_H
#define KOPS_KERNELS_LAYER_NORM_CPU_H

#include "common/cpu.h"

double layer_norm_vectorised_ns(const struct op_args *args);
uint64_t layer_norm_vectorised_workspace(const struct op_args *args);
int layer_norm_vectorised(const struct op_args *args, const struct launch *launch);

/* Defines NAME_cpu_kernels. */
#define LAYER_NORM_CPU_KERNELS(NAME)                                                                           \
	static const struct kernel kernels[] = {                                                               \
	    {                                                                                                  \
	        .name = "vectorised",                                                                          \
	        .idea = "vector loops over pieces of a row: measured, then written; threads over rows or "     \
	                "their pieces",                                                                        \
	        .dtypes = "f32 f64 f16 bf16",                                                                  \
	        .takes = "any strides",                                                                        \
	        .supports = cpu_reference_supports,                                                            \
	        .time_ns = layer_norm_vectorised_ns,                                                           \
	        .workspace = layer_norm_vectorised_workspace,                                                  \
	        .launch = layer_norm_vectorised,                                                               \
	        .carries = true,                                                                               \
	    },                                                                                                 \
	    CPU_REFERENCE_KERNEL("f32 f64 f16 bf16"),                                                          \
	};                                                                                                     \
	const struct kernel_list NAME##_cpu_kernels = {kernels, sizeof(kernels) / sizeof(kernels[0])}

#endif
