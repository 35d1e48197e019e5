/*
 * Transpose in 128-bit vectors on both sides, wherever the rows of x and of y begin.
 *
 *   kernel  idea                                      tile, threads                 bound
 *   vector  x is read by aligned vectors into shared  f32 64×64, 512; 32×64, 256    HBM 4.2 TB/s
 *           memory, y gathered there by vectors and   where rows begin off borders  (read + written)
 *           stored from a border between sectors on:  f16 64×64, 256; 64×128, 512
 *           which rows are a tile's differs from one  from 2^24 elements on
 *           row of y to the next, and no sector is    f64 32×32, 256
 *           written by two blocks
 *
 *   measured, H200, GB/s      vector  padded  a copy              vector  padded  a copy
 *   f32  4096²                  3755    3760    3862  4095×4097     3520    3162    3629
 *        16384²                 4107    4132    4230  16383×16381   3823    3518    4229
 *   f16  4096²                  3351    3288    3528  4100²         3020    2477    3156
 *        16384²                 4049    4058    4179  16383×16381   3742    2996    4180
 *   f64  8192²                  4102    4125    4178  8191×8193     3889    3587    4182
 *
 * Device events around 4 to 40 launches, median of 9, all in one run, buffers rotated through 3 GiB. Where
 * all rows are aligned there is little to gain on padded, whose sectors are whole then. What else was tried,
 * and what overlapping launches save: docs/lab/moves.md.
 */
#include "common/launch.cuh"
#include "transpose/transposition.cuh"

namespace
{

constexpr int VECTOR_BYTES = 16, SECTOR_BYTES = 32;

/* Elements. */
template <typename T> constexpr int VECTOR = VECTOR_BYTES / sizeof(T);
template <typename T> constexpr int SECTOR = SECTOR_BYTES / sizeof(T);

/* A warp's store: ALONG vectors in each of 4 rows of y. */
constexpr int ALONG = 8;

/*
 * The tile's part of x in shared memory, as it lies in x: row by row in whole vectors, from the one that holds
 * the row's first element on. Which element of it that is, its phase, differs from row to row unless ALIGNED_X.
 * Unless ALIGNED_Y, the tile's rows are those from a border between y's sectors on, which differs from row to
 * row of y: so LEAD rows more are held. A vector is left empty after every VECTOR rows: those that ALONG
 * neighbouring vectors of y are made of then begin in different banks.
 */
template <typename T, int ROWS, int COLS, bool ALIGNED_X, bool ALIGNED_Y> struct held {
	static constexpr int LEAD = ALIGNED_Y ? 0 : SECTOR<T> - 1;
	static constexpr int SPAN = ROWS + LEAD;
	static constexpr int VECTORS = COLS / VECTOR<T> + (ALIGNED_X ? 0 : 1); /* per row */

	uint4 vectors[SPAN * VECTORS + (SPAN - 1) / VECTOR<T>];

	/* The first element that row r holds. */
	__device__ __forceinline__ T *row(int r)
	{
		return (T *)vectors + r * VECTORS * VECTOR<T> + (r & ~(VECTOR<T> - 1));
	}
};

/* One block's tile: its first element in x and in y, and what of the matrix is around it. */
template <typename T> struct work {
	const T *x;
	T *y;
	int64_t x_pitch, y_pitch;
	int rows_before, cols_before; /* of the matrix, as far as they matter */
	int rows, cols;               /* from the first element on */
};

/* How far `at` is from the last address before it that holds the first of n elements. */
template <typename T> __device__ __forceinline__ unsigned phase_of(const T *at, int n)
{
	return (unsigned)((uintptr_t)at / sizeof(T)) & (unsigned)(n - 1);
}

/* A vector of a row of the tile, COLS of which are wanted, may reach beyond those, but not beyond the row. */
enum vector_kind { UNUSED, WHOLE_VECTOR, PART };

template <bool INSIDE, bool ALIGNED, int COLS, int LEAD, typename T>
__device__ __forceinline__ vector_kind kind_of(const work<T> &w, int r, int col)
{
	if (!ALIGNED && col >= COLS)
		return UNUSED;
	if (INSIDE)
		return WHOLE_VECTOR;
	if (r - LEAD < -w.rows_before || r - LEAD >= w.rows || col >= w.cols)
		return UNUSED;
	return col >= -w.cols_before && col + VECTOR<T> <= w.cols ? WHOLE_VECTOR : PART;
}

/* Elements of a vector from `first` to before `end`. */
template <typename T> __device__ __forceinline__ void load_part(T *to, const T *from, int first, int end)
{
#pragma unroll
	for (int e = 0; e < VECTOR<T>; e++)
		if (e >= first && e < end)
			to[e] = from[e];
}

/* INSIDE: of the tile, and of the vectors around it, no element lies outside of the matrix. */
template <int THREADS, bool INSIDE, typename T, int ROWS, int COLS, bool ALIGNED_X, bool ALIGNED_Y>
__device__ __forceinline__ void load(held<T, ROWS, COLS, ALIGNED_X, ALIGNED_Y> &tile, const work<T> &w)
{
	using H = held<T, ROWS, COLS, ALIGNED_X, ALIGNED_Y>;
	constexpr int ALL = H::SPAN * H::VECTORS, EACH = (ALL + THREADS - 1) / THREADS;
	const T *x = w.x - H::LEAD * w.x_pitch;
	unsigned phase = phase_of(x, VECTOR<T>);
	uint4 vectors[EACH];
	int cols[EACH];
	vector_kind kinds[EACH];

#pragma unroll
	for (int i = 0; i < EACH; i++) {
		int n = i * THREADS + (int)threadIdx.x, r = n / H::VECTORS;
		int skip = ALIGNED_X ? 0 : (int)(phase + (unsigned)r * (unsigned)w.x_pitch) & (VECTOR<T> - 1);

		cols[i] = n % H::VECTORS * VECTOR<T> - skip;
		kinds[i] = n < ALL ? kind_of<INSIDE, ALIGNED_X, COLS, H::LEAD>(w, r, cols[i]) : UNUSED;
		if (kinds[i] == WHOLE_VECTOR)
			vectors[i] = *(const uint4 *)(x + r * w.x_pitch + cols[i]);
	}
#pragma unroll
	for (int i = 0; i < EACH; i++) {
		int n = i * THREADS + (int)threadIdx.x, r = n / H::VECTORS;
		uint4 *to = &tile.vectors[n + r / VECTOR<T>];

		if (kinds[i] == WHOLE_VECTOR)
			*to = vectors[i];
		if (kinds[i] == PART)
			load_part((T *)to, x + r * w.x_pitch + cols[i], -w.cols_before - cols[i],
			          w.cols - cols[i]);
	}
}

__device__ __forceinline__ uint4 packed(const uint16_t v[8])
{
	return make_uint4(v[0] | (unsigned)v[1] << 16, v[2] | (unsigned)v[3] << 16, v[4] | (unsigned)v[5] << 16,
	                  v[6] | (unsigned)v[7] << 16);
}

__device__ __forceinline__ uint4 packed(const uint32_t v[4])
{
	return make_uint4(v[0], v[1], v[2], v[3]);
}

__device__ __forceinline__ uint4 packed(const uint64_t v[2])
{
	return make_uint4((unsigned)v[0], (unsigned)(v[0] >> 32), (unsigned)v[1], (unsigned)(v[1] >> 32));
}

__device__ __forceinline__ uint4 packed(const uint4 v[1])
{
	return v[0];
}

/* Word i becomes word i + n modulo 4. */
__device__ __forceinline__ uint4 turned(uint4 v, int n)
{
	if (n & 1)
		v = make_uint4(v.w, v.x, v.y, v.z);
	if (n & 2)
		v = make_uint4(v.z, v.w, v.x, v.y);
	return v;
}

/*
 * The words by which the rows of y that a warp stores begin their vectors apart. A row's place among the banks
 * is its column plus the phase of the row of x that it begins with, and where both pitches are odd these may
 * cancel; the rows of x differ in phase, so that each row of y begins with another one then.
 */
template <typename T> __device__ __forceinline__ int turn_of(const work<T> &w, int across)
{
	unsigned product = (unsigned)w.x_pitch * (unsigned)w.y_pitch;

	if (sizeof(T) == 2)
		return product % 4 == 1 ? across % 4 : 0;
	if (sizeof(T) == 4)
		return product % 2 == 1 ? across % 4 : 0;
	if (sizeof(T) == 8)
		return product % 2 == 1 ? across % 2 * 2 : 0;
	return 0; /* an element is a vector, so that no phase differs */
}

/* Element `col` of row r of the held. */
template <typename T, int ROWS, int COLS, bool ALIGNED_X, bool ALIGNED_Y>
__device__ __forceinline__ T element(held<T, ROWS, COLS, ALIGNED_X, ALIGNED_Y> &tile, const work<T> &w, int r,
                                     int col)
{
	using H = held<T, ROWS, COLS, ALIGNED_X, ALIGNED_Y>;
	unsigned phase = phase_of(w.x - H::LEAD * w.x_pitch, VECTOR<T>);
	int skip = ALIGNED_X ? 0 : (int)(phase + (unsigned)r * (unsigned)w.x_pitch) & (VECTOR<T> - 1);

	return tile.row(r)[skip + col];
}

/* The vector of a row of y whose elements lie in column `col` of the held rows from r on. */
template <typename T, int ROWS, int COLS, bool ALIGNED_X, bool ALIGNED_Y>
__device__ __forceinline__ uint4 gather(held<T, ROWS, COLS, ALIGNED_X, ALIGNED_Y> &tile, const work<T> &w,
                                        int r, int col, int turn)
{
	int first = turn * 4 / (int)sizeof(T);
	T v[VECTOR<T>];

#pragma unroll
	for (int e = 0; e < VECTOR<T>; e++)
		v[e] = element(tile, w, r + ((e + first) & (VECTOR<T> - 1)), col);
	return turned(packed(v), turn);
}

/* Of that vector, whose first element is `row` of the tile, what lies in the matrix. */
template <typename T, int ROWS, int COLS, bool ALIGNED_X, bool ALIGNED_Y>
__device__ __forceinline__ void store_part(held<T, ROWS, COLS, ALIGNED_X, ALIGNED_Y> &tile, const work<T> &w,
                                           T *to, int row, int col)
{
	using H = held<T, ROWS, COLS, ALIGNED_X, ALIGNED_Y>;

#pragma unroll
	for (int e = 0; e < VECTOR<T>; e++)
		if (row + e >= -w.rows_before && row + e < w.rows)
			to[row + e] = element(tile, w, H::LEAD + row + e, col);
}

/* As one access, whatever the compiler would like to share with the code beside it. */
__device__ __forceinline__ void store_vector(void *to, uint4 v)
{
	asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z),
	             "r"(v.w)
	             : "memory");
}

template <int THREADS, bool INSIDE, typename T, int ROWS, int COLS, bool ALIGNED_X, bool ALIGNED_Y>
__device__ __forceinline__ void store(held<T, ROWS, COLS, ALIGNED_X, ALIGNED_Y> &tile, const work<T> &w)
{
	using H = held<T, ROWS, COLS, ALIGNED_X, ALIGNED_Y>;
	int along = (int)threadIdx.x % ALONG, across = (int)threadIdx.x / ALONG;
	int turn = ALIGNED_X || ALIGNED_Y ? 0 : turn_of(w, across);
	unsigned phase = phase_of(w.y, SECTOR<T>);

#pragma unroll
	for (int strip = 0; strip < COLS; strip += THREADS / ALONG) {
		int col = strip + across;
		int back = ALIGNED_Y ? 0 : (int)(phase + (unsigned)col * (unsigned)w.y_pitch) & (SECTOR<T> - 1);
		T *to = w.y + col * w.y_pitch;

		if (!INSIDE && col >= w.cols)
			break;
#pragma unroll
		for (int piece = 0; piece < ROWS; piece += ALONG * VECTOR<T>) {
			int row = piece + along * VECTOR<T> - back;

			if (INSIDE || (row >= -w.rows_before && row + VECTOR<T> <= w.rows))
				store_vector(to + row, gather(tile, w, H::LEAD + row, col, turn));
			else
				store_part(tile, w, to, row, col);
		}
	}
}

template <typename T, int ROWS, int COLS, int THREADS, bool ALIGNED_X, bool ALIGNED_Y, unsigned OPS>
__global__ void __launch_bounds__(THREADS, CUDA_RESIDENT_THREADS / THREADS)
    in_vectors(const __grid_constant__ operands<2, OPS> where, transposition p)
{
	const T *x = (const T *)where.at(0, blockIdx.z);
	T *y = (T *)where.at(1, blockIdx.z);
	using H = held<T, ROWS, COLS, ALIGNED_X, ALIGNED_Y>;
	static_assert(THREADS <= COLS * ALONG && ROWS % (ALONG * VECTOR<T>) == 0, "every thread stores");
	__shared__ H tile;
	int64_t row = (int64_t)blockIdx.x * ROWS, col = (int64_t)blockIdx.y * COLS,
	        rows = (int64_t)p.rows - row;
	work<T> w;

	w.x = x + begin(p, p.x_batch) + row * p.x_row + col;
	w.y = y + begin(p, p.y_batch) + col * p.y_col + row;
	w.x_pitch = p.x_row;
	w.y_pitch = p.y_col;
	w.rows_before = row < H::LEAD ? (int)row : H::LEAD;
	w.cols_before = col < VECTOR<T> ? (int)col : VECTOR<T>;
	w.rows = rows < ROWS ? (int)rows : ROWS; /* negative where only rows before are left */
	w.cols = clip(p.cols, (uint64_t)col, COLS + VECTOR<T>);
	await_kernel_before();
	if (w.rows_before == H::LEAD && w.rows == ROWS &&
	    (ALIGNED_X || w.cols_before == VECTOR<T>)&&w.cols >= COLS + (ALIGNED_X ? 0 : VECTOR<T>)) {
		load<THREADS, true>(tile, w);
		__syncthreads();
		store<THREADS, true>(tile, w);
	} else {
		load<THREADS, false>(tile, w);
		__syncthreads();
		store<THREADS, false>(tile, w);
	}
	let_next_kernel_come();
}

template <typename T, int ROWS, int COLS, int THREADS, bool ALIGNED_X, bool ALIGNED_Y, unsigned OPS>
void launch_aligned(const operands<2, OPS> &where, const transposition &p, cudaStream_t stream)
{
	constexpr int lead = held<T, ROWS, COLS, ALIGNED_X, ALIGNED_Y>::LEAD;

	cover<T>(p, where, ROWS, COLS, [=](const transposition &q, const operands<2, OPS> &part, dim3 grid) {
		launch_form form = {grid, dim3(THREADS)};

		form.grid.x = (unsigned)tiles(q.rows + lead, ROWS);
		launch_kernel(in_vectors<T, ROWS, COLS, THREADS, ALIGNED_X, ALIGNED_Y, OPS>, form, stream, part,
		              q);
	});
}

/* Whether each row of each matrix begins at a multiple of `bytes`. */
bool begins_at(const void *data, size_t size, int64_t pitch, const int64_t batch[2], unsigned bytes)
{
	uint64_t steps = (uint64_t)pitch | (uint64_t)batch[0] | (uint64_t)batch[1];

	return ((uintptr_t)data | steps * size) % bytes == 0;
}

template <unsigned OPS>
bool has_whole_vectors(const operands<2, OPS> &where, const transposition &p, size_t size)
{
	return begins_at(where.of[0][0], size, p.x_row, p.x_batch, VECTOR_BYTES);
}

/* Of several ops, asked of the first. Where others' begin within a sector, two blocks write parts of it, no
 * more. */
template <unsigned OPS>
bool has_whole_sectors(const operands<2, OPS> &where, const transposition &p, size_t size)
{
	return begins_at(where.of[0][1], size, p.y_col, p.y_batch, SECTOR_BYTES);
}

template <typename T, int ROWS, int COLS, int THREADS, unsigned OPS>
void launch_tiles(const operands<2, OPS> &where, const transposition &p, cudaStream_t stream)
{
	bool vectors = has_whole_vectors(where, p, sizeof(T)), sectors = has_whole_sectors(where, p, sizeof(T));

	if (vectors && sectors)
		launch_aligned<T, ROWS, COLS, THREADS, true, true>(where, p, stream);
	else if (vectors)
		launch_aligned<T, ROWS, COLS, THREADS, true, false>(where, p, stream);
	else if (sectors)
		launch_aligned<T, ROWS, COLS, THREADS, false, true>(where, p, stream);
	else
		launch_aligned<T, ROWS, COLS, THREADS, false, false>(where, p, stream);
}

/* Longer runs of x for matrices far larger than L2. */
template <unsigned OPS>
void launch_two_bytes(const operands<2, OPS> &where, const transposition &p, cudaStream_t stream)
{
	const uint64_t many = 1u << 24;

	if (p.rows * p.cols < many)
		launch_tiles<uint16_t, 64, 64, 256>(where, p, stream);
	else
		launch_tiles<uint16_t, 64, 128, 512>(where, p, stream);
}

template <unsigned OPS>
void launch_four_bytes(const operands<2, OPS> &where, const transposition &p, cudaStream_t stream)
{
	if (has_whole_vectors(where, p, 4) && has_whole_sectors(where, p, 4))
		launch_aligned<uint32_t, 64, 64, 512, true, true>(where, p, stream);
	else
		launch_tiles<uint32_t, 32, 64, 256>(where, p, stream);
}

/* Elements are vectors: those of x are always whole. */
template <unsigned OPS>
void launch_sixteen_bytes(const operands<2, OPS> &where, const transposition &p, cudaStream_t stream)
{
	if (has_whole_sectors(where, p, 16))
		launch_aligned<uint4, 32, 32, 256, true, true>(where, p, stream);
	else
		launch_aligned<uint4, 32, 32, 256, true, false>(where, p, stream);
}

/* args: one of the ops, as they are alike. */
template <unsigned OPS>
int launch_vectors(const operands<2, OPS> &where, const op_args *args, const struct launch *launch)
{
	cudaStream_t stream = cuda_stream(launch);
	transposition p = transposition_of(args);

	orient(p);
	switch (dtype_size(args->views[0].dtype)) {
	case 2:
		launch_two_bytes(where, p, stream);
		break;
	case 4:
		launch_four_bytes(where, p, stream);
		break;
	case 8:
		launch_tiles<uint64_t, 32, 32, 256>(where, p, stream);
		break;
	case 16:
		launch_sixteen_bytes(where, p, stream);
		break;
	default:
		return KOPS_E_UNSUPPORTED;
	}
	return cuda_launch_status();
}

/* Memory begins at a border of sectors. */
bool is_aligned(const view *v)
{
	bool aligned = v->offset % SECTOR_BYTES == 0;

	for (uint32_t d = 0; d < v->rank; d++)
		aligned =
		    aligned && (v->shape[d] == 1 || stride_magnitude(v->strides[d]) == 1 ||
		                stride_magnitude(v->strides[d]) * dtype_size(v->dtype) % SECTOR_BYTES == 0);
	return aligned;
}

} // namespace

extern "C" bool transpose_vector_supports(const struct op_args *args, const char **ret_why_not)
{
	const uint64_t side = 32, side_unaligned = 128;
	transposition p = transposition_of(args);

	if (!cuda_moves(args->views[0].dtype, ret_why_not))
		return false;
	orient(p);
	if (!has_unit_rows(p)) {
		*ret_why_not = "needs unit strides along the rows of x and of y, or along the columns of both";
		return false;
	}
	if (is_narrow(p, side - 1)) {
		*ret_why_not = "needs 32 rows and 32 columns at least";
		return false;
	}
	if (is_narrow(p, side_unaligned - 1) && !(is_aligned(&args->views[0]) && is_aligned(&args->views[1]))) {
		*ret_why_not = "needs 128 rows and 128 columns at least where they begin off 32-byte borders";
		return false;
	}
	return true;
}

extern "C" CUDA_LAUNCH(transpose_vector)
{
	return launch_vectors(operands_of<2>(args), args, launch);
}

extern "C" CUDA_TOGETHER(transpose_vector_together)
{
	return launch_vectors(operands_of<2>(args, n, launch), args[0], launch);
}
