/*
 * Complex gemm, C = α·op(A)·op(B) + β·C: one thread per element of C, operands from global memory; any strides
 * and conjugates, which cuBLAS takes of some layouts only. A warp reads 32 columns of B and one element of A:
 * four FMAs for each element of B. Bound by L1 and L2 as naive.cu is, at half its bytes per operation. c64 on
 * an H200: 1024³ 12.0, 4096³ 8.9 TFLOP/s, c128 6.9 and 5.0, where cuBLAS has 52 to 57.
 */
#include "common/launch.cuh"
#include "gemm/complex/complex.cuh"
#include "gemm/problem.h"

namespace
{

constexpr int TILE_N = 32, TILE_M = 8;
constexpr uint64_t GRID_MAX = 1 << 30; /* blocks */

struct factors {
	complex_number<double> alpha, beta;
	bool has_product, reads_old;
	int sign_a, sign_b; /* of the imaginary parts: -1 for conjugates */
};

template <class T> __device__ __forceinline__ complex_number<T> rounded(complex_number<double> x)
{
	return {(T)x.re, (T)x.im};
}

template <class T>
__device__ __forceinline__ complex_number<T> *element_at(const gemm_operand &o, uint64_t batch, uint64_t row,
                                                         uint64_t col)
{
	return (complex_number<T> *)o.data + (int64_t)batch * o.batch + (int64_t)row * o.row +
	       (int64_t)col * o.col;
}

/* In pieces of CHUNK: a sum of many equal terms rounds the same way every time, and the error grows with its
 * length. */
constexpr int CHUNK = 64;

template <class T>
__device__ complex_number<T> dot(const gemm_problem &p, const factors &f, uint64_t batch, uint64_t row,
                                 uint64_t col)
{
	const complex_number<T> *a = element_at<T>(p.a, batch, row, 0), *b = element_at<T>(p.b, batch, 0, col);
	complex_number<T> sum = {0, 0};

	for (uint64_t begin = 0; begin < p.k; begin += CHUNK) {
		int n = p.k - begin < CHUNK ? (int)(p.k - begin) : CHUNK;
		complex_number<T> piece = {0, 0};

#pragma unroll 4
		for (int k = 0; k < n; k++) {
			complex_number<T> x = *a, y = *b;

			x.im *= (T)f.sign_a;
			y.im *= (T)f.sign_b;
			piece = add_product(piece, x, y);
			a += p.a.col;
			b += p.b.row;
		}
		sum.re += piece.re;
		sum.im += piece.im;
	}
	return sum;
}

/* Blocks take tile after tile of C, along its rows. */
template <class T>
__global__ void __launch_bounds__(TILE_N *TILE_M) complex_gemm(gemm_problem p, factors f, uint64_t tiles)
{
	const complex_number<T> alpha = rounded<T>(f.alpha), beta = rounded<T>(f.beta);
	uint64_t across = (p.n + TILE_N - 1) / TILE_N, down = (p.m + TILE_M - 1) / TILE_M;

	for (uint64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
		uint64_t batch = tile / across / down;
		uint64_t row = tile / across % down * TILE_M + threadIdx.x / TILE_N;
		uint64_t col = tile % across * TILE_N + threadIdx.x % TILE_N;

		if (row >= p.m || col >= p.n)
			continue;
		complex_number<T> *c = element_at<T>(p.c, batch, row, col), y = {0, 0};
		if (f.reads_old)
			y = add_product(y, beta, *c);
		if (f.has_product)
			y = add_product(y, alpha, dot<T>(p, f, batch, row, col));
		*c = y;
	}
}

factors factors_of(const struct op_args *args)
{
	const struct gemm_params &p = args->params.gemm;

	return {{p.alpha, p.alpha_imag}, {p.beta, p.beta_imag}, gemm_has_product(args),
	        gemm_reads_old(args),    p.conj_a ? -1 : 1,     p.conj_b ? -1 : 1};
}

} // namespace

extern "C" CUDA_LAUNCH(gemm_complex)
{
	gemm_problem p = gemm_problem_of(args);
	auto *kernel = args->views[GEMM_C].dtype == KOPS_C64 ? complex_gemm<float> : complex_gemm<double>;
	uint64_t tiles = p.batch * ((p.m + TILE_M - 1) / TILE_M) * ((p.n + TILE_N - 1) / TILE_N);
	launch_form form = {dim3((unsigned)(tiles < GRID_MAX ? tiles : GRID_MAX)), dim3(TILE_N * TILE_M)};

	form.early = false;
	launch_kernel(kernel, form, cuda_stream(launch), p, factors_of(args), tiles);
	return cuda_launch_status();
}
