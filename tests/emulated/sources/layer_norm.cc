/* layer_norm.cc: kernels/layer_norm/kept.cu and pieces.cu. */
#include "instructions.h"
#include "launch.h"

#include "layer_norm/kept.cu"
#include "layer_norm/pieces.cu"

NO_DYNAMIC_SHARED
