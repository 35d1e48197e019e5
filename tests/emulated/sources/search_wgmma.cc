/* search_wgmma.cc: kernels/search/wgmma.cu. */
#include "instructions.h"
#include "launch.h"

#include "search/wgmma.cu"

DYNAMIC_SHARED(char, shared, 16)
