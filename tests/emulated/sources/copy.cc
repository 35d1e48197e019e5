/* copy.cc: kernels/copy/vector.cu. */
#include "instructions.h"
#include "launch.h"

#include "copy/vector.cu"

NO_DYNAMIC_SHARED
