/*
 * fused.cuh: what fused.cu and ring.cu share: exponentials and totals, 16 bytes of elements at a time, and the
 * part of a row that a thread keeps in registers.
 */
#ifndef KOPS_KERNELS_SOFTMAX_FUSED_H
#define KOPS_KERNELS_SOFTMAX_FUSED_H

#include <cooperative_groups.h>
#include <cuda_pipeline_primitives.h>
#include <limits.h>

#include "softmax/exp2.cuh"
#include "softmax/rows.cuh"

namespace
{

constexpr unsigned WARP = 32, FULL = 0xffffffff;
constexpr unsigned CLUSTER_MAX = 16, THREADS_MAX = 1024;

/* Elements of 16 bytes. */
template <typename T> constexpr int WIDE = 16 / (int)sizeof(T);

/* What a launch needs besides the problem. */
struct row_params {
	float factor2;    /* problem.factor · log2 e */
	bool ends;        /* some row does not begin or end at 16 bytes */
	bool matched;     /* x and y lie alike to 16 bytes in every row */
	unsigned cluster; /* blocks of a row */
};

/* ---- Values ---- */

/* sum of exp(s·x − s·x of most) over some elements of a row. Sum 0: most is −Inf, nothing adds. */
struct total {
	float most, sum;
};

/* exp(exponent()). */
__device__ __forceinline__ float power(const problem &p, const row_params &q, float x, float shift)
{
	return exp2_fast(q.factor2 * (p.half * x - shift));
}

/* To subtract from some elements with this most. Against −Inf even −Inf would be NaN. */
__device__ __forceinline__ float local_shift(const problem &p, float most)
{
	return most == -INFINITY ? 0 : shift_of(p, most);
}

/* What makes a sum, or a power, against part's most one against the row's. */
__device__ __forceinline__ float rescale(const problem &p, const row_params &q, float most_of_part, float most)
{
	return power(p, q, p.sign * most_of_part, shift_of(p, most));
}

__device__ __forceinline__ float rescaled_sum(const problem &p, const row_params &q, const total &t, float most)
{
	return t.sum == 0 ? 0 : t.sum * rescale(p, q, t.most, most);
}

/* An x that adds nothing: s·x = −Inf. */
__device__ __forceinline__ float nothing(const problem &p)
{
	return -INFINITY * p.sign;
}

template <unsigned LANES = WARP> __device__ __forceinline__ float largest_of_lanes(float v)
{
#pragma unroll
	for (unsigned lane = LANES / 2; lane > 0; lane /= 2)
		v = fmaxf(v, __shfl_xor_sync(FULL, v, lane));
	return v;
}

template <unsigned LANES = WARP> __device__ __forceinline__ float sum_of_lanes(float v)
{
#pragma unroll
	for (unsigned lane = LANES / 2; lane > 0; lane /= 2)
		v += __shfl_xor_sync(FULL, v, lane);
	return v;
}

/* The total of n ones, given to every lane of the warp that asks. */
__device__ __forceinline__ total combine(const problem &p, const row_params &q, const total *of, unsigned n)
{
	float most = -INFINITY, sum = 0;

	for (unsigned i = threadIdx.x % WARP; i < n; i += WARP)
		most = fmaxf(most, of[i].most);
	most = largest_of_lanes(most);
	for (unsigned i = threadIdx.x % WARP; i < n; i += WARP)
		sum += rescaled_sum(p, q, of[i], most);
	return {most, sum_of_lanes(sum)};
}

/* ---- 16 bytes ---- */

__device__ __forceinline__ float2 widen(const __half2 &v)
{
	return __half22float2(v);
}

/* A bf16 is the upper half of an f32. The library's conversion takes half an instruction more. */
__device__ __forceinline__ float2 widen(const __nv_bfloat162 &v)
{
	unsigned both;

	memcpy(&both, &v, sizeof both);
	return {__uint_as_float(both << 16), __uint_as_float(both & 0xffff0000)};
}

__device__ __forceinline__ void narrow(float2 v, __half2 *ret)
{
	*ret = __float22half2_rn(v);
}

__device__ __forceinline__ void narrow(float2 v, __nv_bfloat162 *ret)
{
	*ret = __float22bfloat162_rn(v);
}

/* Two elements of a type. */
template <typename T> struct pair_of;
template <> struct pair_of<__half> {
	typedef __half2 type;
};
template <> struct pair_of<__nv_bfloat16> {
	typedef __nv_bfloat162 type;
};

template <typename T> __device__ __forceinline__ void unpack(const uint4 &from, float v[WIDE<T>])
{
	const unsigned word[4] = {from.x, from.y, from.z, from.w};

#pragma unroll
	for (int k = 0; k < 4; k++) {
		if constexpr (sizeof(T) == 4) {
			v[k] = __uint_as_float(word[k]);
		} else {
			typename pair_of<T>::type both;
			memcpy(&both, &word[k], sizeof both);
			float2 wide = widen(both);
			v[2 * k] = wide.x;
			v[2 * k + 1] = wide.y;
		}
	}
}

template <typename T> __device__ __forceinline__ uint4 pack(const float v[WIDE<T>])
{
	unsigned word[4];

#pragma unroll
	for (int k = 0; k < 4; k++) {
		if constexpr (sizeof(T) == 4) {
			word[k] = __float_as_uint(v[k]);
		} else {
			typename pair_of<T>::type both;
			narrow(make_float2(v[2 * k], v[2 * k + 1]), &both);
			memcpy(&word[k], &both, sizeof both);
		}
	}
	return make_uint4(word[0], word[1], word[2], word[3]);
}

/* 16 bytes of elements that add nothing. */
template <typename T> __device__ __forceinline__ uint4 blank(const problem &p)
{
	float v[WIDE<T>];

#pragma unroll
	for (int k = 0; k < WIDE<T>; k++)
		v[k] = nothing(p);
	return pack<T>(v);
}

/* ---- Rows as vectors ---- */

/*
 * A row: `head` elements, then `count` vectors that begin at 16 bytes in x, then what is left: `ends` elements
 * with the head's. x and y: its first vector.
 */
template <typename T> struct vectors {
	const T *x;
	T *y;
	uint64_t count;
	unsigned head, ends;
};

/* With `most` vectors or fewer. */
template <typename T>
__device__ __forceinline__ vectors<T> vectors_of(const problem &p, const row_params &q, uint64_t i,
                                                 uint64_t most = UINT64_MAX)
{
	row r = row_at(p, i);
	vectors<T> v = {(const T *)p.x + r.x, (T *)p.y + r.y, p.cols / WIDE<T>, 0, 0};

	if (!q.ends)
		return v;
	v.head = (unsigned)(-(uintptr_t)v.x % 16 / sizeof(T));
	v.head = v.head < p.cols ? v.head : (unsigned)p.cols;
	v.count = (p.cols - v.head) / WIDE<T>;
	v.count = v.count < most ? v.count : most;
	v.ends = (unsigned)(p.cols - v.count * WIDE<T>);
	v.x += v.head;
	v.y += v.head;
	return v;
}

/* The n-th of the elements before and behind the vectors, from the first vector on. */
template <typename T> __device__ __forceinline__ int64_t place_of_end(const vectors<T> &v, unsigned n)
{
	return n < v.head ? (int64_t)n - v.head : (int64_t)v.count * WIDE<T> + (n - v.head);
}

/* What a thread keeps of a row, in f32: VECTORS of the row's vectors and ENDS of the elements around them. */
template <typename T, int VECTORS, int ENDS> struct held {
	float body[VECTORS][WIDE<T>];
	float ends[ENDS];
};

/* Each of the threads of a row takes every threads-th vector from its own on, as far as there are `count`. */
template <typename T, int VECTORS>
__device__ __forceinline__ void fetch_vectors(const problem &p, const T *x, unsigned count, unsigned me,
                                              unsigned threads, uint4 (&raw)[VECTORS])
{
#pragma unroll
	for (unsigned j = 0; j < VECTORS; j++) {
		raw[j] = blank<T>(p);
		if (me + j * threads < count)
			raw[j] = *(const uint4 *)(x + (size_t)(me + j * threads) * WIDE<T>);
	}
}

template <typename T, int ENDS>
__device__ __forceinline__ void fetch_ends(const problem &p, const vectors<T> &v, unsigned ends, unsigned me,
                                           unsigned threads, T (&raw)[ENDS])
{
#pragma unroll
	for (unsigned j = 0; j < ENDS; j++) {
		unsigned n = me + j * threads;

		raw[j] = (T)nothing(p);
		if (n < ends)
			raw[j] = v.x[place_of_end(v, n)];
	}
}

template <typename T, int VECTORS>
__device__ __forceinline__ void unpack_vectors(const uint4 (&raw)[VECTORS], float (&v)[VECTORS][WIDE<T>])
{
#pragma unroll
	for (int j = 0; j < VECTORS; j++)
		unpack<T>(raw[j], v[j]);
}

/* Whoever converts has waited: all loads are under way before the first is converted. */
template <typename T, int VECTORS, int ENDS>
__device__ __forceinline__ void load_held(const problem &p, const row_params &q, const vectors<T> &row,
                                          unsigned ends, const T *x, unsigned count, unsigned me,
                                          unsigned threads, held<T, VECTORS, ENDS> *h)
{
	uint4 raw[VECTORS];
	T raw_ends[ENDS];

	fetch_vectors(p, x, count, me, threads, raw);
	if (q.ends)
		fetch_ends(p, row, ends, me, threads, raw_ends);
	unpack_vectors<T>(raw, h->body);
	if (q.ends) {
#pragma unroll
		for (int j = 0; j < ENDS; j++)
			h->ends[j] = (float)raw_ends[j];
	}
}

template <int N>
__device__ __forceinline__ float most_of_values(const problem &p, const float (&v)[N], float most)
{
	if (p.sign > 0) {
#pragma unroll
		for (int k = 0; k < N; k++)
			most = fmaxf(most, v[k]);
	} else {
#pragma unroll
		for (int k = 0; k < N; k++)
			most = fmaxf(most, -v[k]);
	}
	return most;
}

/* Their powers' sum. Where the powers themselves are wanted, they take the values' place. */
template <int N>
__device__ __forceinline__ float raise_values(const problem &p, const row_params &q, float (&v)[N], float shift)
{
	float sum = 0;

#pragma unroll
	for (int k = 0; k < N; k++) {
		float e = power(p, q, v[k], shift);

		sum += e;
		v[k] = p.log ? v[k] : e;
	}
	return sum;
}

template <typename T, int VECTORS, int ENDS>
__device__ __forceinline__ float most_of_held(const problem &p, const row_params &q,
                                              const held<T, VECTORS, ENDS> &h)
{
	float most = -INFINITY;

#pragma unroll
	for (int j = 0; j < VECTORS; j++)
		most = most_of_values(p, h.body[j], most);
	return q.ends ? most_of_values(p, h.ends, most) : most;
}

template <typename T, int VECTORS, int ENDS>
__device__ __forceinline__ float raise_held(const problem &p, const row_params &q, held<T, VECTORS, ENDS> *h,
                                            float shift)
{
	float sum = 0;

#pragma unroll
	for (int j = 0; j < VECTORS; j++)
		sum += raise_values(p, q, h->body[j], shift);
	return q.ends ? sum + raise_values(p, q, h->ends, shift) : sum;
}

/* What makes results of held values: of powers against a local most, or for the logarithm of x themselves. */
struct finish {
	float factor, shift, log_sum;
};

__device__ __forceinline__ finish finish_of(const problem &p, const row_params &q, const total &row, float most)
{
	return {rescale(p, q, most, row.most) / row.sum, shift_of(p, row.most), logf(row.sum)};
}

__device__ __forceinline__ float finished(const problem &p, const finish &f, float v)
{
	return p.log ? exponent(p, v, f.shift) - f.log_sum : v * f.factor;
}

template <typename T>
__device__ __forceinline__ void store_values(const problem &p, const row_params &q, const finish &f, T *y,
                                             const float (&v)[WIDE<T>])
{
	float result[WIDE<T>];

#pragma unroll
	for (int k = 0; k < WIDE<T>; k++)
		result[k] = finished(p, f, v[k]);
	if (q.matched) {
		*(uint4 *)y = pack<T>(result);
		return;
	}
#pragma unroll
	for (int k = 0; k < WIDE<T>; k++)
		y[k] = (T)result[k];
}

template <typename T, int VECTORS, int ENDS>
__device__ __forceinline__ void store_vectors(const problem &p, const row_params &q, const finish &f, T *y,
                                              unsigned count, unsigned me, unsigned threads,
                                              const held<T, VECTORS, ENDS> &h)
{
#pragma unroll
	for (unsigned j = 0; j < VECTORS; j++)
		if (me + j * threads < count)
			store_values(p, q, f, y + (size_t)(me + j * threads) * WIDE<T>, h.body[j]);
}

template <typename T, int VECTORS, int ENDS>
__device__ __forceinline__ void store_ends(const problem &p, const finish &f, const vectors<T> &v,
                                           unsigned ends, unsigned me, unsigned threads,
                                           const held<T, VECTORS, ENDS> &h)
{
#pragma unroll
	for (unsigned j = 0; j < ENDS; j++) {
		unsigned n = me + j * threads;

		if (n < ends)
			v.y[place_of_end(v, n)] = (T)finished(p, f, h.ends[j]);
	}
}

/* ---- Launches ---- */

constexpr uint64_t ceil_div(uint64_t n, uint64_t by)
{
	return (n + by - 1) / by;
}

/* Whether all rows begin at a unit; or those of two views `address` bytes from each other are units apart. */
inline bool is_whole(const problem &p, uint64_t address, const int64_t strides[3], size_t size,
                     unsigned unit = 16)
{
	for (int d = 0; d < 3; d++)
		address |= p.batch[d] > 1 ? (uint64_t)strides[d] * size : 0;
	return address % unit == 0;
}

/*
 * Rows that do not match get here where supports() knew the addresses of a copy's origin only. Their results
 * are stored one by one.
 */
template <typename T> row_params row_params_of(const problem &p)
{
	int64_t apart[3];
	row_params q = {};

	for (int d = 0; d < 3; d++)
		apart[d] = (int64_t)((uint64_t)p.x_batch[d] - (uint64_t)p.y_batch[d]);
	q.factor2 = p.factor * 1.44269504f;
	q.ends = p.cols % WIDE<T> || !is_whole(p, (uintptr_t)p.x, p.x_batch, sizeof(T));
	q.matched = is_whole(p, (uintptr_t)p.x - (uintptr_t)p.y, apart, sizeof(T));
	q.cluster = 1;
	return q;
}

} // namespace

#endif
