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

static char *element(const view *v, uint64_t i)
{
	int64_t at = 0;

	for (uint32_t d = v->rank; d-- > 0; i /= v->shape[d])
		at += (int64_t)(i % v->shape[d]) * v->strides[d];
	return (char *)v->data + at * (int64_t)dtype_size(v->dtype);
}

extern "C" int cuda_copy_strided(const view *x, const view *y, cudaStream_t)
{
	for (uint64_t i = 0; i < view_elements(y); i++)
		memcpy(element(y, i), element(x, i), dtype_size(y->dtype));
	return 0;
}
#endif
