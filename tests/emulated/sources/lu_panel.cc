/* lu_panel.cc: kernels/lu/panel.cu. */
#include "instructions.h"
#include "launch.h"

#include "lu/panel.cu"

NO_DYNAMIC_SHARED
