/* ring.cc: kernels/softmax/ring.cu. */
#include "exp2.h"
#include "instructions.h"
#include "launch.h"

#include "softmax/ring.cu"

DYNAMIC_SHARED(uint4, slots, 128)
