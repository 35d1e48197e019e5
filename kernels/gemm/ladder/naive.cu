/*
 * Gemm by hand, C = α·A·B + β·C.
 *
 *   kernel idea                               tile, threads    bound                   measured, H200
 *   naive  one thread per element of C,       32×8 of C, 32×8  L1/L2 traffic: 8 bytes  f32, K = 1024, TFLOP/s:
 *          operands from global memory; any                    per FMA                 4096² 6.3, 16384² 4.7
 *          strides, every dtype
 */
#include "gemm/epilogue.cuh"

namespace
{

constexpr int TILE_N = 32, TILE_M = 8;
constexpr unsigned GRID_YZ_MAX = 65535;

/* The type in which elements of T are multiplied and summed. */
template <typename T> struct sum_of {
	typedef float type;
};
template <> struct sum_of<double> {
	typedef double type;
};

template <typename T> __device__ __forceinline__ float widen(T v)
{
	return (float)v;
}
__device__ __forceinline__ double widen(double v)
{
	return v;
}

/* In pieces of CHUNK: a sum of many equal terms rounds the same way every time, and the error grows with its
 * length. */
constexpr int CHUNK = 64;

template <typename T, typename Sum>
__device__ Sum dot(const gemm_problem &p, uint64_t batch, uint64_t row, uint64_t col)
{
	const T *a = (const T *)p.a.data + (int64_t)batch * p.a.batch + (int64_t)row * p.a.row;
	const T *b = (const T *)p.b.data + (int64_t)batch * p.b.batch + (int64_t)col * p.b.col;
	Sum sum = 0;

	for (uint64_t begin = 0; begin < p.k; begin += CHUNK) {
		int n = p.k - begin < CHUNK ? (int)(p.k - begin) : CHUNK;
		Sum piece = 0;

#pragma unroll 8
		for (int k = 0; k < n; k++) {
			piece = fma(widen(*a), widen(*b), piece);
			a += p.a.col;
			b += p.b.row;
		}
		sum += piece;
	}
	return sum;
}

/* Out: T, or f32 for what a part of an op hands on. */
template <typename T, typename Out>
__global__ void __launch_bounds__(TILE_N *TILE_M) naive(gemm_problem p, epilogue<double> given)
{
	typedef typename sum_of<T>::type Sum;
	epilogue<Sum> to_c = given.as<Sum>();
	uint64_t col = (uint64_t)blockIdx.x * TILE_N + threadIdx.x;
	uint64_t row0 = (uint64_t)blockIdx.y * TILE_M + threadIdx.y, row_step = (uint64_t)gridDim.y * TILE_M;

	if (col >= p.n)
		return;
	for (uint64_t batch = blockIdx.z; batch < p.batch; batch += gridDim.z) {
		for (uint64_t row = row0; row < p.m; row += row_step) {
			Sum sum = to_c.alpha != 0 ? dot<T, Sum>(p, batch, row, col) : 0;

			to_c.template store<T>(element_at<Out>(p.c, batch, row, col), sum,
			                       {batch, (int64_t)row, (int64_t)col});
		}
	}
}

typedef void (*naive_kernel)(gemm_problem p, epilogue<double> given);

naive_kernel kernel_for(kops_dtype inputs, kops_dtype output)
{
	if (inputs != output)
		return inputs == KOPS_F16 ? naive<__half, float> : naive<__nv_bfloat16, float>;
	switch (inputs) {
	case KOPS_F64:
		return naive<double, double>;
	case KOPS_F16:
		return naive<__half, __half>;
	case KOPS_BF16:
		return naive<__nv_bfloat16, __nv_bfloat16>;
	default:
		return naive<float, float>;
	}
}

unsigned grid_of(uint64_t n)
{
	return (unsigned)(n < GRID_YZ_MAX ? n : GRID_YZ_MAX);
}

} // namespace

extern "C" CUDA_LAUNCH(gemm_naive)
{
	gemm_problem p = gemm_problem_of(args);
	cudaStream_t stream = cuda_stream(launch);
	dim3 grid((unsigned)((p.n + TILE_N - 1) / TILE_N), grid_of((p.m + TILE_M - 1) / TILE_M),
	          grid_of(p.batch));
	dim3 block(TILE_N, TILE_M);

	kernel_for(args->views[GEMM_A].dtype,
	           args->views[GEMM_C].dtype)<<<grid, block, 0, stream>>>(p, epilogue_of<double>(args, p));
	return cuda_launch_status();
}
