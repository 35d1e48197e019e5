/*
 * tiles.cuh: what the kernels share that compute C in blocks, most of them of f32: which block of C is whose,
 * how tiles of A and B come out of global memory, how a thread's sums get into C.
 *
 * C is taken by rows (gemm_by_rows): its columns are the finer axis. The axis of A and of B that is not K is
 * called the outer one here: A's rows, B's columns.
 */
#ifndef KOPS_KERNELS_GEMM_TILES_H
#define KOPS_KERNELS_GEMM_TILES_H

#include "common/together.cuh"
#include "gemm/epilogue.cuh"
#include "gemm/problem.h"
#include "gemm/scheduler.cuh"

namespace
{

/* What a kernel gets: the product, and the first of this launch's blocks of C. */
struct gemm_task {
	gemm_problem p;
	epilogue<float> to_c;
	bool
	    c_vectors; /* lines of C are aligned pieces of 16 bytes: of f32, columns 4i … 4i + 3 are a float4 */
	uint64_t first;
};

inline uint64_t blocks_of(const gemm_problem &p, int edge)
{
	return p.batch * ((p.m + edge - 1) / edge) * ((p.n + edge - 1) / edge);
}

/* One CUDA block for each edge × edge block of C. */
inline int launch_blocks(void (*kernel)(gemm_task), gemm_task t, int edge, dim3 threads, cudaStream_t stream)
{
	launch_tiles(blocks_of(t.p, edge), GRID_MAX, [&](uint64_t first, unsigned n) {
		cudaLaunchConfig_t config = {dim3(n), threads, 0, stream, NULL, 0};

		t.first = first;
		cudaLaunchKernelEx(&config, kernel, t);
	});
	return cuda_launch_status();
}

/* Whether aligned pieces of 16 bytes, n elements, make up the lines of an operand: lines of `length` elements,
 * which are `along` apart, the lines `across`. */
inline bool has_vectors(const gemm_operand &o, int64_t along, int64_t across, uint64_t length, int n = 4)
{
	return along == 1 && across % n == 0 && o.batch % n == 0 && length % n == 0 &&
	       (uintptr_t)o.data % 16 == 0;
}

inline gemm_task gemm_task_of(const op_args *args)
{
	gemm_problem given = gemm_problem_of(args);
	gemm_task t = {};

	t.p = gemm_by_rows(&given);
	t.to_c = epilogue_of<float>(args, t.p);
	if (!gemm_has_product(args))
		t.p.k = 0;
	t.c_vectors =
	    has_vectors(t.p.c, t.p.c.col, t.p.c.row, t.p.n, 16 / (int)dtype_size(args->views[GEMM_C].dtype));
	return t;
}

constexpr unsigned GEMM_VIEWS = GEMM_C + 1, TOGETHER = TOGETHER_OPS(GEMM_VIEWS);

template <unsigned OPS> using gemm_operands = operands<GEMM_VIEWS, OPS>;

/* Where the operands of n ops that are alike are, as a gemm_task has them. */
template <unsigned OPS>
gemm_operands<OPS> operands_of_tasks(const op_args *const *args, unsigned n, void *const *elsewhere)
{
	gemm_operands<OPS> where;
	gemm_problem first = gemm_problem_of(args[0]);

	where.elsewhere = elsewhere;
	where.exchanged = gemm_is_turned(&first);
	for (unsigned i = 0; i < n; i++) {
		gemm_problem p = gemm_task_of(args[i]).p;
		where.of[i][GEMM_A] = p.a.data, where.of[i][GEMM_B] = p.b.data;
		where.of[i][GEMM_BIAS] = p.bias.data, where.of[i][GEMM_C] = p.c.data;
	}
	where.n = n;
	return where;
}

/* The task of one of them, as far as what is behind the sums needs to know it. */
template <unsigned OPS>
__device__ __forceinline__ gemm_task task_of_op(const gemm_task &t, const gemm_operands<OPS> &where,
                                                uint64_t op)
{
	gemm_task own = t;

	if (t.to_c.has_bias)
		own.to_c.bias.data = where.at(GEMM_BIAS, op);
	return own;
}

/* The block of C that a CUDA block computes, and how much of it there is. */
struct place {
	uint64_t batch, row, col;
	int rows, cols;
};

/* At most SIDE. */
template <int SIDE> __device__ __forceinline__ int rest_of(uint64_t extent, uint64_t begin)
{
	return extent - begin < SIDE ? (int)(extent - begin) : SIDE;
}

/* The block of SIDE × SIDE of C that has this number. */
template <int SIDE, int BAND> __device__ place place_of_block(const gemm_task &t, uint64_t block)
{
	uint64_t rows = (t.p.m + SIDE - 1) / SIDE, cols = (t.p.n + SIDE - 1) / SIDE;
	tile_number<uint64_t> tile = tile_of_number<BAND>(block, rows, cols);
	uint64_t row = tile.row * SIDE, col = tile.col * SIDE;

	return {tile.batch, row, col, rest_of<SIDE>(t.p.m, row), rest_of<SIDE>(t.p.n, col)};
}

/* The one of this CUDA block, where each has one. */
template <int SIDE, int BAND> __device__ place place_of(const gemm_task &t)
{
	return place_of_block<SIDE, BAND>(t, t.first + blockIdx.x);
}

__device__ __forceinline__ const float *batch_data(const gemm_operand &o, uint64_t batch)
{
	return (const float *)o.data + (int64_t)batch * o.batch;
}

/* The first element of the block in C. */
__device__ __forceinline__ float *block_of_c(const gemm_task &t, const place &at)
{
	return element_at<float>(t.p.c, at.batch, at.row, at.col);
}

/* ---- Blocks of 128 × 128, 256 threads, 8 × 8 sums per thread ---- */

constexpr int EDGE = 128, DEPTH = 8; /* a tile of A is EDGE × DEPTH, one of B DEPTH × EDGE */
constexpr int THREADS = 256;
constexpr int SUMS = 8;

/*
 * Brings tiles of A or B into shared memory, by way of registers. Each thread takes PASSES runs of WIDTH
 * elements along the axis whose elements are neighbours in memory (K if ALONG_K). Zeros stand for what lies
 * past the ends.
 */
template <bool ALONG_K, int WIDTH> struct loader {
	static constexpr int PER_LINE = (ALONG_K ? DEPTH : EDGE) / WIDTH; /* threads */
	static constexpr int LINES = THREADS / PER_LINE;                  /* per pass */
	static constexpr int PASSES = EDGE * DEPTH / (WIDTH * THREADS);

	const float *from; /* this thread's first run of the next tile */
	int64_t outer_stride, k_stride;
	int outer_end; /* of the block's part of the outer axis */
	float held[PASSES][WIDTH];

	__device__ static int line_of(int pass)
	{
		return threadIdx.x / PER_LINE + pass * LINES;
	}
	__device__ static int in_line()
	{
		return threadIdx.x % PER_LINE * WIDTH;
	}
	__device__ static int outer_of(int pass)
	{
		return ALONG_K ? line_of(pass) : in_line();
	}
	__device__ static int k_of(int pass)
	{
		return ALONG_K ? in_line() : line_of(pass);
	}

	/* data: of the batch. The block's part of the outer axis is `extent` lines from `begin` on. */
	__device__ loader(const float *data, int64_t outer_stride, int64_t k_stride, uint64_t begin, int extent)
	    : outer_stride(outer_stride), k_stride(k_stride), outer_end(extent)
	{
		from = data + ((int64_t)begin + outer_of(0)) * outer_stride + k_of(0) * k_stride;
	}

	/* Fetches the next tile into registers. left: how much of K there still is. */
	__device__ __forceinline__ void fetch(uint64_t left)
	{
		int k_end = left < DEPTH ? (int)left : DEPTH;

#pragma unroll
		for (int i = 0; i < PASSES; i++)
			fetch_run(held[i], from + i * LINES * (ALONG_K ? outer_stride : k_stride),
			          outer_of(i) < outer_end && k_of(i) < k_end);
		from += DEPTH * k_stride;
	}

	__device__ __forceinline__ static void fetch_run(float (&run)[WIDTH], const float *from, bool there)
	{
		if constexpr (WIDTH == 4) {
			float4 v = there ? *(const float4 *)from : make_float4(0, 0, 0, 0);
			run[0] = v.x, run[1] = v.y, run[2] = v.z, run[3] = v.w;
		} else {
			run[0] = there ? *from : 0;
		}
	}

	/* Element (outer, k) goes to tile[outer * OUTER_STEP + k * K_STEP]. */
	template <int OUTER_STEP, int K_STEP> __device__ __forceinline__ void store(float *tile) const
	{
		constexpr int STEP = ALONG_K ? K_STEP : OUTER_STEP;

#pragma unroll
		for (int i = 0; i < PASSES; i++) {
			float *to = tile + outer_of(i) * OUTER_STEP + k_of(i) * K_STEP;
			if constexpr (WIDTH == 4 && STEP == 1) {
				*(float4 *)to = make_float4(held[i][0], held[i][1], held[i][2], held[i][3]);
			} else {
#pragma unroll
				for (int j = 0; j < WIDTH; j++)
					to[j * STEP] = held[i][j];
			}
		}
	}
};

__device__ __forceinline__ void load_four(float *to, const float *from)
{
	float4 v = *(const float4 *)from;

	to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}

__device__ __forceinline__ void add_products(float (&sums)[SUMS][SUMS], const float (&a)[SUMS],
                                             const float (&b)[SUMS])
{
#pragma unroll
	for (int i = 0; i < SUMS; i++)
#pragma unroll
		for (int j = 0; j < SUMS; j++)
			sums[i][j] = fmaf(a[i], b[j], sums[i][j]);
}

/*
 * A tile for threads whose rows (columns) are 4 in each half of the block: a line of PITCH words per k. The 4
 * words more than EDGE let the threads that turn lines along K into such lines, 16 rows at 2 k's a warp, meet
 * 32 banks; float4s stay aligned.
 */
constexpr int HALF = EDGE / 2, PITCH = EDGE + 4;

/* a, b: where this thread's rows and columns begin in one line of each tile. */
__device__ __forceinline__ void add_line(float (&sums)[SUMS][SUMS], const float *a, const float *b)
{
	float a_part[SUMS], b_part[SUMS];

	load_four(a_part, a);
	load_four(a_part + 4, a + HALF);
	load_four(b_part, b);
	load_four(b_part + 4, b + HALF);
	add_products(sums, a_part, b_part);
}

/* to: four columns of C, `there` of which exist. The first one is in this row and column of the block. */
__device__ __forceinline__ void write_four(const gemm_task &t, const place &at, int row, int col, float *to,
                                           int there, const float *sums)
{
	t.to_c.store_columns<float, 4>(to, t.p.c.col, there, t.c_vectors, sums,
	                               {at.batch, (int64_t)at.row + row, (int64_t)at.col + col});
}

/*
 * Writes the sums of a thread: rows row … row + 3 and row + GAP … row + GAP + 3 of the block, columns alike.
 * c: block_of_c().
 */
template <int GAP>
__device__ __forceinline__ void write_sums(const gemm_task &t, const place &at, float *c, int row, int col,
                                           const float (&sums)[SUMS][SUMS])
{
#pragma unroll
	for (int i = 0; i < SUMS; i++) {
		int r = row + i % 4 + i / 4 * GAP;
		if (r >= at.rows)
			continue;
		float *line = c + r * t.p.c.row + col * t.p.c.col;
		write_four(t, at, r, col, line, at.cols - col, sums[i]);
		write_four(t, at, r, col + GAP, line + GAP * t.p.c.col, at.cols - col - GAP, sums[i] + 4);
	}
}

/* How the loaders of A and B go through memory: a kernel is compiled for each combination. */
struct access {
	bool a_along_k, b_along_k;
	bool vectors; /* in both, or scalars */
};

inline bool along_k(int64_t k_stride, int64_t outer_stride)
{
	if (k_stride == 1 || outer_stride == 1)
		return k_stride == 1;
	return stride_magnitude(k_stride) < stride_magnitude(outer_stride);
}

inline bool operand_vectors(const gemm_operand &o, bool along_k, int64_t outer_stride, int64_t k_stride,
                            uint64_t extent, uint64_t k, int n)
{
	return along_k ? has_vectors(o, k_stride, outer_stride, k, n)
	               : has_vectors(o, outer_stride, k_stride, extent, n);
}

/* n: elements in 16 bytes. */
inline access access_of(const gemm_problem &p, int n = 4)
{
	access how = {along_k(p.a.col, p.a.row), along_k(p.b.row, p.b.col), false};

	how.vectors = operand_vectors(p.a, how.a_along_k, p.a.row, p.a.col, p.m, p.k, n) &&
	              operand_vectors(p.b, how.b_along_k, p.b.col, p.b.row, p.n, p.k, n);
	return how;
}

/* A kernel<A along K, B along K, WIDTH> for each access. */
#define KERNELS(kernel)                                                                                        \
	{                                                                                                      \
		kernel<false, false, 1>, kernel<false, false, 4>, kernel<false, true, 1>,                      \
		    kernel<false, true, 4>, kernel<true, false, 1>, kernel<true, false, 4>,                    \
		    kernel<true, true, 1>, kernel<true, true, 4>                                               \
	}

inline int launch_for(void (*const kernels[8])(gemm_task), const op_args *args, const struct launch *launch)
{
	gemm_task t = gemm_task_of(args);
	access how = access_of(t.p);
	int i = how.a_along_k * 4 + how.b_along_k * 2 + how.vectors;

	return launch_blocks(kernels[i], t, EDGE, THREADS, cuda_stream(launch));
}

} // namespace

#endif
