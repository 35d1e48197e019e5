/* real.cc: kernels/gemm/complex/real.cu. */
#include "instructions.h"
#include "launch.h"

#include "gemm/complex/real.cu"

NO_DYNAMIC_SHARED
