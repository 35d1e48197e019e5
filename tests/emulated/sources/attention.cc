/* attention.cc: kernels/attention/flash.cu and rows.cu. */
#include "instructions.h"
#include "launch.h"

/* In the place of kernels/softmax/exp2.cuh. */
#define KOPS_KERNELS_SOFTMAX_EXP2_H

static float exp2_fast(float x)
{
	float y = exp2f(x);

	return y < 0x1p-126f ? 0 : y;
}

#include "attention/flash.cu"
#include "attention/rows.cu"

DYNAMIC_SHARED(char, memory, 128)
