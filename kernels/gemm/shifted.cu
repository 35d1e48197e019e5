/*
 * Products of f16 and bf16 with long sums, whose lines begin anywhere: C = α·A·B + β·C, sums in f32, rounded
 * once.
 *
 *   kernel   idea                                tiles, threads  bound
 *   shifted  a warp for each class of lines has  128×128 or      the copy engine: 35 ns for each of 16 boxes
 *            the copy engine bring them, and     128×64, 512     of a tile of K, and lines at multiples of 16
 *            shifts them into place; K split                     bytes only come at three quarters of the rate
 *            over all multiprocessors
 *
 * wgmma.cu copies such operands in memory first, and so moves three times their bytes: faster where a C of many
 * tiles reads them again and again. Here they are shifted on their way (tensor/realign.cuh); what is behind
 * that is as there.
 *
 * Blocks go through units: a tile of C, and a part of K. Where C has few tiles, each has as many parts as keep
 * all multiprocessors busy. Their sums go to memory, and join_units() adds them up, always in the same order.
 *
 * What else was tried: docs/lab/gemm.md.
 */
#include "gemm/kernels.h"

#include <math.h>

#include "common/launch.cuh"
#include "fitted.h"
#include "gemm/tensor/kernel.cuh"
#include "gemm/tensor/realign.cuh"

namespace
{

template <int COLS>
using shifted_cut = cut<1, COLS, 1, 1, 3, COLS / 64, 12, COLS == 128 ? cut_name::SQUARE : cut_name::NARROW>;

constexpr unsigned UNITS_MAX = 1024; /* whose sums are joined: 64 KiB each, at most */
constexpr unsigned PART_TILES = 4;   /* of K, at least */
constexpr uint64_t K_MIN = CLASSES;  /* so that each class of lines across K has one */
constexpr int JOIN_QUADS = 32, JOIN_SLICES = 16;
constexpr int SHIFTED_THREADS = (int)CLASSES * 32 + CONSUMERS * WARPGROUP;

struct shifted_work {
	work of;
	classes a, b;
	unsigned parts, units;
	float4 *sums; /* of all units, as sums_of_unit() has them; NULL: tiles go to C */
};

/* What the copy engine brings for a warp, before it is shifted: its class of A's tile and of B's. */
template <class F> struct raw_stage {
	using CUT = typename F::CUT;
	using A = class_box<CUT::ROWS, F::A_ACROSS, F::TILE_DEPTH>;
	using B = class_box<CUT::COLS, F::B_ACROSS, F::TILE_DEPTH>;
	static constexpr int STAGES = 2, STAGE_BYTES = A::BYTES + B::BYTES;
	static constexpr int RING_BYTES = (STAGES * STAGE_BYTES + 2 * STAGES * 8 + 1023) / 1024 * 1024;
	static constexpr int SHARED_BYTES = CUT::SHARED_BYTES + (int)CLASSES * RING_BYTES + 1024;
	static_assert(SHARED_BYTES <= 227 * 1024);
};

template <class F> constexpr int UNIT_QUADS = F::CUT::SUMS / 4 * CONSUMERS *WARPGROUP;

#ifdef KOPS_HOPPER

/* The units of a block, one after another: tiles of C, and which tiles of K are added up. */
template <class F> struct unit_walk {
	const shifted_work &w;
	unsigned number;
	place tile;
	unsigned begin, end;

	__device__ __forceinline__ explicit unit_walk(const shifted_work &w) : w(w), number(blockIdx.x)
	{
		find();
	}
	__device__ __forceinline__ bool is_over() const
	{
		return number >= w.units;
	}
	__device__ __forceinline__ void step()
	{
		number += gridDim.x;
		find();
	}

      private:
	/* Blocks that run at the same time are in the same part of K, and share lines of A and B in L2. */
	__device__ __forceinline__ void find()
	{
		unsigned part = number / w.of.tiles;

		tile = place_of<F>(w.of, number - part * w.of.tiles);
		begin = (unsigned)part_begin<uint64_t, uint64_t>(w.of.k_tiles, part, w.parts);
		end = (unsigned)part_begin<uint64_t, uint64_t>(w.of.k_tiles, part + 1, w.parts);
	}
};

/* The tiles of K of a block's units, one after another. */
template <class F> struct step_walk {
	unit_walk<F> unit;
	unsigned k;

	__device__ __forceinline__ explicit step_walk(const shifted_work &w) : unit(w), k(unit.begin)
	{
	}
	__device__ __forceinline__ void step()
	{
		if (++k < unit.end)
			return;
		unit.step();
		k = unit.begin;
	}
};

/* ---- The warps that bring tiles ---- */

/* Begins to bring what comes next of this warp's class, where there is more. */
template <class F>
__device__ __forceinline__ void fetch_next(const shifted_work &w, step_walk<F> &ahead,
                                           pipeline<raw_stage<F>> &r)
{
	using RAW = raw_stage<F>;
	const place &tile = ahead.unit.tile;
	unsigned c = threadIdx.x / 32, k = ahead.k * F::TILE_DEPTH;
	bool of_a = c < w.a.count, of_b = c < w.b.count;

	if (ahead.unit.is_over())
		return;
	if (threadIdx.x % 32 == 0) {
		hopper::barrier_expect(r.full(), of_a * w.a.box_bytes + of_b * w.b.box_bytes);
		if (of_a)
			fetch_class<typename RAW::A>(r.bytes(), w.a, tile.row, k, tile.batch, r.full());
		if (of_b)
			fetch_class<typename RAW::B>(r.bytes() + RAW::A::BYTES, w.b, tile.col, k, tile.batch,
			                             r.full());
	}
	ahead.step();
	r.step();
}

/* Of an extent, from `begin` on, at most. */
template <int MOST> __device__ __forceinline__ int left_of(unsigned extent, unsigned begin)
{
	return extent - begin < MOST ? (int)(extent - begin) : MOST;
}

template <class F>
__device__ __forceinline__ void produce_shifted(const shifted_work &w, pipeline<raw_stage<F>> raw,
                                                pipeline<typename F::CUT> r)
{
	using RAW = raw_stage<F>;
	using CUT = typename F::CUT;
	pipeline<RAW> coming = raw;
	step_walk<F> ahead(w);
	unsigned c = threadIdx.x / 32;

	for (int i = 0; i < RAW::STAGES; i++)
		fetch_next<F>(w, ahead, coming);
#pragma unroll 1
	for (step_walk<F> now(w); !now.unit.is_over(); now.step(), raw.step(), r.step()) {
		shifter<typename RAW::A> a(c < w.a.count ? left_of<CUT::ROWS>(w.of.m, now.unit.tile.row) : 0);
		shifter<typename RAW::B> b(c < w.b.count ? left_of<CUT::COLS>(w.of.n, now.unit.tile.col) : 0);

		hopper::barrier_wait(raw.full(), raw.parity);
		a.load(raw.bytes());
		b.load(raw.bytes() + RAW::A::BYTES);
		__syncwarp(); /* it has been read */
		fetch_next<F>(w, ahead, coming);
		hopper::barrier_wait(r.empty(), r.parity ^ 1);
		a.store(r.bytes(), w.a.shifts[c]);
		b.store(r.bytes() + CUT::A_BYTES, w.b.shifts[c]);
		hopper::show_to_engines();
		__syncwarp();
		if (threadIdx.x % 32 == 0)
			hopper::barrier_arrive(r.full());
	}
}

/* ---- The consumers ---- */

/* Where the sums of a unit that this thread has begin; those of its next 8 columns come 256 quads behind. */
__device__ __forceinline__ float4 *sums_of_unit(const shifted_work &w, unsigned unit, unsigned quads)
{
	return w.sums + (uint64_t)unit * quads + threadIdx.x - CLASSES * 32;
}

template <class F>
__device__ __forceinline__ void keep_sums(const shifted_work &w, const unit_walk<F> &unit, int consumer,
                                          const wave_sums<F> &sums)
{
	lane_place<F> me;
	float4 *to = sums_of_unit(w, unit.number, UNIT_QUADS<F>);

	if (chunk_at<F>(unit.tile, consumer, 0).row + me.row(0) >= w.of.m)
		return;
#pragma unroll
	for (int i = 0; i < GROUPS<F>; i++)
		if (unit.tile.col + i * 8 < w.of.n)
			to[i * CONSUMERS * WARPGROUP] = make_float4(sums[0][i * 4], sums[0][i * 4 + 1],
			                                            sums[0][i * 4 + 2], sums[0][i * 4 + 3]);
}

template <class F>
__device__ __forceinline__ void consume_units(const shifted_work &w, pipeline<typename F::CUT> r,
                                              uint32_t slots, int consumer)
{
	wave_sums<F> sums = {};

	for (unit_walk<F> unit(w); !unit.is_over(); unit.step()) {
		sum_up<F>(sums, r, consumer, unit.end - unit.begin);
		if (w.sums)
			keep_sums<F>(w, unit, consumer, sums);
		else
			write_loose<F>(w.of, unit.tile, consumer, slots, sums);
	}
}

#endif

template <class F>
__global__ void __launch_bounds__(SHIFTED_THREADS, 1) multiply_shifted(const __grid_constant__ shifted_work w)
{
#ifdef KOPS_HOPPER
	using CUT = typename F::CUT;
	extern __shared__ char shared[];
	uint32_t slots = (hopper::shared_address(shared) + 1023) & ~1023u;
	pipeline<CUT> r(slots + CUT::SLOTS_BYTES);
	/* Of its first thread, so that the compiler sees that it is the same for a warp. */
	int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
	pipeline<raw_stage<F>> raw(r.barriers + 2 * CUT::STAGES * 8 +
	                           warp % CLASSES * raw_stage<F>::RING_BYTES);

	let_next_kernel_come();
	if (threadIdx.x == 0)
		init_barriers(r, CLASSES);
	if (warp < CLASSES && threadIdx.x % 32 == 0)
		init_barriers(raw, 1, 1);
	__syncthreads();
	await_kernel_before();
	if (warp < CLASSES) {
		hopper::fewer_registers<104>();
		produce_shifted<F>(w, raw, r);
	} else {
		hopper::more_registers<152>();
		consume_units<F>(w, r, slots, (warp - CLASSES) / (WARPGROUP / 32));
	}
#endif
}

/* Adds up the parts of K: a block has 32 quads of a tile, each thread every sixteenth part of one. */
template <class F>
__global__ void __launch_bounds__(JOIN_QUADS *JOIN_SLICES) join_units(const __grid_constant__ shifted_work w)
{
#ifdef KOPS_HOPPER
	__shared__ float4 slices[JOIN_SLICES][JOIN_QUADS];
	constexpr unsigned BLOCKS = UNIT_QUADS<F> / JOIN_QUADS, WARPS = CONSUMERS * WARPGROUP / 32;
	unsigned number = blockIdx.x / BLOCKS, group = blockIdx.x % BLOCKS / WARPS, warp = blockIdx.x % WARPS;
	unsigned quad = threadIdx.x % JOIN_QUADS, slice = threadIdx.x / JOIN_QUADS;
	place at = place_of<F>(w.of, number);
	float4 sum = {0, 0, 0, 0};

	at.row += warp * WARP_ROWS;
	at.col += group * 8;
	let_next_kernel_come();
	await_kernel_before();
	if (at.row >= w.of.m || at.col >= w.of.n)
		return;
	if (at.row + quad / 4 < w.of.m) {
		const float4 *from = w.sums + (uint64_t)number * UNIT_QUADS<F> + group * CONSUMERS * WARPGROUP +
		                     warp * 32 + quad;
#pragma unroll 8
		for (unsigned part = slice; part < w.parts; part += JOIN_SLICES) {
			float4 v = from[(uint64_t)part * w.of.tiles * UNIT_QUADS<F>];
			sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
		}
	}
	slices[slice][quad] = sum;
	__syncthreads();
	if (slice > 0)
		return;
	for (int i = 1; i < JOIN_SLICES; i++) {
		float4 v = slices[i][quad];
		sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
	}
	const float values[4] = {sum.x, sum.y, sum.z, sum.w};
	for (int i = 0; i < 4; i++) {
		c_index c = {at.batch, (int64_t)at.row + quad / 4 + i / 2 * 8,
		             (int64_t)at.col + quad % 4 * 2 + i % 2};
		if (c.row < w.of.m && c.col < w.of.n)
			w.of.to_c.store<typename F::type>(
			    element_at<typename F::type>(w.of.c_at, c.batch, c.row, c.col), values[i], c);
	}
#endif
}

/* ---- Launches ---- */

/* How C and K are cut. */
struct cutting {
	double ns;
	bool narrow, joins;
	unsigned parts, units;
};

/* Of a tile of K: boxes of all classes, and their lines. */
template <int COLS> double step_ns(const work &w)
{
	const auto &f = fitted.shifted;

	return f.step_ns + f.row_ns * fmin(w.m, shifted_cut<COLS>::ROWS) + f.col_ns * fmin(w.n, COLS);
}

/* The best of a cut. Parts of K fill the multiprocessors once, or several times. */
template <int COLS> cutting cutting_of_cut(const mapped_product &mapped, work w, unsigned multiprocessors)
{
	const auto &f = fitted.shifted;
	cutting best = {INFINITY, COLS == 64, false, 1, 0};
	double write_ns = mapped.c.lies == placing::LOOSE ? f.loose_ns : 0;

	for (unsigned round = 0; round <= 4; round++) {
		bool joins = round > 0 || w.to_c.finishes();
		w.overlap = w.overlap && !joins;
		count_tiles<shifted_cut<COLS>>(&w, mapped.p.batch, (int)multiprocessors);
		unsigned most = w.k_tiles / PART_TILES, parts = w.tiles ? multiprocessors * round / w.tiles : 0;
		parts = round == 0 ? 1 : parts < most ? parts : most;
		if (parts == 0 || (joins && w.tiles > UNITS_MAX / parts))
			continue;
		unsigned units = w.tiles * parts;
		double waves = ceil((double)units / multiprocessors);
		double steps = ceil((double)w.k_tiles / parts) * step_ns<COLS>(w);
		double ns =
		    waves * (f.unit_ns + (joins ? steps : fmax(steps, write_ns))) + (joins ? f.join_ns : 0);
		if (ns < best.ns)
			best = {ns, COLS == 64, joins, parts, units};
	}
	return best;
}

cutting cutting_of(const mapped_product &mapped, const work &w, unsigned multiprocessors)
{
	cutting square = cutting_of_cut<128>(mapped, w, multiprocessors);
	cutting narrow = cutting_of_cut<64>(mapped, w, multiprocessors);

	return narrow.ns < square.ns ? narrow : square;
}

template <int COLS> constexpr uint64_t UNIT_BYTES = shifted_cut<COLS>::ROWS *COLS * sizeof(float);

template <class F> int launch_form(const mapped_product &mapped, shifted_work *w, const struct launch *launch)
{
	using RAW = raw_stage<F>;
	const gemm_problem &p = mapped.p;
	int multiprocessors = gemm_hopper_multiprocessors();

	if (!map_classes<typename RAW::A>(&w->a, p.a, mapped.a, p.batch) ||
	    !map_classes<typename RAW::B>(&w->b, p.b, mapped.b, p.batch))
		return KOPS_E_FAULT;
	unsigned most = (unsigned)cuda_multiprocessors_to_keep(launch, multiprocessors, w->units);
	unsigned waves = (w->units + most - 1) / most;
	cudaFuncSetAttribute(multiply_shifted<F>, cudaFuncAttributeMaxDynamicSharedMemorySize,
	                     RAW::SHARED_BYTES);
	launch_kernel(multiply_shifted<F>,
	              {dim3((w->units + waves - 1) / waves), dim3(SHIFTED_THREADS), RAW::SHARED_BYTES, 1,
	               cuda_may_be_early(launch)},
	              cuda_stream(launch), *w);
	return cuda_launch_status();
}

template <int COLS, element E>
int launch_cut(const mapped_product &mapped, shifted_work w, const struct launch *launch)
{
	using CUT = shifted_cut<COLS>;
	using plain = form<CUT, E, false, false, false, true>;
	static int (*const launchers[4])(const mapped_product &, shifted_work *, const struct launch *) = {
	    launch_form<plain>, launch_form<form<CUT, E, false, true, false, true>>,
	    launch_form<form<CUT, E, true, false, false, true>>,
	    launch_form<form<CUT, E, true, true, false, true>>};

	w.of.overlap = w.of.overlap && !w.sums;
	count_tiles<CUT>(&w.of, mapped.p.batch, gemm_hopper_multiprocessors());
	w.units = w.of.tiles * w.parts;
	int rc = launchers[mapped.a.across * 2 + mapped.b.across](mapped, &w, launch);
	if (rc < 0 || !w.sums)
		return rc;
	launch_kernel(join_units<plain>,
	              {dim3(w.of.tiles * (UNIT_QUADS<plain> / JOIN_QUADS)), dim3(JOIN_QUADS * JOIN_SLICES)},
	              cuda_stream(launch), w);
	return cuda_launch_status();
}

template <element E>
int launch_type(const mapped_product &mapped, const shifted_work &w, bool narrow, const struct launch *launch)
{
	return narrow ? launch_cut<64, E>(mapped, w, launch) : launch_cut<128, E>(mapped, w, launch);
}

/* Whether the copy engine can bring an operand by classes of lines. */
bool has_classes(const gemm_operand &o, const layout &l, uint64_t batch)
{
	return l.lies != placing::NONE &&
	       (l.count == 1 || (l.apart > 0 && l.apart < MAP_STRIDE_MAX / (int64_t)CLASSES)) &&
	       (batch == 1 || o.batch == 0 || map_stride(o.batch, 2));
}

/* Of the cut that has the most. */
double tiles_of(const gemm_problem &p)
{
	using CUT = shifted_cut<64>;

	return (double)p.batch * ceil((double)p.m / CUT::ROWS) *
	       ceil((double)p.n / (CUT::COLS - (int)SECTOR_NUMBERS));
}

} // namespace

extern "C" bool gemm_shifted_supports(const struct op_args *args, const char **ret_why_not)
{
	kops_dtype dtype = args->views[0].dtype;
	mapped_product mapped = planned_product_of(args);
	const gemm_problem &p = mapped.p;

	*ret_why_not = "takes f16 and bf16 only";
	if (dtype != KOPS_F16 && dtype != KOPS_BF16)
		return false;
	*ret_why_not =
	    "needs K of at least 8 and alpha other than 0"; /* NaN and Inf in A and B would be seen */
	if (p.k < K_MIN || args->params.gemm.alpha == 0)
		return false;
	*ret_why_not =
	    "needs lines of A, B and C without gaps, in positive strides below 2^34, and matrices of a "
	    "batch at multiples of 16 bytes from each other";
	if (!has_classes(p.a, mapped.a, p.batch) || !has_classes(p.b, mapped.b, p.batch) ||
	    mapped.c.lies == placing::NONE || mapped.c.across)
		return false;
	*ret_why_not = "needs M, N and K of at most 2^30 and a C of at most 2^31 tiles";
	if (p.m > EXTENT_MAX || p.n > EXTENT_MAX || p.k > EXTENT_MAX || p.batch > EXTENT_MAX ||
	    tiles_of(p) > (double)TILES_MAX)
		return false;
	*ret_why_not = "needs a GPU of compute capability 9.0";
	if (gemm_hopper_multiprocessors() == 0)
		return false;
	*ret_why_not = "takes bias and activation of a C of at most 1024 tiles only";
	return isfinite(cutting_of(mapped, work_of(mapped, args), (unsigned)gemm_hopper_multiprocessors()).ns);
}

extern "C" double gemm_shifted_ns(const struct op_args *args)
{
	mapped_product mapped = planned_product_of(args);

	return fitted.shifted.launch_ns +
	       cutting_of(mapped, work_of(mapped, args), (unsigned)gemm_hopper_multiprocessors()).ns;
}

extern "C" uint64_t gemm_shifted_workspace(const struct op_args *args)
{
	mapped_product mapped = planned_product_of(args);
	cutting cutting = cutting_of(mapped, work_of(mapped, args), (unsigned)gemm_hopper_multiprocessors());

	return cutting.joins ? cutting.units * (cutting.narrow ? UNIT_BYTES<64> : UNIT_BYTES<128>) : 0;
}

extern "C" CUDA_LAUNCH(gemm_shifted)
{
	mapped_product mapped = mapped_product_of(args, gemm_problem_of(args));
	shifted_work w = {};

	w.of = work_of(mapped, args);
	cutting cutting = cutting_of(mapped, w.of, (unsigned)gemm_hopper_multiprocessors());
	w.parts = cutting.parts;
	w.sums = cutting.joins ? (float4 *)launch->workspace : NULL;
	return args->views[0].dtype == KOPS_F16 ? launch_type<element::F16>(mapped, w, cutting.narrow, launch)
	                                        : launch_type<element::BF16>(mapped, w, cutting.narrow, launch);
}
