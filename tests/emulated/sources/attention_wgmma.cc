/* attention_wgmma.cc: kernels/attention/wgmma.cu. */
#include "exp2.h"
#include "instructions.h"
#include "launch.h"

#include "attention/wgmma.cu"

DYNAMIC_SHARED(char, shared, 16)
