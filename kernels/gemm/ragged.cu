/*
 * Products of f16 and bf16 with few rows or columns, whose lines begin anywhere: C = α·A·B + β·C, sums in f32,
 * rounded once.
 *
 *   kernel  idea                              tiles, threads          bound
 *   ragged  copies of the 16-byte pieces      16, 32 or 64 rows or    memory, of which it has 0.4
 *           that lines lie in; fragments      columns, 128 others;    to 0.7: threads wait for
 *           number by number; mma.sync        256, two blocks         each other's copies
 *
 * wgmma.cu copies such operands before it multiplies them: faster where they are small beside C, or the
 * arithmetic takes long.
 *
 * Copies to shared memory want multiples of 16 bytes at both ends. So a line comes with the 16-byte pieces that
 * it lies in, shifted by as much as it begins within the first. Every eighth line of a matrix is shifted by the
 * same: these are a class, whose lines are neighbours in shared memory.
 *
 * Tensor cores do not care which numbers of K come when, as long as they are the same in A and B. Lane 4g + c
 * takes those whose class is 2c or 2c + 1, each lane another place in its class (index_of()): then 32 lanes
 * meet 32 banks, whether lines lie along K or across.
 *
 * C goes through shared memory, too. Its lines leave in aligned pieces of 16 bytes; only their ends are single
 * elements.
 */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>

#include "common/hopper/async_copy.cuh"
#include "common/hopper/barrier.cuh"
#include "common/hopper/element.cuh"
#include "common/hopper/mma.cuh"
#include "common/hopper/shared.cuh"
#include "common/launch.cuh"
#include "fitted.h"
#include "gemm/kernels.h"
#include "gemm/shift.cuh"
#include "gemm/tiles.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#pragma nv_diag_suppress 177 /* the kernel is empty there, and what it would use unused */
#endif

namespace
{

constexpr int RAGGED_THREADS = 256, RAGGED_WARPS = RAGGED_THREADS / 32;
constexpr int STEP_DEPTH = 64; /* of K, in a stage */
constexpr int CLASSES = 8;
constexpr int BLOCKS = 2;             /* that share a multiprocessor, */
constexpr int SHARED_MAX = 226 << 10; /* and its shared memory, beside what each costs */

/* How a tile of A or B lies in shared memory: lines along K or across it, class by class. */
template <int EXTENT_, bool ALONG_K_> struct tile_lines {
	static constexpr int EXTENT = EXTENT_;
	static constexpr bool ALONG_K = ALONG_K_;
	static constexpr int LINES = ALONG_K ? EXTENT : STEP_DEPTH;
	static constexpr int PIECES = (ALONG_K ? STEP_DEPTH : EXTENT) / PIECE_ELEMENTS + 1;
	static constexpr int PITCH = PIECES * PIECE_BYTES;
	static constexpr int CLASS_BYTES = LINES / CLASSES * PITCH, BYTES = CLASSES * CLASS_BYTES;
	static constexpr int PASSES = (LINES * PIECES + RAGGED_THREADS - 1) / RAGGED_THREADS;

	static constexpr __host__ __device__ int place_of_line(int line)
	{
		return line % CLASSES * CLASS_BYTES + line / CLASSES * PITCH;
	}
	/* Which row or column of the tile comes at this place among the fragments: lanes 4g + c are on
	 * neighbouring lines, where these are of the same class. */
	static constexpr __host__ __device__ int outer_of(int place)
	{
		constexpr int GROUP = EXTENT < 64 ? EXTENT : 64, LINES = GROUP / CLASSES;

		if (!ALONG_K)
			return place;
		return place / GROUP * GROUP + place % LINES * CLASSES + place % GROUP / LINES;
	}
};

/* Warps down and across a tile. */
template <int ROWS_, int COLS_, int DOWN_, bool A_ALONG, bool B_ALONG> struct form {
	static constexpr int ROWS = ROWS_, COLS = COLS_, ACROSS = RAGGED_WARPS / DOWN_;
	static constexpr int WARP_ROWS = ROWS / DOWN_, WARP_COLS = COLS / ACROSS;
	static constexpr int ROW_TILES = WARP_ROWS / 16, COL_TILES = WARP_COLS / 8;
	using A = tile_lines<ROWS, A_ALONG>;
	using B = tile_lines<COLS, B_ALONG>;
	static constexpr int STAGE_BYTES = A::BYTES + B::BYTES;
	/* Lines of C on their way. */
	static constexpr int C_PITCH = COLS * 2 + PIECE_BYTES, C_BYTES = ROWS * C_PITCH;
	static constexpr int STAGES_MAX = (SHARED_MAX / BLOCKS - 1024 - C_BYTES) / STAGE_BYTES;
	static constexpr int STAGES = STAGES_MAX < 6 ? STAGES_MAX : 6;
	static constexpr int SHARED_BYTES = C_BYTES + STAGES * STAGE_BYTES;
};

struct ragged_work {
	gemm_task t;
	bool wide;   /* C is f32: what a part of an op hands on */
	bool lines;  /* C's columns are neighbours, and C need not be read: lines leave in pieces */
	float *sums; /* of each part of K, a dense C in f32; added up by ragged_join() */
	unsigned parts;
	uint64_t tile_parts; /* of all tiles */
};

#if __CUDA_ARCH__ >= 900

/* A tile of C, and a part of K in steps. */
struct tile_part {
	place at;
	uint64_t part, begin, steps;
};

template <class F> __device__ __forceinline__ tile_part part_of_number(const ragged_work &w, uint64_t number)
{
	constexpr int BAND = 8;
	const gemm_problem &p = w.t.p;
	uint64_t rows = (p.m + F::ROWS - 1) / F::ROWS, cols = (p.n + F::COLS - 1) / F::COLS;
	uint64_t steps = (p.k + STEP_DEPTH - 1) / STEP_DEPTH, part = number % w.parts;
	tile_number<uint64_t> tile = tile_of_number<BAND>(number / w.parts, rows, cols);
	uint64_t row = tile.row * F::ROWS, col = tile.col * F::COLS;
	uint64_t begin = part_begin<uint64_t, uint64_t>(steps, part, w.parts);

	return {{tile.batch, row, col, rest_of<F::ROWS>(p.m, row), rest_of<F::COLS>(p.n, col)},
	        part,
	        begin,
	        part_begin<uint64_t, uint64_t>(steps, part + 1, w.parts) - begin};
}

/* A block's part of an operand: where it begins, and how much of its outer axis there is. */
struct strip {
	uintptr_t from;
	int64_t apart; /* of lines, in bytes */
	int outer_there;
};

__device__ __forceinline__ strip strip_of(const gemm_operand &o, uint64_t batch, uint64_t first, int there,
                                          int64_t outer, int64_t k, bool along_k)
{
	const uint16_t *from = (const uint16_t *)o.data + (int64_t)batch * o.batch + (int64_t)first * outer;

	return {(uintptr_t)from, (along_k ? outer : k) * 2, there};
}

template <class F> __device__ __forceinline__ strip strip_of_a(const ragged_work &w, const place &at)
{
	const gemm_operand &a = w.t.p.a;

	return strip_of(a, at.batch, at.row, at.rows, a.row, a.col, F::A::ALONG_K);
}

template <class F> __device__ __forceinline__ strip strip_of_b(const ragged_work &w, const place &at)
{
	const gemm_operand &b = w.t.p.b;

	return strip_of(b, at.batch, at.col, at.cols, b.col, b.row, F::B::ALONG_K);
}

/* Begins to copy a tile, from k on, of which so much is there; zeros come behind that. */
template <class L> __device__ __forceinline__ void fetch(uint32_t to, const strip &s, uint64_t k, int k_there)
{
	int lines = L::ALONG_K ? s.outer_there : k_there, length = L::ALONG_K ? k_there : s.outer_there;
	uintptr_t from = s.from + (L::ALONG_K ? (int64_t)k * 2 : (int64_t)k * s.apart);

#pragma unroll
	for (int i = 0; i < L::PASSES; i++) {
		int number = (int)threadIdx.x + i * RAGGED_THREADS, line = number / L::PIECES;
		int piece = number % L::PIECES;
		uintptr_t begin = from + line * s.apart, at = (begin & ~(uintptr_t)15) + piece * PIECE_BYTES;
		int left = (int)(begin - at) + length * 2; /* bytes, if the line is there */

		if (i == L::PASSES - 1 && line >= L::LINES)
			break;
		left = line >= lines || left < 0 ? 0 : left < PIECE_BYTES ? left : PIECE_BYTES;
		hopper::copy_piece(to + L::place_of_line(line) + piece * PIECE_BYTES,
		                   (const void *)(left ? at : from & ~(uintptr_t)15), left);
	}
}

/* ---- Products ---- */

/* Of the lane's pairs number d of 8 in a stage, where the even (e 0) and the odd number (1) are in K: place
 * (2c + e + d) % 8 of class 2c + e. */
__device__ __forceinline__ int class_of(int e)
{
	return threadIdx.x % 4 * 2 + e;
}

__device__ __forceinline__ int index_of(int d, int e)
{
	return (class_of(e) + d) % 8;
}

__device__ __forceinline__ uint32_t pair_at(const char *low, const char *high)
{
	return *(const uint16_t *)low | (uint32_t) * (const uint16_t *)high << 16;
}

/* The fragments of a warp, N times 8 rows of A or columns of B from `first` on. */
template <class L, int N> struct reader {
	static constexpr int BASES = L::ALONG_K ? N : 2;
	int bases[BASES];

	__device__ __forceinline__ reader(const strip &s, int first)
	{
		int g = threadIdx.x % 32 / 4;

#pragma unroll
		for (int i = 0; i < BASES; i++) {
			int line = L::ALONG_K ? L::outer_of(first + i * 8 + g) : class_of(i);

			bases[i] = L::place_of_line(line) + (int)((s.from + line * s.apart) % PIECE_BYTES);
			bases[i] += L::ALONG_K ? 0 : (first + g) * 2;
		}
	}
	__device__ __forceinline__ uint32_t pair(const char *tile, int n, int d) const
	{
		if constexpr (L::ALONG_K) {
			const char *line = tile + bases[n];
			return pair_at(line + index_of(d, 0) * 16 + class_of(0) * 2,
			               line + index_of(d, 1) * 16 + class_of(1) * 2);
		} else {
			return pair_at(tile + bases[0] + index_of(d, 0) * L::PITCH + n * 16,
			               tile + bases[1] + index_of(d, 1) * L::PITCH + n * 16);
		}
	}
};

template <class F> using warp_sums = float[F::ROW_TILES][F::COL_TILES][4];

template <class T, class F>
__device__ __forceinline__ void add_stage(warp_sums<F> &sums, const char *stage,
                                          const reader<typename F::A, F::ROW_TILES * 2> &of_a,
                                          const reader<typename F::B, F::COL_TILES> &of_b)
{
#pragma unroll
	for (int d = 0; d < 8; d += 2) {
		uint32_t a[F::ROW_TILES][4], b[F::COL_TILES][2];

#pragma unroll
		for (int i = 0; i < F::ROW_TILES * 4; i++)
			a[i / 4][i % 4] = of_a.pair(stage, i / 4 * 2 + i % 2, d + i % 4 / 2);
#pragma unroll
		for (int i = 0; i < F::COL_TILES * 2; i++)
			b[i / 2][i % 2] = of_b.pair(stage + F::A::BYTES, i / 2, d + i % 2);
#pragma unroll
		for (int i = 0; i < F::ROW_TILES; i++)
#pragma unroll
			for (int j = 0; j < F::COL_TILES; j++)
				hopper::add_products<element_of<T>::E>(sums[i][j], a[i], b[j]);
	}
}

/* Rows and columns of the tile: the first of the warp's. */
template <class F> __device__ __forceinline__ int warp_row()
{
	return threadIdx.x / 32 / F::ACROSS * F::WARP_ROWS;
}

template <class F> __device__ __forceinline__ int warp_col()
{
	return threadIdx.x / 32 % F::ACROSS * F::WARP_COLS;
}

/* Calls fn(row, column, sum) for each sum of the thread. */
template <class F, class FN> __device__ __forceinline__ void each_sum(const warp_sums<F> &sums, FN fn)
{
	int g = threadIdx.x % 32 / 4, c = threadIdx.x % 4;

#pragma unroll
	for (int i = 0; i < F::ROW_TILES * 2; i++)
#pragma unroll
		for (int j = 0; j < F::COL_TILES * 2; j++)
			fn(F::A::outer_of(warp_row<F>() + i * 8 + g),
			   F::B::outer_of(warp_col<F>() + j / 2 * 8 + c * 2 + j % 2),
			   sums[i / 2][j / 2][i % 2 * 2 + j % 2]);
}

/* ---- C by way of shared memory ---- */

/* Rows that a warp writes at a time are neighbours there. */
template <class F> __device__ __forceinline__ int c_line(int row)
{
	return F::A::ALONG_K ? row % CLASSES * (F::ROWS / CLASSES) + row / CLASSES : row;
}

template <class T> __device__ __forceinline__ uint32_t packed(float x, float y)
{
	const T *type = nullptr;

	return pack_pair(type, x, y);
}

/* FINISHES: there is more to do than to scale. */
template <class T, class F, bool FINISHES>
__device__ __forceinline__ void keep_lines(const ragged_work &w, const place &at, const warp_sums<F> &sums,
                                           char *memory)
{
	int g = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
	const auto &to_c = w.t.to_c;

#pragma unroll
	for (int i = 0; i < F::ROW_TILES * 2; i++) {
		int row = F::A::outer_of(warp_row<F>() + i * 8 + g);
		char *line = memory + c_line<F>(row) * F::C_PITCH;
		/* Element e of the lane's two in a tile of columns, which is in column `col` of the block. */
		auto value = [&](int tile, int e, int col) {
			float v[1] = {to_c.scale(sums[i / 2][tile][i % 2 * 2 + e])};

			if constexpr (FINISHES)
				to_c.finish<T>(v, {at.batch, (int64_t)at.row + row, (int64_t)at.col + col},
				               row < at.rows && col < at.cols);
			return v[0];
		};

		if constexpr (!F::B::ALONG_K) { /* neighbours are of the same tile */
#pragma unroll
			for (int j = 0; j < F::COL_TILES; j++) {
				int col = warp_col<F>() + j * 8 + c * 2;

				*(uint32_t *)(line + col * 2) =
				    packed<T>(value(j, 0, col), value(j, 1, col + 1));
			}
		} else {
#pragma unroll
			for (int j = 0; j < F::COL_TILES * 2; j++) {
				int col = F::B::outer_of(warp_col<F>() + j / 2 * 8 + c * 2 + j % 2);

				((T *)line)[col] = (T)value(j / 2, j % 2, col);
			}
		}
	}
}

/* The block's tile of C, line by line. */
template <class T, class F>
__device__ __forceinline__ void write_lines(T *c, int64_t apart, int rows, int cols, const char *memory)
{
	constexpr int PIECES = F::COLS / PIECE_ELEMENTS + 1;

	for (int number = threadIdx.x; number < F::ROWS * PIECES; number += RAGGED_THREADS) {
		int row = number / PIECES;
		uint16_t *to = (uint16_t *)(c + row * apart);
		int begin = number % PIECES * PIECE_ELEMENTS - (int)((uintptr_t)to % PIECE_BYTES / 2);
		const uint4 *pieces = (const uint4 *)(memory + c_line<F>(row) * F::C_PITCH);
		int piece = begin >> 3; /* down, if it is negative */

		if (row >= rows || begin >= cols)
			continue;
		write_piece(to, begin, 0, cols,
		            shifted(pieces[piece < 0 ? 0 : piece], pieces[piece + 1], (begin & 7) * 2));
	}
}

/* ---- The kernel ---- */

template <class T, class F>
__device__ __forceinline__ void write_sums(const ragged_work &w, const tile_part &t, const warp_sums<F> &sums)
{
	const gemm_problem &p = w.t.p;
	const place &at = t.at;

	if (w.parts > 1) {
		float *to = w.sums + ((t.part * p.batch + at.batch) * p.m + at.row) * p.n + at.col;

		each_sum<F>(sums, [&](int row, int col, float sum) {
			if (row < at.rows && col < at.cols)
				to[(int64_t)row * p.n + col] = sum;
		});
		return;
	}
	each_sum<F>(sums, [&](int row, int col, float sum) {
		if (row >= at.rows || col >= at.cols)
			return;
		c_index i = {at.batch, (int64_t)at.row + row, (int64_t)at.col + col};
		if (w.wide)
			w.t.to_c.store<T>(element_at<float>(p.c, i.batch, i.row, i.col), sum, i);
		else
			w.t.to_c.store<T>(element_at<T>(p.c, i.batch, i.row, i.col), sum, i);
	});
}

/* The stages, each with a barrier for when its bytes have come and one for when they have been read. */
template <class F> struct ring {
	uint32_t stages, barriers;
	unsigned stage = 0, parity = 0;

	__device__ ring(uint32_t stages, uint32_t barriers) : stages(stages), barriers(barriers)
	{
	}
	__device__ __forceinline__ uint32_t full() const
	{
		return barriers + stage * 8;
	}
	__device__ __forceinline__ uint32_t empty() const
	{
		return barriers + (F::STAGES + stage) * 8;
	}
	__device__ __forceinline__ int at() const
	{
		return (int)stage * F::STAGE_BYTES;
	}
	__device__ __forceinline__ void step()
	{
		if (++stage == F::STAGES)
			stage = 0, parity ^= 1;
	}
};

/* What a block does step by step: the steps of its tiles, one after another. */
template <class F> struct walk {
	const ragged_work &w;
	uint64_t number, step = 0;
	tile_part t;
	ring<F> r;

	__device__ walk(const ragged_work &w, const ring<F> &r) : w(w), number(blockIdx.x), r(r)
	{
		if (!is_over())
			t = part_of_number<F>(w, number);
	}
	__device__ __forceinline__ bool is_over() const
	{
		return number >= w.tile_parts;
	}
	__device__ __forceinline__ void next_tile()
	{
		number += gridDim.x;
		step = 0;
		if (!is_over())
			t = part_of_number<F>(w, number);
	}
};

/* Begins to copy what comes next, where there is more. */
template <class F> __device__ __forceinline__ void fetch_next(walk<F> &ahead)
{
	if (ahead.is_over())
		return;
	const ragged_work &w = ahead.w;
	uint64_t k = (ahead.t.begin + ahead.step) * STEP_DEPTH;
	int k_there = rest_of<STEP_DEPTH>(w.t.p.k, k);
	uint32_t to = ahead.r.stages + ahead.r.at();

	hopper::barrier_wait(ahead.r.empty(), ahead.r.parity ^ 1);
	fetch<typename F::A>(to, strip_of_a<F>(w, ahead.t.at), k, k_there);
	fetch<typename F::B>(to + F::A::BYTES, strip_of_b<F>(w, ahead.t.at), k, k_there);
	hopper::barrier_arrive_copied(ahead.r.full());
	ahead.r.step();
	if (++ahead.step == ahead.t.steps)
		ahead.next_tile();
}

/* The products of the tile that `now` is at. */
template <class T, class F>
__device__ __forceinline__ void sum_up(warp_sums<F> &sums, walk<F> &now, walk<F> &ahead, const char *stages)
{
	reader<typename F::A, F::ROW_TILES * 2> of_a(strip_of_a<F>(now.w, now.t.at), warp_row<F>());
	reader<typename F::B, F::COL_TILES> of_b(strip_of_b<F>(now.w, now.t.at), warp_col<F>());

#pragma unroll 1
	for (; now.step < now.t.steps; now.step++, now.r.step()) {
		fetch_next(ahead);
		hopper::barrier_wait(now.r.full(), now.r.parity);
		add_stage<T, F>(sums, stages + now.r.at(), of_a, of_b);
		__syncwarp();
		if (threadIdx.x % 32 == 0)
			hopper::barrier_arrive(now.r.empty());
	}
}

#endif

/* As many blocks as find room go through the tiles of C. */
template <class T, class F>
__global__ void __launch_bounds__(RAGGED_THREADS, BLOCKS) ragged(const __grid_constant__ ragged_work w)
{
#if __CUDA_ARCH__ >= 900
	extern __shared__ __align__(128) char memory[];
	__shared__ uint64_t barriers[2 * F::STAGES];
	char *stages = memory + F::C_BYTES;
	ring<F> r(hopper::shared_address(stages), hopper::shared_address(barriers));

	let_next_kernel_come();
	if (threadIdx.x == 0) {
		for (int i = 0; i < F::STAGES; i++) {
			hopper::barrier_init(r.barriers + i * 8, RAGGED_THREADS);
			hopper::barrier_init(r.barriers + (F::STAGES + i) * 8, RAGGED_WARPS);
		}
	}
	__syncthreads();
	await_kernel_before();
	walk<F> now(w, r), ahead(w, r);
	if (w.t.p.k > 0)
		for (int i = 0; i < F::STAGES - 1; i++)
			fetch_next(ahead);
	for (; !now.is_over(); now.next_tile()) {
		const place &at = now.t.at;
		warp_sums<F> sums = {};

		sum_up<T, F>(sums, now, ahead, stages);
		if (w.parts > 1 || !w.lines) {
			write_sums<T, F>(w, now.t, sums);
			continue;
		}
		__syncthreads(); /* the last tile's lines have been read */
		if (w.t.to_c.finishes())
			keep_lines<T, F, true>(w, at, sums, memory);
		else
			keep_lines<T, F, false>(w, at, sums, memory);
		__syncthreads();
		write_lines<T, F>(element_at<T>(w.t.p.c, at.batch, at.row, at.col), w.t.p.c.row, at.rows,
		                  at.cols, memory);
	}
#endif
}

/* Adds up the sums of all parts of K, always in the same order. */
template <class T, class OUT>
__global__ void __launch_bounds__(RAGGED_THREADS) ragged_join(const __grid_constant__ ragged_work w)
{
	const gemm_problem &p = w.t.p;
	uint64_t elements = p.batch * p.m * p.n, i = (uint64_t)blockIdx.x * RAGGED_THREADS + threadIdx.x;
	float sum = 0;

	await_kernel_before();
	let_next_kernel_come();
	if (i >= elements)
		return;
	for (unsigned part = 0; part < w.parts; part++)
		sum += w.sums[part * elements + i];
	c_index at = {i / (p.m * p.n), (int64_t)(i / p.n % p.m), (int64_t)(i % p.n)};
	w.t.to_c.store<T>(element_at<OUT>(p.c, at.batch, at.row, at.col), sum, at);
}

/* ---- Launches ---- */

uint64_t tiles_in(const gemm_problem &p, uint64_t rows, uint64_t cols)
{
	return p.batch * ((p.m + rows - 1) / rows) * ((p.n + cols - 1) / cols);
}

template <class T, class F> int launch_form(ragged_work w, const struct launch *launch)
{
	const gemm_problem &p = w.t.p;
	uint64_t most;

	w.tile_parts = tiles_in(p, F::ROWS, F::COLS) * w.parts;
	most = BLOCKS * (uint64_t)cuda_multiprocessors_to_keep(launch, (int)cuda_multiprocessors(),
	                                                       (w.tile_parts + BLOCKS - 1) / BLOCKS);
	cudaFuncSetAttribute(ragged<T, F>, cudaFuncAttributeMaxDynamicSharedMemorySize, F::SHARED_BYTES);
	launch_kernel(ragged<T, F>,
	              {dim3((unsigned)(w.tile_parts < most ? w.tile_parts : most)), dim3(RAGGED_THREADS),
	               F::SHARED_BYTES, 1, cuda_may_be_early(launch)},
	              cuda_stream(launch), w);
	return cuda_launch_status();
}

template <class T, int ROWS, int COLS, int DOWN>
int launch_sides(const ragged_work &w, const struct launch *launch)
{
	static int (*const launchers[4])(ragged_work, const struct launch *) = {
	    launch_form<T, form<ROWS, COLS, DOWN, false, false>>,
	    launch_form<T, form<ROWS, COLS, DOWN, false, true>>,
	    launch_form<T, form<ROWS, COLS, DOWN, true, false>>,
	    launch_form<T, form<ROWS, COLS, DOWN, true, true>>};
	const gemm_problem &p = w.t.p;

	return launchers[along_k(p.a.col, p.a.row) * 2 + along_k(p.b.row, p.b.col)](w, launch);
}

/* The form of tile for C; zeros where it has too many rows and columns. */
struct sides {
	unsigned rows, cols;
};

sides sides_of(const gemm_problem &p)
{
	for (unsigned few : {16u, 32u, 64u}) {
		if (p.m <= few)
			return {few, 128};
		if (p.n <= few)
			return {128, few};
	}
	return {};
}

template <class T> int launch_products(const ragged_work &w, const struct launch *launch)
{
	sides s = sides_of(w.t.p);

	if (s.rows == 128)
		return s.cols == 16   ? launch_sides<T, 128, 16, 8>(w, launch)
		       : s.cols == 32 ? launch_sides<T, 128, 32, 4>(w, launch)
		                      : launch_sides<T, 128, 64, 4>(w, launch);
	return s.rows == 16   ? launch_sides<T, 16, 128, 1>(w, launch)
	       : s.rows == 32 ? launch_sides<T, 32, 128, 2>(w, launch)
	                      : launch_sides<T, 64, 128, 2>(w, launch);
}

template <class T> int launch_type(const ragged_work &w, const struct launch *launch)
{
	const gemm_problem &p = w.t.p;
	unsigned blocks = (unsigned)((p.batch * p.m * p.n + RAGGED_THREADS - 1) / RAGGED_THREADS);
	int rc = launch_products<T>(w, launch);

	if (rc < 0 || w.parts == 1)
		return rc;
	launch_kernel(w.wide ? ragged_join<T, float> : ragged_join<T, T>, {dim3(blocks), dim3(RAGGED_THREADS)},
	              cuda_stream(launch), w);
	return cuda_launch_status();
}

/* C is split along K where its tiles are too few for the GPU, as long as the parts are long enough and their
 * sums are little memory. */
unsigned parts_of(const gemm_problem &p)
{
	constexpr uint64_t PART_STEPS = 4, SUMS_BYTES_MAX = 64u << 20;
	sides s = sides_of(p);
	uint64_t tiles = tiles_in(p, s.rows, s.cols);
	uint64_t most = p.k / STEP_DEPTH / PART_STEPS, wanted = 2 * cuda_multiprocessors() / tiles;
	uint64_t bytes = p.batch * p.m * p.n * sizeof(float);

	if (bytes > SUMS_BYTES_MAX)
		return 1;
	most = most < SUMS_BYTES_MAX / bytes ? most : SUMS_BYTES_MAX / bytes;
	wanted = wanted < most ? wanted : most;
	return wanted > 1 ? (unsigned)wanted : 1;
}

} // namespace

extern "C" bool gemm_ragged_supports(const struct op_args *args, const char **ret_why_not)
{
	gemm_problem p = gemm_problem_of(args);
	kops_dtype dtype = args->views[0].dtype;

	*ret_why_not = "takes f16 and bf16 only";
	if (dtype != KOPS_F16 && dtype != KOPS_BF16)
		return false;
	*ret_why_not = "needs M or N of at most 64";
	if (sides_of(p).rows == 0)
		return false;
	*ret_why_not = "needs unit stride in one axis of A and of B";
	if ((p.a.row != 1 && p.a.col != 1) || (p.b.row != 1 && p.b.col != 1))
		return false;
	*ret_why_not = "needs a GPU of compute capability 9.0"; /* later ones may have less shared memory */
	return gemm_hopper_multiprocessors() != 0;
}

extern "C" double gemm_ragged_ns(const struct op_args *args)
{
	const auto &f = fitted.ragged;
	gemm_problem given = gemm_problem_of(args), p = gemm_by_rows(&given);
	sides s = sides_of(p);
	unsigned parts = gemm_has_product(args) ? parts_of(p) : 1;
	double blocks = (double)tiles_in(p, s.rows, s.cols) * parts;
	double steps = gemm_has_product(args) ? ceil((double)p.k / STEP_DEPTH / parts) : 0;
	double clocks = ceil(blocks / (double)(BLOCKS * cuda_multiprocessors())) *
	                (f.block + steps * (f.step + f.few * fmin(s.rows, s.cols)));

	return f.launch_ns + (parts > 1 ? f.join_ns : 0) + clocks / cuda_clocks_per_ns();
}

extern "C" uint64_t gemm_ragged_workspace(const struct op_args *args)
{
	gemm_task t = gemm_task_of(args);
	unsigned parts = t.p.k ? parts_of(t.p) : 1;

	return parts > 1 ? parts * t.p.batch * t.p.m * t.p.n * sizeof(float) : 0;
}

extern "C" CUDA_LAUNCH(gemm_ragged)
{
	gemm_task t = gemm_task_of(args);
	const gemm_problem &p = t.p;
	ragged_work w = {};

	w.t = t;
	w.wide = gemm_is_wide(args);
	w.lines = !w.wide && p.c.col == 1 && t.to_c.beta == 0;
	w.sums = (float *)launch->workspace;
	w.parts = p.k ? parts_of(p) : 1;
	return args->views[0].dtype == KOPS_F16 ? launch_type<__half>(w, launch)
	                                        : launch_type<__nv_bfloat16>(w, launch);
}
