#include "pairwise/cpu.h"

PAIRWISE_CPU_KERNELS(subtract, -);
