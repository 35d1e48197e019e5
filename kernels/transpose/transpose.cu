/*
 * Transpose, y[…, j, i] = x[…, i, j]; elements are moved by their size.
 *
 *   kernel      idea                          tile, threads  bound                     measured, H200, GB/s:
 *                                                                                       f32    f16    f64
 *   serial      one thread moves it all       –, 1           latency: 39 ns per f32     0.2   0.15   0.24
 *   perrow      one thread per row of y       –, 128         latency: 0.35 µs a step    356    178    486
 *   perelement  one thread per element: x is  –, 32×8        L2: a run of x becomes     490    268   1065
 *               read in runs, y is not                       32 writes
 *               written in runs
 *   tiled       through shared memory: both   32×32, 32×32   shared memory: a column    937    581   1798
 *               sides in runs                                of the tile is in one
 *                                                            bank
 *   tiled-rect  the same, four elements per   32×32, 32×8    the same conflicts, but   1624   1344   2913
 *               thread                                       eight blocks at a time
 *                                                            instead of two
 *   padded      rows of the tile padded: no   64×64, 32×16;  HBM 4.2 TB/s (read +      4100   4038   4085
 *               conflicts                     others: see    written); a copy: 4232
 *                                             launch_padded
 *
 * f32 and f16 at 16384², f64 at 8192², serial at 1024²; device events, median of 15. f32 16383×16381: padded
 * 3490, since rows of y begin inside a 32-byte sector. Counted by ncu, f32: sectors written to L2: 403 million
 * by perelement and perrow, 50 million by the others; cycles of bank conflicts: 262 million in tiled and in
 * tiled-rect, 0.4 million in padded.
 */
#include "transpose/transposition.cuh"

namespace
{

constexpr int WARP = 32;
constexpr int TILE = 32;
constexpr unsigned LINE_THREADS = 128; /* perrow */

/* ---- One thread, one row, one element at a time ---- */

template <typename T> __global__ void serial(const T *__restrict__ x, T *__restrict__ y, transposition p)
{
	for (uint64_t b = 0; b < p.batch[0]; b++)
		for (uint64_t c = 0; c < p.batch[1]; c++)
			for (uint64_t i = 0; i < p.rows; i++)
				for (uint64_t j = 0; j < p.cols; j++)
					y[(int64_t)b * p.y_batch[0] + (int64_t)c * p.y_batch[1] +
					  (int64_t)i * p.y_row + (int64_t)j * p.y_col] =
					    x[(int64_t)b * p.x_batch[0] + (int64_t)c * p.x_batch[1] +
					      (int64_t)i * p.x_row + (int64_t)j * p.x_col];
}

template <typename T>
__global__ void __launch_bounds__(LINE_THREADS)
    perrow(const T *__restrict__ x, T *__restrict__ y, transposition p)
{
	uint64_t lines = p.batch[0] * p.batch[1] * p.cols, step = (uint64_t)gridDim.x * LINE_THREADS;

	for (uint64_t line = (uint64_t)blockIdx.x * LINE_THREADS + threadIdx.x; line < lines; line += step) {
		int64_t col = (int64_t)(line % p.cols), c = (int64_t)(line / p.cols % p.batch[1]),
		        b = (int64_t)(line / p.cols / p.batch[1]);
		const T *from = x + b * p.x_batch[0] + c * p.x_batch[1] + col * p.x_col;
		T *to = y + b * p.y_batch[0] + c * p.y_batch[1] + col * p.y_col;

		for (uint64_t row = 0; row < p.rows; row++)
			to[(int64_t)row * p.y_row] = from[(int64_t)row * p.x_row];
	}
}

/* 32 columns × 8 rows. */
template <typename T, unsigned OPS>
__global__ void __launch_bounds__(WARP * 8)
    perelement(const __grid_constant__ operands<2, OPS> where, const __grid_constant__ transposition p)
{
	const T *x = (const T *)where.at(0, blockIdx.z);
	T *y = (T *)where.at(1, blockIdx.z);
	int64_t row = (int64_t)blockIdx.x * 8 + threadIdx.y, col = (int64_t)blockIdx.y * WARP + threadIdx.x;

	if (row < (int64_t)p.rows && col < (int64_t)p.cols)
		y[begin(p, p.y_batch) + row * p.y_row + col * p.y_col] =
		    x[begin(p, p.x_batch) + row * p.x_row + col * p.x_col];
}

/* ---- Tiles of 32×32, any strides ---- */

/*
 * Each phase walks its own view along that view's finest axis: x along cols (orient() saw to that), y along
 * rows, or along cols too. x and y: the tile's first element. WHOLE: no element lies outside; then all loads
 * are under way before the first is waited for, which a test before each would prevent.
 */
template <typename T, int STRIPE, int PAD, bool WHOLE>
__device__ __forceinline__ void load_any(const transposition &p, const T *x, part in, T (*tile)[TILE + PAD])
{
	int row = (int)threadIdx.y, col = (int)threadIdx.x;
	const T *from = x + row * p.x_row + col * p.x_col;

#pragma unroll
	for (int k = 0; k < TILE; k += STRIPE, from += STRIPE * p.x_row)
		if (WHOLE || (row + k < in.rows && col < in.cols))
			tile[row + k][col] = *from;
}

template <typename T, int STRIPE, int PAD, bool WHOLE>
__device__ __forceinline__ void store_by_rows(const transposition &p, T *y, part in, T (*tile)[TILE + PAD])
{
	int row = (int)threadIdx.x, col = (int)threadIdx.y;
	T *to = y + row * p.y_row + col * p.y_col;

#pragma unroll
	for (int k = 0; k < TILE; k += STRIPE, to += STRIPE * p.y_col)
		if (WHOLE || (row < in.rows && col + k < in.cols))
			*to = tile[row][col + k];
}

template <typename T, int STRIPE, int PAD>
__device__ __forceinline__ void store_by_cols(const transposition &p, T *y, part in, T (*tile)[TILE + PAD])
{
	int row = (int)threadIdx.y, col = (int)threadIdx.x;
	T *to = y + row * p.y_row + col * p.y_col;

#pragma unroll
	for (int k = 0; k < TILE; k += STRIPE, to += STRIPE * p.y_row)
		if (row + k < in.rows && col < in.cols)
			*to = tile[row + k][col];
}

template <typename T, int STRIPE, int PAD>
__global__ void __launch_bounds__(TILE *STRIPE)
    tiled(const T *__restrict__ x, T *__restrict__ y, transposition p)
{
	__shared__ T tile[TILE][TILE + PAD];
	int64_t row = (int64_t)blockIdx.x * TILE, col = (int64_t)blockIdx.y * TILE;
	part in = {clip(p.rows, row, TILE), clip(p.cols, col, TILE)};
	bool whole = in.rows == TILE && in.cols == TILE;

	x += begin(p, p.x_batch) + row * p.x_row + col * p.x_col;
	y += begin(p, p.y_batch) + row * p.y_row + col * p.y_col;
	if (whole)
		load_any<T, STRIPE, PAD, true>(p, x, in, tile);
	else
		load_any<T, STRIPE, PAD, false>(p, x, in, tile);
	__syncthreads();
	if (p.y_by_cols)
		store_by_cols<T, STRIPE, PAD>(p, y, in, tile);
	else if (whole)
		store_by_rows<T, STRIPE, PAD, true>(p, y, in, tile);
	else
		store_by_rows<T, STRIPE, PAD, false>(p, y, in, tile);
}

/* ---- Padded, rows of x and of y contiguous ---- */

/* Elements: a column of the tile then meets every bank of shared memory, for elements of two bytes too. */
template <typename T> constexpr int PADDING = sizeof(T) < 4 ? 4 / sizeof(T) : 1;

/* Threads: 32 × WARPS, a warp along a row. x and y: the tile's first element. */
template <typename T, int ROWS, int COLS, int WARPS, bool WHOLE>
__device__ __forceinline__ void load_tile(const T *x, int64_t pitch, part in, T (*tile)[COLS + PADDING<T>])
{
	int row = (int)threadIdx.y, col = (int)threadIdx.x;
	const T *from = x + row * pitch + col;

#pragma unroll
	for (int k = 0; k < ROWS; k += WARPS, from += WARPS * pitch)
#pragma unroll
		for (int l = 0; l < COLS; l += WARP)
			if (WHOLE || (row + k < in.rows && col + l < in.cols))
				tile[row + k][col + l] = from[l];
}

template <typename T, int ROWS, int COLS, int WARPS, bool WHOLE>
__device__ __forceinline__ void store_tile(T *y, int64_t pitch, part in, T (*tile)[COLS + PADDING<T>])
{
	int row = (int)threadIdx.x, col = (int)threadIdx.y;
	T *to = y + col * pitch + row;

#pragma unroll
	for (int k = 0; k < COLS; k += WARPS, to += WARPS * pitch)
#pragma unroll
		for (int l = 0; l < ROWS; l += WARP)
			if (WHOLE || (row + l < in.rows && col + k < in.cols))
				to[l] = tile[row + l][col + k];
}

template <typename T, int ROWS, int COLS, int WARPS>
__global__ void __launch_bounds__(WARP *WARPS, CUDA_RESIDENT_THREADS / (WARP * WARPS))
    padded(const T *__restrict__ x, T *__restrict__ y, transposition p)
{
	__shared__ T tile[ROWS][COLS + PADDING<T>];
	int64_t row = (int64_t)blockIdx.x * ROWS, col = (int64_t)blockIdx.y * COLS;
	part in = {clip(p.rows, row, ROWS), clip(p.cols, col, COLS)};
	bool whole = in.rows == ROWS && in.cols == COLS;

	x += begin(p, p.x_batch) + row * p.x_row + col;
	y += begin(p, p.y_batch) + col * p.y_col + row;
	if (whole)
		load_tile<T, ROWS, COLS, WARPS, true>(x, p.x_row, in, tile);
	else
		load_tile<T, ROWS, COLS, WARPS, false>(x, p.x_row, in, tile);
	__syncthreads();
	if (whole)
		store_tile<T, ROWS, COLS, WARPS, true>(y, p.y_col, in, tile);
	else
		store_tile<T, ROWS, COLS, WARPS, false>(y, p.y_col, in, tile);
}

/* ---- Padded, two-byte elements in pairs ---- */

/*
 * DOWN × ACROSS units of 2×2 elements: two words along x become two words along y. Those of even and of odd
 * columns lie in planes of their own, where a row of words is read and a column of words written without
 * conflicts. Whole tiles only.
 */
template <int DOWN, int ACROSS> struct pairs {
	uint32_t plane[2][ACROSS][DOWN + 1];
};

template <int DOWN, int ACROSS, int WARPS>
__device__ __forceinline__ void load_pairs(const uint16_t *x, int64_t pitch, pairs<DOWN, ACROSS> &tile)
{
	int row = (int)threadIdx.y, col = (int)threadIdx.x;
	const uint32_t *from = (const uint32_t *)(x + 2 * row * pitch) + col;

#pragma unroll
	for (int k = 0; k < DOWN; k += WARPS, from += WARPS * pitch)
#pragma unroll
		for (int l = 0; l < ACROSS; l += WARP) {
			uint32_t upper = from[l], lower = from[pitch / 2 + l];

			tile.plane[0][col + l][row + k] = __byte_perm(upper, lower, 0x5410);
			tile.plane[1][col + l][row + k] = __byte_perm(upper, lower, 0x7632);
		}
}

template <int DOWN, int ACROSS, int WARPS>
__device__ __forceinline__ void store_pairs(uint16_t *y, int64_t pitch, const pairs<DOWN, ACROSS> &tile)
{
	int row = (int)threadIdx.x, col = (int)threadIdx.y;
	uint32_t *to = (uint32_t *)(y + 2 * col * pitch) + row;

#pragma unroll
	for (int k = 0; k < ACROSS; k += WARPS, to += WARPS * pitch)
#pragma unroll
		for (int odd = 0; odd < 2; odd++)
#pragma unroll
			for (int l = 0; l < DOWN; l += WARP)
				to[odd * pitch / 2 + l] = tile.plane[odd][col + k][row + l];
}

template <int DOWN, int ACROSS, int WARPS>
__global__ void __launch_bounds__(WARP *WARPS, CUDA_RESIDENT_THREADS / (WARP * WARPS))
    padded_pairs(const uint16_t *__restrict__ x, uint16_t *__restrict__ y, transposition p)
{
	__shared__ pairs<DOWN, ACROSS> tile;
	int64_t row = (int64_t)blockIdx.x * (2 * DOWN), col = (int64_t)blockIdx.y * (2 * ACROSS);

	x += begin(p, p.x_batch) + row * p.x_row + col;
	y += begin(p, p.y_batch) + col * p.y_col + row;
	load_pairs<DOWN, ACROSS, WARPS>(x, p.x_row, tile);
	__syncthreads();
	store_pairs<DOWN, ACROSS, WARPS>(y, p.y_col, tile);
}

/* ---- Plans ---- */

bool is_even(const void *data, int64_t stride, const int64_t batch[2])
{
	return (uintptr_t)data % 4 == 0 && stride % 2 == 0 && batch[0] % 2 == 0 && batch[1] % 2 == 0;
}

/* Elements of two bytes, whose tiles of side × side may be moved as pairs. */
bool takes_pairs(const transposition &p, const uint16_t *x, const uint16_t *y, unsigned side)
{
	return p.rows % side == 0 && p.cols % side == 0 && is_even(x, p.x_row, p.x_batch) &&
	       is_even(y, p.y_col, p.y_batch);
}

/* ---- Launches, by size of element ---- */

struct run_serial {
	template <typename T> static void run(const transposition &p, const T *x, T *y, cudaStream_t stream)
	{
		serial<<<1, 1, 0, stream>>>(x, y, p);
	}
};

struct run_perrow {
	template <typename T> static void run(const transposition &p, const T *x, T *y, cudaStream_t stream)
	{
		uint64_t blocks = tiles(p.batch[0] * p.batch[1] * p.cols, LINE_THREADS);

		perrow<<<(unsigned)(blocks < 1u << 20 ? blocks : 1u << 20), LINE_THREADS, 0, stream>>>(x, y, p);
	}
};

template <int STRIPE, int PAD> struct run_tiled {
	template <typename T> static void run(transposition p, const T *x, T *y, cudaStream_t stream)
	{
		orient(p);
		cover(p, x, y, TILE, TILE, [=](const transposition &q, const T *from, T *to, dim3 grid) {
			tiled<T, STRIPE, PAD><<<grid, dim3(TILE, STRIPE), 0, stream>>>(from, to, q);
		});
	}
};

template <typename T, int ROWS, int COLS, int WARPS>
void launch_tiles(const transposition &p, const T *x, T *y, cudaStream_t stream)
{
	cover(p, x, y, ROWS, COLS, [=](const transposition &q, const T *from, T *to, dim3 grid) {
		padded<T, ROWS, COLS, WARPS><<<grid, dim3(WARP, WARPS), 0, stream>>>(from, to, q);
	});
}

template <int DOWN, int ACROSS, int WARPS>
void launch_pairs(const transposition &p, const uint16_t *x, uint16_t *y, cudaStream_t stream)
{
	cover(p, x, y, 2 * DOWN, 2 * ACROSS,
	      [=](const transposition &q, const uint16_t *from, uint16_t *to, dim3 grid) {
		      padded_pairs<DOWN, ACROSS, WARPS><<<grid, dim3(WARP, WARPS), 0, stream>>>(from, to, q);
	      });
}

void launch_padded(const transposition &p, const uint16_t *x, uint16_t *y, cudaStream_t stream)
{
	if (is_narrow(p, 32))
		launch_tiles<uint16_t, 32, 32, 8>(p, x, y, stream);
	else if (takes_pairs(p, x, y, 128))
		launch_pairs<64, 64, 16>(p, x, y, stream);
	else if (takes_pairs(p, x, y, 64))
		launch_pairs<32, 32, 8>(p, x, y, stream);
	else
		launch_tiles<uint16_t, 128, 64, 8>(p, x, y, stream);
}

/* A write of part of a sector costs as much as one of all: longer pieces where y's rows begin inside one. */
void launch_padded(const transposition &p, const uint32_t *x, uint32_t *y, cudaStream_t stream)
{
	bool whole_sectors = (uintptr_t)y % 32 == 0 && p.y_col % 8 == 0;

	if (is_narrow(p, 32))
		launch_tiles<uint32_t, 32, 32, 8>(p, x, y, stream);
	else if (whole_sectors || is_narrow(p, 127))
		launch_tiles<uint32_t, 64, 64, 16>(p, x, y, stream);
	else
		launch_tiles<uint32_t, 128, 64, 16>(p, x, y, stream);
}

void launch_padded(const transposition &p, const uint64_t *x, uint64_t *y, cudaStream_t stream)
{
	launch_tiles<uint64_t, 32, 32, 8>(p, x, y, stream);
}

void launch_padded(const transposition &p, const uint4 *x, uint4 *y, cudaStream_t stream)
{
	launch_tiles<uint4, 32, 32, 8>(p, x, y, stream);
}

template <typename KERNEL> int launch_by_size(const struct op_args *args, const struct launch *launch)
{
	const void *x = args->views[0].data;
	void *y = args->views[1].data;
	cudaStream_t stream = cuda_stream(launch);
	transposition p = transposition_of(args);

	switch (dtype_size(args->views[0].dtype)) {
	case 2:
		KERNEL::run(p, (const uint16_t *)x, (uint16_t *)y, stream);
		break;
	case 4:
		KERNEL::run(p, (const uint32_t *)x, (uint32_t *)y, stream);
		break;
	case 8:
		KERNEL::run(p, (const uint64_t *)x, (uint64_t *)y, stream);
		break;
	case 16:
		KERNEL::run(p, (const uint4 *)x, (uint4 *)y, stream);
		break;
	default:
		return KOPS_E_UNSUPPORTED;
	}
	return cuda_launch_status();
}

template <typename T, unsigned OPS>
void launch_elements(const operands<2, OPS> &where, const transposition &p, cudaStream_t stream)
{
	cover<T>(p, where, 8, WARP, [=](const transposition &q, const operands<2, OPS> &part, dim3 grid) {
		perelement<T><<<grid, dim3(WARP, 8), 0, stream>>>(part, q);
	});
}

/* args: one of the ops, as they are alike. */
template <unsigned OPS>
int launch_perelement(const operands<2, OPS> &where, const op_args *args, const struct launch *launch)
{
	cudaStream_t stream = cuda_stream(launch);
	transposition p = transposition_of(args);

	switch (dtype_size(args->views[0].dtype)) {
	case 2:
		launch_elements<uint16_t>(where, p, stream);
		break;
	case 4:
		launch_elements<uint32_t>(where, p, stream);
		break;
	case 8:
		launch_elements<uint64_t>(where, p, stream);
		break;
	case 16:
		launch_elements<uint4>(where, p, stream);
		break;
	default:
		return KOPS_E_UNSUPPORTED;
	}
	return cuda_launch_status();
}

struct run_padded {
	template <typename T> static void run(transposition p, const T *x, T *y, cudaStream_t stream)
	{
		orient(p);
		if (has_unit_rows(p))
			launch_padded(p, x, y, stream);
		else
			run_tiled<8, 1>::run(p, x, y, stream);
	}
};

/* As a copy from x with its last two axes exchanged, neighbouring threads on neighbouring elements of y. */
int launch_thin(const struct op_args *args, const struct launch *launch)
{
	view x = args->views[0];
	uint32_t r = x.rank;

	exchange(x.shape[r - 2], x.shape[r - 1]);
	exchange(x.strides[r - 2], x.strides[r - 1]);
	return cuda_copy_strided(&x, &args->views[1], cuda_stream(launch));
}

} // namespace

extern "C" CUDA_LAUNCH(transpose_serial)
{
	return launch_by_size<run_serial>(args, launch);
}

extern "C" CUDA_LAUNCH(transpose_perrow)
{
	return launch_by_size<run_perrow>(args, launch);
}

extern "C" CUDA_LAUNCH(transpose_perelement)
{
	return launch_perelement(operands_of<2>(args), args, launch);
}

extern "C" CUDA_TOGETHER(transpose_perelement_together)
{
	return launch_perelement(operands_of<2>(args, n, launch), args[0], launch);
}

extern "C" CUDA_LAUNCH(transpose_tiled)
{
	return launch_by_size<run_tiled<32, 0>>(args, launch);
}

extern "C" CUDA_LAUNCH(transpose_tiled_rect)
{
	return launch_by_size<run_tiled<8, 0>>(args, launch);
}

extern "C" CUDA_LAUNCH(transpose_padded)
{
	return is_thin(args) ? launch_thin(args, launch) : launch_by_size<run_padded>(args, launch);
}
