/*
 * Solves T·X = B for triangles that fit into shared memory: four threads for each column of X.
 *
 * Thread q of four keeps rows q, q + 4, … of its column in registers. An element that is known goes to the
 * other three by a shuffle, and each of them subtracts its multiples from what is below. T is read from shared
 * memory, by all columns of a block at the same place. Bound by that: an FMA of each element of T for each
 * column.
 */
#include "common/launch.cuh"
#include "linalg/batch.h"
#include "linalg/number.cuh"

namespace
{

constexpr int QUAD = 4, COLUMNS = 32, THREADS = QUAD * COLUMNS;
constexpr uint64_t GRID_MAX = 1 << 20; /* blocks */

template <class T> __device__ __forceinline__ T from_quad(T x, int q)
{
	return __shfl_sync(~0u, x, (int)(threadIdx.x % 32 & ~3u) + q);
}
template <class T> __device__ __forceinline__ complex_number<T> from_quad(complex_number<T> x, int q)
{
	return {from_quad(x.re, q), from_quad(x.im, q)};
}

template <class N>
__device__ __forceinline__ N *element_at(const linalg_batch &m, uint64_t matrix, uint64_t row, uint64_t col)
{
	return (N *)m.data + (int64_t)matrix * m.batch + (int64_t)row * m.row + (int64_t)col * m.col;
}

/* Column j of T, from the diagonal on, at t + j · MAX; zeros elsewhere. */
template <class N, int MAX>
__device__ __forceinline__ void load_triangle(const linalg_solve &s, uint64_t matrix, int n, N *t)
{
	bool by_rows = s.t.col == 1 || s.t.col == -1;

	for (int e = (int)threadIdx.x; e < MAX * MAX; e += THREADS) {
		int fine = e % MAX, coarse = e / MAX, row = by_rows ? coarse : fine,
		    col = by_rows ? fine : coarse;
		N x = number_of<N>(row == col ? 1 : 0);

		if (row < n && col <= row && !(s.unit && row == col)) {
			x = *element_at<N>(s.t, matrix, row, col);
			x = s.conjugated ? conjugate(x) : x;
		}
		t[col * MAX + row] = x;
	}
}

template <class N, int MAX> __device__ __forceinline__ void solve_column(N (&x)[MAX / QUAD], const N *t, int n)
{
	int lane = (int)threadIdx.x % QUAD;

#pragma unroll
	for (int i = 0; i < MAX / QUAD; i++) {
		if (i * QUAD >= n)
			break;
#pragma unroll 1
		for (int q = 0; q < QUAD; q++) {
			const N *column = t + (i * QUAD + q) * MAX + lane;
			N known = from_quad(divided(x[i], t[(i * QUAD + q) * (MAX + 1)]), q);

			x[i] = lane == q  ? known
			       : lane > q ? less_product(x[i], known, column[i * QUAD])
			                  : x[i];
#pragma unroll
			for (int k = i + 1; k < MAX / QUAD; k++)
				x[k] = less_product(x[k], known, column[k * QUAD]);
		}
	}
}

/* Blocks take columns of matrix after matrix. */
template <class N, int MAX>
__global__ void __launch_bounds__(THREADS) solve_columns(linalg_solve s, uint64_t across, uint64_t blocks)
{
	__shared__ N t[MAX * MAX];
	int n = (int)s.t.rows, lane = (int)threadIdx.x % QUAD;

	for (uint64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
		uint64_t matrix = block / across, col = block % across * COLUMNS + threadIdx.x / QUAD;
		N x[MAX / QUAD];

		__syncthreads();
		load_triangle<N, MAX>(s, matrix, n, t);
		__syncthreads();
#pragma unroll
		for (int i = 0; i < MAX / QUAD; i++) {
			int row = i * QUAD + lane;
			x[i] =
			    row < n && col < s.x.cols ? *element_at<N>(s.x, matrix, row, col) : number_of<N>(0);
		}
		solve_column<N, MAX>(x, t, n);
#pragma unroll
		for (int i = 0; i < MAX / QUAD; i++) {
			int row = i * QUAD + lane;
			if (row < n && col < s.x.cols)
				*element_at<N>(s.x, matrix, row, col) = x[i];
		}
	}
}

template <class N, int MAX> void launch_solve(const linalg_solve *s, const struct launch *launch)
{
	uint64_t across = (s->x.cols + COLUMNS - 1) / COLUMNS, blocks = s->x.n * across;
	launch_form form = {dim3((unsigned)(blocks < GRID_MAX ? blocks : GRID_MAX)), dim3(THREADS)};

	form.early = false;
	if (blocks > 0)
		launch_kernel(solve_columns<N, MAX>, form, cuda_stream(launch), *s, across, blocks);
}

} // namespace

extern "C" int linalg_solve_block(const struct linalg_solve *s, const struct launch *launch)
{
	switch (s->x.dtype) {
	case KOPS_F32:
		launch_solve<float, LINALG_SOLVED_MAX(KOPS_F32)>(s, launch);
		break;
	case KOPS_F64:
		launch_solve<double, LINALG_SOLVED_MAX(KOPS_F64)>(s, launch);
		break;
	case KOPS_C64:
		launch_solve<complex_number<float>, LINALG_SOLVED_MAX(KOPS_C64)>(s, launch);
		break;
	default:
		launch_solve<complex_number<double>, LINALG_SOLVED_MAX(KOPS_C128)>(s, launch);
		break;
	}
	return cuda_launch_status();
}
