/* element.cuh: what tensor cores call the types of C. */
#ifndef KOPS_KERNELS_GEMM_ELEMENT_H
#define KOPS_KERNELS_GEMM_ELEMENT_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "common/hopper/mma.cuh"

namespace
{

template <class T> struct element_of {
	static constexpr hopper::element E = hopper::element::F16;
};
template <> struct element_of<__nv_bfloat16> {
	static constexpr hopper::element E = hopper::element::BF16;
};

} // namespace

#endif
