/* finish.cc: kernels/gemm/finish.cu. */
#include "instructions.h"
#include "launch.h"

#include "gemm/finish.cu"

NO_DYNAMIC_SHARED
