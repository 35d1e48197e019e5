/*
 * unary's kernels: elementwise.cuh. One choice of the function for all elements of a vector: a branch for each
 * would cost more than relu does. Arithmetic hides behind the memory: gelu of f16 takes some 25 instructions
 * for 4 bytes, where an H200 has room for 32.
 */
#include "elementwise/elementwise.cuh"
#include "elementwise/unary_function.cuh"

namespace
{

struct unary {
	static constexpr unsigned INPUTS = 1;

	unary_function function;
	double scale, low, high;
	float terms[UNARY_TERMS];

	template <typename F, int N> __device__ __forceinline__ void apply(F (&x)[INPUTS][N]) const
	{
#pragma unroll
		for (int i = 0; i < N; i++)
			x[0][i] *= (F)scale;
		apply_function(x[0]);
#pragma unroll
		for (int i = 0; i < N; i++) {
			F least = x[0][i] < (F)low ? (F)low : x[0][i];
			x[0][i] = least > (F)high ? (F)high : least;
		}
	}

      private:
	template <int N, class OF> static __device__ __forceinline__ void each(float (&v)[N], OF of)
	{
#pragma unroll
		for (int i = 0; i < N; i++)
			v[i] = of(v[i]);
	}
	template <int N> __device__ __forceinline__ void apply_function(float (&v)[N]) const
	{
		switch (function) {
		case UNARY_NONE:
			break;
		case UNARY_RELU:
			each(v, [](float a) { return a < 0 ? 0 : a; });
			break;
		case UNARY_SIGMOID:
			each(v, [](float a) { return sigmoid(a); });
			break;
		case UNARY_TANH:
			each(v, [](float a) { return tanhf(a); });
			break;
		case UNARY_EXP:
			each(v, [](float a) { return expf(a); });
			break;
		case UNARY_LOG:
			each(v, [](float a) { return logf(a); });
			break;
		case UNARY_SQRT:
			each(v, [](float a) { return sqrtf(a); });
			break;
		case UNARY_ABS:
			each(v, [](float a) { return fabsf(a); });
			break;
		default:
			each(v, [this](float a) { return bent(a, terms); });
		}
	}
	template <int N> __device__ __forceinline__ void apply_function(double (&v)[N]) const
	{
#pragma unroll
		for (int i = 0; i < N; i++)
			v[i] = unary_of(function, v[i]);
	}
};

unary unary_from(const op_args *args)
{
	const unary_params &p = args->params.unary;
	const float *terms = unary_terms_of(p.function);
	unary op = {p.function, p.scale, p.low, p.high, {}};

	for (int i = 0; terms && i < UNARY_TERMS; i++)
		op.terms[i] = terms[i];
	return op;
}

} // namespace

ELEMENTWISE_KERNELS(unary, unary_from)
