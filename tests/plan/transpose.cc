/* transpose.cc: kernels/transpose/vector.cu, for what it decides on the host. */
#include "instructions.h"
#include "launch.h"

#define asm                                                                                                    \
	if (0)                                                                                                 \
	asm /* of a GPU */
#include "transpose/vector.cu"
#undef asm

NO_DYNAMIC_SHARED
