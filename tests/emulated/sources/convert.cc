/* convert.cc: kernels/common/convert.cu. */
#include "instructions.h"
#include "launch.h"

#include "common/convert.cu"

NO_DYNAMIC_SHARED
