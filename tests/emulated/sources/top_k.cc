/* top_k.cc: kernels/top_k/select.cu. */
#include "instructions.h"
#include "launch.h"

#include "top_k/select.cu"

NO_DYNAMIC_SHARED
