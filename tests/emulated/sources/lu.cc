/* lu.cc: kernels/lu/small.cu. */
#include "instructions.h"
#include "launch.h"

#include "lu/small.cu"

NO_DYNAMIC_SHARED
