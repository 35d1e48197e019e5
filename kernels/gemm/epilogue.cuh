/*
 * epilogue.cuh: how sums become elements of C: activation(alpha · sum + beta · C + bias), rounded once to C's
 * type. Every main loop of ours ends with it. With beta 0 it does not read C, so NaN in it does no harm.
 *
 * SUM: the type of the sums, in which all of that is computed. OUT: the type of C.
 */
#ifndef KOPS_KERNELS_GEMM_EPILOGUE_H
#define KOPS_KERNELS_GEMM_EPILOGUE_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>

#include "common/hopper/element.cuh"
#include "elementwise/unary_function.cuh"
#include "gemm/problem.h"

namespace
{

/* An element of an operand. */
template <class T>
__device__ __forceinline__ T *element_at(const gemm_operand &o, uint64_t batch, int64_t row, int64_t col)
{
	return (T *)o.data + (int64_t)batch * o.batch + row * o.row + col * o.col;
}

/* N neighbours that are read and written in one access. */
template <class T, int N> struct alignas(N * sizeof(T)) vector_of {
	T at[N];
};

/* The indices of an element of C. */
struct c_index {
	uint64_t batch;
	int64_t row, col;
};

template <class SUM> struct epilogue {
	SUM alpha, beta;
	bool has_bias, has_line; /* line: the bias is one line of neighbours for all rows, in aligned pairs */
	unary_function activation;
	gemm_operand bias;        /* of the type of A and B, which functions here call T */
	float terms[UNARY_TERMS]; /* of the activation in f32: see unary_function.h */

	/* The same for sums of another type. */
	template <class OTHER> __device__ __forceinline__ epilogue<OTHER> as() const
	{
		epilogue<OTHER> other = {(OTHER)alpha, (OTHER)beta, has_bias, has_line, activation, bias, {}};

#pragma unroll
		for (int i = 0; i < UNARY_TERMS; i++)
			other.terms[i] = terms[i];
		return other;
	}

	/* Whether the result depends on what C was before. */
	__device__ __forceinline__ bool keeps_old() const
	{
		return beta != 0;
	}
	/* Whether finish() does anything. */
	__host__ __device__ __forceinline__ bool finishes() const
	{
		return has_bias || activation != UNARY_NONE;
	}

	/* The steps, for who reads C ahead. */
	__device__ __forceinline__ SUM scale(SUM sum) const
	{
		return alpha * sum;
	}
	template <class OUT> __device__ __forceinline__ SUM add_old(SUM scaled, OUT old) const
	{
		return fma(beta, (SUM)old, scaled);
	}
	/* All but relu. */
	__device__ __forceinline__ float bend(float v) const
	{
		return bent(v, terms);
	}
	__device__ __forceinline__ double bend(double v) const
	{
		return unary_activation_of(activation, v);
	}
	/* One choice for all: a branch for each would cost more than relu does. */
	template <int N> __device__ __forceinline__ void activate(SUM (&v)[N]) const
	{
		if (activation == UNARY_RELU) {
#pragma unroll
			for (int j = 0; j < N; j++)
				v[j] = v[j] < 0 ? 0 : v[j];
		} else if (activation != UNARY_NONE) {
#pragma unroll
			for (int j = 0; j < N; j++)
				v[j] = bend(v[j]);
		}
	}
	/* Bias and activation, of N columns from `at` on, of which `there` exist. */
	template <class T, int N>
	__device__ __forceinline__ void finish(SUM (&v)[N], const c_index &at, int there) const
	{
		if (has_bias) {
			const T *from = element_at<T>(bias, at.batch, at.row, at.col);
#pragma unroll
			for (int j = 0; j < N; j++)
				if (j < there)
					v[j] += (SUM)from[j * bias.col];
		}
		activate(v);
	}

	/* All at once, to the element c, whose indices are `at`. Reads it only if that matters. */
	template <class T, class OUT>
	__device__ __forceinline__ void store(OUT *c, SUM sum, const c_index &at) const
	{
		SUM v[1] = {keeps_old() ? add_old(scale(sum), *c) : scale(sum)};

		if (finishes())
			finish<T>(v, at, 1);
		*c = (OUT)v[0];
	}
	/* To N columns from c on, of which `there` exist. vectors: all or none do, and c is aligned to N. */
	template <class T, int N, class OUT>
	__device__ __forceinline__ void store_columns(OUT *c, int64_t col_stride, int there, bool vectors,
	                                              const SUM *sums, const c_index &at) const
	{
		SUM v[N];

		if (there <= 0)
			return;
#pragma unroll
		for (int j = 0; j < N; j++)
			v[j] = scale(sums[j]);
		if (keeps_old())
			add_columns(v, c, col_stride, there, vectors);
		if (finishes())
			finish<T>(v, at, there);
		if (vectors) {
			vector_of<OUT, N> all;
#pragma unroll
			for (int j = 0; j < N; j++)
				all.at[j] = (OUT)v[j];
			*(vector_of<OUT, N> *)c = all;
		} else {
#pragma unroll
			for (int j = 0; j < N; j++)
				if (j < there)
					c[j * col_stride] = (OUT)v[j];
		}
	}
	template <int N, class OUT>
	__device__ __forceinline__ void add_columns(SUM (&v)[N], const OUT *c, int64_t col_stride, int there,
	                                            bool vectors) const
	{
		if (vectors) {
			vector_of<OUT, N> old = *(const vector_of<OUT, N> *)c;
#pragma unroll
			for (int j = 0; j < N; j++)
				v[j] = add_old(v[j], old.at[j]);
		} else {
#pragma unroll
			for (int j = 0; j < N; j++)
				if (j < there)
					v[j] = add_old(v[j], c[j * col_stride]);
		}
	}
};

inline bool is_line(const gemm_operand &bias, int bytes)
{
	return bias.row == 0 && bias.col == 1 && bias.batch % 2 == 0 && (uintptr_t)bias.data % (2 * bytes) == 0;
}

/* p: the product as the kernel has it, of args or its transpose. If A and B do not matter, alpha is 0. */
template <class SUM> epilogue<SUM> epilogue_of(const struct op_args *args, const gemm_problem &p)
{
	const struct gemm_params &params = args->params.gemm;
	bool has_bias = !view_is_absent(&args->views[GEMM_BIAS]);
	epilogue<SUM> e = {gemm_has_product(args) ? (SUM)params.alpha : 0,
	                   (SUM)params.beta,
	                   has_bias,
	                   has_bias && is_line(p.bias, (int)dtype_size(args->views[GEMM_BIAS].dtype)),
	                   params.activation,
	                   p.bias,
	                   {}};

	for (int i = 0; i < UNARY_TERMS; i++)
		e.terms[i] = unary_terms[params.activation][i];
	return e;
}

} // namespace

#endif
