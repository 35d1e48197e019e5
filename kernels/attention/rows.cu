/*
 * attention for any strides and types:
 *
 *   kernel  idea                                        threads        bound
 *   rows    a warp for each query, or for a part of     128, 4 rows    arithmetic, and reads of k and v
 *           its keys: lanes share the dot products of                  from the L2 cache
 *           four scores, and the columns of the result.
 *           The largest score and the sum so far are
 *           carried along, and results scaled down when
 *           there is a larger one
 *
 * If there are few queries, join.cuh adds up what several warps found for each. f64 is computed in f64, other
 * types in f32.
 */
#include "attention/join.cuh"
#include "attention/problem.cuh"
#include "attention/split.h"
#include "common/launch.cuh"

namespace
{

constexpr int ROWS_WARPS = 4, ROWS_KEYS = 4;
constexpr uint64_t ROWS_GRID_MAX = 1u << 20;

template <class T> struct real_of {
	using type = float;
};
template <> struct real_of<double> {
	using type = double;
};

/* A query, and the rows that belong to it. */
template <class T, class R> struct query_at {
	const attention_problem &p;
	const T *q, *k, *v, *mask;
	int64_t begin, end;

	__device__ query_at(const attention_problem &p, uint64_t number) : p(p)
	{
		int64_t row = (int64_t)(number % (uint64_t)p.queries);
		int64_t head = (int64_t)(number / (uint64_t)p.queries) % p.heads;
		int64_t batch = (int64_t)(number / (uint64_t)p.queries) / p.heads;
		int length = __shfl_sync(~0u, threadIdx.x % 32 == 0 ? length_of(p, batch) : 0, 0);
		attention_rule rule = rule_for(p, length);
		attention_keys keys = attention_keys_of(&rule, row);

		q = row_of<const T>(p.q, batch, head, row);
		k = row_of<const T>(p.k, batch, shared_head(p, head), 0);
		v = row_of<const T>(p.v, batch, shared_head(p, head), 0);
		mask = p.mask.data ? row_of<const T>(p.mask, batch, head, row) : nullptr;
		begin = keys.begin;
		end = keys.end > keys.begin ? keys.end : keys.begin;
	}
	/* One part of its keys. */
	__device__ void take_part(unsigned part, unsigned parts)
	{
		int64_t first = begin, n = end - begin;

		begin = first + n * part / parts;
		end = first + n * (part + 1) / parts;
	}
	/* Of keys first, first + 1, …; -Inf beyond the last. The same in all lanes. */
	__device__ __forceinline__ void scores(R (&ret)[ROWS_KEYS], int64_t first) const
	{
		const T *of_key[ROWS_KEYS];

#pragma unroll
		for (int i = 0; i < ROWS_KEYS; i++) {
			of_key[i] = k + (first + i < end ? first + i : first) * p.k.strides[2];
			ret[i] = 0;
		}
		for (int64_t d = threadIdx.x % 32; d < p.depth; d += 32) {
			R of_query = (R)q[d * p.q.strides[3]];

#pragma unroll
			for (int i = 0; i < ROWS_KEYS; i++)
				ret[i] += of_query * (R)of_key[i][d * p.k.strides[3]];
		}
#pragma unroll
		for (int i = 0; i < ROWS_KEYS; i++) {
			ret[i] = sum_of_warp(ret[i]) * (R)p.rule.scale;
			if (first + i >= end)
				ret[i] = -(R)INFINITY;
			else if (mask)
				ret[i] += (R)mask[(first + i) * p.mask.strides[3]];
		}
	}
};

/* Sums of v times exponentials, of columns lane, lane + 32, …; the largest score, and the sum of exponentials.
 */
template <class R, int EACH> struct row_sums {
	R of_columns[EACH], peak, total;
};

template <class T, class R, int EACH>
__device__ __forceinline__ void add_keys(row_sums<R, EACH> &sums, const query_at<T, R> &query, int64_t first)
{
	int lane = threadIdx.x % 32;
	R scores[ROWS_KEYS], peak = sums.peak;

	query.scores(scores, first);
#pragma unroll
	for (int i = 0; i < ROWS_KEYS; i++)
		peak = scores[i] > peak ? scores[i] : peak;
	R base = base_of(peak);
	if (peak != sums.peak) {
		R down = exp(sums.peak - base);

		sums.peak = peak;
		sums.total *= down;
#pragma unroll
		for (int c = 0; c < EACH; c++)
			sums.of_columns[c] *= down;
	}
#pragma unroll
	for (int i = 0; i < ROWS_KEYS; i++) {
		R weight = exp(scores[i] - base);
		const T *values = query.v + (first + i) * query.p.v.strides[2];

		sums.total += weight;
#pragma unroll
		for (int c = 0; c < EACH; c++)
			if (first + i < query.end && lane + c * 32 < query.p.values)
				sums.of_columns[c] +=
				    weight * (R)values[(lane + c * 32) * query.p.v.strides[3]];
	}
}

/* EACH: columns of a lane. found: what join.cuh joins; NULL: there is one part. */
template <class T, int EACH, class R = typename real_of<T>::type>
__global__ void __launch_bounds__(ROWS_WARPS * 32)
    rows(const __grid_constant__ attention_problem p, uint64_t n_queries, unsigned parts, R *found)
{
	int lane = threadIdx.x % 32;

	await_kernel_before();
	for (uint64_t number = (uint64_t)blockIdx.x * ROWS_WARPS + threadIdx.x / 32; number < n_queries * parts;
	     number += (uint64_t)gridDim.x * ROWS_WARPS) {
		query_at<T, R> query(p, number / parts);
		row_sums<R, EACH> sums = {};
		R *kept = found ? found + number * (uint64_t)(p.values + 2) : nullptr;
		T *o = row_of<T>(p, p.o, number / parts);

		query.take_part((unsigned)(number % parts), parts);
		sums.peak = -(R)INFINITY;
		for (int64_t first = query.begin; first < query.end; first += ROWS_KEYS)
			add_keys<T, R, EACH>(sums, query, first);
#pragma unroll
		for (int c = 0; c < EACH; c++) {
			int column = lane + c * 32;

			if (column < p.values && kept)
				kept[column] = sums.of_columns[c];
			else if (column < p.values)
				o[column * p.o.strides[3]] =
				    (T)(sums.total == 0 ? 0 : sums.of_columns[c] / sums.total);
		}
		if (kept && lane == 0) {
			kept[p.values] = sums.peak;
			kept[p.values + 1] = sums.total;
		} else if (lane == 0) {
			write_lse(p, number, sums.peak, sums.total);
		}
	}
	let_next_kernel_come();
}

uint64_t queries_of(const struct op_args *args)
{
	const struct view *o = &args->views[ATTENTION_O];

	return o->shape[0] * o->shape[1] * o->shape[2];
}

template <class T, int EACH> void launch_columns(const struct op_args *args, const struct launch *launch)
{
	using R = typename real_of<T>::type;
	attention_problem p = problem_of(args);
	unsigned parts = attention_rows_parts(args);
	uint64_t queries = queries_of(args), blocks = (queries * parts + ROWS_WARPS - 1) / ROWS_WARPS;
	R *found = attention_rows_workspace(args) > 0 ? (R *)launch->workspace : nullptr;

	launch_kernel(
	    rows<T, EACH>,
	    {dim3((unsigned)(blocks < ROWS_GRID_MAX ? blocks : ROWS_GRID_MAX)), dim3(ROWS_WARPS * 32)},
	    cuda_stream(launch), p, queries, parts, found);
	if (found)
		launch_join<T, R>(args, p, findings_of<R>(args, found, parts), cuda_stream(launch));
}

template <class T> int launch_rows(const struct op_args *args, const struct launch *launch)
{
	if (args->views[ATTENTION_V].shape[3] <= 256)
		launch_columns<T, 8>(args, launch);
	else
		launch_columns<T, ATTENTION_DEPTH_MAX / 32>(args, launch);
	return cuda_launch_status();
}

} // namespace

/* As many as fill the GPU with warps, if they have some keys each. */
extern "C" unsigned attention_rows_parts(const struct op_args *args)
{
	const double part_keys = 64, parts_max = 512, warps = 32 * cuda_multiprocessors();
	double most = floor((double)args->views[ATTENTION_K].shape[2] / part_keys);

	return (unsigned)fmax(fmin(fmin(floor(warps / (double)queries_of(args)), most), parts_max), 1);
}

extern "C" uint64_t attention_rows_workspace(const struct op_args *args)
{
	return attention_found_bytes(args, attention_rows_parts(args),
	                             args->views[ATTENTION_O].dtype == KOPS_F64 ? sizeof(double)
	                                                                        : sizeof(float));
}

extern "C" CUDA_LAUNCH(attention_rows)
{
	switch (args->views[ATTENTION_O].dtype) {
	case KOPS_F16:
		return launch_rows<__half>(args, launch);
	case KOPS_BF16:
		return launch_rows<__nv_bfloat16>(args, launch);
	case KOPS_F32:
		return launch_rows<float>(args, launch);
	case KOPS_F64:
		return launch_rows<double>(args, launch);
	default:
		return KOPS_E_UNSUPPORTED;
	}
}
