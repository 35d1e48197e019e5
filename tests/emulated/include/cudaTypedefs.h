/* cudaTypedefs.h: the one name of it that daemon/cuda_gpu.h has. */
#ifndef KOPS_EMULATED_CUDA_TYPEDEFS_H
#define KOPS_EMULATED_CUDA_TYPEDEFS_H

#include "cuda.h"

typedef CUresult (*PFN_cuStreamWriteValue32_v11070)(void);

#endif
