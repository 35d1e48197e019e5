/* shape.cuh: how blocks of C are computed, and what a kernel of simt gets. */
#ifndef KOPS_KERNELS_GEMM_SIMT_SHAPE_H
#define KOPS_KERNELS_GEMM_SIMT_SHAPE_H

#include <cuda.h>
#include <type_traits>

#include "gemm/tiles.cuh"

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
	__device__ __forceinline__ const gemm_task &task(uint64_t) const
	{
		return t;
	}
};

/* Products of their own, t.p.batch of them. Of t.p the addresses are not used. */
struct work_together {
	gemm_task t;
	int splits;
	gemm_operands<TOGETHER> where;

	__device__ __forceinline__ const float *a(uint64_t product) const
	{
		return (const float *)where.at(GEMM_A, product);
	}
	__device__ __forceinline__ const float *b(uint64_t product) const
	{
		return (const float *)where.at(GEMM_B, product);
	}
	__device__ __forceinline__ float *c(uint64_t product) const
	{
		return (float *)where.at(GEMM_C, product);
	}
	__device__ __forceinline__ gemm_task task(uint64_t product) const
	{
		return task_of_op(t, where, product);
	}
};

} // namespace

#endif
