/*
 * attention in f32 by FMAs, for any strides, after FlashAttention-2 (T. Dao, 2023): o = softmax(scale q kT +
 * mask) v.
 *
 *   kernel  idea                                        tiles, threads       bound
 *   tiles   q and k lie transposed in shared memory,    64 queries by 64     FMAs
 *           so that a thread multiplies 8 queries by    keys, 128; depth is
 *           4 keys from three vectors; weights go       padded to 64 or 128
 *           through shared memory to the values. The
 *           largest score and the sum so far are
 *           carried along
 *
 * If there are few blocks, each has a part of the keys, and join.cuh adds up what they found. 16-bit types are
 * computed in f32.
 */
#include <float.h>
#include <math.h>

#include "attention/f16x3/found.cuh"
#include "attention/join.cuh"
#include "attention/problem.cuh"
#include "attention/tiles.h"
#include "common/launch.cuh"
#include "softmax/exp2.cuh"

namespace
{

constexpr int EDGE = TILES_EDGE, TILES_THREADS = 128, ROWS = 8, PITCH = EDGE + 4;
constexpr uint64_t TILES_GRID_MAX = 1u << 30;
constexpr float LOG2_E = 1.44269504f, LN_OF_2 = 0.69314718f;

struct tiles_work {
	attention_problem p;
	tiles_plan plan;
	float *found;                 /* what join.cuh joins; NULL: there is one part */
	float factor;                 /* of scores, log2(e) included */
	const split_found *otherwise; /* NULL: in any case; else only where the kernel `f16x3` does nothing */
};

/* In shared memory: q, depth by queries; k, depth by keys, and then v, keys by columns; weights, keys by
 * queries. In floats. */
template <int D> struct tiles_memory {
	static constexpr int V_PITCH = D + 4;
	static constexpr int Q = 0, KEYS = Q + D * PITCH;
	static constexpr int WEIGHTS = KEYS + (D * PITCH > EDGE * V_PITCH ? D * PITCH : EDGE * V_PITCH);
	static constexpr int FLOATS = WEIGHTS + EDGE * PITCH;
};

/* A block's queries, and its keys. */
struct tiles_block {
	int64_t batch, head;
	uint64_t number; /* of its first query, through batches and heads */
	int row, rows, length;
	int begin, end, plain_begin, plain_end; /* plain: all of its queries see these keys */
	unsigned part;
};

/* What a thread keeps: queries row_of_thread() …, of which 16 neighbouring lanes have other columns. */
template <int D> struct thread_sums {
	float peak[ROWS], total[ROWS], sums[ROWS][D / 16];
};

__device__ __forceinline__ int row_of_thread()
{
	return (int)threadIdx.x / 16 * ROWS;
}

/* Of each 64 columns a thread has four. */
__device__ __forceinline__ int column_of_thread()
{
	return (int)threadIdx.x % 16 * 4;
}

/* The same in all threads of the block. */
__device__ __forceinline__ int length_of_block(const attention_problem &p, int64_t batch)
{
	__shared__ int length;

	if (!p.lengths)
		return 0;
	__syncthreads(); /* all have read the one before */
	if (threadIdx.x == 0)
		length = length_of(p, batch);
	__syncthreads();
	return length;
}

__device__ __forceinline__ tiles_block block_of_number(const tiles_work &w, uint64_t number)
{
	const tiles_plan &plan = w.plan;
	uint64_t rest = number / plan.parts, unit = rest % plan.units;
	tiles_block b;

	b.part = (unsigned)(number % plan.parts);
	b.batch = (int64_t)(unit / (uint64_t)w.p.heads);
	b.head = (int64_t)(unit % (uint64_t)w.p.heads);
	/* Later rows see more keys, if it is causal: they begin first. */
	b.row = (int)(plan.row_tiles - 1 - rest / plan.units) * EDGE;
	b.rows = w.p.queries - b.row < EDGE ? w.p.queries - b.row : EDGE;
	b.number = unit * (uint64_t)w.p.queries + (uint64_t)b.row;
	b.length = length_of_block(w.p, b.batch);

	attention_rule rule = rule_for(w.p, b.length);
	attention_keys of_first = attention_keys_of(&rule, b.row),
	               of_last = attention_keys_of(&rule, b.row + b.rows - 1);
	int64_t begin = of_first.begin, end = of_last.end;
	int64_t tiles = end > begin ? (end - begin + EDGE - 1) / EDGE : 0;

	b.begin = (int)(begin + tiles * b.part / plan.parts * EDGE);
	b.end = (int)(begin + tiles * (b.part + 1) / plan.parts * EDGE);
	b.end = b.end < end ? b.end : (int)end;
	b.plain_begin = (int)of_last.begin;
	b.plain_end = w.p.mask.data ? 0 : (int)of_first.end;
	return b;
}

/* ---- Tiles in shared memory ---- */

/* Rows of a matrix as columns; zeros where there is none. A warp takes four rows by eight columns: whole
 * sectors of memory, and all banks of shared memory. */
template <class T, int D>
__device__ __forceinline__ void load_across(float *to, const T *from, const int64_t (&strides)[4], int rows,
                                            int columns)
{
	constexpr int GROUPS = EDGE / 4;
	int lane = (int)threadIdx.x % 32;

#pragma unroll 4
	for (int i = (int)threadIdx.x / 32; i < GROUPS * (D / 8); i += TILES_THREADS / 32) {
		int row = i % GROUPS * 4 + lane / 8, column = i / GROUPS * 8 + lane % 8;
		bool is_there = row < rows && column < columns;

		to[column * PITCH + row] = is_there ? (float)from[row * strides[2] + column * strides[3]] : 0;
	}
}

/* Rows as they are. */
template <class T, int D>
__device__ __forceinline__ void load_rows(float *to, const T *from, const int64_t (&strides)[4], int rows,
                                          int columns)
{
#pragma unroll 8
	for (int i = (int)threadIdx.x; i < EDGE * D; i += TILES_THREADS) {
		int row = i / D, column = i % D;
		bool is_there = row < rows && column < columns;

		to[row * tiles_memory<D>::V_PITCH + column] =
		    is_there ? (float)from[row * strides[2] + column * strides[3]] : 0;
	}
}

__device__ __forceinline__ void take_four(float *to, const float *from)
{
	float4 four = *(const float4 *)from;

	to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
}

/* ---- Scores ---- */

using thread_scores = float[ROWS][4];

__device__ __forceinline__ void multiply_keys(thread_scores &scores, const float *q, const float *k, int depth)
{
	q += row_of_thread();
	k += column_of_thread();
#pragma unroll
	for (int i = 0; i < ROWS; i++)
#pragma unroll
		for (int j = 0; j < 4; j++)
			scores[i][j] = 0;
#pragma unroll 4
	for (int d = 0; d < depth; d++, q += PITCH, k += PITCH) {
		float of_q[ROWS], of_k[4];

		take_four(of_q, q);
		take_four(of_q + 4, q + 4);
		take_four(of_k, k);
#pragma unroll
		for (int i = 0; i < ROWS; i++)
#pragma unroll
			for (int j = 0; j < 4; j++)
				scores[i][j] += of_q[i] * of_k[j];
	}
}

/* Adds the mask, and makes scores of keys that a query does not see -Inf. */
template <class T>
__device__ __forceinline__ void mask_scores(thread_scores &scores, const tiles_work &w, const tiles_block &b,
                                            int first)
{
	attention_rule rule = rule_for(w.p, b.length);

#pragma unroll
	for (int i = 0; i < ROWS; i++) {
		int row = row_of_thread() + i, query = b.row + (row < b.rows ? row : 0);
		attention_keys keys = attention_keys_of(&rule, query);
		const T *mask = w.p.mask.data ? row_of<T>(w.p.mask, b.batch, b.head, query) : nullptr;

#pragma unroll
		for (int j = 0; j < 4; j++) {
			int key = first + column_of_thread() + j;
			bool is_seen = key >= keys.begin && key < keys.end && key < b.end;

			if (mask && is_seen)
				scores[i][j] += (float)mask[key * w.p.mask.strides[3]] * LOG2_E;
			scores[i][j] = is_seen ? scores[i][j] : -INFINITY;
		}
	}
}

/* Over the 16 lanes that share a query. */
__device__ __forceinline__ float peak_of_lanes(float x)
{
#pragma unroll
	for (int apart = 8; apart > 0; apart /= 2)
		x = fmaxf(x, __shfl_xor_sync(~0u, x, apart));
	return x;
}

__device__ __forceinline__ float sum_of_lanes(float x)
{
#pragma unroll
	for (int apart = 8; apart > 0; apart /= 2)
		x += __shfl_xor_sync(~0u, x, apart);
	return x;
}

/* Makes exponentials of the scores, relative to the largest so far. */
template <int D> __device__ __forceinline__ void weigh(thread_scores &scores, thread_sums<D> &r)
{
#pragma unroll
	for (int i = 0; i < ROWS; i++) {
		float(&four)[4] = scores[i];
		float peak = peak_of_lanes(fmaxf(fmaxf(four[0], four[1]), fmaxf(four[2], four[3])));

		peak = fmaxf(r.peak[i], peak);
		float base = base_of(peak), down = exp2_fast(r.peak[i] - base);
		r.peak[i] = peak;
		r.total[i] *= down;
#pragma unroll
		for (int c = 0; c < D / 16; c++)
			r.sums[i][c] *= down;
#pragma unroll
		for (int j = 0; j < 4; j++) {
			four[j] = exp2_fast(four[j] - base);
			r.total[i] += four[j]; /* of this lane's keys */
		}
	}
}

__device__ __forceinline__ void store_weights(float *to, const thread_scores &scores)
{
#pragma unroll
	for (int j = 0; j < 4; j++) {
		float *column = to + (column_of_thread() + j) * PITCH + row_of_thread();

		*(float4 *)column = make_float4(scores[0][j], scores[1][j], scores[2][j], scores[3][j]);
		*(float4 *)(column + 4) = make_float4(scores[4][j], scores[5][j], scores[6][j], scores[7][j]);
	}
}

/* ---- Values ---- */

template <int D>
__device__ __forceinline__ void add_values(thread_sums<D> &r, const float *weights, const float *v)
{
	weights += row_of_thread();
	v += column_of_thread();
#pragma unroll 4
	for (int key = 0; key < EDGE; key++, weights += PITCH, v += tiles_memory<D>::V_PITCH) {
		float weight[ROWS], of_v[D / 16];

		take_four(weight, weights);
		take_four(weight + 4, weights + 4);
#pragma unroll
		for (int c = 0; c < D / 16; c += 4)
			take_four(of_v + c, v + c * 16);
#pragma unroll
		for (int i = 0; i < ROWS; i++)
#pragma unroll
			for (int c = 0; c < D / 16; c++)
				r.sums[i][c] += weight[i] * of_v[c];
	}
}

/* Writes results, or what join.cuh joins. */
template <class T, int D>
__device__ __forceinline__ void write_rows(const thread_sums<D> &r, const tiles_work &w, const tiles_block &b)
{
	int columns = w.p.values;

#pragma unroll
	for (int i = 0; i < ROWS; i++) {
		float total = sum_of_lanes(r.total[i]), by = w.found ? 1 : total == 0 ? 0 : 1 / total;
		int row = row_of_thread() + i;

		if (row >= b.rows)
			continue;
		T *o = row_of<T>(w.p.o, b.batch, b.head, b.row + row);
		float *found =
		    w.found ? w.found + ((b.number + row) * w.plan.parts + b.part) * (uint64_t)(columns + 2)
		            : nullptr;
#pragma unroll
		for (int c = 0; c < D / 16; c++) {
			int column = c / 4 * 64 + column_of_thread() + c % 4;

			if (column < columns && found)
				found[column] = r.sums[i][c];
			else if (column < columns)
				o[column * w.p.o.strides[3]] = (T)(r.sums[i][c] * by);
		}
		if (threadIdx.x % 16 != 0)
			continue;
		if (found) {
			found[columns] = r.peak[i] * LN_OF_2;
			found[columns + 1] = total;
		} else {
			write_lse(w.p, b.batch, b.head, b.row + row, r.peak[i] * LN_OF_2, total);
		}
	}
}

template <class T, int D>
__device__ __forceinline__ void attend(const tiles_work &w, const tiles_block &b, float *memory,
                                       thread_sums<D> &r)
{
	using form = tiles_memory<D>;
	const attention_problem &p = w.p;
	const T *q = row_of<const T>(p.q, b.batch, b.head, b.row);
	const T *k = row_of<const T>(p.k, b.batch, shared_head(p, b.head), 0);
	const T *v = row_of<const T>(p.v, b.batch, shared_head(p, b.head), 0);
	float *keys = memory + form::KEYS, *weights = memory + form::WEIGHTS;
	thread_scores scores;

	load_across<T, D>(memory + form::Q, q, p.q.strides, b.rows, p.depth);
	for (int first = b.begin; first < b.end; first += EDGE) {
		int n = b.end - first < EDGE ? b.end - first : EDGE;

		load_across<T, D>(keys, k + first * p.k.strides[2], p.k.strides, n, p.depth);
		__syncthreads();
		multiply_keys(scores, memory + form::Q, keys, p.depth);
#pragma unroll
		for (int i = 0; i < ROWS * 4; i++)
			scores[i / 4][i % 4] *= w.factor;
		if (first < b.plain_begin || first + EDGE > b.plain_end || n < EDGE)
			mask_scores<T>(scores, w, b, first);
		weigh<D>(scores, r);
		__syncthreads(); /* all have read the keys */
		store_weights(weights, scores);
		load_rows<T, D>(keys, v + first * p.v.strides[2], p.v.strides, n, p.values);
		__syncthreads();
		add_values<D>(r, weights, keys);
		__syncthreads();
	}
}

template <class T, int D>
__global__ void __launch_bounds__(TILES_THREADS, D <= 64 ? 3 : 2)
    tiles(const __grid_constant__ tiles_work w, uint64_t n_blocks)
{
	extern __shared__ __align__(128) char memory[];

	await_kernel_before();
	if (w.otherwise && split_fits(w.otherwise))
		return;
	for (uint64_t number = blockIdx.x; number < n_blocks; number += gridDim.x) {
		tiles_block b = block_of_number(w, number);
		thread_sums<D> r = {};

#pragma unroll
		for (int i = 0; i < ROWS; i++)
			r.peak[i] = -INFINITY;
		if (b.begin < b.end)
			attend<T, D>(w, b, (float *)memory, r);
		write_rows<T, D>(r, w, b);
	}
	let_next_kernel_come();
}

/* ---- Launches ---- */

template <class T, int D> void launch_depth(const tiles_work &w, uint64_t most_blocks, cudaStream_t stream)
{
	const int bytes = tiles_memory<D>::FLOATS * (int)sizeof(float);
	uint64_t blocks = w.plan.units * w.plan.row_tiles * w.plan.parts;

	cudaFuncSetAttribute(tiles<T, D>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
	launch_kernel(
	    tiles<T, D>,
	    {dim3((unsigned)(blocks < most_blocks ? blocks : most_blocks)), dim3(TILES_THREADS), (size_t)bytes},
	    stream, w, blocks);
}

template <class T> void launch_work(const tiles_work &w, uint64_t most_blocks, cudaStream_t stream)
{
	if (w.p.depth <= 64 && w.p.values <= 64)
		launch_depth<T, 64>(w, most_blocks, stream);
	else
		launch_depth<T, 128>(w, most_blocks, stream);
}

tiles_work work_of(const op_args *args)
{
	tiles_work w = {problem_of(args), tiles_plan_of(args), nullptr, 0, nullptr};
	double factor = w.p.rule.scale * 1.4426950408889634;

	w.factor = (float)fmax(fmin(factor, (double)FLT_MAX), -(double)FLT_MAX);
	return w;
}

template <class T> int launch_tiles(const op_args *args, const struct launch *launch)
{
	tiles_work w = work_of(args);

	w.found = attention_tiles_workspace(args) > 0 ? (float *)launch->workspace : nullptr;
	launch_work<T>(w, TILES_GRID_MAX, cuda_stream(launch));
	if (w.found)
		launch_join<T, float>(args, w.p, findings_of<float>(args, w.found, w.plan.parts),
		                      cuda_stream(launch));
	return cuda_launch_status();
}

/* Parts of fewer keys are not worth being joined. */
constexpr uint64_t LEAST_KEYS = 4 * EDGE;
constexpr double MOST_PARTS = 64;

} // namespace

extern "C" bool attention_tiles_supports(const op_args *args, const char **ret_why_not)
{
	const view *q = &args->views[ATTENTION_Q], *v = &args->views[ATTENTION_V];

	*ret_why_not = "takes f32, f16 and bf16";
	if (q->dtype == KOPS_F64)
		return false;
	*ret_why_not = "takes head_dim and value_dim up to 128";
	if (q->shape[3] > TILES_DEPTH_MAX || v->shape[3] > TILES_DEPTH_MAX)
		return false;
	*ret_why_not = "takes up to 2^30 queries and keys";
	return q->shape[2] <= INT32_MAX / 2 && v->shape[2] <= INT32_MAX / 2;
}

extern "C" tiles_plan tiles_plan_of(const op_args *args)
{
	const view *q = &args->views[ATTENTION_Q];
	tiles_plan p = {q->shape[0] * q->shape[1], (q->shape[2] + EDGE - 1) / EDGE, 1};
	double wanted = 4 * cuda_multiprocessors() / fmax((double)p.units * (double)p.row_tiles, 1);
	double most = floor((double)args->views[ATTENTION_K].shape[2] / LEAST_KEYS);

	p.parts = (unsigned)fmax(fmin(fmin(floor(wanted), most), MOST_PARTS), 1);
	return p;
}

extern "C" uint64_t attention_tiles_workspace(const op_args *args)
{
	return attention_found_bytes(args, tiles_plan_of(args).parts, sizeof(float));
}

extern "C" CUDA_LAUNCH(attention_tiles)
{
	switch (args->views[ATTENTION_O].dtype) {
	case KOPS_F16:
		return launch_tiles<__half>(args, launch);
	case KOPS_BF16:
		return launch_tiles<__nv_bfloat16>(args, launch);
	case KOPS_F32:
		return launch_tiles<float>(args, launch);
	default:
		return KOPS_E_UNSUPPORTED;
	}
}

/* Most often its blocks only come and go, so there are few. */
extern "C" int attention_tiles_otherwise(const op_args *args, const split_found *found,
                                         const struct launch *launch)
{
	tiles_work w = work_of(args);

	w.plan.parts = 1;
	w.otherwise = found;
	launch_work<float>(w, 3 * (uint64_t)cuda_multiprocessors(), cuda_stream(launch));
	return cuda_launch_status();
}
