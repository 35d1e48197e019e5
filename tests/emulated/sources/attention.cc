/* attention.cc: kernels/attention/flash.cu, rows.cu and tiles.cu. */
#include "exp2.h"
#include "instructions.h"
#include "launch.h"

#include "attention/flash.cu"
#include "attention/rows.cu"
#include "attention/tiles.cu"

DYNAMIC_SHARED(char, memory, 128)
