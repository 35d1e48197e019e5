/*
 * flat.cuh: sums of rows of up to 2 KiB that follow each other without gaps and begin anywhere.
 *
 * A tile of whole rows, 32 KiB where rows are short, comes to shared memory as vectors of 16 bytes. Some lanes
 * of a warp, one for 128 bytes, add up a row. On an H200, of a copy's rate:
 *
 *   rows of                       read by       bound                          rate
 *   whole vectors                 16 bytes      HBM                            0.96 to 1.06
 *   up to 128 bytes, any others   elements      HBM; of one 16-bit element     0.99 to 1.06; 0.94
 *                                               instructions for each row
 *   more                          4 bytes       HBM                            0.97 to 1.04
 */
#ifndef KOPS_KERNELS_REDUCE_FLAT_H
#define KOPS_KERNELS_REDUCE_FLAT_H

#include <cuda_pipeline_primitives.h>

#include "reduce/problem.cuh"

namespace
{

/* Elements in the 4 bytes that a bank of shared memory gives at a time. */
template <typename T> constexpr unsigned PAIR = 4 / sizeof(T);

constexpr unsigned FLAT_BYTES = 32 * 1024; /* that a tile is filled up to, where rows are short */
constexpr unsigned LANE_BYTES = 128;       /* of a row that are worth a lane */
constexpr unsigned FEW = 6;                /* elements of a row: each length is compiled by itself */

/* How rows are shared out: so many in a tile; a warp adds up some at a time that are so many apart: 1, 2, 4
 * or 8. */
struct tiling {
	unsigned rows, apart;
};

/*
 * n elements from `from` on, as they lie in 16 bytes each; those of the first begin `ahead` elements in, which
 * is returned. The vectors at both ends are neighbours' too. What is not x's is not read.
 */
template <typename T>
__device__ __forceinline__ unsigned bring(uint4 *to, const problem &p, const T *from, unsigned n)
{
	constexpr unsigned N = sizeof(uint4) / sizeof(T);
	const T *begin = (const T *)p.x, *end = begin + p.rows * p.cols;
	unsigned ahead = (unsigned)((uintptr_t)from % sizeof(uint4) / sizeof(T)), behind = ahead + n;
	const T *x = from - ahead;
	unsigned first = x < begin, last = (behind + N - 1) / N;
	unsigned i = threadIdx.x;

	if (x + last * N > end)
		last--;
	for (unsigned v = first + i; v < last; v += THREADS)
		__pipeline_memcpy_async(&to[v], (const uint4 *)x + v, sizeof(uint4));
	if (first && i >= ahead && i < N && i < behind)
		((T *)to)[i] = x[i];
	if (last >= first && last * N + i < behind)
		((T *)to)[last * N + i] = x[last * N + i];
	__pipeline_commit();
	__pipeline_wait_prior(0);
	__syncthreads();
	return ahead;
}

/* This lane's share of elements [from, to): whole words, and single elements at the ends. */
template <total_kind KIND, typename T, unsigned GROUP>
__device__ __forceinline__ float join_words(const T *x, unsigned from, unsigned to)
{
	constexpr unsigned N = PAIR<T>;
	const some<T, N> *words = (const some<T, N> *)x;
	unsigned lane = threadIdx.x % GROUP, last = to / N;
	float sums[N];

#pragma unroll
	for (unsigned i = 0; i < N; i++)
		sums[i] = total<KIND>::nothing();
#pragma unroll 4
	for (unsigned w = (from + N - 1) / N + lane; w < last; w += GROUP) {
		some<T, N> v = words[w];
#pragma unroll
		for (unsigned i = 0; i < N; i++)
			sums[i] = total<KIND>::join(sums[i], (float)v.of[i]);
	}
	if (from % N != 0 && lane == 0)
		sums[0] = total<KIND>::join(sums[0], (float)x[from]);
	if (to % N != 0 && lane == GROUP - 1)
		sums[N - 1] = total<KIND>::join(sums[N - 1], (float)x[to - 1]);
	return N == 1 ? sums[0] : total<KIND>::join(sums[0], sums[N - 1]);
}

/* What a lane alone adds up, element by element: its ends cost more than words save. */
template <total_kind KIND, typename T> __device__ __forceinline__ float join_elements(const T *x, unsigned n)
{
	float sum = (float)x[0];

#pragma unroll 4
	for (unsigned k = 1; k < n; k++)
		sum = total<KIND>::join(sum, (float)x[k]);
	return sum;
}

/* The first n bytes of `behind`, and the others of v. */
__device__ __forceinline__ uint4 blend(uint4 v, uint4 behind, unsigned n)
{
	auto word = [n](uint32_t a, uint32_t b, unsigned at) {
		uint32_t mask = n <= at ? 0 : n >= at + 4 ? ~0u : (1u << 8 * (n - at)) - 1;

		return (a & ~mask) | (b & mask);
	};

	return {word(v.x, behind.x, 0), word(v.y, behind.y, 4), word(v.z, behind.z, 8),
	        word(v.w, behind.w, 12)};
}

/*
 * This lane's share of n whole vectors of elements, GROUP at least. They begin `ahead` bytes behind x: what
 * comes before is replaced by as many bytes of the vector behind the last.
 */
template <total_kind KIND, typename T, unsigned GROUP>
__device__ __forceinline__ float join_vectors(const uint4 *x, unsigned ahead, unsigned n)
{
	unsigned lane = threadIdx.x % GROUP;
	uint4 v = x[lane];
	float sum;

	if (ahead > 0)
		v = blend(v, x[n], lane == 0 ? ahead : 0);
	sum = join_vector<KIND, T>(total<KIND>::nothing(), v);
	for (unsigned i = lane + GROUP; i < n; i += GROUP)
		sum = join_vector<KIND, T>(sum, x[i]);
	return sum;
}

/* Row r of a tile whose elements begin `ahead` elements in. */
template <total_kind KIND, typename T, unsigned GROUP>
__device__ __forceinline__ float join_row(const uint4 *tile, unsigned ahead, unsigned r, unsigned cols)
{
	constexpr unsigned N = sizeof(uint4) / sizeof(T);
	unsigned from = ahead + r * cols;
	float sum;

	if (cols % N == 0)
		sum =
		    join_vectors<KIND, T, GROUP>(tile + r * (cols / N), ahead * (unsigned)sizeof(T), cols / N);
	else if (GROUP == 1)
		sum = join_elements<KIND, T>((const T *)tile + from, cols);
	else
		sum = join_words<KIND, T, GROUP>((const T *)tile, from, from + cols);
	return join_lanes<KIND, GROUP>(sum);
}

/* This lane's share of the elements of a row, in f64; the sum of all of them. */
template <typename T, unsigned GROUP>
__device__ __forceinline__ double add_row_wide(const uint4 *tile, unsigned from, unsigned cols)
{
	double sum = 0;

#pragma unroll 1
	for (unsigned k = threadIdx.x % GROUP; k < cols; k += GROUP)
		sum += (double)(float)((const T *)tile)[from + k];
	return join_lanes<SUM, GROUP>(sum);
}

/* What y has of a sum where p.plain. f32 is exact enough for a scale if y is of 16 bits. */
template <typename T> __device__ __forceinline__ T plain_result(const problem &p, float sum)
{
	if constexpr (sizeof(T) < sizeof(float))
		return (T)(sum * (float)p.scale);
	else
		return p.scale == 1 ? sum : (float)(sum * p.scale);
}

/*
 * Sums of a tile's rows, from `first` on, which begin `ahead` elements in: GROUP lanes for each. COLS: their
 * elements, if the compiler knows.
 */
template <total_kind KIND, typename T, unsigned GROUP, bool PLAIN, unsigned COLS = 0>
__device__ __forceinline__ void reduce_tile(const problem &p, const tiling &t, const uint4 *tile,
                                            unsigned ahead, uint64_t first, unsigned rows)
{
	constexpr unsigned ROWS = WARP / GROUP; /* of a warp at a time */
	unsigned cols = COLS > 0 ? COLS : (unsigned)p.cols, of_warp = threadIdx.x % WARP / GROUP;
	unsigned apart = GROUP > 1 ? t.apart : 1;
	T *y = (T *)p.y + first;

	for (unsigned i = threadIdx.x / WARP; i < t.rows / ROWS; i += WARPS) {
		unsigned within = i & (apart - 1), r = (i - within) * ROWS + within + of_warp * apart;
		unsigned row = r < rows ? r : 0;
		float sum = join_row<KIND, T, GROUP>(tile, ahead, row, cols);
		bool again = COLS != 1 && overflows<KIND, T, GROUP>(sum);
		double wide = again ? add_row_wide<T, GROUP>(tile, ahead + row * cols, cols) : 0;

		if (threadIdx.x % GROUP != 0 || r >= rows)
			continue;
		if (again && !is_finite(sum)) /* not another row's of the warp */
			store_at<KIND, T>(p, (int64_t)(first + r) * p.y_batch[2], wide);
		else if (PLAIN)
			y[r] = plain_result<T>(p, sum);
		else
			store_at<KIND, T>(p, (int64_t)(first + r) * p.y_batch[2], (double)sum);
	}
}

/* As reduce_tile(), which the compiler unrolls for rows of up to FEW elements: they wait for instructions. */
template <total_kind KIND, typename T, unsigned GROUP, unsigned COLS = 1>
__device__ __forceinline__ void reduce_plain_tile(const problem &p, const tiling &t, const uint4 *tile,
                                                  unsigned ahead, uint64_t first, unsigned rows)
{
	if constexpr (GROUP > 1 || COLS > FEW)
		reduce_tile<KIND, T, GROUP, true>(p, t, tile, ahead, first, rows);
	else if (p.cols == COLS)
		reduce_tile<KIND, T, GROUP, true, COLS>(p, t, tile, ahead, first, rows);
	else
		reduce_plain_tile<KIND, T, GROUP, COLS + 1>(p, t, tile, ahead, first, rows);
}

template <total_kind KIND, typename T, unsigned GROUP>
__global__ void __launch_bounds__(THREADS, CUDA_RESIDENT_THREADS / THREADS) reduce_flat(problem p, tiling t)
{
	extern __shared__ uint4 tile[];

	await_kernel_before();
	for (uint64_t first = (uint64_t)blockIdx.x * t.rows; first < p.rows;
	     first += (uint64_t)gridDim.x * t.rows) {
		unsigned rows = (unsigned)(p.rows - first < t.rows ? p.rows - first : t.rows);
		const T *from = (const T *)p.x + first * p.cols;
		unsigned ahead = bring(tile, p, from, rows * (unsigned)p.cols);

		if (p.plain)
			reduce_plain_tile<KIND, T, GROUP>(p, t, tile, ahead, first, rows);
		else
			reduce_tile<KIND, T, GROUP, false>(p, t, tile, ahead, first, rows);
		__syncthreads(); /* the next one comes in its place */
	}
	let_next_kernel_come();
}

/* ---- Launching ---- */

/* The largest power of two that divides the elements of a row. */
unsigned factor_of_two(const problem &p)
{
	return (unsigned)(p.cols & (0 - p.cols));
}

/*
 * Words that a warp reads together should be in different banks. Rows of an odd number of 16-bit elements begin
 * in all of them, if those of a warp are 2 · group apart; of twice an odd number, if they are `group` apart;
 * and so on. With up to WARPS apart no bank is asked for more than two words; with a lane for each row
 * neighbours will do.
 */
template <typename T> tiling tiling_of(const problem &p, unsigned group)
{
	unsigned pass = THREADS / group, bytes = pass * (unsigned)(p.cols * sizeof(T));
	unsigned apart = PAIR<T> * group, even = factor_of_two(p);

	apart = even < apart ? apart / even : 1;
	return {bytes < FLAT_BYTES ? FLAT_BYTES / bytes * pass : pass, apart < WARPS ? apart : WARPS};
}

template <total_kind KIND, typename T, unsigned GROUP> void launch_flat(const problem &p, cudaStream_t stream)
{
	tiling t = tiling_of<T>(p, GROUP);
	size_t bytes = t.rows * p.cols * sizeof(T) + 2 * sizeof(uint4);

	launch_kernel(reduce_flat<KIND, T, GROUP>, {dim3(grid_of(p.rows, t.rows)), dim3(THREADS), bytes},
	              stream, p, t);
}

/*
 * Eight lanes read a vector each at a time, which should be in different banks. Two in the same are no harm, so
 * rows of so many vectors that 2, 4 or 8 divides them have half as many lanes at least.
 */
template <total_kind KIND, typename T> void launch_flat(const problem &p, uint64_t bytes, cudaStream_t stream)
{
	uint64_t divisor = factor_of_two(p) * sizeof(T) / sizeof(uint4);
	uint64_t lanes = (bytes + LANE_BYTES - 1) / LANE_BYTES, apart = divisor < 8 ? divisor / 2 : 4;

	lanes = lanes > apart ? lanes : apart;
	if (lanes <= 1)
		launch_flat<KIND, T, 1>(p, stream);
	else if (lanes <= 2)
		launch_flat<KIND, T, 2>(p, stream);
	else if (lanes <= 4)
		launch_flat<KIND, T, 4>(p, stream);
	else if (lanes <= 8)
		launch_flat<KIND, T, 8>(p, stream);
	else
		launch_flat<KIND, T, 16>(p, stream);
}

} // namespace

#endif
