/* shifted.cc: kernels/gemm/shifted.cu. */
#include "instructions.h"
#include "launch.h"

#include "gemm/shifted.cu"

DYNAMIC_SHARED(char, shared, 16)
