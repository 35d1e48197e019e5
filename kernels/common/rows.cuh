/* rows.cuh: what CUDA kernels share whose threads go along the last axis of views of rank 4. */
#ifndef KOPS_KERNELS_ROWS_H
#define KOPS_KERNELS_ROWS_H

#include <stdint.h>

namespace
{

/* In which elements of a type are computed. */
template <typename T> struct computed {
	typedef float type;
};
template <> struct computed<double> {
	typedef double type;
};
template <typename T> using real = typename computed<T>::type;

/* Elements to where row i begins, of p.batch[0] · p.batch[1] · p.batch[2]. Those of dense views are all in
 * batch[2]. */
template <class PROBLEM>
__device__ __forceinline__ int64_t at_row(const PROBLEM &p, const int64_t (&strides)[3], uint64_t i)
{
	if (i < p.batch[2])
		return (int64_t)i * strides[2];

	uint64_t rest = i / p.batch[2];
	return (int64_t)(i % p.batch[2]) * strides[2] + (int64_t)(rest % p.batch[1]) * strides[1] +
	       (int64_t)(rest / p.batch[1]) * strides[0];
}

} // namespace

#endif
