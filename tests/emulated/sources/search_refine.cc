/* search_refine.cc: kernels/search/refine.cu. */
#include "instructions.h"
#include "launch.h"

#include "search/refine.cu"

DYNAMIC_SHARED(char, shared, 16)
