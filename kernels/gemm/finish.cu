/*
 * finish.cu: what comes after the product where a library computes it: activation(sum + beta · C + bias), one
 * pass over C.
 */
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "common/launch.cuh"
#include "gemm/kernels.h"
#include "gemm/tiles.cuh"

namespace
{

constexpr int FINISH_THREADS = 256, PIECE_BYTES = 16;

struct finish_work {
	gemm_problem p;
	epilogue<double> to_c;
	bool c_vectors;    /* lines of C are aligned pieces of 16 bytes */
	const float *sums; /* dense, by rows; NULL: they are in C */
	uint64_t pieces;   /* of a row: 16 bytes of C, one for each thread */
	uint64_t first;    /* of this launch's blocks */
};

/* T: C's type. */
template <class T, class SUM> __global__ void __launch_bounds__(FINISH_THREADS) finish_sums(finish_work w)
{
	constexpr int COLUMNS = PIECE_BYTES / (int)sizeof(T);
	const gemm_problem &p = w.p;
	uint64_t number = (w.first + blockIdx.x) * FINISH_THREADS + threadIdx.x;
	uint64_t line = number / w.pieces, col = number % w.pieces * COLUMNS;
	epilogue<SUM> to_c = w.to_c.as<SUM>();
	SUM sums[COLUMNS];

	await_kernel_before();
	let_next_kernel_come();
	if (line >= p.batch * p.m)
		return;
	c_index at = {line / p.m, (int64_t)(line % p.m), (int64_t)col};
	T *c = element_at<T>(p.c, at.batch, at.row, at.col);
	int there = rest_of<COLUMNS>(p.n, col);
#pragma unroll
	for (int j = 0; j < COLUMNS; j++)
		if (j < there)
			sums[j] = w.sums ? (SUM)w.sums[line * p.n + col + j] : (SUM)c[j * p.c.col];
	to_c.template store_columns<T, COLUMNS>(c, p.c.col, there, w.c_vectors, sums, at);
}

void (*kernel_for(kops_dtype dtype))(finish_work)
{
	switch (dtype) {
	case KOPS_F64:
		return finish_sums<double, double>;
	case KOPS_F16:
		return finish_sums<__half, float>;
	case KOPS_BF16:
		return finish_sums<__nv_bfloat16, float>;
	default:
		return finish_sums<float, float>;
	}
}

} // namespace

extern "C" int gemm_finish(const struct op_args *args, const float *sums, cudaStream_t stream)
{
	gemm_problem given = gemm_problem_of(args);
	kops_dtype dtype = args->views[GEMM_C].dtype;
	finish_work w = {};

	w.p = gemm_by_rows(&given);
	w.to_c = epilogue_of<double>(args, w.p);
	w.to_c.alpha = 1;
	if (!sums)
		w.to_c.beta = 0;
	int columns = PIECE_BYTES / (int)dtype_size(dtype);
	w.c_vectors = has_vectors(w.p.c, w.p.c.col, w.p.c.row, w.p.n, columns);
	w.pieces = (w.p.n + columns - 1) / columns;
	w.sums = sums;
	uint64_t threads = w.p.batch * w.p.m * w.pieces;
	launch_tiles((threads + FINISH_THREADS - 1) / FINISH_THREADS, GRID_MAX,
	             [&](uint64_t first, unsigned n) {
		             w.first = first;
		             launch_kernel(kernel_for(dtype), {dim3(n), dim3(FINISH_THREADS)}, stream, w);
	             });
	return cuda_launch_status();
}
