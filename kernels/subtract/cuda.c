#include "pairwise/cuda.h"

PAIRWISE_CUDA_KERNELS(subtract);
