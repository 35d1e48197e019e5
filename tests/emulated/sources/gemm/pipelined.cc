/* pipelined.cc: kernels/gemm/ladder/pipelined.cu. */
#include "device.h"
#include "launch.h"

#include "gemm/ladder/pipelined.cu"

NO_DYNAMIC_SHARED
