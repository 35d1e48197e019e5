/* f16x3.cc: kernels/gemm/f16x3.cu. */
#include "instructions.h"
#include "launch.h"

#include "gemm/f16x3.cu"

DYNAMIC_SHARED(char, shared, 16)
