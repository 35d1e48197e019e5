/* cuda.h: the table of the CUDA kernels of layer_norm and rms_norm; kept.cu and pieces.cu have the kernels. */
#ifndef KOPS_KERNELS_LAYER_NORM_CUDA_H
#define KOPS_KERNELS_LAYER_NORM_CUDA_H

#include "common/cuda.h"
#include "layer_norm/pieces.h"

CUDA_LAUNCH(layer_norm_kept);
bool layer_norm_supports_kept(const struct op_args *args, const char **ret_why_not);
double layer_norm_kept_ns(const struct op_args *args);
bool layer_norm_supports_pieces(const struct op_args *args, const char **ret_why_not);
double layer_norm_pieces_ns(const struct op_args *args);

/* Defines NAME_cuda_kernels. */
#define LAYER_NORM_CUDA_KERNELS(NAME)                                                                          \
	static const struct kernel kernels[] = {                                                               \
	    {                                                                                                  \
	        .name = "kept",                                                                                \
	        .idea = "threads keep a row in registers: read once, written once; the mean is mended by "     \
	                "what is left",                                                                        \
	        .dtypes = "f32 f64 f16 bf16",                                                                  \
	        .takes = "rows of unit stride, up to 64 KiB",                                                  \
	        .supports = layer_norm_supports_kept,                                                          \
	        .time_ns = layer_norm_kept_ns,                                                                 \
	        .launch = layer_norm_kept,                                                                     \
	    },                                                                                                 \
	    {                                                                                                  \
	        .name = "pieces",                                                                              \
	        .idea = "blocks measure pieces of rows, then write them; of a long row a part at a time",      \
	        .dtypes = "f32 f64 f16 bf16",                                                                  \
	        .takes = "any strides",                                                                        \
	        .supports = layer_norm_supports_pieces,                                                        \
	        .workspace = layer_norm_pieces_workspace,                                                      \
	        .time_ns = layer_norm_pieces_ns,                                                               \
	        .launch = layer_norm_pieces,                                                                   \
	        .carries = true,                                                                               \
	    },                                                                                                 \
	};                                                                                                     \
	const struct kernel_list NAME##_cuda_kernels = {kernels, sizeof(kernels) / sizeof(kernels[0])}

#endif
