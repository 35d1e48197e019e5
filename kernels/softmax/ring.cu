/*
 * Softmax of long rows, each element read once and written once, by all multiprocessors together.
 *
 * A row is no unit of memory traffic here. Rows are cut into pieces of at most 32 KiB, dealt to the blocks in
 * turn, one block to an SM. A block has a ring of SLOTS pieces in shared memory, filled by bulk copies (TMA):
 *
 *   loader      loading ----> loaded                                             free ----> loading, ...
 *   16 warps                  add up: max and sum              finish: exp again, write
 *   publisher                 the piece's total, told in global memory
 *   collectors                wait for all totals of the row, make the row's result
 *
 * Nobody waits for a whole row: while one is written, pieces of others are read. Pieces are finished LAG pieces
 * after they were added up, 8 us later: publishing and collecting take 2 to 3 us on idle memory, several times
 * that behind a queue of loads. So at most LOADING pieces are asked for at a time.
 *
 * Rows are cut at lines of 128 bytes and lie in the slots as in memory, so that copies and stores are of whole
 * lines wherever the row begins. The loader builds the vectors that two rows share, with elements that add
 * nothing in the neighbour's places.
 *
 * Bound: HBM, 4.2 TB/s. Measured, H200, parts of a device copy's rate in the same run, the cache cold:
 *
 *   f32   2048x64K  0.95   1024x128K 0.96   128x1M 0.96   16x1M  0.96   64x128K 0.93   16x128K 0.82
 *   f16   2048x128K 0.95   256x1M    0.96   32x1M  0.94   400x100000 0.98   64x128K 0.81
 *
 * More shapes, what fused loses here, and what else was tried: docs/lab/softmax.md.
 */
#include "common/hopper/barrier.cuh"
#include "common/hopper/global.cuh"
#include "common/hopper/shared.cuh"
#include "common/hopper/tma.cuh"
#include "common/launch.cuh"
#include "softmax/fused.cuh"
#include "softmax/ring.h"

#include <atomic>
#include <random>

namespace
{

constexpr unsigned VECTORS = 4;    /* of a thread in a piece */
constexpr unsigned WARPS = 16;     /* that compute; a few more bring and tell */
constexpr unsigned COLLECTORS = 2; /* warps */
constexpr unsigned SLOTS = 7;      /* pieces of a block */
constexpr unsigned LAG = 4;        /* pieces added up between a piece's adding up and its finishing */
constexpr unsigned LOADING = 2;    /* pieces under way at most */
/* Pieces added up before the totals of a piece's row are looked for. Those of 16-bit types take longer. */
template <typename T> constexpr unsigned PATIENCE = sizeof(T) == 4 ? 3 : 2;

constexpr unsigned COMPUTING = WARPS * WARP;        /* threads */
constexpr unsigned PIECE_MAX = VECTORS * COMPUTING; /* vectors */
constexpr unsigned THREADS = (WARPS + 2 + COLLECTORS) * WARP;
constexpr unsigned LINE = 128; /* bytes */
constexpr size_t RING_BYTES = (size_t)SLOTS * PIECE_MAX * 16;
constexpr unsigned ROUNDS = 3; /* pieces of a row to a block at most: slots must be free while it is told */
static_assert(LAG < SLOTS, "a piece stays in its slot until it is finished");
static_assert(PATIENCE<float> <= LAG, "no more are added up before it is finished");
static_assert(LOADING <= SLOTS, "the first pieces are loaded before any is finished");

/*
 * Blocks never wait for each other in a circle while all of them run and a row has at most (LAG + 1) * blocks
 * pieces. Of all pieces that wait to be finished take the first, n. It waits for totals of pieces up to
 * n + (LAG + 1) * blocks - 1. The block that has such a piece, m, adds it up once its own piece
 * m - (LAG + 1) * blocks is finished, which is before n. Collectors wait for PATIENCE <= LAG pieces more, which
 * are added up before.
 *
 * Other work may keep some multiprocessors at any time. Then a collector that has waited for TOO_LONG adds the
 * piece up itself (stand_in()): slowly, but the blocks that run end, and make room for the others.
 */
static_assert(ROUNDS <= LAG + 1, "else blocks wait for each other in a circle, until they stand in");

/* Rows cut into pieces, numbered row after row. */
struct cut {
	unsigned parts, each; /* pieces of a row; vectors of a piece, the last of a row may have fewer */
	unsigned pieces;
	hopper::words *of_piece; /* totals that were told, by number */
	uint64_t mark;           /* of this launch's: what else is there is not a total */
};

/*
 * A piece in its slot. It lies there as it does in lines of memory, the elements [first, last) from the
 * beginning of a line on: the first of a row need not begin there, others do.
 */
struct piece {
	unsigned first, last;
	void *y; /* of element 0 */
};

/* Of a block, beside the pieces. Each barrier completes a phase for each piece that comes to the slot. */
struct ring {
	uint64_t loaded[SLOTS]; /* the loader's lanes and the copy engine */
	uint64_t added[SLOTS];  /* all warps: their totals are there */
	uint64_t known[SLOTS];  /* a collector: the row's result is there */
	uint64_t free[SLOTS];   /* all warps: the piece is in their registers; the publisher: so is its total */
	piece pieces[SLOTS];
	total of_warp[SLOTS][WARPS], stood_in[COLLECTORS][WARPS];
	finish result[SLOTS];
};

#if __CUDA_ARCH__ >= 900

/* Warps beside those that compute. */
constexpr unsigned LOADER = WARPS, PUBLISHER = WARPS + 1, COLLECTOR = WARPS + 2;

/* ---- Totals of pieces, told to all blocks ---- */

/*
 * The total itself is the message: no other write has to be seen with it. One store of 16 bytes writes it with
 * the launch's mark, which nothing else in memory has. So the memory may hold anything before, and launches
 * overlap.
 */
__device__ __forceinline__ hopper::words message_of(const cut &c, const total &t)
{
	return {(uint64_t)__float_as_uint(t.sum) << 32 | __float_as_uint(t.most), c.mark};
}

__device__ __forceinline__ total total_in(const hopper::words &w)
{
	return {__uint_as_float((unsigned)w.first), __uint_as_float((unsigned)(w.first >> 32))};
}

__device__ __forceinline__ bool is_told(const cut &c, const hopper::words &w)
{
	return w.second == c.mark;
}

constexpr unsigned TOLD = 4;          /* totals of a lane under way */
constexpr int64_t TOO_LONG = 1 << 18; /* clocks, 0.13 ms */
constexpr int64_t STEP_MAX = 1 << 13; /* 4 us; blocks that run are never so far apart */

/*
 * Those of a lane, every WARP-th of n, once they have been told; or what has been after `limit` clocks. Those
 * that were told are not looked at again.
 */
__device__ __forceinline__ void await_told(const cut &c, const hopper::words *of, unsigned n, int64_t limit,
                                           hopper::words (&w)[TOLD])
{
	int64_t since = clock64();
	bool complete;

#pragma unroll
	for (unsigned k = 0; k < TOLD; k++)
		w[k] = k * WARP < n ? hopper::words{0, ~c.mark} : message_of(c, {-INFINITY, 0});
	do {
		complete = true;
#pragma unroll
		for (unsigned k = 0; k < TOLD; k++)
			if (!is_told(c, w[k])) {
				w[k] = hopper::load_relaxed(&of[k * WARP]);
				complete = false;
			}
	} while (!complete && clock64() - since < limit);
}

/* ---- A block's ring ---- */

__device__ __forceinline__ uint32_t at(const uint64_t &barrier)
{
	return hopper::shared_address(&barrier);
}

__device__ __forceinline__ void begin_ring(ring &r)
{
	for (unsigned slot = 0; slot < SLOTS; slot++) {
		hopper::barrier_init(at(r.loaded[slot]), WARP);
		hopper::barrier_init(at(r.added[slot]), WARPS);
		hopper::barrier_init(at(r.known[slot]), 1);
		hopper::barrier_init(at(r.free[slot]), WARPS + 1);
	}
	hopper::barriers_ready();
}

/* A block's pieces are numbered for themselves, too: every gridDim.x-th of all. */
__device__ __forceinline__ unsigned number_of(unsigned i)
{
	return blockIdx.x + i * gridDim.x;
}

__device__ __forceinline__ unsigned pieces_of_block(const cut &c)
{
	return (c.pieces - blockIdx.x + gridDim.x - 1) / gridDim.x;
}

__device__ __forceinline__ void wait_for(const uint64_t (&barriers)[SLOTS], unsigned i)
{
	hopper::barrier_wait(at(barriers[i % SLOTS]), i / SLOTS % 2);
}

/* ---- The loader ---- */

/* x: of element 0. */
template <typename T>
__device__ __forceinline__ piece piece_of(const problem &p, const cut &c, unsigned number, const T **x)
{
	unsigned i = number / c.parts, part = number % c.parts;
	row r = row_at(p, i);
	unsigned ahead = (unsigned)((uintptr_t)((const T *)p.x + r.x) % LINE / sizeof(T));
	uint64_t from = (uint64_t)part * c.each * WIDE<T>, end = ahead + p.cols;
	uint64_t left = from < end ? end - from : 0;
	piece s = {part == 0 ? ahead : 0, c.each * WIDE<T>, (T *)p.y + r.y + (int64_t)(from - ahead)};

	*x = (const T *)p.x + r.x + (int64_t)(from - ahead);
	s.last = left < s.last ? (unsigned)left : s.last;
	return s;
}

/*
 * Elements of vectors that are partly the row's do not come by bulk copies: a lane has one of the first or of
 * the last vector, `nothing` where that is not the row's.
 */
template <typename T> struct edge {
	unsigned place; /* in the piece */
	bool wanted;
	T value;
};

template <typename T> __device__ __forceinline__ edge<T> edge_of(const problem &p, const piece &s, const T *x)
{
	unsigned lane = threadIdx.x % WARP;
	bool back = lane >= WIDE<T>;
	unsigned bound = back ? s.last : s.first;
	edge<T> e = {bound / WIDE<T> * WIDE<T> + lane % WIDE<T>, bound % WIDE<T> != 0 && lane < 2 * WIDE<T>,
	             (T)nothing(p)};

	if (e.wanted && e.place >= s.first && e.place < s.last)
		e.value = x[e.place];
	return e;
}

template <typename T>
__device__ __forceinline__ void fill_slot(ring &r, uint4 *slots, unsigned slot, const piece &s, const T *x,
                                          const edge<T> &e)
{
	unsigned first = (s.first + WIDE<T> - 1) / WIDE<T>, last = s.last / WIDE<T>;
	unsigned bytes = first < last ? (last - first) * 16 : 0;
	uint4 *to = slots + slot * PIECE_MAX;

	if (e.wanted)
		((T *)to)[e.place] = e.value;
	if (threadIdx.x % WARP != 0) {
		hopper::barrier_arrive(at(r.loaded[slot]));
		return;
	}
	r.pieces[slot] = s;
	hopper::barrier_expect(at(r.loaded[slot]), bytes);
	if (bytes > 0)
		hopper::copy_bulk(hopper::shared_address(to + first), x + first * WIDE<T>, bytes,
		                  at(r.loaded[slot]));
}

/* The block's i-th piece, once its slot is free and the LOADING-th before it is there. */
template <typename T>
__device__ __forceinline__ void load_piece(const problem &p, const cut &c, ring &r, uint4 *slots, unsigned i)
{
	const T *x;
	const piece s = piece_of<T>(p, c, number_of(i), &x);
	const edge<T> e = edge_of<T>(p, s, x);

	if (i >= SLOTS)
		wait_for(r.free, i - SLOTS);
	if (i >= LOADING)
		wait_for(r.loaded, i - LOADING);
	fill_slot<T>(r, slots, i % SLOTS, s, x, e);
}

/* ---- The warps that compute ---- */

/* Vectors of a piece that are wholly or partly the row's. */
struct reach {
	unsigned first, last;
};

template <typename T> __device__ __forceinline__ reach reach_of(const piece &s)
{
	return {s.first / WIDE<T>, (s.last + WIDE<T> - 1) / WIDE<T>};
}

/* A thread's j-th vector of a piece. */
__device__ __forceinline__ unsigned place_of(unsigned j)
{
	return threadIdx.x + j * COMPUTING;
}

/* A thread's vectors of a piece. Where it has none, elements that add nothing. */
template <typename T>
__device__ __forceinline__ void take(const problem &p, const uint4 *slots, unsigned slot, const reach &all,
                                     uint4 (&taken)[VECTORS])
{
	const uint4 *vectors = slots + slot * PIECE_MAX;

#pragma unroll
	for (unsigned j = 0; j < VECTORS; j++) {
		unsigned n = place_of(j);

		taken[j] = blank<T>(p);
		if (n >= all.first && n < all.last)
			taken[j] = vectors[n];
	}
}

template <typename T> using portion = held<T, (int)VECTORS, 1>;

/* Of what a warp holds. */
template <typename T>
__device__ __forceinline__ total total_of(const problem &p, const row_params &q, portion<T> *h)
{
	float most = largest_of_lanes(most_of_held(p, q, *h));

	return {most, sum_of_lanes(raise_held(p, q, h, local_shift(p, most)))};
}

template <typename T>
__device__ __forceinline__ void add_up(const problem &p, const row_params &q, ring &r, const uint4 *slots,
                                       unsigned slot)
{
	uint4 taken[VECTORS];
	portion<T> h;

	take<T>(p, slots, slot, reach_of<T>(r.pieces[slot]), taken);
	unpack_vectors<T>(taken, h.body);
	total t = total_of<T>(p, q, &h);
	if (threadIdx.x % WARP == 0) {
		r.of_warp[slot][threadIdx.x / WARP] = t;
		hopper::barrier_arrive(at(r.added[slot]));
	}
}

template <typename T>
__device__ __forceinline__ void store_piece(const problem &p, const row_params &q, const finish &f,
                                            const piece &s, const portion<T> &h)
{
	const reach all = reach_of<T>(s);

#pragma unroll
	for (unsigned j = 0; j < VECTORS; j++) {
		unsigned n = place_of(j);
		T *y = (T *)s.y + n * WIDE<T>;

		if (n < all.first || n >= all.last)
			continue;
		if (n * WIDE<T> >= s.first && (n + 1) * WIDE<T> <= s.last) {
			store_values(p, q, f, y, h.body[j]);
			continue;
		}
#pragma unroll
		for (unsigned k = 0; k < WIDE<T>; k++)
			if (n * WIDE<T> + k >= s.first && n * WIDE<T> + k < s.last)
				y[k] = (T)finished(p, f, h.body[j][k]);
	}
}

template <typename T>
__device__ __forceinline__ void finish_piece(const problem &p, const row_params &q, ring &r, const uint4 *slots,
                                             unsigned slot)
{
	const finish f = r.result[slot];
	const piece s = r.pieces[slot];
	uint4 taken[VECTORS];
	portion<T> h;

	take<T>(p, slots, slot, reach_of<T>(s), taken);
	__syncwarp();
	if (threadIdx.x % WARP == 0)
		hopper::barrier_arrive(at(r.free[slot]));
	unpack_vectors<T>(taken, h.body);
	raise_held(p, q, &h, f.shift);
	store_piece<T>(p, q, f, s, h);
}

template <typename T>
__device__ __forceinline__ void compute(const problem &p, const row_params &q, ring &r, const uint4 *slots,
                                        unsigned mine)
{
	for (unsigned i = 0; i < mine + LAG; i++) {
		if (i < mine) {
			wait_for(r.loaded, i);
			add_up<T>(p, q, r, slots, i % SLOTS);
		}
		if (i >= LAG) {
			wait_for(r.known, i - LAG);
			finish_piece<T>(p, q, r, slots, (i - LAG) % SLOTS);
		}
	}
}

/* ---- Those who tell ---- */

__device__ __forceinline__ void publish(const problem &p, const row_params &q, const cut &c, ring &r,
                                        unsigned i)
{
	wait_for(r.added, i);
	total t = combine(p, q, r.of_warp[i % SLOTS], WARPS);
	__syncwarp();
	if (threadIdx.x % WARP == 0) {
		hopper::barrier_arrive(at(r.free[i % SLOTS]));
		hopper::store_relaxed(&c.of_piece[number_of(i)], message_of(c, t));
	}
}

/* What thread `me` of those that compute would hold of a piece, from global memory. */
template <typename T>
__device__ __forceinline__ void load_portion(const problem &p, const piece &s, const T *x, unsigned me,
                                             portion<T> *h)
{
#pragma unroll
	for (unsigned j = 0; j < VECTORS; j++)
#pragma unroll
		for (unsigned k = 0; k < WIDE<T>; k++) {
			unsigned place = (me + j * COMPUTING) * WIDE<T> + k;
			h->body[j][k] = place >= s.first && place < s.last ? (float)x[place] : nothing(p);
		}
}

/*
 * The total of a piece whose block keeps this warp waiting, perhaps since the GPU has no place for it yet. In
 * the order in which that block would add it up. Where y is x, no block writes a piece before it has seen that
 * its total is told: as long as it is not, what was read here was x.
 */
template <typename T>
__device__ __noinline__ total stand_in(const problem &p, const row_params &q, const cut &c, total *of_warp,
                                       unsigned number)
{
	const T *x;
	const piece s = piece_of<T>(p, c, number, &x);
	unsigned lane = threadIdx.x % WARP;
	hopper::words w = hopper::load_relaxed(&c.of_piece[number]);

	if (__all_sync(FULL, is_told(c, w)))
		return total_in(w);
	for (unsigned warp = 0; warp < WARPS; warp++) {
		portion<T> h;
		load_portion<T>(p, s, x, warp * WARP + lane, &h);
		total t = total_of<T>(p, q, &h);
		if (lane == 0)
			of_warp[warp] = t;
	}
	__syncwarp();
	total mine = combine(p, q, of_warp, WARPS);
	__syncwarp();
	__threadfence();
	w = hopper::load_relaxed(&c.of_piece[number]);
	if (!is_told(c, w) && lane == 0)
		hopper::store_relaxed(&c.of_piece[number], message_of(c, mine));
	while (!is_told(c, w))
		w = hopper::load_relaxed(&c.of_piece[number]);
	return total_in(w);
}

/* The totals of those lanes that were not told, in the place of their owners. */
template <typename T>
__device__ __forceinline__ total told_or_stood_in(const problem &p, const row_params &q, const cut &c,
                                                  total *of_warp, unsigned number, const hopper::words &w)
{
	unsigned lane = threadIdx.x % WARP, untold = __ballot_sync(FULL, !is_told(c, w));
	total t = total_in(w);

	for (; untold != 0; untold &= untold - 1) {
		unsigned of = (unsigned)__ffs((int)untold) - 1;
		total s = stand_in<T>(p, q, c, of_warp, number + of);
		t = of == lane ? s : t;
	}
	return t;
}

/*
 * The total of n pieces, given to every lane of the warp. A lane that has none of them waits, up to STEP_MAX,
 * for a piece of the round: the pieces that blocks have at the same time, from `round` on. So blocks keep step.
 * Without that, blocks that share no row drift apart, by 13 us where rows are six pieces, and the last few
 * cannot use all of the memory's rate.
 */
template <typename T>
__device__ __forceinline__ total collect(const problem &p, const row_params &q, const cut &c, total *of_warp,
                                         unsigned first, unsigned n, unsigned round)
{
	unsigned lane = threadIdx.x % WARP, other = round + lane * gridDim.x / WARP;
	total all = {-INFINITY, 0};

	for (unsigned i = 0; i < n; i += TOLD * WARP) {
		hopper::words w[TOLD];
		total t[TOLD];
		float most = all.most;
		bool has = i + lane < n;

		await_told(c, &c.of_piece[has ? first + i + lane : other],
		           has ? n - i - lane : other < c.pieces, has ? TOO_LONG : STEP_MAX, w);
		if (!has)
			w[0] = message_of(c, {-INFINITY, 0});
#pragma unroll
		for (unsigned k = 0; k < TOLD; k++) {
			t[k] = told_or_stood_in<T>(p, q, c, of_warp, first + i + k * WARP, w[k]);
			most = fmaxf(most, t[k].most);
		}
		all = {most, rescaled_sum(p, q, all, most)};
#pragma unroll
		for (unsigned k = 0; k < TOLD; k++)
			all.sum += rescaled_sum(p, q, t[k], most);
	}
	float most = largest_of_lanes(all.most);
	return {most, sum_of_lanes(rescaled_sum(p, q, all, most))};
}

/* By the time it looks, most totals are there. */
template <typename T>
__device__ __forceinline__ void collect_row(const problem &p, const row_params &q, const cut &c, ring &r,
                                            unsigned i, unsigned mine)
{
	unsigned number = number_of(i);
	total *of_warp = r.stood_in[threadIdx.x / WARP - COLLECTOR];

	wait_for(r.added, i + PATIENCE<T> < mine ? i + PATIENCE<T> : mine - 1);
	total all = collect<T>(p, q, c, of_warp, number - number % c.parts, c.parts, number - blockIdx.x);
	if (threadIdx.x % WARP == 0) {
		r.result[i % SLOTS] = finish_of(p, q, all, all.most);
		hopper::barrier_arrive(at(r.known[i % SLOTS]));
	}
}

#endif

/*
 * Collectors get `given`, of which stand_in() takes the address: that of anything else would be a copy on every
 * thread's stack, 2 us at the beginning of each block.
 */
template <typename T, bool LOG, bool NEGATIVE>
__global__ void __launch_bounds__(THREADS, 1)
    ring_rows(const __grid_constant__ problem given, const __grid_constant__ row_params q,
              const __grid_constant__ cut c)
{
#if __CUDA_ARCH__ >= 900
	extern __shared__ __align__(128) uint4 slots[];
	__shared__ ring r;
	unsigned warp = threadIdx.x / WARP, mine = pieces_of_block(c);
	problem p = given;

	p.log = LOG;
	p.sign = NEGATIVE ? -1.0f : 1.0f;
	let_next_kernel_come();
	if (threadIdx.x == LOADER * WARP)
		begin_ring(r);
	__syncthreads();
	await_kernel_before();
	if (warp < WARPS) {
		compute<T>(p, q, r, slots, mine);
	} else if (warp == LOADER) {
		for (unsigned i = 0; i < mine; i++)
			load_piece<T>(p, c, r, slots, i);
	} else if (warp == PUBLISHER) {
		for (unsigned i = 0; i < mine; i++)
			publish(p, q, c, r, i);
	} else {
		for (unsigned i = warp - COLLECTOR; i < mine; i += COLLECTORS)
			collect_row<T>(given, q, c, r, i, mine);
	}
#endif
}

/* ---- Launches ---- */

constexpr uint64_t ROW_MIN = 8192; /* vectors; up to there a block of its own keeps a row (fused.cu) */

/* aligned: rows of x begin with lines. Else they might reach into two lines more. */
cut cut_of(const op_args *args, bool aligned)
{
	const view *y = &args->views[SOFTMAX_Y];
	uint64_t cols = y->shape[y->rank - 1], bytes = cols * dtype_size(y->dtype);
	uint64_t vectors = ceil_div(aligned ? bytes : bytes + 2 * LINE, 16), line = LINE / 16;
	/* Alike but for the last, and of whole lines. */
	uint64_t each = ceil_div(ceil_div(vectors, ceil_div(vectors, PIECE_MAX)), line) * line;
	uint64_t parts = ceil_div(vectors, each);

	return {(unsigned)parts, (unsigned)each, (unsigned)(view_elements(y) / cols * parts), NULL, 0};
}

/* One to a multiprocessor; 0 where none could run. */
unsigned blocks_at_most()
{
	bool able =
	    cuda_device_attribute(cudaDevAttrComputeCapabilityMajor) >= 9 &&
	    (size_t)cuda_device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) >= RING_BYTES + sizeof(ring);

	return able ? (unsigned)cuda_device_attribute(cudaDevAttrMultiProcessorCount) : 0;
}

/*
 * Neither that of another launch nor, but for one in 2^64, what else workspace may hold. A graph must not keep
 * it for a launch that it repeats.
 */
uint64_t next_mark()
{
	static std::atomic<uint64_t> mark{(uint64_t)std::random_device()() << 32 | std::random_device()()};

	return mark++;
}

typedef void (*ring_kernel)(const problem, const row_params, const cut);

template <typename T> ring_kernel kernel_for(const problem &p)
{
	if (p.sign < 0)
		return p.log ? ring_rows<T, true, true> : ring_rows<T, false, true>;
	return p.log ? ring_rows<T, true, false> : ring_rows<T, false, false>;
}

template <typename T> void launch_ring(const op_args *args, const struct launch *launch)
{
	problem p = problem_of(args);
	row_params q = row_params_of<T>(p);
	cut c = cut_of(args, is_whole(p, (uintptr_t)p.x, p.x_batch, sizeof(T), LINE));
	ring_kernel kernel = kernel_for<T>(p);
	unsigned blocks = (unsigned)cuda_multiprocessors_to_keep(launch, (int)blocks_at_most(), c.pieces);
	launch_form form = {dim3(c.pieces < blocks ? c.pieces : blocks), dim3(THREADS), RING_BYTES, 1,
	                    cuda_may_be_early(launch)};

	q.ends = false; /* pieces have no other elements */
	c.of_piece = (hopper::words *)launch->workspace;
	c.mark = next_mark();
	cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)RING_BYTES);
	launch_kernel(kernel, form, cuda_stream(launch), p, q, c);
}

} // namespace

extern "C" bool softmax_ring_takes(const op_args *args, const char **ret_why_not)
{
	const view *y = &args->views[SOFTMAX_Y];
	unsigned blocks = blocks_at_most();

	if (blocks == 0)
		*ret_why_not = "needs a GPU with bulk copies and 227 KiB of shared memory";
	else if (y->shape[y->rank - 1] * dtype_size(y->dtype) / 16 <= ROW_MIN)
		*ret_why_not = "needs rows of more than 128 KiB";
	else if (cut_of(args, false).parts > (uint64_t)ROUNDS * blocks)
		*ret_why_not = "needs rows that fit in the shared memory of the GPU";
	else
		return true;
	return false;
}

/* The addresses that cut_of() asks about are not known yet. */
extern "C" uint64_t softmax_ring_workspace(const op_args *args)
{
	unsigned aligned = cut_of(args, true).pieces, others = cut_of(args, false).pieces;

	return (aligned > others ? aligned : others) * sizeof(hopper::words);
}

extern "C" CUDA_LAUNCH(softmax_ring)
{
	switch (args->views[SOFTMAX_X].dtype) {
	case KOPS_F16:
		launch_ring<__half>(args, launch);
		break;
	case KOPS_BF16:
		launch_ring<__nv_bfloat16>(args, launch);
		break;
	default:
		launch_ring<float>(args, launch);
	}
	return cuda_launch_status();
}
