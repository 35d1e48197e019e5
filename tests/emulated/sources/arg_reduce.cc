/* arg_reduce.cc: kernels/arg_reduce/arg_reduce.cu. */
#include "instructions.h"
#include "launch.h"

#include "arg_reduce/arg_reduce.cu"

NO_DYNAMIC_SHARED
