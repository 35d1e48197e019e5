/* rising.cuh: numbers as integers that rise with them. */
#ifndef KOPS_KERNELS_ARG_REDUCE_RISING_H
#define KOPS_KERNELS_ARG_REDUCE_RISING_H

#include <stdint.h>
#include <string.h>

#include "common/rows.cuh"

namespace
{

template <typename T> struct rising_of {
	typedef uint32_t type;
};
template <> struct rising_of<double> {
	typedef uint64_t type;
};
template <typename T> using rising = typename rising_of<T>::type;

/* Not of NaN. -0 and 0 give the same. */
template <typename T> __device__ __forceinline__ rising<T> rising_bits(T element)
{
	typedef rising<T> BITS;
	real<T> v = (real<T>)element + (real<T>)0; /* the sum makes -0 the same as 0 */
	constexpr unsigned TOP = sizeof(BITS) * 8 - 1;
	BITS bits;

	memcpy(&bits, &v, sizeof bits);
	return bits ^ (bits >> TOP ? ~(BITS)0 : (BITS)1 << TOP);
}

template <typename T> __device__ __forceinline__ bool is_nan(T element)
{
	real<T> v = (real<T>)element;

	return v != v;
}

} // namespace

#endif
