/*
 * Small products of f16 and bf16 on tensor cores: C = α·A·B + β·C, sums in f32, rounded once.
 *
 *   kernel  idea                               tile, threads  bound
 *   small   no tensor maps and no clusters:    32×32, 128     a launch, the latency of a copy and of the
 *           four tiles of each operand come                   products along K, one after another; of many
 *           by cp.async, each warp multiplies                 blocks the reads of shared memory
 *           16×16 by mma.sync
 *
 * A product of 64³ takes a launch and little else. So what counts is how soon a block has its first tiles, and
 * that up to TOGETHER products are one launch: then each block finds its operands' addresses in a table.
 *
 * A tile lies in shared memory as its lines do in global memory, and ldmatrix turns it where they do not run
 * along K. 16 more bytes to a line let 8 of them meet 32 banks. Lines that are not made of aligned pieces of 16
 * bytes are brought element by element.
 *
 * Not yet measured: the times below are estimates.
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
#include "gemm/tiles.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#pragma nv_diag_suppress 177 /* the kernel is empty there, and what it would use unused */
#endif

namespace
{

constexpr int SIDE = 32; /* of a tile: lines, elements in each, rows and columns of C */
constexpr int WARP_SIDE = 16, WARPS_ACROSS = SIDE / WARP_SIDE, WARPS = WARPS_ACROSS * WARPS_ACROSS;
constexpr int BLOCK_THREADS = WARPS * 32;
constexpr int STAGES = 4;
constexpr int PIECE = 8;                                            /* elements of 16 bytes */
constexpr int LINE_BYTES = SIDE * 2 + 16, TILE = SIDE * LINE_BYTES; /* bytes */
constexpr int SHARED_BYTES = STAGES * (2 * TILE + 8);

/* What a kernel gets: products of one batch, or OPS of their own at most, whose batches these are. */
template <unsigned OPS> struct work {
	gemm_task t;
	gemm_operands<OPS> where;
	bool wide; /* C is f32: what a part of an op hands on */
};

/* Lines of A or B: its first element, how far lines and neighbours in a line are apart, and how much of a tile
 * there is. */
template <class T> struct lines {
	const T *from;
	int64_t apart, along;
	int count, length;
};

#if __CUDA_ARCH__ >= 900

/* A piece for each thread; zeros for what is not there. */
template <class T> __device__ __forceinline__ void bring_pieces(uint32_t tile, const lines<T> &l)
{
	constexpr int PIECES = SIDE / PIECE;
	static_assert(SIDE * PIECES == BLOCK_THREADS, "one for each thread");
	int line = threadIdx.x / PIECES, piece = threadIdx.x % PIECES;
	bool there = line < l.count && piece * PIECE < l.length;

	hopper::copy_piece(tile + line * LINE_BYTES + piece * 16,
	                   there ? l.from + line * l.apart + piece * PIECE : l.from, there ? 16 : 0);
}

template <class T> __device__ __forceinline__ void bring_elements(char *tile, const lines<T> &l)
{
	constexpr int EACH = SIDE * SIDE / BLOCK_THREADS, LINES = BLOCK_THREADS / SIDE;
	int line = threadIdx.x / SIDE, at = threadIdx.x % SIDE;
	T held[EACH];

#pragma unroll
	for (int i = 0; i < EACH; i++)
		held[i] = line + i * LINES < l.count && at < l.length
		              ? l.from[(line + i * LINES) * l.apart + at * l.along]
		              : T(0.0f);
#pragma unroll
	for (int i = 0; i < EACH; i++)
		*(T *)(tile + (line + i * LINES) * LINE_BYTES + at * 2) = held[i];
}

#endif

/* Of a warp: its sums, and where they begin in the block. */
template <class T, class Out>
__device__ __forceinline__ void write_sums(const gemm_task &t, const place &at, Out *c, int row, int col,
                                           const float (&sums)[2][4])
{
	const gemm_operand &o = t.p.c;
	int lane = threadIdx.x % 32;

	c += (int64_t)at.batch * o.batch + (int64_t)at.row * o.row + (int64_t)at.col * o.col;
#pragma unroll
	for (int half = 0; half < 2; half++)
#pragma unroll
		for (int i = 0; i < 4; i += 2) {
			int r = row + lane / 4 + i * 4, first = col + half * 8 + lane % 4 * 2;

			if (r < at.rows)
				t.to_c.store_columns<T, 2>(
				    c + r * o.row + first * o.col, o.col, at.cols - first, t.c_vectors,
				    &sums[half][i], {at.batch, (int64_t)at.row + r, (int64_t)at.col + first});
		}
}

#if __CUDA_ARCH__ >= 900

/* The tiles of A and B for one block, which come STAGES steps of K ahead. */
template <class T, bool A_ALONG_K, bool B_ALONG_K, bool IN_PIECES> struct tiles_of {
	const gemm_problem &p;
	const place &at;
	const T *a, *b; /* the block's first row, and its first column */
	char *memory;
	uint32_t shared, full; /* full: a barrier for each stage */

	__device__ __forceinline__ void make_barriers() const
	{
		if (threadIdx.x == 0) {
			for (int i = 0; i < STAGES; i++)
				hopper::barrier_init(full + i * 8, BLOCK_THREADS);
			hopper::barriers_ready();
		}
		__syncthreads();
	}
	__device__ __forceinline__ void bring(uint64_t step) const
	{
		int stage = (int)(step % STAGES), to = stage * 2 * TILE;
		int k_there = rest_of<SIDE>(p.k, step * SIDE);
		int64_t k = (int64_t)step * SIDE;
		lines<T> of_a = {a + k * p.a.col, p.a.row, p.a.col, at.rows, k_there};
		lines<T> of_b = {b + k * p.b.row, p.b.col, p.b.row, at.cols, k_there};

		if (!A_ALONG_K)
			of_a = {of_a.from, p.a.col, p.a.row, k_there, at.rows};
		if (!B_ALONG_K)
			of_b = {of_b.from, p.b.row, p.b.col, k_there, at.cols};
		if (IN_PIECES) {
			bring_pieces(shared + to, of_a);
			bring_pieces(shared + to + TILE, of_b);
			hopper::barrier_arrive_copied(full + stage * 8);
		} else {
			bring_elements(memory + to, of_a);
			bring_elements(memory + to + TILE, of_b);
			hopper::barrier_arrive(full + stage * 8);
		}
	}
	/* Where the step's tile of A is, once it is there; B's is behind it. */
	__device__ __forceinline__ uint32_t await(uint64_t step) const
	{
		int stage = (int)(step % STAGES);

		hopper::barrier_wait(full + stage * 8, (unsigned)(step / STAGES % 2));
		return shared + stage * 2 * TILE;
	}
	/* Adds a warp's products of it, of rows from `row` on and columns from `col` on. */
	__device__ __forceinline__ static void add_products(float (&sums)[2][4], uint32_t tile, int row,
	                                                    int col)
	{
#pragma unroll
		for (int k = 0; k < SIDE; k += 16) {
			uint32_t of_a[4], of_b[4];

			load_block<A_ALONG_K, LINE_BYTES>(of_a, tile, row, k);
			load_block<B_ALONG_K, LINE_BYTES>(of_b, tile + TILE, col, k);
#pragma unroll
			for (int half = 0; half < 2; half++)
				hopper::add_products<element_of<T>::E>(sums[half], of_a,
				                                       {of_b[half], of_b[half + 2]});
		}
	}
};

#endif

template <class T, bool A_ALONG_K, bool B_ALONG_K, bool IN_PIECES, unsigned OPS>
__global__ void __launch_bounds__(BLOCK_THREADS) small(const __grid_constant__ work<OPS> w)
{
#if __CUDA_ARCH__ >= 900
	extern __shared__ __align__(128) char memory[];
	const gemm_problem &p = w.t.p;
	place at = place_of<SIDE, 1>(w.t);
	auto operand = [&](unsigned view, const gemm_operand &o) {
		return (T *)w.where.at(view, at.batch) + (int64_t)at.batch * o.batch;
	};
	int warp = threadIdx.x / 32;
	int row = warp / WARPS_ACROSS * WARP_SIDE, col = warp % WARPS_ACROSS * WARP_SIDE;
	uint32_t shared = hopper::shared_address(memory);
	tiles_of<T, A_ALONG_K, B_ALONG_K, IN_PIECES> tiles = {p,
	                                                      at,
	                                                      operand(GEMM_A, p.a) + (int64_t)at.row * p.a.row,
	                                                      operand(GEMM_B, p.b) + (int64_t)at.col * p.b.col,
	                                                      memory,
	                                                      shared,
	                                                      shared + STAGES * 2 * TILE};
	uint64_t steps = (p.k + SIDE - 1) / SIDE;
	float sums[2][4] = {}; /* of two halves of the warp's columns */

	tiles.make_barriers();
	await_kernel_before();
	let_next_kernel_come();

	for (uint64_t step = 0; step < STAGES && step < steps; step++)
		tiles.bring(step);
	for (uint64_t step = 0; step < steps; step++) {
		tiles.add_products(sums, tiles.await(step), row, col);
		if (step + STAGES < steps) {
			__syncthreads();
			tiles.bring(step + STAGES);
		}
	}

	void *c = w.where.at(GEMM_C, at.batch);
	const gemm_task &t = task_of_op(w.t, w.where, at.batch);
	if (w.wide)
		write_sums<T>(t, at, (float *)c, row, col, sums);
	else
		write_sums<T>(t, at, (T *)c, row, col, sums);
#endif
}

/* ---- Launches ---- */

template <class T, unsigned OPS> int launch_products(work<OPS> w, cudaStream_t stream)
{
	static void (*const kernels[8])(work<OPS>) = {
	    small<T, false, false, false, OPS>, small<T, false, false, true, OPS>,
	    small<T, false, true, false, OPS>,  small<T, false, true, true, OPS>,
	    small<T, true, false, false, OPS>,  small<T, true, false, true, OPS>,
	    small<T, true, true, false, OPS>,   small<T, true, true, true, OPS>};
	access how = access_of(w.t.p, PIECE);
	void (*kernel)(work<OPS>) = kernels[how.a_along_k * 4 + how.b_along_k * 2 + how.vectors];

	launch_tiles(blocks_of(w.t.p, SIDE), GRID_MAX, [&](uint64_t first, unsigned n) {
		w.t.first = first;
		launch_kernel(kernel, {dim3(n), dim3(BLOCK_THREADS), SHARED_BYTES}, stream, w);
	});
	return cuda_launch_status();
}

template <unsigned OPS> int launch_by_type(const work<OPS> &w, kops_dtype dtype, const struct launch *launch)
{
	cudaStream_t stream = cuda_stream(launch);

	return dtype == KOPS_F16 ? launch_products<__half>(w, stream)
	                         : launch_products<__nv_bfloat16>(w, stream);
}

} // namespace

extern "C" double gemm_small_ns(const struct op_args *args)
{
	gemm_problem given = gemm_problem_of(args), p = gemm_by_rows(&given);
	double blocks = (double)blocks_of(p, SIDE);
	double steps = gemm_has_product(args) ? ceil((double)p.k / SIDE) : 0;
	double beside =
	    fmax(ceil(blocks / cuda_multiprocessors()), 1) - 1; /* of a multiprocessor's first block */
	double clocks =
	    access_of(p, PIECE).vectors
	        ? steps * (fitted.small.step + beside * fitted.small.beside)
	        : steps * (fitted.small.step_by_elements + beside * fitted.small.beside_by_elements);

	return fitted.small.launch_ns + fitted.small.first_ns * cuda_clock_factor() +
	       clocks / cuda_clocks_per_ns();
}

extern "C" CUDA_LAUNCH(gemm_small)
{
	work<1> w = {gemm_task_of(args), operands_of_tasks<1>(&args, 1, NULL), gemm_is_wide(args)};

	return launch_by_type(w, args->views[GEMM_A].dtype, launch);
}

/* Products that do not keep the GPU busy by themselves. */
extern "C" unsigned gemm_small_together_max(const struct op_args *args)
{
	gemm_problem p = gemm_problem_of(args);

	return p.batch == 1 && p.m <= 256 && p.n <= 256 && p.k <= 512 ? TOGETHER : 1;
}

extern "C" CUDA_TOGETHER(gemm_small_together)
{
	work<TOGETHER> w = {gemm_task_of(args[0]), operands_of_tasks<TOGETHER>(args, n, launch->addresses),
	                    false};

	w.t.p.batch = n;
	return launch_by_type(w, args[0]->views[0].dtype, launch);
}
