/* pipelined.cc: kernels/gemm/pipelined.cu. */
#include "device.h"
#include "launch.h"

#include "gemm/pipelined.cu"

NO_DYNAMIC_SHARED
