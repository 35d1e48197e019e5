/* reduce.cc: kernels/reduce/reduce.cu. */
#include "instructions.h"
#include "launch.h"
#include "pipeline.h"

#include "reduce/reduce.cu"

DYNAMIC_SHARED(uint4, tile, 16)
