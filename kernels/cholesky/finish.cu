/*
 * The end of a blocked Cholesky factorisation: one block of threads looks for the first NaN on the diagonal of
 * a matrix, and then tiles of the factor get zeros above the diagonal, NaN below if there was one, or the
 * elements that were computed elsewhere. Bound by memory.
 */
#include "cholesky/kernels.h"
#include "common/launch.cuh"
#include "linalg/counts.h"
#include "linalg/number.cuh"

namespace
{

constexpr int THREADS = 256, TILE = 32;
constexpr uint64_t GRID_MAX = 1 << 20; /* blocks */

template <class N>
__global__ void __launch_bounds__(THREADS)
    find_failures(linalg_batch w, int32_t *found, int32_t *info, int64_t apart)
{
	__shared__ int first[THREADS];
	int n = (int)w.rows, mine = n;

	for (uint64_t matrix = blockIdx.x; matrix < w.n; matrix += gridDim.x) {
		const N *m = (const N *)w.data + (int64_t)matrix * w.batch;

		mine = n;
		for (int j = (int)threadIdx.x; j < n && mine == n; j += THREADS)
			if (isnan(real_part(m[j * (w.row + w.col)])))
				mine = j;
		first[threadIdx.x] = mine;
		for (int half = THREADS / 2; half > 0; half /= 2) {
			__syncthreads();
			if ((int)threadIdx.x < half)
				first[threadIdx.x] = min(first[threadIdx.x], first[threadIdx.x + half]);
		}
		if (threadIdx.x == 0) {
			int failed = first[0] < n ? first[0] + 1 : 0;
			found[matrix] = failed;
			if (info)
				info[(int64_t)matrix * apart] = failed;
		}
		__syncthreads();
	}
}

/* Tiles of TILE lines of TILE elements; lines lie along the factor's finer axis. */
template <class N>
__global__ void __launch_bounds__(THREADS) settle(linalg_batch factor, linalg_batch w, const int32_t *found,
                                                  bool keeps, uint64_t across, uint64_t tiles)
{
	bool by_rows = factor.col == 1, apart = w.data != factor.data;
	uint64_t n = factor.rows;

	for (uint64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
		uint64_t matrix = tile / across / across, fine = tile % across * TILE + threadIdx.x % TILE;
		bool failed = found && found[matrix] != 0;
		N *to = (N *)factor.data + (int64_t)matrix * factor.batch;
		const N *from = (const N *)w.data + (int64_t)matrix * w.batch;

		for (uint64_t k = threadIdx.x / TILE; k < TILE; k += THREADS / TILE) {
			uint64_t coarse = tile / across % across * TILE + k;
			uint64_t row = by_rows ? coarse : fine, col = by_rows ? fine : coarse;
			N *y = to + (int64_t)row * factor.row + (int64_t)col * factor.col;

			if (row >= n || col >= n)
				continue;
			if (col > row && !keeps)
				*y = number_of<N>(0);
			else if (col <= row && failed)
				*y = not_a_number<N>();
			else if (col <= row && apart)
				*y = from[(int64_t)row * w.row + (int64_t)col * w.col];
		}
	}
}

struct ending {
	linalg_batch factor, w;
	int32_t *found, *info;
	int64_t info_apart;
	bool keeps;
};

template <class N> void start(const ending &e, const struct launch *launch)
{
	uint64_t across = (e.factor.rows + TILE - 1) / TILE, tiles = e.factor.n * across * across;
	launch_form by_matrix = {dim3((unsigned)(e.w.n < GRID_MAX ? e.w.n : GRID_MAX)), dim3(THREADS)},
	            by_tile = {dim3((unsigned)(tiles < GRID_MAX ? tiles : GRID_MAX)), dim3(THREADS)};

	by_matrix.early = by_tile.early = false;
	if (e.found)
		launch_kernel(find_failures<N>, by_matrix, cuda_stream(launch), e.w, e.found, e.info,
		              e.info_apart);
	if (tiles > 0)
		launch_kernel(settle<N>, by_tile, cuda_stream(launch), e.factor, e.w, (const int32_t *)e.found,
		              e.keeps, across, tiles);
}

} // namespace

extern "C" int cholesky_finish(const struct op_args *args, const struct linalg_batch *w, uint64_t outer,
                               int32_t *found, const struct launch *launch)
{
	const struct view *info = &args->views[CHOLESKY_INFO];
	ending e = {};

	e.factor = linalg_batch_of(&args->views[CHOLESKY_FACTOR], outer);
	e.w = *w;
	bool is_last = linalg_end(args) == e.factor.rows;
	e.found = is_last ? found : NULL;
	e.keeps = !is_last || args->params.plain.flags[CHOLESKY_KEEP];
	if (!view_is_absent(info)) {
		e.info = (int32_t *)info->data + (int64_t)outer * info->strides[0];
		e.info_apart = info->strides[1];
	}
	switch (w->dtype) {
	case KOPS_F32:
		start<float>(e, launch);
		break;
	case KOPS_F64:
		start<double>(e, launch);
		break;
	case KOPS_C64:
		start<complex_number<float>>(e, launch);
		break;
	default:
		start<complex_number<double>>(e, launch);
		break;
	}
	return cuda_launch_status();
}
