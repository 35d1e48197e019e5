/* number.cuh: the arithmetic of kernels that have one template for real and complex numbers. */
#ifndef KOPS_LINALG_NUMBER_H
#define KOPS_LINALG_NUMBER_H

#include "gemm/complex/complex.cuh"

namespace
{

template <class N> struct real_of_number {
	using type = N;
};
template <class T> struct real_of_number<complex_number<T>> {
	using type = T;
};
template <class N> using real_of = typename real_of_number<N>::type;

/* Of real ones, the real part. */
template <class N> __device__ __forceinline__ N number_of(real_of<N> re, real_of<N> im = 0)
{
	if constexpr (sizeof(N) == sizeof(re))
		return re;
	else
		return N{re, im};
}

template <class T> __device__ __forceinline__ T real_part(T x)
{
	return x;
}
template <class T> __device__ __forceinline__ T real_part(complex_number<T> x)
{
	return x.re;
}

template <class T> __device__ __forceinline__ T conjugate(T x)
{
	return x;
}
template <class T> __device__ __forceinline__ complex_number<T> conjugate(complex_number<T> x)
{
	return {x.re, -x.im};
}

/*
 * Reads a number part by part. Where two are exchanged, nvcc 13.0 may store a struct that was copied as a whole
 * from the place that it was read from, which is overwritten by then.
 */
template <class T> __device__ __forceinline__ T loaded(const T &x)
{
	return x;
}
template <class T> __device__ __forceinline__ complex_number<T> loaded(const complex_number<T> &x)
{
	T re = x.re, im = x.im;

	return {re, im};
}

template <class T> __device__ __forceinline__ void exchange(T &x, T &y)
{
	T old = x;

	x = y;
	y = old;
}
template <class T> __device__ __forceinline__ void exchange(complex_number<T> &x, complex_number<T> &y)
{
	exchange(x.re, y.re);
	exchange(x.im, y.im);
}

/* sum - x · y */
template <class T> __device__ __forceinline__ T less_product(T sum, T x, T y)
{
	return fma(-x, y, sum);
}
template <class T>
__device__ __forceinline__ complex_number<T> less_product(complex_number<T> sum, complex_number<T> x,
                                                          complex_number<T> y)
{
	return add_product(sum, complex_number<T>{-x.re, -x.im}, y);
}

template <class T> __device__ __forceinline__ T divided(T x, T y)
{
	return x / y;
}
template <class T> __device__ __forceinline__ complex_number<T> divided(complex_number<T> x, T y)
{
	return {x.re / y, x.im / y};
}
/* Scaled by the larger part, so that squares neither overflow nor vanish (R. Smith, CACM 5, 1962). */
template <class T>
__device__ __forceinline__ complex_number<T> divided(complex_number<T> x, complex_number<T> y)
{
	bool by_re = fabs(y.re) >= fabs(y.im);
	T large = by_re ? y.re : y.im, small = by_re ? y.im : y.re;
	T ratio = small / large, whole = fma(small, ratio, large);

	if (y.im == 0)
		return {x.re / y.re, x.im / y.re};
	return by_re ? complex_number<T>{fma(x.im, ratio, x.re) / whole, fma(-x.re, ratio, x.im) / whole}
	             : complex_number<T>{fma(x.re, ratio, x.im) / whole, fma(x.im, ratio, -x.re) / whole};
}

/* NaN in every part. */
template <class N> __device__ __forceinline__ N not_a_number()
{
	return number_of<N>((real_of<N>)NAN, (real_of<N>)NAN);
}

} // namespace

#endif
