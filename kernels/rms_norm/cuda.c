#include "layer_norm/cuda.h"

LAYER_NORM_CUDA_KERNELS(rms_norm);
