#include "elementwise/cuda.h"

ELEMENTWISE_CUDA_KERNELS(subtract);
