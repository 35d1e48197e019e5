/*
 * LU for matrices that fit into shared memory: a block of threads for each. The pivot of a column is found by
 * all threads, rows are exchanged, and the column's products subtracted from all that is to the right, by
 * threads in a square. Bound by four barriers a column, unless many blocks share a multiprocessor.
 */
#include "common/launch.cuh"
#include "lu/kernels.h"
#include "lu/pivot.cuh"

namespace
{

constexpr uint64_t GRID_MAX = 1 << 20; /* blocks */
constexpr int SIDE = 16;               /* threads that have neighbouring columns */

struct problem {
	const char *a;
	char *lu;
	int32_t *pivots, *info; /* or NULL */
	uint64_t matrices, inner;
	int64_t of_a[4], of_lu[4], of_pivots[4], of_info[4];
	int m, n;
};

__device__ __forceinline__ int64_t place(const int64_t *strides, uint64_t inner, uint64_t matrix)
{
	return (int64_t)(matrix / inner) * strides[0] + (int64_t)(matrix % inner) * strides[1];
}

/* Calls use(row, col) for each element, neighbouring threads along the finer axis. */
template <int THREADS, class USE>
__device__ __forceinline__ void each(int m, int n, const int64_t *strides, USE use)
{
	bool by_rows = strides[3] == 1;
	int length = by_rows ? n : m;

	for (int e = (int)threadIdx.x; e < m * n; e += THREADS) {
		int coarse = e / length, fine = e - coarse * length;
		use(by_rows ? coarse : fine, by_rows ? fine : coarse);
	}
}

/* Column j, whose pivot is in place. */
template <class N, int MAX, int THREADS> __device__ void eliminate(N (*tile)[MAX + 1], int j, int m, int n)
{
	N pivot = tile[j][j];

	for (int i = j + 1 + (int)threadIdx.x; i < m && !is_zero(pivot); i += THREADS)
		tile[i][j] = divided(tile[i][j], pivot);
	__syncthreads();
	for (int i = j + 1 + (int)threadIdx.x / SIDE; i < m; i += THREADS / SIDE)
		for (int k = j + 1 + (int)threadIdx.x % SIDE; k < n; k += SIDE)
			tile[i][k] = less_product(tile[i][k], tile[i][j], tile[j][k]);
}

template <class N, int MAX, int THREADS>
__device__ void factor_tile(N (*tile)[MAX + 1], int *pivots, candidate<real_of<N>> *room, int m, int n)
{
	for (int j = 0; j < m && j < n; j++) {
		candidate<real_of<N>> mine = no_candidate<real_of<N>>();

		__syncthreads();
		for (int i = j + (int)threadIdx.x; i < m; i += THREADS)
			better(mine, candidate<real_of<N>>{size_of(tile[i][j]), i});
		int pivot = pivot_row<THREADS>(mine, room, j);
		if (threadIdx.x == 0)
			pivots[j] = pivot;
		for (int k = (int)threadIdx.x; k < n && pivot != j; k += THREADS) {
			exchange(tile[j][k], tile[pivot][k]);
		}
		__syncthreads();
		eliminate<N, MAX, THREADS>(tile, j, m, n);
	}
}

template <class N, int MAX, int THREADS> __global__ void __launch_bounds__(THREADS) factor_small(problem p)
{
	__shared__ N tile[MAX][MAX + 1];
	__shared__ int pivots[MAX];
	__shared__ candidate<real_of<N>> room[THREADS / 32];
	int n_pivots = p.m < p.n ? p.m : p.n;

	for (uint64_t matrix = blockIdx.x; matrix < p.matrices; matrix += gridDim.x) {
		const N *a = (const N *)p.a + place(p.of_a, p.inner, matrix);
		N *lu = (N *)p.lu + place(p.of_lu, p.inner, matrix);

		each<THREADS>(p.m, p.n, p.of_a,
		              [&](int i, int j) { tile[i][j] = a[i * p.of_a[2] + j * p.of_a[3]]; });
		factor_tile<N, MAX, THREADS>(tile, pivots, room, p.m, p.n);
		__syncthreads();
		each<THREADS>(p.m, p.n, p.of_lu,
		              [&](int i, int j) { lu[i * p.of_lu[2] + j * p.of_lu[3]] = tile[i][j]; });
		for (int j = (int)threadIdx.x; j < n_pivots && p.pivots; j += THREADS)
			p.pivots[place(p.of_pivots, p.inner, matrix) + j * p.of_pivots[3]] = pivots[j];
		if (threadIdx.x == 0 && p.info) {
			int j = 0;
			while (j < n_pivots && !is_zero(tile[j][j]))
				j++;
			p.info[place(p.of_info, p.inner, matrix)] = j < n_pivots ? j + 1 : 0;
		}
		__syncthreads();
	}
}

template <class N, int MAX, int THREADS> void start(const problem &p, const struct launch *launch)
{
	launch_form form = {dim3((unsigned)(p.matrices < GRID_MAX ? p.matrices : GRID_MAX)), dim3(THREADS)};

	form.early = false;
	launch_kernel(factor_small<N, MAX, THREADS>, form, cuda_stream(launch), p);
}

template <class N, int MAX> int start_for(const problem &p, const struct launch *launch)
{
	int longer = p.m > p.n ? p.m : p.n;

	if (longer <= 16)
		start<N, 16, 32>(p, launch);
	else if (longer <= 32)
		start<N, 32, 64>(p, launch);
	else
		start<N, MAX, 256>(p, launch);
	return cuda_launch_status();
}

void set_strides(int64_t to[4], const struct view *v)
{
	for (int d = 0; d < 4; d++)
		to[d] = v->strides[d];
}

} // namespace

extern "C" CUDA_LAUNCH(lu_small)
{
	const struct view *a = &args->views[LU_A], *lu = &args->views[LU_LU], *pivots = &args->views[LU_PIVOTS],
	                  *info = &args->views[LU_INFO];
	problem p = {};

	p.a = (const char *)a->data;
	p.lu = (char *)lu->data;
	p.pivots = view_is_absent(pivots) ? NULL : (int32_t *)pivots->data;
	p.info = view_is_absent(info) ? NULL : (int32_t *)info->data;
	p.matrices = lu->shape[0] * lu->shape[1];
	p.inner = lu->shape[1];
	set_strides(p.of_a, a);
	set_strides(p.of_lu, lu);
	set_strides(p.of_pivots, pivots);
	set_strides(p.of_info, info);
	p.m = (int)lu->shape[2];
	p.n = (int)lu->shape[3];
	if (p.matrices == 0)
		return 0;
	switch (lu->dtype) {
	case KOPS_F32:
		return start_for<float, LU_SMALL_MAX(KOPS_F32)>(p, launch);
	case KOPS_F64:
		return start_for<double, LU_SMALL_MAX(KOPS_F64)>(p, launch);
	case KOPS_C64:
		return start_for<complex_number<float>, LU_SMALL_MAX(KOPS_C64)>(p, launch);
	default:
		return start_for<complex_number<double>, LU_SMALL_MAX(KOPS_C128)>(p, launch);
	}
}
