/* small.cc: kernels/gemm/small.cu. */
#include "instructions.h"
#include "launch.h"

#include "gemm/small.cu"

DYNAMIC_SHARED(char, memory, 128)
