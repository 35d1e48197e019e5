/* search.cc: kernels/search/lanes.cu. */
#include "instructions.h"
#include "launch.h"

#include "search/lanes.cu"

NO_DYNAMIC_SHARED
