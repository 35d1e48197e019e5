/*
 * Gemm at the rate of plain FMAs: f32, C = α·A·B + β·C. Measured on an H200, resident and cold, K = 1024, one
 * launch after another from a graph, µs beside cuBLAS (CUBLAS_PEDANTIC_MATH) in the same run. The block is
 * chosen by a model of its time.
 *
 *   block, per thread, groups      chosen at, M = N  bound                                 simt  cublas
 *   32×32, 4×4, 1, K in 8 blocks   128               launch, a copy's latency and the sum  5.16  6.92
 *   32×32, 8×4, 4, K in 2 blocks   256               the same                              8.71  9.42
 *   64×64, 8×8, 4, K in 2 blocks   512               latency, the sum of 8 parts           17.2  19.6
 *   64×64, 8×8, 4                  1024              two blocks on most multiprocessors    50.7  60.3
 *   simt_large.cu                  2048              see there                             169.6 173.5
 *                                  4096                                                    661   690
 *                                  8192                                                    2606  2732
 *                                  16384                                                   10094 10685
 *
 * That is 54.5 TFLOP/s at 16384², and 1.11 × cuBLAS in the geometric mean. Overlapping launches (overlap.cuh)
 * save 1 µs each.
 *
 * The copy engine brings only lines that begin at multiples of 16 bytes. Boxes that begin within 16 bytes of
 * lines of every fourth raise an illegal instruction. Other lines are loaded element by element: up to
 * 2.1 × cuBLAS where it takes less than 10 µs, half of it beyond 40 µs.
 *
 * Random shapes, and what else was tried: docs/lab/gemm.md.
 */
#include <cooperative_groups.h>
#include <math.h>
#include <type_traits>

#include "common/hopper/async_copy.cuh"
#include "common/hopper/barrier.cuh"
#include "common/hopper/shared.cuh"
#include "common/hopper/tma.cuh"
#include "common/launch.cuh"
#include "fitted.h"
#include "gemm/kernels.h"
#include "gemm/map.cuh"
#include "gemm/tiles.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#pragma nv_diag_suppress 177 /* the kernel is empty there, and what it would use unused */
#endif

namespace
{

constexpr int SPLITS_MAX = 8; /* the largest cluster that every device takes */
constexpr int STEP = 32;      /* tiles of A and B are so deep: lines of 128 bytes along K */

/*
 * How blocks of C are computed: SIDE × SIDE elements, ROWS × COLS per thread, the threads of a warp 4 rows and
 * 8 columns of them; STAGES tiles of A and of B in flight; PART k's make up the innermost loop, which is
 * unrolled; GROUPS groups of warps share out the k's of a step; RESIDENT blocks per multiprocessor. IN_F64:
 * what a group adds up in a step is added to the step's before in f64.
 */
template <int SIDE_, int ROWS_, int COLS_, int PART_, int STAGES_, int GROUPS_, int RESIDENT_,
          bool IN_F64_ = false>
struct shape {
	static constexpr int SIDE = SIDE_, ROWS = ROWS_, COLS = COLS_, PART = PART_, STAGES = STAGES_,
	                     GROUPS = GROUPS_, RESIDENT = RESIDENT_;
	static constexpr bool IN_F64 = IN_F64_;
	typedef std::conditional_t<IN_F64, double, float> sum;
	static constexpr int WARP_ROWS = 4 * ROWS, WARP_COLS = 8 * COLS;
	static constexpr int WARPS = SIDE / WARP_ROWS * (SIDE / WARP_COLS), GROUP = WARPS * 32;
	static constexpr int THREADS = GROUP * GROUPS;
	static constexpr int TILE = SIDE * STEP;              /* floats of A or of B in a stage */
	static constexpr int FOURS = SIDE * PART / 4 / GROUP; /* of a part of a tile, per thread */
	static constexpr int PARTS = STEP / PART / GROUPS;    /* of a tile, per group */
	static constexpr int PER_LINE = SIDE > GROUP ? SIDE / GROUP : 1,
	                     LINES = GROUP > SIDE ? GROUP / SIDE : 1;

	/* The stages, two turned tiles of each operand that comes along K; or the sums; then the barriers. */
	__host__ __device__ static constexpr int floats(int turned, bool split)
	{
		int tiles = (STAGES + turned) * 2 * TILE;
		int sums = split || GROUPS > 1 ? GROUPS * SIDE * SIDE * (int)(sizeof(sum) / sizeof(float)) : 0;

		return tiles > sums ? tiles : sums;
	}
	__host__ __device__ static constexpr int bytes(int turned, bool split)
	{
		return floats(turned, split) * 4 + STAGES * 8;
	}
};

/* How tiles come: by the copy engine; or brought by all threads, 16 bytes or an element at a time. */
enum loading { BOXES, PIECES, ELEMENTS };

/* What a kernel gets. */
struct work {
	CUtensorMap a_map, b_map;
	gemm_task t;
	int splits; /* of K, one per block of a cluster */

	__device__ __forceinline__ const float *a(uint64_t batch) const
	{
		return batch_data(t.p.a, batch);
	}
	__device__ __forceinline__ const float *b(uint64_t batch) const
	{
		return batch_data(t.p.b, batch);
	}
	__device__ __forceinline__ float *c(uint64_t batch) const
	{
		return (float *)batch_data(t.p.c, batch);
	}
};

/* Products of their own, t.p.batch of them. Of t.p the addresses are not used. */
struct work_together {
	gemm_task t;
	int splits;
	operands<3, TOGETHER_MAX> where;

	__device__ __forceinline__ const float *a(uint64_t product) const
	{
		return (const float *)where.at(0, product);
	}
	__device__ __forceinline__ const float *b(uint64_t product) const
	{
		return (const float *)where.at(1, product);
	}
	__device__ __forceinline__ float *c(uint64_t product) const
	{
		return (float *)where.at(2, product);
	}
};

/*
 * A tile of A or B. Threads read it with the outer axis as lines, SIDE elements per k. Where the lines in
 * memory run along K it comes in as SIDE lines of STEP, their 16-byte pieces exchanged as the copy engine does
 * it so that 8 lines meet 32 banks, and the threads turn it.
 */
template <class S, bool ALONG_K> struct tile_of {
	float held[S::FOURS][4]; /* on their way from the one form to the other */

	__device__ __forceinline__ static int along_k(int outer, int piece)
	{
		return outer * STEP + (piece ^ (outer & (STEP / 4 - 1))) * 4;
	}
	__device__ __forceinline__ static int in_group()
	{
		return S::GROUPS > 1 ? threadIdx.x % S::GROUP : threadIdx.x;
	}
	__device__ __forceinline__ static int outer_of(int i)
	{
		return (S::LINES > 1 ? in_group() % S::SIDE : in_group()) + i % S::PER_LINE * S::GROUP;
	}
	__device__ __forceinline__ static int piece_of(int i)
	{
		return (S::LINES > 1 ? in_group() / S::SIDE : 0) + i / S::PER_LINE * S::LINES;
	}
	__device__ __forceinline__ void hold(const float *tile, int part)
	{
#pragma unroll
		for (int i = 0; i < S::FOURS; i++)
			load_four(held[i], tile + along_k(outer_of(i), part * (S::PART / 4) + piece_of(i)));
	}
	__device__ __forceinline__ void turn(float *to) const
	{
#pragma unroll
		for (int i = 0; i < S::FOURS; i++)
#pragma unroll
			for (int j = 0; j < 4; j++)
				to[(piece_of(i) * 4 + j) * S::SIDE + outer_of(i)] = held[i][j];
	}

#if __CUDA_ARCH__ >= 900
	/* All threads together, 16 bytes at a time. */
	__device__ static void bring_pieces(uint32_t to, const float *from, int64_t outer_stride,
	                                    int64_t k_stride, int outer_end, int k_end)
	{
		constexpr int ACROSS = (ALONG_K ? STEP : S::SIDE) / 4;

#pragma unroll
		for (int i = threadIdx.x; i < S::TILE / 4; i += S::THREADS) {
			int line = i / ACROSS, piece = i % ACROSS;
			int there = (ALONG_K ? k_end : outer_end) - piece * 4;
			const float *at = from + line * (ALONG_K ? outer_stride : k_stride) + piece * 4;

			there = line < (ALONG_K ? outer_end : k_end) ? max(min(there, 4), 0) : 0;
			hopper::copy_piece(to + (ALONG_K ? along_k(line, piece) : i * 4) * 4, there ? at : from,
			                   there * 4);
		}
	}
	/* Element by element. */
	__device__ static void bring(uint32_t to, const float *from, int64_t outer_stride, int64_t k_stride,
	                             int outer_end, int k_end)
	{
#pragma unroll 4
		for (int i = threadIdx.x; i < S::TILE; i += S::THREADS) {
			int outer = ALONG_K ? i / STEP : i % S::SIDE, k = ALONG_K ? i % STEP : i / S::SIDE;
			bool there = outer < outer_end && k < k_end;

			hopper::copy_element(to + (ALONG_K ? along_k(outer, k / 4) + k % 4 : i) * 4,
			                     there ? from + outer * outer_stride + k * k_stride : from, there);
		}
	}
	__device__ __forceinline__ static void bring_box(uint32_t to, const CUtensorMap *map, uint64_t outer,
	                                                 uint64_t k, uint64_t batch, uint32_t full)
	{
		if (ALONG_K)
			hopper::copy_box(to, map, (int)k, (int)outer, (int)batch, full);
		else
			hopper::copy_box(to, map, (int)outer, (int)k, (int)batch, full);
	}
#endif
};

/* Sums on their way from thread to thread: see sums_of for the order. */
__device__ __forceinline__ void store_four(float *to, const float *sums)
{
	*(float4 *)to = make_float4(sums[1], sums[0], sums[3], sums[2]);
}

__device__ __forceinline__ void store_four(double *to, const double *sums)
{
	*(double2 *)to = make_double2(sums[0], sums[1]);
	*(double2 *)(to + 2) = make_double2(sums[2], sums[3]);
}

__device__ __forceinline__ void add_four(float (&total)[4], const float *sums)
{
	float4 v = *(const float4 *)sums;

	total[0] += v.y, total[1] += v.x, total[2] += v.w, total[3] += v.z;
}

__device__ __forceinline__ void add_four(double (&total)[4], const double *sums)
{
	double2 v = *(const double2 *)sums, w = *(const double2 *)(sums + 2);

	total[0] += v.x, total[1] += v.y, total[2] += w.x, total[3] += w.y;
}

#if __CUDA_ARCH__ >= 900

/* Which group's the thread is, and where its rows and columns begin in the block: 4 of each, and every 16th and
 * 32nd such 4. */
template <class S> struct position {
	int group, row, col;

	__device__ __forceinline__ position()
	{
		int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

		group = S::GROUPS > 1 ? warp / S::WARPS : 0;
		if (S::GROUPS > 1)
			warp %= S::WARPS;
		row = warp % (S::SIDE / S::WARP_ROWS) * S::WARP_ROWS + lane / 8 * 4;
		col = warp / (S::SIDE / S::WARP_ROWS) * S::WARP_COLS + lane % 8 * 4;
	}
	/* The block's row of the thread's row i. */
	__device__ __forceinline__ int row_of(int i) const
	{
		return row + i / 4 * 16 + i % 4;
	}
};

/*
 * The tiles of A and B for one block: STAGES of each in shared memory, on their way or there, then two turned
 * ones of each operand that comes along K. half: 0 or TILE, which of the two.
 *
 * Where lines do not begin at multiples of 16 bytes, all bring elements, at less than half the speed of boxes.
 * How they come changes nothing in the result.
 */
template <class WORK, class S, bool A_ALONG_K, bool B_ALONG_K, loading LOADING> struct tiles_of {
	static constexpr int TILE = S::TILE, TURNED = A_ALONG_K + B_ALONG_K;

	const WORK &w;
	place at;
	uint64_t next; /* tile along K that has not been sent for */
	int group;
	float *memory, *a_turned, *b_turned;
	uint32_t shared, full; /* full: a barrier for each stage */
	tile_of<S, A_ALONG_K> a;
	tile_of<S, B_ALONG_K> b;

	__device__ __forceinline__ tiles_of(const WORK &w, const place &at, uint64_t first, int group,
	                                    float *memory)
	    : w(w), at(at), next(first), group(group), memory(memory)
	{
		shared = hopper::shared_address(memory);
		full = shared + S::floats(TURNED, w.splits > 1) * 4;
		a_turned = memory + S::STAGES * 2 * TILE;
		b_turned = a_turned + (A_ALONG_K ? 2 * TILE : 0);
	}
	__device__ __forceinline__ void make_barriers() const
	{
		if (threadIdx.x == 0) {
			for (int i = 0; i < S::STAGES; i++)
				hopper::barrier_init(full + i * 8, LOADING == BOXES ? 1 : S::THREADS);
			hopper::barriers_ready();
		}
		__syncthreads();
	}

	__device__ __forceinline__ void bring_boxes(uint32_t to, uint64_t k, uint32_t full_here) const
	{
		const gemm_problem &p = w.t.p;

		if (threadIdx.x != 0)
			return;
		hopper::barrier_expect(full_here, 2 * TILE * 4);
		a.bring_box(to, &w.a_map, at.row, k, p.a.batch ? at.batch : 0, full_here);
		b.bring_box(to + TILE * 4, &w.b_map, at.col, k, p.b.batch ? at.batch : 0, full_here);
	}
	__device__ __forceinline__ void bring_by_all(uint32_t to, uint64_t k, uint32_t full_here) const
	{
		const gemm_problem &p = w.t.p;
		int k_end = rest_of<STEP>(p.k, k);
		const float *a_from = w.a(at.batch) + (int64_t)at.row * p.a.row + (int64_t)k * p.a.col;
		const float *b_from = w.b(at.batch) + (int64_t)at.col * p.b.col + (int64_t)k * p.b.row;

		if (LOADING == PIECES) {
			a.bring_pieces(to, a_from, p.a.row, p.a.col, at.rows, k_end);
			b.bring_pieces(to + TILE * 4, b_from, p.b.col, p.b.row, at.cols, k_end);
		} else {
			a.bring(to, a_from, p.a.row, p.a.col, at.rows, k_end);
			b.bring(to + TILE * 4, b_from, p.b.col, p.b.row, at.cols, k_end);
		}
		hopper::barrier_arrive_copied(full_here);
	}
	/* Sends for the next tile of each. */
	__device__ __forceinline__ void bring(int stage)
	{
		uint32_t to = shared + stage * 2 * TILE * 4, full_here = full + stage * 8;
		uint64_t k = next++ * STEP;

		if constexpr (LOADING == BOXES)
			bring_boxes(to, k, full_here);
		else
			bring_by_all(to, k, full_here);
	}
	__device__ __forceinline__ void await(int stage, unsigned parity) const
	{
		hopper::barrier_wait(full + stage * 8, parity);
	}

	/* The group's k's begin so far into a tile. */
	__device__ __forceinline__ int group_at() const
	{
		return group * S::PARTS * S::PART * S::SIDE;
	}
	__device__ __forceinline__ void hold(int stage, int part)
	{
		if constexpr (A_ALONG_K)
			a.hold(memory + stage * 2 * TILE, group * S::PARTS + part);
		if constexpr (B_ALONG_K)
			b.hold(memory + stage * 2 * TILE + TILE, group * S::PARTS + part);
	}
	__device__ __forceinline__ void turn(int half, int part) const
	{
		if constexpr (A_ALONG_K)
			a.turn(a_turned + half + group_at() + part * S::PART * S::SIDE);
		if constexpr (B_ALONG_K)
			b.turn(b_turned + half + group_at() + part * S::PART * S::SIDE);
	}
	/* Where the group reads a stage's tile of A, and of B. */
	__device__ __forceinline__ const float *a_at(int stage, int half) const
	{
		return (A_ALONG_K ? a_turned + half : memory + stage * 2 * TILE) + group_at();
	}
	__device__ __forceinline__ const float *b_at(int stage, int half) const
	{
		return (B_ALONG_K ? b_turned + half : memory + stage * 2 * TILE + TILE) + group_at();
	}
};

/*
 * The sums of a thread, and what it multiplies: two k's of its rows and columns.
 *
 * What makes it fast is what the registers' two banks can deliver, two operands per cycle: of each FMA's three
 * operands one must be the one just used (rows forth and back over the columns), and the other two be of
 * different parity. The compiler puts float4s of A and B in aligned registers; sums that it must store as
 * float4s with columns exchanged in pairs get the other parity than B's columns.
 */
template <class S> struct sums_of {
	static constexpr int ROWS = S::ROWS, COLS = S::COLS;
	static_assert(!S::IN_F64 || S::GROUPS > 1, "sums in f64 go by way of shared memory");

	float sums[ROWS][COLS] = {}, a[2][ROWS], b[2][COLS];
	typename S::sum before[S::IN_F64 ? ROWS : 1][S::IN_F64 ? COLS : 1] = {};
	const float *a_from, *b_from; /* its first row and column, k = 0 of a part */

	template <class TILES>
	__device__ __forceinline__ void read_from(const TILES &tiles, const position<S> &pos, int stage,
	                                          int half)
	{
		a_from = tiles.a_at(stage, half) + pos.row;
		b_from = tiles.b_at(stage, half) + pos.col;
	}
	__device__ __forceinline__ void next_part()
	{
		a_from += S::PART * S::SIDE;
		b_from += S::PART * S::SIDE;
	}
	__device__ __forceinline__ void read(int k)
	{
#pragma unroll
		for (int i = 0; i < ROWS; i += 4)
			load_four(&a[k % 2][i], a_from + k * S::SIDE + i * 4);
#pragma unroll
		for (int j = 0; j < COLS; j += 4)
			load_four(&b[k % 2][j], b_from + k * S::SIDE + j * 8);
	}
	__device__ __forceinline__ void add_products(int k)
	{
#pragma unroll
		for (int i = 0; i < ROWS; i++)
#pragma unroll
			for (int n = 0; n < COLS; n++) {
				int j = i % 2 ? COLS - 1 - n : n;
				sums[i][j] = fmaf(a[k % 2][i], b[k % 2][j], sums[i][j]);
			}
	}
	__device__ __forceinline__ void keep_in_f64()
	{
#pragma unroll
		for (int i = 0; i < ROWS; i++)
#pragma unroll
			for (int j = 0; j < COLS; j++) {
				before[i][j] += (double)sums[i][j];
				sums[i][j] = 0;
			}
	}
	/* To shared memory, SIDE × SIDE for each group. */
	__device__ __forceinline__ void store(float *memory, const position<S> &pos) const
	{
#pragma unroll
		for (int i = 0; i < ROWS; i++)
#pragma unroll
			for (int j = 0; j < COLS; j += 4) {
				auto *to = (typename S::sum *)memory +
				           (pos.group * S::SIDE + pos.row_of(i)) * S::SIDE + pos.col + j * 8;
				if constexpr (S::IN_F64)
					store_four(to, &before[i][j]);
				else
					store_four(to, &sums[i][j]);
			}
	}
	/* To C, of which c is the block's first element. */
	__device__ __forceinline__ void write(const gemm_task &t, const place &at, float *c,
	                                      const position<S> &pos) const
	{
#pragma unroll
		for (int i = 0; i < ROWS; i++) {
			int r = pos.row_of(i);
			if (r >= at.rows)
				continue;
#pragma unroll
			for (int j = 0; j < COLS; j += 4)
				write_four(t, c + r * t.p.c.row + (pos.col + j * 8) * t.p.c.col,
				           at.cols - pos.col - j * 8, sums[i] + j);
		}
	}
};

/* What is read before the first product: the first tile, turned. */
template <class S, class TILES>
__device__ __forceinline__ void read_first(TILES &tiles, sums_of<S> &sums, const position<S> &pos)
{
	tiles.await(0, 0);
#pragma unroll 1
	for (int part = 0; part < S::PARTS; part++) {
		tiles.hold(0, part);
		tiles.turn(0, part);
	}
	if (TILES::TURNED)
		__syncthreads();
	sums.read_from(tiles, pos, 0, 0);
	sums.read(0);
}

/*
 * Adds the products of the tile in `stage`, and reads the first k of that in `next`. What is left of it is
 * turned meanwhile, and where the stage is wanted again, its tiles are sent for. After the last tile another is
 * turned and read that nobody uses.
 */
template <class S, class TILES>
__device__ __forceinline__ void add_tile(TILES &tiles, sums_of<S> &sums, const position<S> &pos, int stage,
                                         int next, int half, bool wanted)
{
	constexpr int PART = S::PART, LAST = S::PARTS - 1;

#pragma unroll 1
	for (int part = 0; part <= LAST; part++) {
		tiles.hold(next, part);
#pragma unroll
		for (int k = 0; k < PART; k++) {
			if (k == PART - 1) {
				sums.next_part();
				if (part == LAST) {
					__syncthreads();
					if (wanted)
						tiles.bring(stage);
					sums.read_from(tiles, pos, next, half);
				}
			}
			sums.read((k + 1) % PART);
			sums.add_products(k);
			if (k == PART / 2)
				tiles.turn(half, part);
		}
	}
}

/* Each block of the cluster adds up a share of the sums of all, always in the same order. */
template <class S>
__device__ __forceinline__ void write_share(const gemm_task &t, const place &at, float *c, float *memory,
                                            int rank, int splits)
{
	constexpr int SIDE = S::SIDE;
	auto cluster = cooperative_groups::this_cluster();
	int share = SIDE * SIDE / 4 / splits;

	cluster.sync();
	for (int i = rank * share + threadIdx.x; i < (rank + 1) * share; i += S::THREADS) {
		int r = i * 4 / SIDE, first_col = i * 4 % SIDE;
		typename S::sum total[4] = {};

		for (int s = 0; s < splits; s++) {
			const auto *part = (const typename S::sum *)cluster.map_shared_rank(memory, s) + i * 4;
#pragma unroll
			for (int g = 0; g < S::GROUPS; g++)
				add_four(total, part + g * SIDE * SIDE);
		}
		const float rounded[4] = {(float)total[0], (float)total[1], (float)total[2], (float)total[3]};
		if (r < at.rows)
			write_four(t, c + r * t.p.c.row + first_col * t.p.c.col, at.cols - first_col, rounded);
	}
	cluster.sync();
}

#endif

template <class WORK, class S, bool A_ALONG_K, bool B_ALONG_K, loading LOADING>
__global__ void __launch_bounds__(S::THREADS, S::RESIDENT) simt(const __grid_constant__ WORK w)
{
#if __CUDA_ARCH__ >= 900
	constexpr int STAGES = S::STAGES, BAND = 8;
	extern __shared__ __align__(1024) float memory[];
	const gemm_problem &p = w.t.p;
	int rank = blockIdx.x % w.splits;
	place at = place_of_block<S::SIDE, BAND>(w.t, w.t.first + blockIdx.x / w.splits);
	uint64_t all = (p.k + STEP - 1) / STEP, first = part_begin(all, rank, w.splits);
	unsigned steps = (unsigned)(part_begin(all, rank + 1, w.splits) - first);
	position<S> pos;
	tiles_of<WORK, S, A_ALONG_K, B_ALONG_K, LOADING> tiles(w, at, first, pos.group, memory);
	sums_of<S> sums;

	tiles.make_barriers();
	await_kernel_before();
	let_next_kernel_come();

	for (int i = 0; i < STAGES && i < steps; i++)
		tiles.bring(i);
	if (steps > 0)
		read_first(tiles, sums, pos);
	int stage = 0, half = 0; /* half: where the turned tile of the next stage goes */
	unsigned parity = 0;
#pragma unroll 1
	for (unsigned left = steps; left > 0; left--) {
		int next = stage + 1 == STAGES ? 0 : stage + 1;

		parity ^= next == 0;
		half ^= S::TILE;
		if (left > 1)
			tiles.await(next, parity);
		add_tile(tiles, sums, pos, stage, next, half, left > STAGES);
		stage = next;
		if constexpr (S::IN_F64)
			sums.keep_in_f64();
	}

	float *c = w.c(at.batch) + (int64_t)at.row * p.c.row + (int64_t)at.col * p.c.col;
	if (S::GROUPS == 1 && w.splits == 1) {
		sums.write(w.t, at, c, pos);
		return;
	}
	__syncthreads();
	sums.store(memory, pos);
	write_share<S>(w.t, at, c, memory, rank, w.splits);
#endif
}

/* The operand's lines as the copy engine sees them, where it can. */
template <class S>
bool map_operand(CUtensorMap *map, const gemm_operand &o, bool along_k, int64_t outer_stride, int64_t k_stride,
                 uint64_t extent, const gemm_problem &p)
{
	if (p.k == 0 || (along_k ? k_stride : outer_stride) != 1)
		return false;
	return along_k ? map_lines(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, o.data,
	                           {p.k, extent, p.batch, outer_stride, o.batch}, STEP, S::SIDE,
	                           CU_TENSOR_MAP_SWIZZLE_128B)
	               : map_lines(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, o.data,
	                           {extent, p.k, p.batch, k_stride, o.batch}, S::SIDE, STEP,
	                           CU_TENSOR_MAP_SWIZZLE_NONE);
}

constexpr int RESERVED = 1024; /* bytes of shared memory, per block */

/* What the driver says of this thread's GPU, asked once for a launch: each answer takes some 30 ns. */
struct gpu {
	int processors = cuda_device_attribute(cudaDevAttrMultiProcessorCount);
	int shared = cuda_device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
	int f32_per_f64 = cuda_device_attribute(cudaDevAttrSingleToDoublePrecisionPerfRatio);
	double clock_factor = cuda_clock_factor(), bytes_per_ns = cuda_bytes_per_ns();
};

/* How many blocks of so much shared memory a multiprocessor has room for, of `most`. */
int resident_of(const gpu &gpu, int most, int bytes)
{
	int fit = (gpu.shared + RESERVED) / (bytes + RESERVED);

	return fit >= most ? most : fit > 1 ? fit : 1;
}

/* Where only some find room beside the launch before, multiprocessors get unequal numbers. With two of them to
 * each that never cost as much as a late launch. */
bool may_be_early(const gpu &gpu, int resident, double blocks)
{
	double places = (double)resident * gpu.processors;

	return resident == 2 || blocks > places || blocks * 2 <= places;
}

/* A kernel of eight: see KERNELS() of tiles.cuh; the last axis says which of two loadings. */
#define KERNELS_OF(WORK, FIRST, SECOND)                                                                        \
	{                                                                                                      \
		simt<WORK, S, false, false, FIRST>, simt<WORK, S, false, false, SECOND>,                       \
		    simt<WORK, S, false, true, FIRST>, simt<WORK, S, false, true, SECOND>,                     \
		    simt<WORK, S, true, false, FIRST>, simt<WORK, S, true, false, SECOND>,                     \
		    simt<WORK, S, true, true, FIRST>, simt<WORK, S, true, true, SECOND>                        \
	}

template <class S, class WORK>
int launch_blocks_of(WORK *w, void (*const kernels[8])(WORK), bool second, int splits, cudaStream_t stream)
{
	const gemm_problem &p = w->t.p;
	access how = access_of(p);
	void (*kernel)(WORK) = kernels[how.a_along_k * 4 + how.b_along_k * 2 + second];
	int bytes = S::bytes(how.a_along_k + how.b_along_k, splits > 1);
	uint64_t blocks = blocks_of(p, S::SIDE), most = GRID_MAX / SPLITS_MAX;
	gpu gpu;
	bool early = may_be_early(gpu, resident_of(gpu, S::RESIDENT, bytes), (double)(blocks * splits));

	w->splits = splits;
	cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
	launch_tiles(blocks, most, [&](uint64_t first, unsigned n) {
		w->t.first = first;
		launch_kernel(kernel,
		              {dim3(n * splits), dim3(S::THREADS), (size_t)bytes, (unsigned)splits, early},
		              stream, *w);
	});
	return cuda_launch_status();
}

template <class S> int launch_shape(work *w, int splits, cudaStream_t stream)
{
	static void (*const kernels[8])(work) = KERNELS_OF(work, ELEMENTS, BOXES);
	const gemm_problem &p = w->t.p;
	access how = access_of(p);
	bool mapped = map_operand<S>(&w->a_map, p.a, how.a_along_k, p.a.row, p.a.col, p.m, p) &&
	              map_operand<S>(&w->b_map, p.b, how.b_along_k, p.b.col, p.b.row, p.n, p);

	return launch_blocks_of<S>(w, kernels, mapped, splits, stream);
}

/* UNALIGNED: the loading of lines that are not aligned; PIECES: none come, and no kernels are compiled for
 * them. */
template <class S, loading UNALIGNED = ELEMENTS>
int launch_shape_together(work_together *w, bool aligned, int splits, cudaStream_t stream)
{
	static void (*const kernels[8])(work_together) = KERNELS_OF(work_together, UNALIGNED, PIECES);

	return launch_blocks_of<S>(w, kernels, aligned, splits, stream);
}

/* ---- The choice of a kernel ---- */

/* times: at the clock of the GPU that they were fitted on. */
struct choice {
	int (*launch)(work *w, int splits, cudaStream_t stream);
	int (*launch_together)(work_together *w, bool aligned, int splits, cudaStream_t stream); /* or NULL */
	int (*shared)(int turned, bool split);
	int side, resident;
	bool in_f64;
	const fitted_shape *times;
};

template <class S> constexpr choice choice_of(const fitted_shape *times)
{
	int (*together)(work_together *, bool, int, cudaStream_t) = NULL;

	if constexpr (S::SIDE == 32)
		together = launch_shape_together<S>;
	return {launch_shape<S>, together, S::bytes, S::SIDE, S::RESIDENT, S::IN_F64, times};
}

const choice choices[] = {
    choice_of<shape<64, 8, 8, 16, 3, 2, 3>>(&fitted.simt_64_16),
    choice_of<shape<64, 8, 8, 8, 3, 4, 2>>(&fitted.simt_64_8),
    choice_of<shape<32, 8, 4, 8, 4, 4, 4>>(&fitted.simt_32_8),
    choice_of<shape<32, 4, 4, 32, 4, 1, 6>>(&fitted.simt_32_32),
    choice_of<shape<32, 8, 4, 8, 4, 4, 3, true>>(&fitted.simt_f64),
};

/*
 * For products in f64 that go together and whose operands cross the link: 64 of 64³ read 2 MiB, in blocks of
 * 32 × 32 it is 4. The sums are the same, as no part of K is added up in another order. Aligned lines only.
 */
typedef shape<64, 8, 4, 8, 3, 4, 1, true> wide_f64;

/* p by rows; slower: times as much per k. */
double time_of(const gpu &gpu, const choice &c, const gemm_problem &p, int splits, double slower)
{
	const fitted_shape &t = *c.times;
	double blocks = (double)blocks_of(p, c.side) * splits;
	double each = ceil(blocks / fmax(gemm_clustered((unsigned)gpu.processors, (unsigned)splits), 1));
	double f32_per_f64 = fmax(gpu.f32_per_f64, 2);
	double ks = ceil((double)p.k / STEP / splits) * STEP * slower, bytes = 4 * (double)p.batch;
	access how = access_of(p);
	int resident = resident_of(gpu, c.resident, c.shared(how.a_along_k + how.b_along_k, splits > 1));
	double full = floor(each / resident); /* waves */
	int left = (int)(each - full * resident);

	double ns = fitted.simt.launch_ns + (may_be_early(gpu, resident, blocks) ? 0 : fitted.simt.late_ns);
	ns += t.first + t.beside * (fmin(each, resident) - 1);
	if (c.in_f64)
		ns += ks * fitted.simt.f64 * (f32_per_f64 / 2 - 1);
	if (splits > 1)
		ns += t.split + (log2(splits) - 1) * t.again;
	if (full > 0)
		ns += (full - 1) * t.next + full * t.per_k[resident - 1] * ks;
	if (left > 0)
		ns += full > 0 ? (left == 1 ? t.single : 1) * (t.next + t.per_k[left - 1] * ks)
		               : t.per_k[left - 1] * ks;
	bytes *= (double)p.m * (double)p.n + (double)p.k * ((double)p.m + (double)p.n);
	return fmax(gpu.clock_factor * ns,
	            fitted.simt.least_ns + bytes / (fitted.simt.share * gpu.bytes_per_ns));
}

/* The fastest: a shape, and in how many parts K is split, or the kernel for large products. */
struct simt_config {
	const choice *shape; /* NULL: that one */
	int splits;
	double ns;
};

simt_config simt_config_of(const op_args *args)
{
	gemm_problem given = gemm_problem_of(args), p = gemm_by_rows(&given);
	bool aligned = gemm_has_aligned_lines(args), in_f64 = gemm_simt_sums_in_f64(args);
	simt_config best = {NULL, 1, INFINITY};
	gpu gpu;

	if (!gemm_has_product(args))
		p.k = 0;
	else if (aligned && !in_f64)
		best.ns = gemm_simt_large_ns(args);
	for (const choice &c : choices) {
		if (c.in_f64 != in_f64)
			continue;
		for (int splits = 1; splits <= SPLITS_MAX; splits *= 2) {
			double ns = time_of(gpu, c, p, splits, aligned ? 1 : fitted.simt.by_elements);
			if (ns < best.ns)
				best = {&c, splits, ns};
		}
	}
	return best;
}

/* Not every GPU that is newer than Hopper has room for such blocks. */
bool is_for_wide(const simt_config &config, const gemm_problem &p, bool aligned)
{
	access how = access_of(p);
	int bytes = wide_f64::bytes(how.a_along_k + how.b_along_k, false);

	return aligned && config.shape->in_f64 && config.splits == 1 && (p.m > 32 || p.n > 32) &&
	       bytes <= cuda_device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
}

/* Blocks of 64 × 64 are for products that keep the GPU busy by themselves. */
bool goes_together(const simt_config &config, const op_args *args)
{
	return config.shape && config.shape->launch_together && gemm_problem_of(args).batch == 1;
}

} // namespace

extern "C" uint64_t gemm_simt_workspace(const struct op_args *args)
{
	return simt_config_of(args).shape ? 0 : gemm_simt_large_workspace(args);
}

extern "C" double gemm_simt_ns(const struct op_args *args)
{
	return simt_config_of(args).ns;
}

extern "C" CUDA_LAUNCH(gemm_simt)
{
	simt_config config = simt_config_of(args);
	work w = {};
	int status;

	if (!config.shape && gemm_simt_large(args, launch, &status))
		return status;
	w.t = gemm_task_of(args);
	return (config.shape ? config.shape : choices)->launch(&w, config.splits, cuda_stream(launch));
}

extern "C" unsigned gemm_simt_together_max(const struct op_args *args)
{
	return goes_together(simt_config_of(args), args) ? TOGETHER_MAX : 1;
}

extern "C" CUDA_TOGETHER(gemm_simt_together)
{
	simt_config config = simt_config_of(args[0]);
	work_together w;

	if (!goes_together(config, args[0])) {
		int rc = launch->addresses ? KOPS_E_STATE : 0;

		for (unsigned i = 0; i < n && rc == 0; i++)
			rc = gemm_simt(args[i], launch);
		return rc;
	}
	w.t = gemm_task_of(args[0]);
	w.t.p.batch = n;
	w.where = operands_of_tasks<TOGETHER_MAX>(args, n, launch->addresses);
	bool aligned = gemm_has_aligned_lines(args[0]);
	bool wide = launch->over_link && is_for_wide(config, w.t.p, aligned);
	auto launch_blocks = wide ? launch_shape_together<wide_f64, PIECES> : config.shape->launch_together;

	return launch_blocks(&w, aligned, config.splits, cuda_stream(launch));
}
