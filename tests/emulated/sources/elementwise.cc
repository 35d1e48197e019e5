/* elementwise.cc: kernels/add/add.cu, kernels/subtract/subtract.cu and kernels/unary/unary.cu. */
#include "instructions.h"
#include "launch.h"

#include "add/add.cu"
#include "subtract/subtract.cu"
#include "unary/unary.cu"

NO_DYNAMIC_SHARED
