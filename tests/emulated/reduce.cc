/* reduce.cc: kernels/reduce/reduce.cu. */
#include "instructions.h"
#include "launch.h"

#include "reduce/reduce.cu"

NO_DYNAMIC_SHARED
