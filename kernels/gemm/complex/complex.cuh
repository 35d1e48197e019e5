/* complex.cuh: complex numbers of CUDA kernels. */
#ifndef KOPS_KERNELS_COMPLEX_H
#define KOPS_KERNELS_COMPLEX_H

namespace
{

template <class T> struct alignas(2 * sizeof(T)) complex_number {
	T re, im;
};

/* sum + x · y */
template <class T>
__device__ __forceinline__ complex_number<T> add_product(complex_number<T> sum, complex_number<T> x,
                                                         complex_number<T> y)
{
	return {fma(-x.im, y.im, fma(x.re, y.re, sum.re)), fma(x.im, y.re, fma(x.re, y.im, sum.im))};
}

} // namespace

#endif
