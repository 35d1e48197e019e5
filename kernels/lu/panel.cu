/*
 * Panels of LU: some columns of any number of rows, a block of threads for each matrix. Each thread subtracts a
 * column's products from its rows, and looks meanwhile for the largest element of the next column. Bound by
 * what one multiprocessor reads and writes of the panel, once for each column.
 *
 * Rows of other columns are exchanged by a thread for each column, eight exchanges at a time where no row is in
 * two of them: else each would wait for the one before.
 */
#include "common/launch.cuh"
#include "linalg/counts.h"
#include "lu/kernels.h"
#include "lu/pivot.cuh"

namespace
{

constexpr int THREADS = 512, TOGETHER = 8;
constexpr uint64_t GRID_MAX = 1 << 20; /* blocks */

template <class N> __device__ __forceinline__ N *matrix_at(const linalg_batch &m, uint64_t matrix)
{
	return (N *)m.data + (int64_t)matrix * m.batch;
}

template <class N> __global__ void __launch_bounds__(THREADS) factor_panel(linalg_batch m, lu_exchanges x)
{
	__shared__ N top[LU_PANEL];
	__shared__ candidate<real_of<N>> room[THREADS / 32];
	int rows = (int)m.rows, cols = (int)m.cols;

	for (uint64_t matrix = blockIdx.x; matrix < m.n; matrix += gridDim.x) {
		N *a = matrix_at<N>(m, matrix);
		candidate<real_of<N>> mine = no_candidate<real_of<N>>();

		for (int i = (int)threadIdx.x; i < rows; i += THREADS)
			better(mine, candidate<real_of<N>>{size_of(a[i * m.row]), i});
		for (int j = 0; j < cols && j < rows; j++) {
			int pivot = pivot_row<THREADS>(mine, room, j), k = (int)threadIdx.x;

			if (threadIdx.x == 0)
				x.pivots[matrix * x.apart + x.begin + j] = (int32_t)(x.begin + pivot);
			if (k < cols) {
				if (pivot != j)
					exchange(a[pivot * m.row + k * m.col], a[j * m.row + k * m.col]);
				top[k] = loaded(a[j * m.row + k * m.col]);
			}
			__syncthreads();
			mine = no_candidate<real_of<N>>();
			for (int i = (int)threadIdx.x; i < rows; i += THREADS) {
				if (i <= j)
					continue;
				N *row = a + i * m.row, l = row[j * m.col];
				if (!is_zero(top[j]))
					l = divided(l, top[j]);
				row[j * m.col] = l;
				for (int c = j + 1; c < cols; c++) {
					N y = less_product(row[c * m.col], l, top[c]);
					row[c * m.col] = y;
					if (c == j + 1)
						better(mine, candidate<real_of<N>>{size_of(y), i});
				}
			}
			__syncthreads();
		}
	}
}

/* Whether no row is in two of the exchanges; the same for all threads. */
__device__ __forceinline__ bool are_apart(const int (&pivots)[TOGETHER], int first)
{
	bool apart = true;

#pragma unroll
	for (int i = 0; i < TOGETHER; i++)
#pragma unroll
		for (int k = 0; k < TOGETHER; k++)
			apart =
			    apart && (k == i || pivots[i] != first + k) && (k >= i || pivots[i] != pivots[k]);
	return apart;
}

template <class N>
__device__ __forceinline__ void exchange_together(N *column, int64_t row, const int (&pivots)[TOGETHER],
                                                  int first)
{
	N upper[TOGETHER], lower[TOGETHER];

#pragma unroll
	for (int i = 0; i < TOGETHER; i++) {
		upper[i] = loaded(column[(first + i) * row]);
		lower[i] = loaded(column[pivots[i] * row]);
	}
#pragma unroll
	for (int i = 0; i < TOGETHER; i++) {
		column[(first + i) * row] = lower[i];
		column[pivots[i] * row] = upper[i];
	}
}

constexpr int COLUMNS = 64; /* threads */

template <class N>
__global__ void __launch_bounds__(COLUMNS)
    exchange_rows(linalg_batch m, lu_exchanges x, uint64_t across, uint64_t blocks)
{
	for (uint64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
		uint64_t matrix = block / across, col = block % across * COLUMNS + threadIdx.x;
		const int32_t *pivots = x.pivots + matrix * x.apart + x.begin;
		N *column = matrix_at<N>(m, matrix) + (int64_t)col * m.col;

		if (col >= m.cols)
			continue;
		for (int first = 0; first < (int)x.n; first += TOGETHER) {
			int some[TOGETHER], n = min(TOGETHER, (int)x.n - first);

			for (int i = 0; i < TOGETHER; i++)
				some[i] = i < n ? pivots[first + i] - (int)x.begin : first + i;
			if (n == TOGETHER && are_apart(some, first))
				exchange_together(column, m.row, some, first);
			else
				for (int i = 0; i < n; i++)
					exchange(column[(first + i) * m.row], column[some[i] * m.row]);
		}
	}
}

struct ending {
	linalg_batch w;
	lu_exchanges x;
	int32_t *pivots, *info; /* or NULL */
	int64_t pivots_apart, pivot_stride, info_apart;
	uint64_t n_pivots;
};

template <class N> __global__ void __launch_bounds__(THREADS) finish(ending e)
{
	__shared__ int first;

	for (uint64_t matrix = blockIdx.x; matrix < e.w.n; matrix += gridDim.x) {
		const N *w = matrix_at<N>(e.w, matrix);

		for (uint64_t j = threadIdx.x; j < e.x.n && e.pivots; j += THREADS)
			e.pivots[(int64_t)matrix * e.pivots_apart + (int64_t)(e.x.begin + j) * e.pivot_stride] =
			    e.x.pivots[matrix * e.x.apart + e.x.begin + j];
		if (!e.info)
			continue;
		if (threadIdx.x == 0)
			first = INT_MAX;
		__syncthreads();
		for (int j = (int)threadIdx.x; j < (int)e.n_pivots; j += THREADS)
			if (is_zero(w[j * (e.w.row + e.w.col)]))
				atomicMin(&first, j);
		__syncthreads();
		if (threadIdx.x == 0)
			e.info[(int64_t)matrix * e.info_apart] = first == INT_MAX ? 0 : first + 1;
		__syncthreads();
	}
}

unsigned grid_of(uint64_t blocks)
{
	return (unsigned)(blocks < GRID_MAX ? blocks : GRID_MAX);
}

template <class... PARAMETERS, class... ARGUMENTS>
int start(void (*kernel)(PARAMETERS...), uint64_t blocks, int threads, const struct launch *launch,
          const ARGUMENTS &...arguments)
{
	launch_form form = {dim3(grid_of(blocks)), dim3((unsigned)threads)};

	form.early = false;
	if (blocks > 0)
		launch_kernel(kernel, form, cuda_stream(launch), arguments...);
	return cuda_launch_status();
}

} // namespace

/* Calls with a kernel for the type. */
#define BY_TYPE(dtype, kernel, ...)                                                                            \
	((dtype) == KOPS_F32   ? start(kernel<float>, __VA_ARGS__)                                             \
	 : (dtype) == KOPS_F64 ? start(kernel<double>, __VA_ARGS__)                                            \
	 : (dtype) == KOPS_C64 ? start(kernel<complex_number<float>>, __VA_ARGS__)                             \
	                       : start(kernel<complex_number<double>>, __VA_ARGS__))

extern "C" int lu_factor_panel(const struct linalg_batch *panel, const struct lu_exchanges *x,
                               const struct launch *launch)
{
	return BY_TYPE(panel->dtype, factor_panel, panel->n, THREADS, launch, *panel, *x);
}

extern "C" int lu_exchange_rows(const struct linalg_batch *m, const struct lu_exchanges *x,
                                const struct launch *launch)
{
	uint64_t across = (m->cols + COLUMNS - 1) / COLUMNS, blocks = x->n > 0 ? across * m->n : 0;

	return BY_TYPE(m->dtype, exchange_rows, blocks, COLUMNS, launch, *m, *x, across, blocks);
}

extern "C" int lu_finish(const struct op_args *args, const struct linalg_batch *w, uint64_t outer,
                         const struct lu_exchanges *x, const struct launch *launch)
{
	const struct view *pivots = &args->views[LU_PIVOTS], *info = &args->views[LU_INFO];
	ending e = {};

	e.w = *w;
	e.x = *x;
	e.n_pivots = lu_pivots(args);
	if (!view_is_absent(pivots)) {
		e.pivots = (int32_t *)pivots->data + (int64_t)outer * pivots->strides[0];
		e.pivots_apart = pivots->strides[1];
		e.pivot_stride = pivots->strides[3];
	}
	if (!view_is_absent(info) && linalg_end(args) == e.n_pivots) {
		e.info = (int32_t *)info->data + (int64_t)outer * info->strides[0];
		e.info_apart = info->strides[1];
	}
	return BY_TYPE(w->dtype, finish, w->n, THREADS, launch, e);
}
