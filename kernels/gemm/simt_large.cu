/*
 * The kernel of simt for large products: f32, C = α·A·B + β·C by plain FMAs, blocks of C of 128 × 128.
 *
 * Bound, on an H200 at 4096², K = 1024: FMAs take 78 % of the issue slots, other instructions 7 %, and the last
 * blocks leave 3 % idle. Results of loads entering the registers cost some 6 % (dispatch stalls, for 24
 * registers per 128 FMAs). The rest is lost at the ends of steps. Measured: table in simt.cu.
 *
 *   The innermost loop is two k's, 4.3 KiB of code: a longer one does not fit where instructions are fetched
 *   from.
 *   All warps bring tiles by turns. So a tile's place must be given back at the end of its own step: a step
 *   later, and all warps keep step.
 *   Both operands are read across K, in lines of rows of A or columns of B. One whose lines run along K is
 *   turned beforehand, into the workspace. That moves 8 bytes per element: an estimated 4 % of the time at
 *   M = N = 2048, 1 % at 8192.
 *   The FMAs are asm and ptxas runs at -O1 (daemon/cuda/CMakeLists.txt), so that they stay in this order.
 *   Otherwise the compiler sorts them by operands and moves sums between registers, and so between banks. Of
 *   the innermost loop's 256 FMAs none waits for a bank.
 *
 * What each of these saves, and what else was tried: docs/lab/gemm.md.
 */
#include <math.h>
#include <utility>

#include "common/hopper/barrier.cuh"
#include "common/hopper/shared.cuh"
#include "common/hopper/tma.cuh"
#include "common/launch.cuh"
#include "fitted.h"
#include "gemm/fma.cuh"
#include "gemm/kernels.h"
#include "gemm/map.cuh"
#include "gemm/tiles.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#pragma nv_diag_suppress 177 /* the kernel is empty there, and what it would use unused */
#endif

extern "C" CUDA_LAUNCH(transpose_vector);
extern "C" bool transpose_vector_supports(const struct op_args *args, const char **ret_why_not);

namespace
{

/* ROWS × COLS sums per thread, a warp's threads 4 rows and 8 columns of them, in quads: 64 × 64 per warp. */
constexpr int SIDE = 128, ROWS = 16, COLS = 8, WARP_SIDE = 64, WARPS = 4, BLOCK = WARPS * 32, RESIDENT = 2;

/*
 * Tiles are STEP deep, STAGES of them in shared memory. A tile's place is free when all warps have arrived at
 * its barrier. It is filled anew in the SLACK-th step after its own: so the warp that sees to it need not wait
 * for the slowest.
 */
constexpr int STEP = 32, STAGES = 3, SLACK = 2;
constexpr int TILE = SIDE * STEP, RING = STAGES * TILE; /* floats of each operand */
constexpr int LINE_BYTES = SIDE * 4;
constexpr int MEMORY_BYTES = 2 * RING * 4 + 2 * STAGES * 8;

static_assert(SIDE * SIDE <= 2 * RING, "the sums are exchanged where the tiles were");
static_assert(STEP % 2 == 0 && SLACK > 1 && SLACK < STAGES, "");

constexpr int BAND = 8;

/* What a kernel gets. */
struct work {
	CUtensorMap a_map, b_map;
	gemm_task t;
};

/* Of the memory: both rings, then a barrier for each stage that says it is full, then those that say empty. */
constexpr uint32_t FULL = 2 * RING * 4, EMPTY = FULL + STAGES * 8;

/* What a thread needs of one k: rows 16i … 16i + 3 and columns 32j … 32j + 3 from its first on. */
struct fragment {
	float a[ROWS], b[COLS];

	__device__ __forceinline__ void read(uint32_t a_from, uint32_t b_from)
	{
#pragma unroll
		for (int i = 0; i < ROWS; i += 4)
			load_quad(a + i, a_from + i * 16);
#pragma unroll
		for (int j = 0; j < COLS; j += 4)
			load_quad(b + j, b_from + j * 32);
	}

	/*
	 * The registers have two banks, even and odd, which deliver one operand each per cycle. An operand that
	 * the next FMA of the same place and parity uses again costs nothing: so two neighbouring columns of B
	 * serve all rows, an element of A both of them, and 5 operands are read for 3 FMAs. Those that one FMA
	 * reads are to be of different parity: sums are exchanged in pairs when they are stored, and so are
	 * held in registers of the other parity than B's columns, and each row begins with the column whose sum
	 * has the other parity than its element of A.
	 */
	__device__ __forceinline__ void add_to(float (&sums)[ROWS][COLS]) const
	{
#pragma unroll
		for (int j = 0; j < COLS; j += 2)
#pragma unroll
			for (int n = 0; n < ROWS; n++) {
				int i = j % 4 == 0 ? n : ROWS - 1 - n;
				add_product(sums[i][j + i % 2], a[i], b[j + i % 2]);
				add_product(sums[i][j + 1 - i % 2], a[i], b[j + 1 - i % 2]);
			}
	}
};

#if __CUDA_ARCH__ >= 900

/*
 * Brings the steps of K into the ring. The warps take turns, one thread of each: a scheduler has two warps of
 * this kernel, both of the same number, and the others of their blocks would wait for the one that always did
 * it.
 */
struct supply {
	const work &w;
	const place &at;
	uint32_t memory;
	unsigned steps, step, stage, parity; /* of the phase that ends when `stage` is free */

	__device__ supply(const work &w, const place &at, uint32_t memory, unsigned steps)
	    : w(w), at(at), memory(memory), steps(steps), step(0), stage(0), parity(1) /* at first all are */
	{
	}

	/* All threads call it; the one that is to does it. */
	__device__ __forceinline__ void bring_next(bool mine)
	{
		if (mine && step < steps) {
			uint32_t full = memory + FULL + stage * 8, to = memory + stage * TILE * 4;
			int k = (int)(step * STEP);

			hopper::barrier_wait(memory + EMPTY + stage * 8, parity);
			hopper::barrier_expect(full, 2 * TILE * 4);
			hopper::copy_box(to, &w.a_map, (int)at.row, k, w.t.p.a.batch ? (int)at.batch : 0, full);
			hopper::copy_box(to + RING * 4, &w.b_map, (int)at.col, k,
			                 w.t.p.b.batch ? (int)at.batch : 0, full);
		}
		step++;
		if (++stage == STAGES)
			stage = 0, parity ^= 1;
	}
};

#endif

/* Sums to C by way of shared memory. row, col: the thread's first. */
__device__ __forceinline__ void store_sums(const gemm_task &t, const place &at, float *memory, int row, int col,
                                           const float (&sums)[ROWS][COLS])
{
	int first = threadIdx.x % 32 * 4;
	float *c = block_of_c(t, at) + first * t.p.c.col;

#pragma unroll
	for (int i = 0; i < ROWS; i++)
#pragma unroll
		for (int j = 0; j < COLS; j += 4)
			*(float4 *)(memory + (row + i / 4 * 16 + i % 4) * SIDE + col + j * 8) =
			    make_float4(sums[i][j + 1], sums[i][j], sums[i][j + 3], sums[i][j + 2]);
	__syncthreads();
#pragma unroll 4
	for (int r = threadIdx.x / 32; r < at.rows; r += WARPS) {
		float4 v = *(const float4 *)(memory + r * SIDE + first);
		float four[4] = {v.y, v.x, v.w, v.z};

		write_four(t, at, r, first, c + r * t.p.c.row, at.cols - first, four);
	}
}

__global__ void __launch_bounds__(BLOCK, RESIDENT) simt_large(const __grid_constant__ work w)
{
#if __CUDA_ARCH__ >= 900
	extern __shared__ __align__(1024) float memory[];
	uint32_t shared = hopper::shared_address(memory);
	int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	int row = warp % 2 * WARP_SIDE + lane / 8 * 4, col = warp / 2 * WARP_SIDE + lane % 8 * 4;
	place at = place_of<SIDE, BAND>(w.t);
	unsigned steps = (unsigned)((w.t.p.k + STEP - 1) / STEP);
	supply supply(w, at, shared, steps);

	if (threadIdx.x == 0) {
		for (int i = 0; i < STAGES; i++) {
			hopper::barrier_init(shared + FULL + i * 8, 1);
			hopper::barrier_init(shared + EMPTY + i * 8, WARPS);
		}
		hopper::barriers_ready();
	}
	__syncthreads();
	await_kernel_before();
	let_next_kernel_come();
	for (int i = 0; i < STAGES - SLACK; i++)
		supply.bring_next(threadIdx.x == 0);

	/* Products lag one k behind what is read. The first, of zeros, change nothing. */
	float sums[ROWS][COLS] = {};
	fragment even = {}, odd = {};
	uint32_t a_base = shared + row * 4, b_base = shared + (RING + col) * 4;
	unsigned stage = 0, parity = 0;

#pragma unroll 1
	for (unsigned step = 0; step < steps; step++) {
		supply.bring_next(threadIdx.x == step % WARPS * 32);
		hopper::barrier_wait(shared + FULL + stage * 8, parity);
		uint32_t a_from = a_base + stage * TILE * 4, b_from = b_base + stage * TILE * 4;
		/* Counted, as an address that ends the loop would be needed, and waited for, too early. */
#pragma unroll 1
		for (int left = STEP / 2; left > 0; left--) {
			even.read(a_from, b_from);
			odd.add_to(sums);
			odd.read(a_from + LINE_BYTES, b_from + LINE_BYTES);
			even.add_to(sums);
			a_from += 2 * LINE_BYTES;
			b_from += 2 * LINE_BYTES;
		}
		__syncwarp();
		if (lane == 0)
			hopper::barrier_arrive(shared + EMPTY + stage * 8);
		if (++stage == STAGES)
			stage = 0, parity ^= 1;
	}
	odd.add_to(sums);
	__syncthreads();
	store_sums(w.t, at, memory, row, col, sums);
#endif
}

/* ---- Operands ---- */

constexpr uint64_t PITCH_UNIT = 8, COPY_UNIT = 64; /* floats: sectors, what workspaces are aligned to */

/* An operand as a matrix of `lines` lines of `length`, the lines the k's. */
struct across {
	gemm_operand *operand;
	int64_t *along, *apart; /* its strides of neighbours in a line, of lines */
	uint64_t length, lines;
};

void both_across(gemm_problem *p, across (&ret)[2])
{
	ret[0] = {&p->a, &p->a.row, &p->a.col, p->m, p->k};
	ret[1] = {&p->b, &p->b.col, &p->b.row, p->n, p->k};
}

uint64_t pitch_of(const across &o)
{
	return (o.length + PITCH_UNIT - 1) / PITCH_UNIT * PITCH_UNIT;
}

/* Floats of an operand's turned copy; 0: it needs none. */
uint64_t copy_of(const across &o, const gemm_problem &p)
{
	if (*o.along == 1)
		return 0;
	constexpr uint64_t TOO_MANY = 1ull
	                              << 60; /* no device has them; their bytes, of both operands, still fit */
	uint64_t matrices = o.operand->batch ? p.batch : 1, floats;
	if (__builtin_mul_overflow(matrices, o.lines, &floats) ||
	    __builtin_mul_overflow(floats, pitch_of(o), &floats) || floats > TOO_MANY)
		return TOO_MANY;
	return (floats + COPY_UNIT - 1) / COPY_UNIT * COPY_UNIT;
}

/* Copies the operand so that its lines go across K, and has it be that copy. */
int turn(const across &o, const gemm_problem &p, float *to, const struct launch *launch)
{
	struct op_args args = {};
	struct view *x = &args.views[0], *y = &args.views[1];
	uint64_t matrices = o.operand->batch ? p.batch : 1;
	int64_t pitch = (int64_t)pitch_of(o);
	const char *why_not;

	x->data = o.operand->data;
	x->offset = (uintptr_t)x->data % 256; /* what is known of its alignment */
	y->data = to;
	x->dtype = y->dtype = KOPS_F32;
	x->rank = y->rank = 3;
	x->shape[0] = y->shape[0] = matrices;
	x->shape[1] = y->shape[2] = o.length;
	x->shape[2] = y->shape[1] = o.lines;
	x->strides[0] = o.operand->batch;
	x->strides[1] = *o.along;
	x->strides[2] = *o.apart;
	y->strides[0] = (int64_t)o.lines * pitch;
	y->strides[1] = pitch;
	y->strides[2] = 1;
	o.operand->data = to;
	o.operand->batch = matrices > 1 ? y->strides[0] : 0;
	*o.along = 1;
	*o.apart = pitch;
	if (transpose_vector_supports(&args, &why_not))
		return transpose_vector(&args, launch);
	std::swap(x->shape[1], x->shape[2]);
	std::swap(x->strides[1], x->strides[2]);
	return cuda_copy_strided(x, y, cuda_stream(launch));
}

bool map_across(CUtensorMap *map, const across &o, const gemm_problem &p)
{
	return *o.along == 1 && map_lines(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, o.operand->data,
	                                  {o.length, o.lines, p.batch, *o.apart, o.operand->batch}, SIDE, STEP,
	                                  CU_TENSOR_MAP_SWIZZLE_NONE);
}

} // namespace

extern "C" uint64_t gemm_simt_large_workspace(const struct op_args *args)
{
	struct gemm_problem given = gemm_problem_of(args), p = gemm_by_rows(&given);
	across operands[2];

	both_across(&p, operands);
	return (copy_of(operands[0], p) + copy_of(operands[1], p)) * sizeof(float);
}

extern "C" double gemm_simt_large_ns(const struct op_args *args)
{
	struct gemm_problem given = gemm_problem_of(args), p = gemm_by_rows(&given);
	double processors = cuda_device_attribute(cudaDevAttrMultiProcessorCount);
	double blocks = (double)blocks_of(p, SIDE), steps = ceil((double)p.k / STEP);

	/* Those of a multiprocessor end together and leave it to as many. */
	double each = blocks <= processors ? 1 : ceil(blocks / (RESIDENT * processors)) * RESIDENT;
	const auto &t = fitted.simt_large;
	double ns =
	    t.launch_ns + t.first + (ceil(each / RESIDENT) - 1) * t.next + each * t.per_k * steps * STEP;
	across operands[2];

	both_across(&p, operands);
	for (const across &o : operands) {
		uint64_t floats = copy_of(o, p);
		if (floats)
			ns += t.turn_ns + (double)floats * sizeof(float) * t.turn_byte;
	}
	return cuda_clock_factor() * ns;
}

extern "C" bool gemm_simt_large(const struct op_args *args, const struct launch *launch, int *ret_status)
{
	float *copy = (float *)launch->workspace;
	work w = {};
	across operands[2];

	w.t = gemm_task_of(args);
	both_across(&w.t.p, operands);
	for (const across &o : operands) {
		uint64_t floats = copy_of(o, w.t.p);
		*ret_status = floats ? turn(o, w.t.p, copy, launch) : 0;
		if (*ret_status)
			return true;
		copy += floats;
	}
	if (!map_across(&w.a_map, operands[0], w.t.p) || !map_across(&w.b_map, operands[1], w.t.p))
		return false;
	cudaFuncSetAttribute(simt_large, cudaFuncAttributeMaxDynamicSharedMemorySize, MEMORY_BYTES);
	launch_tiles(blocks_of(w.t.p, SIDE), GRID_MAX, [&](uint64_t first, unsigned n) {
		w.t.first = first;
		launch_kernel(simt_large, {dim3(n), dim3(BLOCK), MEMORY_BYTES}, cuda_stream(launch), w);
	});
	*ret_status = cuda_launch_status();
	return true;
}
