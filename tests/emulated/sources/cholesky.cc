/* cholesky.cc: kernels/cholesky/small.cu. */
#include "instructions.h"
#include "launch.h"

#include "cholesky/small.cu"

NO_DYNAMIC_SHARED
