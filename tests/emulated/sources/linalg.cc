/* linalg.cc: kernels/linalg/solve.cu. */
#include "instructions.h"
#include "launch.h"

#include "linalg/solve.cu"

NO_DYNAMIC_SHARED
