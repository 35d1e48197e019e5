/* attention_f16x3.cc: kernels/attention/f16x3.cu. */
#include "exp2.h"
#include "instructions.h"
#include "launch.h"

#include "attention/f16x3.cu"

DYNAMIC_SHARED(char, shared, 16)
