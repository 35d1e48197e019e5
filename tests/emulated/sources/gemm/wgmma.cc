/* wgmma.cc: kernels/gemm/wgmma.cu. */
#include "instructions.h"
#include "launch.h"

#include "gemm/wgmma.cu"

DYNAMIC_SHARED(char, shared, 16)

#ifndef KOPS_DESCRIBED /* tests/plan has the others' launches */
/* Where there is no Hopper; the emulated GPU is one. */
extern "C" CUDA_LAUNCH(gemm_naive)
{
	(void)args;
	(void)launch;
	return KOPS_E_FAULT;
}
#endif
