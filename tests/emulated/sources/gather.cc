/* gather.cc: kernels/gather/gather.cu. */
#include "instructions.h"
#include "launch.h"

#include "gather/gather.cu"

NO_DYNAMIC_SHARED
