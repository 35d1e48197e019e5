/* simt.cc: kernels/gemm/simt.cu. */
#include "instructions.h"
#include "launch.h"

#include "gemm/simt.cu"

DYNAMIC_SHARED(float, memory, 1024)
