/* pieces.cc: kernels/softmax/pieces.cu. */
#include "instructions.h"
#include "launch.h"

#include "softmax/pieces.cu"

NO_DYNAMIC_SHARED
