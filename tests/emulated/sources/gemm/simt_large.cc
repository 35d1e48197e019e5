/* simt_large.cc: kernels/gemm/simt_large.cu. */
#include "instructions.h"
#include "launch.h"

/* In the place of kernels/gemm/fma.cuh; see there. */
#define KOPS_KERNELS_FMA_H

namespace
{

inline void add_product(float &sum, float a, float b)
{
	sum = fmaf(a, b, sum);
}

inline void load_quad(float *to, uint32_t from)
{
	memcpy(to, hopper::shared_as<float>(*emulator::self->block, from, 4), 4 * sizeof *to);
}

} // namespace

#include "gemm/simt_large.cu"

DYNAMIC_SHARED(float, memory, 1024)

#ifndef KOPS_DESCRIBED /* tests/plan has the others' launches */
/* ---- What turns operands: not emulated ---- */

extern "C" bool transpose_vector_supports(const op_args *, const char **)
{
	return false;
}

extern "C" CUDA_LAUNCH(transpose_vector)
{
	(void)args;
	(void)launch;
	return KOPS_E_FAULT;
}

static float *element(const view *v, uint64_t i, uint64_t j, uint64_t k)
{
	return (float *)v->data + (int64_t)i * v->strides[0] + (int64_t)j * v->strides[1] +
	       (int64_t)k * v->strides[2];
}

extern "C" int cuda_copy_strided(const view *x, const view *y, cudaStream_t)
{
	for (uint64_t i = 0; i < x->shape[0]; i++)
		for (uint64_t j = 0; j < x->shape[1]; j++)
			for (uint64_t k = 0; k < x->shape[2]; k++)
				*element(y, i, j, k) = *element(x, i, j, k);
	return 0;
}
#endif
