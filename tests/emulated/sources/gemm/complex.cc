/* complex.cc: kernels/gemm/complex/complex.cu. */
#include "instructions.h"
#include "launch.h"

#include "gemm/complex/complex.cu"

NO_DYNAMIC_SHARED
