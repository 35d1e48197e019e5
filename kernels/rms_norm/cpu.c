#include "layer_norm/cpu.h"

LAYER_NORM_CPU_KERNELS(rms_norm);
