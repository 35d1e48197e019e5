/*
 * Softmax of long rows, each element read once and written once, by all multiprocessors together: not yet run
 * on a GPU.
 *
 * fused (fused.cu) gives a long row to a cluster. On an H200 it loses what follows, as parts of a copy's rate
 * (4.2 TB/s: each of 132 SMs reads 16 bytes a ns and writes as many):
 *   - A block has 128 KiB of a row, two blocks share an SM: 16.5 us for both to read and write. A block loads
 *     nothing from the arrival of its last element until it writes: maxima, exponentials (1.8 us of their unit,
 *     3.6 us for 16-bit types), three barriers with up to 15 others of which the slowest counts. Two blocks do
 *     not always cover that for each other: 0.91 to 0.86; 0.83 to 0.75 for 16-bit types.
 *   - 1M columns take whole SMs, 256 KiB each, and nothing covers it: 3 to 5 us in 16.5 + those, 0.77.
 *   - Clusters of 16 find 8 places at most: GPCs have 16 or 18 SMs.
 *   - Few rows are one or two rounds of clusters: reading first, writing then, half a memory idle (0.5 to 0.6).
 * By Little's law 1 us of latency at 16 bytes a ns asks for 16 KiB under way, no more: what fails is not the
 * number of bytes but that they are all asked for at once, and then none.
 *
 * So here a row is no unit of memory traffic. Rows are cut into pieces of 32 KiB at most, dealt to the blocks
 * in turn, one block to an SM. A block has a ring of SLOTS pieces in shared memory, filled by bulk copies
 * (TMA):
 *
 *   loader      loading ----> loaded                                             free ----> loading, ...
 *   16 warps                  add up: max and sum              finish: exp again, write
 *   publisher                 the piece's total, told in global memory
 *   collector                 waits for all totals of the row, makes the row's result
 *
 * The warps finish a piece LAG pieces after they added it up: 10 us later, for what telling and collecting take
 * 2 to 3 us of when memory is idle, and several times that behind a queue of loads. Hence no more than LOADING
 * pieces are asked for at a time, 64 KiB: with all free slots loading at once the queue in front of the memory
 * is as long as the ring, all blocks wait for totals behind it, and when these come there is none. (A
 * simulation of 132 such rings before one queue: 0.99 of a copy with LAG 5 and LOADING 2, if totals wait behind
 * loads or not; 0.6 to 0.8 with LAG 3 or LOADING 4 if they wait twice as long as loads.) Nobody waits for a
 * whole row: while one is written, pieces of others are read, and where rows are few those that are left are
 * written while no more is to be read. Cost beside memory, of the 2.05 us that a piece of 32 KiB has: f32 0.8
 * us of the issue slots and 0.5 us of the exponentials' unit, 16-bit types 1.3 and 1.0 us; 1 KiB from L2 for
 * the totals of a row of 128 pieces. Expected: a copy's rate but for 2 to 3 us at the start and at the end.
 *
 * All blocks must run at a time: the launch is cooperative. They never wait for each other in a circle as long
 * as a row has at most (LAG + 1) * blocks pieces: of all pieces that wait to be finished take the first, n. It
 * waits for totals of pieces up to n + (LAG + 1) * blocks - 1. Whoever has one of these, m, adds it up once
 * piece m - (LAG + 1) * blocks of its own, which is before n, is finished.
 *
 * To be timed, as VECTORS, WARPS, SLOTS, LAG, LOADING: 4 16 7 5 2, 4 16 7 4 2, 4 16 7 5 1, 4 16 7 3 3,
 * 8 8 7 5 2, 2 16 14 10 4, 4 8 14 10 4.
 */
#include "fused.cuh"
#include "gemm/hopper.cuh"
#include "ring.h"

namespace
{

constexpr unsigned VECTORS = 4; /* of a thread in a piece */
constexpr unsigned WARPS = 16;  /* that compute; a few more bring and tell */
constexpr unsigned SLOTS = 7;   /* pieces of a block */
constexpr unsigned LAG = 5;     /* pieces added up between a piece's adding up and its finishing */
constexpr unsigned LOADING = 2; /* pieces under way at most */

constexpr unsigned COMPUTING = WARPS * WARP, PIECE_MAX = VECTORS * COMPUTING; /* threads; vectors */
constexpr unsigned THREADS = (WARPS + 3) * WARP;
constexpr size_t RING_BYTES = (size_t)SLOTS * PIECE_MAX * 16;
constexpr unsigned ROUNDS = 3; /* pieces of a row to a block at most, for the collector to keep up */
static_assert(LAG < SLOTS, "a piece stays in its slot until it is finished");
static_assert(LOADING <= SLOTS, "the first pieces are loaded before any is finished");
static_assert(ROUNDS <= LAG + 1, "else blocks wait for each other in a circle");

/* Rows cut into pieces, numbered row after row. */
struct cut {
	unsigned parts, each; /* pieces of a row; vectors of a piece, the last of a row may have fewer */
	uint64_t pieces;
	uint64_t *of_piece; /* totals as bits, by number */
};

/* Of a block, beside the pieces. Each barrier completes a phase for each piece that comes to the slot. */
struct ring {
	uint64_t loaded[SLOTS]; /* the copy engine */
	uint64_t added[SLOTS];  /* all warps: their totals are there */
	uint64_t known[SLOTS];  /* the collector: the row's result is there */
	uint64_t free[SLOTS];   /* all warps: the piece is in their registers */
	total of_warp[SLOTS][WARPS];
	finish result[SLOTS];
	int64_t y[SLOTS];      /* elements from the view's origin */
	unsigned count[SLOTS]; /* vectors */
};

#if __CUDA_ARCH__ >= 900

/* Warps beside those that compute. */
constexpr unsigned LOADER = WARPS, PUBLISHER = WARPS + 1, COLLECTOR = WARPS + 2;

/* ---- Totals of pieces, told to all blocks ---- */

/* Cannot be a total: its most would be NaN. */
constexpr uint64_t UNTOLD = ~(uint64_t)0;

/* The total itself is the message: no other write has to be seen with it. */
__device__ __forceinline__ void tell(uint64_t *to, const total &t)
{
	uint64_t bits = (uint64_t)__float_as_uint(t.sum) << 32 | __float_as_uint(t.most);

	hopper::store_relaxed(to, bits);
}

__device__ __forceinline__ total told(const uint64_t *from)
{
	uint64_t bits = hopper::load_relaxed(from);

	return {__uint_as_float((unsigned)bits), __uint_as_float((unsigned)(bits >> 32))};
}

constexpr unsigned TOLD = 8; /* totals of a lane under way */

/* The total of n pieces once all have been told, given to every lane of the warp. */
__device__ __forceinline__ total collect(const problem &p, const plan &q, const uint64_t *of, unsigned n)
{
	total all = {-INFINITY, 0};

	for (unsigned i = threadIdx.x % WARP; i < n; i += TOLD * WARP) {
		total t[TOLD];
		float most = all.most;
		bool complete;

		do {
			complete = true;
#pragma unroll
			for (unsigned k = 0; k < TOLD; k++)
				t[k] = i + k * WARP < n ? told(&of[i + k * WARP]) : total{-INFINITY, 0};
#pragma unroll
			for (unsigned k = 0; k < TOLD; k++)
				complete = complete && !isnan(t[k].most);
		} while (!complete);
#pragma unroll
		for (unsigned k = 0; k < TOLD; k++)
			most = fmaxf(most, t[k].most);
		all = {most, rescaled_sum(p, q, all, most)};
#pragma unroll
		for (unsigned k = 0; k < TOLD; k++)
			all.sum += rescaled_sum(p, q, t[k], most);
	}
	float most = largest_of_lanes(all.most);
	return {most, sum_of_lanes(rescaled_sum(p, q, all, most))};
}

/* ---- A block's ring ---- */

__device__ __forceinline__ uint32_t at(const uint64_t &barrier)
{
	return hopper::shared_address(&barrier);
}

__device__ __forceinline__ void begin_ring(ring &r)
{
	for (unsigned slot = 0; slot < SLOTS; slot++) {
		hopper::barrier_init(at(r.loaded[slot]), 1);
		hopper::barrier_init(at(r.added[slot]), WARPS);
		hopper::barrier_init(at(r.known[slot]), 1);
		hopper::barrier_init(at(r.free[slot]), WARPS);
	}
	hopper::barriers_ready();
}

/* A place in the ring and the phase that its barriers are in. */
struct turn {
	unsigned slot, parity;
};

__device__ __forceinline__ void advance(turn *t)
{
	if (++t->slot == SLOTS) {
		t->slot = 0;
		t->parity ^= 1;
	}
}

/* Through a block's pieces, every gridDim.x-th of all. */
struct walk {
	uint64_t piece, row;
	unsigned part;
	turn t;
};

__device__ __forceinline__ walk first_piece(const cut &c)
{
	return {blockIdx.x, blockIdx.x / c.parts, blockIdx.x % c.parts, {0, 0}};
}

__device__ __forceinline__ void advance(const cut &c, walk *w)
{
	w->piece += gridDim.x;
	w->row += gridDim.x / c.parts;
	w->part += gridDim.x % c.parts;
	if (w->part >= c.parts) {
		w->part -= c.parts;
		w->row++;
	}
	advance(&w->t);
}

/* ---- Roles: each goes through the block's pieces in their order ---- */

template <typename T>
__device__ __forceinline__ void load_piece(const problem &p, const plan &q, const cut &c, ring &r, uint4 *slots,
                                           const walk &w)
{
	unsigned slot = w.t.slot;
	vectors<T> v = vectors_of<T>(p, q, w.row);
	uint64_t first = (uint64_t)w.part * c.each, left = first < v.count ? v.count - first : 0;
	unsigned count = left < c.each ? (unsigned)left : c.each;

	hopper::barrier_wait(at(r.free[slot]), w.t.parity ^ 1); /* at once for the first piece */
	r.y[slot] = v.y + first * WIDE<T> - (T *)p.y;
	r.count[slot] = count;
	hopper::barrier_expect(at(r.loaded[slot]), count * 16);
	if (count > 0)
		hopper::copy_bulk(hopper::shared_address(slots + slot * PIECE_MAX), v.x + first * WIDE<T>,
		                  count * 16, at(r.loaded[slot]));
}

/* Each piece once the LOADING-th before it is there. */
template <typename T>
__device__ __forceinline__ void load_rest(const problem &p, const plan &q, const cut &c, ring &r, uint4 *slots,
                                          walk w)
{
	for (turn before = {0, 0}; w.piece < c.pieces; advance(c, &w), advance(&before)) {
		hopper::barrier_wait(at(r.loaded[before.slot]), before.parity);
		load_piece<T>(p, q, c, r, slots, w);
	}
}

/* A thread's vectors of a piece. Where it has none, elements that add nothing. */
template <typename T>
__device__ __forceinline__ void take(const problem &p, const ring &r, const uint4 *slots, unsigned slot,
                                     uint4 (&taken)[VECTORS])
{
	const uint4 *piece = slots + slot * PIECE_MAX + threadIdx.x;
	unsigned count = r.count[slot];
	float blank[WIDE<T>];

#pragma unroll
	for (int k = 0; k < WIDE<T>; k++)
		blank[k] = nothing(p);
#pragma unroll
	for (unsigned j = 0; j < VECTORS; j++) {
		taken[j] = pack<T>(blank);
		if (threadIdx.x + j * COMPUTING < count)
			taken[j] = piece[j * COMPUTING];
	}
}

template <typename T> using portion = held<T, (int)VECTORS, 1>;

template <typename T> __device__ __forceinline__ void unpack_taken(const uint4 (&taken)[VECTORS], portion<T> *h)
{
#pragma unroll
	for (unsigned j = 0; j < VECTORS; j++)
		unpack<T>(taken[j], h->body[j]);
}

template <typename T>
__device__ __forceinline__ void add_up(const problem &p, const plan &q, ring &r, const uint4 *slots, turn t)
{
	uint4 taken[VECTORS];
	portion<T> h;

	hopper::barrier_wait(at(r.loaded[t.slot]), t.parity);
	take<T>(p, r, slots, t.slot, taken);
	unpack_taken<T>(taken, &h);
	float most = largest_of_lanes(most_of_held(p, q, h));
	float sum = sum_of_lanes(raise_held(p, q, &h, local_shift(p, most)));
	if (threadIdx.x % WARP == 0) {
		r.of_warp[t.slot][threadIdx.x / WARP] = {most, sum};
		hopper::barrier_arrive(at(r.added[t.slot]));
	}
}

template <typename T>
__device__ __forceinline__ void finish_piece(const problem &p, const plan &q, ring &r, const uint4 *slots,
                                             turn t)
{
	uint4 taken[VECTORS];
	portion<T> h;

	hopper::barrier_wait(at(r.known[t.slot]), t.parity);
	finish f = r.result[t.slot];
	T *y = (T *)p.y + r.y[t.slot];
	unsigned count = r.count[t.slot];
	take<T>(p, r, slots, t.slot, taken);
	__syncwarp();
	if (threadIdx.x % WARP == 0)
		hopper::barrier_arrive(at(r.free[t.slot]));
	unpack_taken<T>(taken, &h);
	raise_held(p, q, &h, f.shift);
	store_vectors(p, q, f, y, count, threadIdx.x, COMPUTING, h);
}

template <typename T>
__device__ __forceinline__ void compute(const problem &p, plan q, const cut &c, ring &r, const uint4 *slots)
{
	unsigned mine = (unsigned)((c.pieces - blockIdx.x + gridDim.x - 1) / gridDim.x);
	turn ahead = {0, 0}, behind = {0, 0};

	q.ends = false; /* the publisher's and the collector's */
	for (unsigned i = 0; i < mine + LAG; i++) {
		if (i < mine) {
			add_up<T>(p, q, r, slots, ahead);
			advance(&ahead);
		}
		if (i >= LAG) {
			finish_piece<T>(p, q, r, slots, behind);
			advance(&behind);
		}
	}
}

/* The elements around the vectors of a row, one to a lane, for the one who has the row's first piece. */
template <typename T>
__device__ __forceinline__ unsigned take_ends(const problem &p, const plan &q, const walk &w, vectors<T> *v,
                                              held<T, 1, 1> *h)
{
	*v = vectors_of<T>(p, q, w.row);
	unsigned ends = w.part == 0 ? v->head + v->tail : 0;
	load_ends(p, *v, ends, threadIdx.x % WARP, WARP, h);
	return ends;
}

template <typename T>
__device__ __forceinline__ void publish(const problem &p, const plan &q, const cut &c, ring &r, const walk &w)
{
	held<T, 1, 1> h;
	vectors<T> v;

	if (q.ends)
		take_ends(p, q, w, &v, &h);
	hopper::barrier_wait(at(r.added[w.t.slot]), w.t.parity);
	total t = combine(p, q, r.of_warp[w.t.slot], WARPS);
	if (q.ends) {
		float most = largest_of_lanes(most_of_values(p, h.ends, t.most));
		float sum = sum_of_lanes(raise_values(p, q, h.ends, local_shift(p, most)));
		t = {most, rescaled_sum(p, q, t, most) + sum};
	}
	if (threadIdx.x % WARP == 0)
		tell(&c.of_piece[w.piece], t);
}

template <typename T>
__device__ __forceinline__ void collect_row(const problem &p, const plan &q, const cut &c, ring &r,
                                            const walk &w)
{
	hopper::barrier_wait(at(r.added[w.t.slot]), w.t.parity); /* no use in looking before */
	total all = collect(p, q, &c.of_piece[w.piece - w.part], c.parts);
	finish f = finish_of(p, q, all, all.most);
	if (threadIdx.x % WARP == 0) {
		r.result[w.t.slot] = f;
		hopper::barrier_arrive(at(r.known[w.t.slot]));
	}
	if (q.ends) {
		held<T, 1, 1> h;
		vectors<T> v;
		unsigned ends = take_ends(p, q, w, &v, &h);
		raise_values(p, q, h.ends, f.shift);
		store_ends(p, f, v, ends, threadIdx.x % WARP, WARP, h);
	}
}

#endif

template <typename T, bool LOG, bool NEGATIVE>
__global__ void __launch_bounds__(THREADS, 1) ring_rows(problem p, plan q, cut c)
{
#if __CUDA_ARCH__ >= 900
	extern __shared__ __align__(128) uint4 slots[];
	__shared__ ring r;
	unsigned warp = threadIdx.x / WARP;
	walk w = first_piece(c);

	p.log = LOG;
	p.sign = NEGATIVE ? -1.0f : 1.0f;
	if (threadIdx.x == LOADER * WARP) {
		begin_ring(r);
		for (unsigned i = 0; i < LOADING && w.piece < c.pieces; i++, advance(c, &w))
			load_piece<T>(p, q, c, r, slots, w);
	}
	for (uint64_t i = blockIdx.x * THREADS + threadIdx.x; i < c.pieces; i += gridDim.x * THREADS)
		c.of_piece[i] = UNTOLD;
	cooperative_groups::this_grid().sync();
	if (warp < WARPS) {
		compute<T>(p, q, c, r, slots);
	} else if (threadIdx.x == LOADER * WARP) {
		load_rest<T>(p, q, c, r, slots, w);
	} else if (warp == PUBLISHER) {
		for (; w.piece < c.pieces; advance(c, &w))
			publish<T>(p, q, c, r, w);
	} else if (warp == COLLECTOR) {
		for (; w.piece < c.pieces; advance(c, &w))
			collect_row<T>(p, q, c, r, w);
	}
#endif
}

/* ---- Launches ---- */

constexpr uint64_t ROW_MIN = 128u << 10; /* bytes; up to there a block of its own keeps a row */
constexpr uint64_t PIECE_MIN = 256;      /* vectors */
constexpr uint64_t PIECES = 256;         /* small problems are cut into so many */

cut cut_of(const op_args *args, void *of_piece)
{
	const view *y = &args->views[1];
	uint64_t cols = y->shape[y->rank - 1], vectors = cols * dtype_size(y->dtype) / 16;
	uint64_t rows = view_elements(y) / cols, each = ceil_div(rows * vectors, PIECES);

	each = each < PIECE_MIN ? PIECE_MIN : each < PIECE_MAX ? each : PIECE_MAX;
	/* Alike but for the last, and of whole lines of 128 bytes. */
	each = ceil_div(ceil_div(vectors, ceil_div(vectors, each)), 8) * 8;
	uint64_t parts = ceil_div(vectors, each);
	return {(unsigned)parts, (unsigned)each, rows * parts, (uint64_t *)of_piece};
}

/* 0 where no block could run, or not all blocks of a launch at a time. */
unsigned blocks_at_a_time()
{
	bool able =
	    cuda_device_attribute(cudaDevAttrComputeCapabilityMajor) >= 9 &&
	    cuda_device_attribute(cudaDevAttrCooperativeLaunch) &&
	    (size_t)cuda_device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) >= RING_BYTES + sizeof(ring);

	return able ? (unsigned)cuda_device_attribute(cudaDevAttrMultiProcessorCount) : 0;
}

typedef void (*ring_kernel)(problem, plan, cut);

template <typename T> ring_kernel kernel_for(const problem &p)
{
	if (p.sign < 0)
		return p.log ? ring_rows<T, true, true> : ring_rows<T, false, true>;
	return p.log ? ring_rows<T, true, false> : ring_rows<T, false, false>;
}

template <typename T> void launch_ring(const op_args *args, const struct launch *launch)
{
	problem p = problem_of(args);
	plan q = plan_of<T>(p);
	cut c = cut_of(args, launch->workspace);
	ring_kernel kernel = kernel_for<T>(p);
	unsigned blocks = blocks_at_a_time();
	cudaLaunchConfig_t config = {};
	cudaLaunchAttribute attribute = {};

	attribute.id = cudaLaunchAttributeCooperative;
	attribute.val.cooperative = 1;
	config.gridDim = dim3(c.pieces < blocks ? (unsigned)c.pieces : blocks);
	config.blockDim = dim3(THREADS);
	config.dynamicSmemBytes = RING_BYTES;
	config.stream = (cudaStream_t)launch->stream;
	config.attrs = &attribute;
	config.numAttrs = 1;
	cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)RING_BYTES);
	cudaLaunchKernelEx(&config, kernel, p, q, c);
}

} // namespace

extern "C" bool softmax_ring_takes(const op_args *args, const char **ret_why_not)
{
	const view *y = &args->views[1];
	unsigned blocks = blocks_at_a_time();

	if (blocks == 0)
		*ret_why_not = "needs a GPU with bulk copies and 227 KiB of shared memory";
	else if (y->shape[y->rank - 1] <= ROW_MIN / dtype_size(y->dtype))
		*ret_why_not = "needs rows of more than 128 KiB";
	else if (cut_of(args, NULL).parts > (uint64_t)ROUNDS * blocks)
		*ret_why_not = "needs rows that fit in the shared memory of the GPU";
	else
		return true;
	return false;
}

extern "C" uint64_t softmax_ring_workspace(const op_args *args)
{
	return cut_of(args, NULL).pieces * sizeof(uint64_t);
}

extern "C" CUDA_LAUNCH(softmax_ring)
{
	switch (args->views[0].dtype) {
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
