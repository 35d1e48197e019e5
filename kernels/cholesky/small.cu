/*
 * Cholesky for matrices that fit into shared memory: a block of threads for each. Column after column is
 * scaled, and its products subtracted from all that is to the right, by threads in a square. The triangle of a
 * is read once and the factor written once. Bound by two barriers a column, unless many blocks share a
 * multiprocessor.
 */
#include "cholesky/kernels.h"
#include "common/launch.cuh"
#include "linalg/number.cuh"

namespace
{

constexpr uint64_t GRID_MAX = 1 << 20; /* blocks */
constexpr int SIDE = 16;               /* threads that have neighbouring columns */

struct problem {
	const char *a;
	char *factor;
	int32_t *info; /* or NULL */
	uint64_t matrices, inner;
	int64_t of_a[4], of_factor[4], of_info[2];
	int n;
	bool keeps;
	bool is_block; /* of a larger matrix: nobody asks for info, and a failure only has to show */
};

__device__ __forceinline__ int64_t place(const int64_t *strides, uint64_t inner, uint64_t matrix)
{
	return (int64_t)(matrix / inner) * strides[0] + (int64_t)(matrix % inner) * strides[1];
}

/* Calls use(row, col) for each element of n × n, neighbouring threads along the finer axis. */
template <int THREADS, class USE> __device__ __forceinline__ void each(int n, const int64_t *strides, USE use)
{
	bool by_rows = strides[3] == 1;

	for (int e = (int)threadIdx.x; e < n * n; e += THREADS) {
		int coarse = e / n, fine = e - coarse * n;
		use(by_rows ? coarse : fine, by_rows ? fine : coarse);
	}
}

/* Returns 0, or the number of the column, from 1 on, whose pivot is not positive. roots: the diagonal. */
template <class N, int MAX, int THREADS>
__device__ int factor_tile(N (*tile)[MAX + 1], real_of<N> *roots, int n)
{
	int across = (int)threadIdx.x % SIDE, down = (int)threadIdx.x / SIDE;

	for (int j = 0; j < n; j++) {
		__syncthreads();
		real_of<N> pivot = real_part(tile[j][j]);
		if (!(pivot > 0))
			return j + 1;
		real_of<N> root = sqrt(pivot);
		if (threadIdx.x == 0)
			roots[j] = root;
		for (int i = j + 1 + (int)threadIdx.x; i < n; i += THREADS)
			tile[i][j] = divided(tile[i][j], root);
		__syncthreads();
		for (int i = j + 1 + down; i < n; i += THREADS / SIDE)
			for (int k = j + 1 + across; k <= i; k += SIDE)
				tile[i][k] = less_product(tile[i][k], tile[i][j], conjugate(tile[k][j]));
	}
	return 0;
}

template <class N, int MAX, int THREADS> __global__ void __launch_bounds__(THREADS) factor_small(problem p)
{
	__shared__ N tile[MAX][MAX + 1];
	__shared__ real_of<N> roots[MAX];

	for (uint64_t matrix = blockIdx.x; matrix < p.matrices; matrix += gridDim.x) {
		const N *a = (const N *)p.a + place(p.of_a, p.inner, matrix);
		N *factor = (N *)p.factor + place(p.of_factor, p.inner, matrix);

		each<THREADS>(p.n, p.of_a, [&](int i, int j) {
			if (j <= i)
				tile[i][j] = a[i * p.of_a[2] + j * p.of_a[3]];
		});
		int failed = factor_tile<N, MAX, THREADS>(tile, roots, p.n);
		__syncthreads();
		each<THREADS>(p.n, p.of_factor, [&](int i, int j) {
			bool is_nan = failed && (p.is_block ? i == j && i == failed - 1 : j <= i);
			N x = j > i                                ? number_of<N>(0)
			      : is_nan                             ? not_a_number<N>()
			      : i == j && !(failed && i >= failed) ? number_of<N>(roots[i])
			                                           : tile[i][j];
			if (j <= i || !p.keeps)
				factor[i * p.of_factor[2] + j * p.of_factor[3]] = x;
		});
		if (p.info && threadIdx.x == 0)
			p.info[place(p.of_info, p.inner, matrix)] = failed;
		__syncthreads();
	}
}

template <class N, int MAX, int THREADS> void start(const problem &p, const struct launch *launch)
{
	launch_form form = {dim3((unsigned)(p.matrices < GRID_MAX ? p.matrices : GRID_MAX)), dim3(THREADS)};

	form.early = false;
	if (p.matrices > 0)
		launch_kernel(factor_small<N, MAX, THREADS>, form, cuda_stream(launch), p);
}

template <class N, int MAX> int start_for(const problem &p, const struct launch *launch)
{
	if (p.n <= 16)
		start<N, 16, 32>(p, launch);
	else if (p.n <= 32)
		start<N, 32, 64>(p, launch);
	else
		start<N, MAX, 256>(p, launch);
	return cuda_launch_status();
}

int start_of(kops_dtype dtype, const problem &p, const struct launch *launch)
{
	switch (dtype) {
	case KOPS_F32:
		return start_for<float, CHOLESKY_SMALL_MAX(KOPS_F32)>(p, launch);
	case KOPS_F64:
		return start_for<double, CHOLESKY_SMALL_MAX(KOPS_F64)>(p, launch);
	case KOPS_C64:
		return start_for<complex_number<float>, CHOLESKY_SMALL_MAX(KOPS_C64)>(p, launch);
	default:
		return start_for<complex_number<double>, CHOLESKY_SMALL_MAX(KOPS_C128)>(p, launch);
	}
}

} // namespace

extern "C" CUDA_LAUNCH(cholesky_small)
{
	const struct view *a = &args->views[CHOLESKY_A], *factor = &args->views[CHOLESKY_FACTOR],
	                  *info = &args->views[CHOLESKY_INFO];
	problem p = {};

	p.a = (const char *)a->data;
	p.factor = (char *)factor->data;
	p.info = view_is_absent(info) ? NULL : (int32_t *)info->data;
	p.matrices = factor->shape[0] * factor->shape[1];
	p.inner = factor->shape[1];
	for (int d = 0; d < 4; d++) {
		p.of_a[d] = a->strides[d];
		p.of_factor[d] = factor->strides[d];
	}
	p.of_info[0] = info->strides[0];
	p.of_info[1] = info->strides[1];
	p.n = (int)factor->shape[2];
	p.keeps = args->params.plain.flags[CHOLESKY_KEEP];
	return start_of(factor->dtype, p, launch);
}

extern "C" int cholesky_factor_block(const struct linalg_batch *m, const struct launch *launch)
{
	problem p = {};
	const int64_t strides[] = {0, m->batch, m->row, m->col};

	p.a = p.factor = m->data;
	p.matrices = p.inner = m->n;
	for (int d = 0; d < 4; d++)
		p.of_a[d] = p.of_factor[d] = strides[d];
	p.n = (int)m->rows;
	p.keeps = p.is_block = true;
	return start_of(m->dtype, p, launch);
}
