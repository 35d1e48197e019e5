/* ragged.cc: kernels/gemm/ragged.cu. */
#include "instructions.h"
#include "launch.h"

#include "gemm/ragged.cu"

DYNAMIC_SHARED(char, memory, 128)
