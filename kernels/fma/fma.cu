/*
 * Fma: y = x put `steps` times through v = alpha * v + beta.
 *
 *   kernel     idea                                  bound                               measured, H200
 *   registers  eight elements per thread stay in     FMA pipe: 132 SMs × 128 × 2 FLOPs   f32: 62.8 TFLOP/s
 *              registers for all steps: eight chains  × 1.98 GHz = 66.9 TFLOP/s f32
 *              hide the pipe's latency
 */
#include "common/cuda.h"

namespace
{

constexpr int CHAINS = 8;
constexpr unsigned THREADS = 256;

__device__ __forceinline__ int64_t offset_of(const cuda_axes &axes, int view, uint64_t i)
{
	int64_t at = 0;

	for (uint32_t d = 0; d < axes.rank; d++) {
		uint64_t rest = i / axes.extent[d];

		at += (int64_t)(i - rest * axes.extent[d]) * axes.strides[view][d];
		i = rest;
	}
	return at;
}

/* A block takes THREADS * CHAINS neighbours, lanes side by side. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    registers(const T *x, T *y, cuda_axes axes, uint64_t count, T alpha, T beta, uint32_t steps)
{
	uint64_t first = (uint64_t)blockIdx.x * THREADS * CHAINS + threadIdx.x;

	for (; first < count; first += (uint64_t)gridDim.x * THREADS * CHAINS) {
		T v[CHAINS];

#pragma unroll
		for (int c = 0; c < CHAINS; c++) {
			uint64_t i = first + c * THREADS;

			v[c] = i < count ? x[offset_of(axes, 0, i)] : T(0);
		}
#pragma unroll 32
		for (uint32_t s = 0; s < steps; s++)
#pragma unroll
			for (int c = 0; c < CHAINS; c++)
				v[c] = fma(alpha, v[c], beta);
#pragma unroll
		for (int c = 0; c < CHAINS; c++) {
			uint64_t i = first + c * THREADS;

			if (i < count)
				y[offset_of(axes, 1, i)] = v[c];
		}
	}
}

template <typename T> void launch_type(const struct op_args *args, cudaStream_t stream)
{
	const struct fma_params *p = &args->params.fma;
	uint64_t count = view_elements(&args->views[1]);
	uint64_t blocks = (count + THREADS * CHAINS - 1) / (THREADS * CHAINS);
	cuda_axes axes;

	cuda_axes_of(args->views, 2, &axes);
	registers<T><<<(unsigned)(blocks < 1u << 30 ? blocks : 1u << 30), THREADS, 0, stream>>>(
	    (const T *)args->views[0].data, (T *)args->views[1].data, axes, count, (T)p->alpha, (T)p->beta,
	    p->steps);
}

} // namespace

extern "C" CUDA_LAUNCH(fma_registers)
{
	if (args->views[0].dtype == KOPS_F32)
		launch_type<float>(args, (cudaStream_t)launch->stream);
	else
		launch_type<double>(args, (cudaStream_t)launch->stream);
	return cuda_launch_status();
}
