/* cholesky_finish.cc: kernels/cholesky/finish.cu. */
#include "instructions.h"
#include "launch.h"

#include "cholesky/finish.cu"

NO_DYNAMIC_SHARED
