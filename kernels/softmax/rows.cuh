/*
 * rows.cuh: what the CUDA kernels of softmax share: the problem, and what one thread does with the elements of
 * a row that are its own. The kernels differ in which elements those are and in how the threads of a row agree.
 *
 * f64 is computed in f64. Elements of other types are widened to f32, the results rounded once.
 */
#ifndef KOPS_KERNELS_SOFTMAX_ROWS_H
#define KOPS_KERNELS_SOFTMAX_ROWS_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>

#include "common/cuda.h"
#include "common/rows.cuh"
#include "softmax/operands.h"

namespace
{

/* rows = batch[0] · batch[1] · batch[2]. Strides in elements. mask: NULL where there is none. With a mask,
 * elements are scale · x + mask from when they are loaded, and are not scaled again. */
struct problem {
	const void *x, *mask;
	void *y;
	uint64_t rows, cols, batch[3];
	int64_t x_batch[3], mask_batch[3], y_batch[3], x_col, mask_col, y_col;
	double scale;             /* of x, with a mask */
	float sign, half, factor; /* see exponent() */
	double wide_factor;       /* the same, not rounded: of f64 */
	bool log;
};

inline problem problem_of(const op_args *args)
{
	const view *x = &args->views[SOFTMAX_X], *y = &args->views[SOFTMAX_Y];
	const view *mask = &args->views[SOFTMAX_MASK];
	bool is_masked = softmax_is_masked(args);
	double wide_scale = is_masked ? 1 : args->params.softmax.scale;
	float scale = (float)wide_scale;
	uint32_t outer = x->rank - 1;
	problem p = {};

	p.x = x->data;
	p.y = y->data;
	p.mask = is_masked ? mask->data : NULL;
	p.mask_col = is_masked ? mask->strides[outer] : 0;
	p.scale = args->params.softmax.scale;
	p.cols = x->shape[outer];
	p.x_col = x->strides[outer];
	p.y_col = y->strides[outer];
	p.rows = 1;
	for (uint32_t i = 0; i < 3; i++) {
		bool there = i + outer >= 3; /* the last `outer` of the three */
		uint32_t d = there ? i + outer - 3 : 0;

		p.batch[i] = there ? x->shape[d] : 1;
		p.x_batch[i] = there ? x->strides[d] : 0;
		p.y_batch[i] = there ? y->strides[d] : 0;
		p.mask_batch[i] = there && is_masked ? mask->strides[d] : 0;
		p.rows *= p.batch[i];
	}
	p.sign = scale < 0 ? -1.0f : 1.0f;
	p.half = fabsf(scale) < 1 ? 0.5f : 1.0f;
	p.factor = scale / p.half;
	p.wide_factor = wide_scale / (double)p.half;
	p.log = args->params.softmax.log;
	return p;
}

/* Where row i begins. The rows of dense views are all in batch[2]. */
struct row {
	int64_t x, mask, y;
};

__device__ __forceinline__ row row_at(const problem &p, uint64_t i)
{
	if (i < p.batch[2])
		return {(int64_t)i * p.x_batch[2], (int64_t)i * p.mask_batch[2], (int64_t)i * p.y_batch[2]};

	uint64_t rest = i / p.batch[2];
	int64_t i2 = (int64_t)(i % p.batch[2]), i1 = (int64_t)(rest % p.batch[1]),
	        i0 = (int64_t)(rest / p.batch[1]);
	return {i2 * p.x_batch[2] + i1 * p.x_batch[1] + i0 * p.x_batch[0],
	        i2 * p.mask_batch[2] + i1 * p.mask_batch[1] + i0 * p.mask_batch[0],
	        i2 * p.y_batch[2] + i1 * p.y_batch[1] + i0 * p.y_batch[0]};
}

/* Which columns of a row are a thread's own: `count` of them, every step-th from `first` on. */
struct share {
	uint64_t first, step, count;
};

/* The same in memory. */
template <typename T> struct strand {
	T *at;
	int64_t step;
	uint64_t count;
};

/* The same of x, and of the mask beside it if there is one: kernels that take a mask have a variant for it. */
template <typename T, bool MASKED> struct source {
	const T *at;
	int64_t step;
	uint64_t count;
	const T *mask;
	int64_t mask_step;
	real<T> scale;
};

template <typename T, bool MASKED = false>
__device__ __forceinline__ source<T, MASKED> strand_of_x(const problem &p, const row &r, const share &s)
{
	source<T, MASKED> x = {
	    (const T *)p.x + r.x + (int64_t)s.first * p.x_col, (int64_t)s.step * p.x_col, s.count, NULL, 0, 0};

	if (MASKED) {
		x.mask = (const T *)p.mask + r.mask + (int64_t)s.first * p.mask_col;
		x.mask_step = (int64_t)s.step * p.mask_col;
		x.scale = (real<T>)p.scale;
	}
	return x;
}

template <typename T>
__device__ __forceinline__ strand<T> strand_of_y(const problem &p, const row &r, const share &s)
{
	return {(T *)p.y + r.y + (int64_t)s.first * p.y_col, (int64_t)s.step * p.y_col, s.count};
}

constexpr int GROUP = 8;

/* n elements, GROUP at most, and zeros. */
template <typename T, bool MASKED>
__device__ __forceinline__ void load(const source<T, MASKED> &s, int n, real<T> v[GROUP])
{
	const T *at = s.at;
	[[maybe_unused]] const T *mask = s.mask;

#pragma unroll
	for (int k = 0; k < GROUP; k++, at += s.step)
		v[k] = k < n ? (real<T>)*at : 0;
	if constexpr (MASKED) {
#pragma unroll
		for (int k = 0; k < GROUP; k++, mask += s.mask_step)
			v[k] = k < n ? s.scale * v[k] + (real<T>)*mask : 0;
	}
}

/*
 * use(v, n) for n elements at a time, GROUP but for the last. They are loaded together, before any result is
 * written, so that the reads of a thread are under way side by side.
 */
template <typename T, bool MASKED, typename Use>
__device__ __forceinline__ void each_group(source<T, MASKED> s, Use use)
{
	real<T> v[GROUP];

	for (; s.count >= GROUP; s.count -= GROUP, s.at += GROUP * s.step) {
		load(s, GROUP, v);
		use(v, GROUP);
		if (MASKED)
			s.mask += GROUP * s.mask_step;
	}
	if (s.count > 0) {
		load(s, (int)s.count, v);
		use(v, (int)s.count);
	}
}

/*
 * s·x − m as factor · (half·x − shift) with shift = half · the x of the largest s·x. s·x itself may overflow
 * where the difference does not. half is 1 where |s| >= 1, so that an overflow to −Inf is the right limit; else
 * 0.5 with factor = 2·s, and nothing overflows.
 */
__device__ __forceinline__ float exponent(const problem &p, float x, float shift)
{
	return p.factor * (p.half * x - shift);
}

__device__ __forceinline__ double exponent(const problem &p, double x, double shift)
{
	return p.wide_factor * ((double)p.half * x - shift);
}

/* The functions of f32 under the names of those of f64. */
__device__ __forceinline__ float exp_of(float x)
{
	return expf(x);
}

__device__ __forceinline__ double exp_of(double x)
{
	return exp(x);
}

__device__ __forceinline__ float log_of(float x)
{
	return logf(x);
}

__device__ __forceinline__ double log_of(double x)
{
	return log(x);
}

__device__ __forceinline__ float larger_of(float a, float b)
{
	return fmaxf(a, b);
}

__device__ __forceinline__ double larger_of(double a, double b)
{
	return fmax(a, b);
}

/* most: the largest of ±x, signed so that it is the x of the largest s·x. Of a row that is masked as a whole:
 * 0, from which all is far. */
template <typename F> __device__ __forceinline__ F shift_of(const problem &p, F most)
{
	return p.mask && most == -INFINITY ? (F)0 : (F)(p.half * p.sign) * most;
}

template <typename F> __device__ __forceinline__ F most_of(const problem &p, const F v[GROUP], int n, F most)
{
#pragma unroll
	for (int k = 0; k < GROUP; k++)
		most = k < n ? larger_of(most, (F)p.sign * v[k]) : most;
	return most;
}

template <typename F> __device__ __forceinline__ F sum_of(const problem &p, const F v[GROUP], int n, F shift)
{
	F sum = 0;

#pragma unroll
	for (int k = 0; k < GROUP; k++)
		sum += k < n ? exp_of(exponent(p, v[k], shift)) : 0;
	return sum;
}

template <typename T, bool MASKED>
__device__ __forceinline__ real<T> find_most(const problem &p, const source<T, MASKED> &x)
{
	real<T> most = -INFINITY;

	each_group(x, [&](const real<T> *v, int n) { most = most_of(p, v, n, most); });
	return most;
}

/* Groups are added up in f64: millions of equal terms would all round the same way. */
template <typename T, bool MASKED>
__device__ __forceinline__ real<T> sum_up(const problem &p, const source<T, MASKED> &x, real<T> shift)
{
	double sum = 0;

	each_group(x, [&](const real<T> *v, int n) { sum += (double)sum_of(p, v, n, shift); });
	return (real<T>)sum;
}

/* What is known of some elements of a row: sum of exp(s·x − s·x of most). Sum 0: most is −Inf, nothing adds. */
template <typename F> struct partial {
	F most;
	double sum;
};
static_assert(sizeof(partial<float>) == sizeof(partial<double>), "as softmax_pieces_workspace() has it");

/* Against a larger maximum. Not where there is nothing: 0 · exp(NaN) with a scale of 0. */
template <typename F> __device__ __forceinline__ void raise(const problem &p, partial<F> *known, F most)
{
	if (most > known->most && known->sum != 0)
		known->sum *= (double)exp_of(exponent(p, (F)p.sign * known->most, shift_of(p, most)));
	known->most = most;
}

/* One pass for both, the sum rescaled when a group has a larger element. */
template <typename T, bool MASKED>
__device__ __forceinline__ partial<real<T>> scan(const problem &p, const source<T, MASKED> &x)
{
	partial<real<T>> known = {-INFINITY, 0};

	each_group(x, [&](const real<T> *v, int n) {
		real<T> most = most_of(p, v, n, known.most);

		raise(p, &known, most);
		/* Against −Inf even −Inf would be NaN. */
		known.sum += (double)sum_of(p, v, n, most == -INFINITY ? (real<T>)0 : shift_of(p, most));
	});
	return known;
}

/* y = finish(x), element by element. */
template <typename T, bool MASKED, typename Finish>
__device__ __forceinline__ void map(const source<T, MASKED> &x, const strand<T> &y, Finish finish)
{
	T *at = y.at;

	each_group(x, [&](const real<T> *v, int n) {
#pragma unroll
		for (int k = 0; k < GROUP; k++, at += y.step)
			if (k < n)
				*at = (T)finish(v[k]);
	});
}

/* sum: over the whole row, of exp(exponent()). 0 only of a row that is masked as a whole. */
template <typename T, bool MASKED>
__device__ __forceinline__ void write(const problem &p, const source<T, MASKED> &x, const strand<T> &y,
                                      real<T> shift, real<T> sum)
{
	if (MASKED && sum == 0)
		sum = 1;
	real<T> log_sum = log_of(sum), inverse = 1 / sum;

	if (p.log)
		map(x, y, [&](real<T> v) { return exponent(p, v, shift) - log_sum; });
	else
		map(x, y, [&](real<T> v) { return exp_of(exponent(p, v, shift)) * inverse; });
}

} // namespace

#endif
