/* attention.cc: kernels/attention/flash.cu and rows.cu. */
#include "exp2.h"
#include "instructions.h"
#include "launch.h"

#include "attention/flash.cu"
#include "attention/rows.cu"

DYNAMIC_SHARED(char, memory, 128)
