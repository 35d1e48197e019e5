/* softmax.cc: kernels/softmax/softmax.cu. */
#include "instructions.h"
#include "launch.h"

#include "softmax/softmax.cu"

NO_DYNAMIC_SHARED
