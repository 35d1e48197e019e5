/*
 * Softmax over the last axis: y = exp(s·x − m) / Σ exp(s·x − m), m = max s·x; or its logarithm.
 *
 *   rung       idea                               threads per row     bound               measured, H200
 *   coalesced  three reads of the row, threads    32 up to 1024       HBM 4.3 TB/s (read  65536×1024:
 *              side by side on elements side by   columns, else 256   + written); two of  2238 GB/s
 *              side; max and sum by warp          up to 8192, else    three reads come    16384×4096: 1961
 *              shuffles, then across warps        1024                from caches         8192×32768: 1676
 *              through shared memory
 */
#include <math.h>

#include "cuda_rows.h"

namespace
{

/* rows = batch[0] · batch[1] · batch[2]. Strides in elements. y may be x: an element is read for the last time
 * by the thread that then writes it. */
struct plan {
	uint64_t rows, cols, batch[3];
	int64_t x_batch[3], y_batch[3], x_col, y_col;
	float sign, half, factor; /* see exponent() */
	bool log;
};

__device__ __forceinline__ float larger(float a, float b)
{
	return fmaxf(a, b);
}

__device__ __forceinline__ float plus(float a, float b)
{
	return a + b;
}

/* The combination of v over the THREADS threads of a row, given to each of them. */
template <int THREADS, float (*combine)(float, float)> __device__ __forceinline__ float reduce(float v)
{
	for (int lane = 16; lane > 0; lane /= 2)
		v = combine(v, __shfl_xor_sync(0xffffffff, v, lane));
	if (THREADS == 32)
		return v;

	__shared__ float of_warp[32];
	__syncthreads(); /* of_warp may still be read from the last time */
	if (threadIdx.x % 32 == 0)
		of_warp[threadIdx.x / 32] = v;
	__syncthreads();
	v = of_warp[threadIdx.x % (THREADS / 32)];
	for (int lane = THREADS / 64; lane > 0; lane /= 2)
		v = combine(v, __shfl_xor_sync(0xffffffff, v, lane));
	return v;
}

/*
 * s·x − m as factor · (half·x − shift) with shift = half · the x of the largest s·x. s·x itself may overflow
 * where the difference does not. half is 1 where |s| >= 1, so that an overflow to −Inf is the right limit; else
 * 0.5 with factor = 2·s, and nothing overflows.
 */
__device__ __forceinline__ float exponent(const plan &p, float x, float shift)
{
	return p.factor * (p.half * x - shift);
}

template <int THREADS> __device__ void softmax_row(const plan &p, const float *x, float *y, uint64_t first)
{
	float most = -INFINITY, sum = 0, shift, log_sum;

	for (uint64_t j = first; j < p.cols; j += THREADS)
		most = fmaxf(most, p.sign * x[(int64_t)j * p.x_col]);
	shift = p.half * p.sign * reduce<THREADS, larger>(most);

	for (uint64_t j = first; j < p.cols; j += THREADS)
		sum += expf(exponent(p, x[(int64_t)j * p.x_col], shift));
	sum = reduce<THREADS, plus>(sum);

	log_sum = logf(sum);
	for (uint64_t j = first; j < p.cols; j += THREADS) {
		float t = exponent(p, x[(int64_t)j * p.x_col], shift);

		y[(int64_t)j * p.y_col] = p.log ? t - log_sum : expf(t) / sum;
	}
}

/* THREADS per row; blockDim.y rows per block, more than one only where a row is a warp. */
template <int THREADS> __global__ void coalesced(const float *x, float *y, plan p)
{
	uint64_t row = (uint64_t)blockIdx.x * blockDim.y + threadIdx.y;

	for (; row < p.rows; row += (uint64_t)gridDim.x * blockDim.y) {
		uint64_t rest = row, i2 = rest % p.batch[2];
		int64_t at_x, at_y;

		rest /= p.batch[2];
		at_x = (int64_t)i2 * p.x_batch[2] + (int64_t)(rest % p.batch[1]) * p.x_batch[1] +
		       (int64_t)(rest / p.batch[1]) * p.x_batch[0];
		at_y = (int64_t)i2 * p.y_batch[2] + (int64_t)(rest % p.batch[1]) * p.y_batch[1] +
		       (int64_t)(rest / p.batch[1]) * p.y_batch[0];
		softmax_row<THREADS>(p, x + at_x, y + at_y, threadIdx.x);
	}
}

plan plan_of(const struct op_args *args)
{
	const view *x = &args->views[0], *y = &args->views[1];
	float scale = (float)args->params.softmax.scale;
	uint32_t outer = x->rank - 1;
	plan p = {};

	p.cols = x->shape[outer];
	p.x_col = x->strides[outer];
	p.y_col = y->strides[outer];
	p.rows = 1;
	for (uint32_t i = 0; i < 3; i++) {
		bool there = i + outer >= 3; /* the last `outer` of the three */
		uint32_t d = there ? i + outer - 3 : 0;

		p.batch[i] = there ? x->shape[d] : 1;
		p.x_batch[i] = there ? x->strides[d] : 0;
		p.y_batch[i] = there ? y->strides[d] : 0;
		p.rows *= p.batch[i];
	}
	p.sign = scale < 0 ? -1.0f : 1.0f;
	p.half = fabsf(scale) < 1 ? 0.5f : 1.0f;
	p.factor = scale / p.half;
	p.log = args->params.softmax.log;
	return p;
}

template <int THREADS> void launch_rows(const plan &p, const view *views, unsigned rows_per_block, void *stream)
{
	uint64_t blocks = (p.rows + rows_per_block - 1) / rows_per_block;
	unsigned grid = (unsigned)(blocks < (1u << 30) ? blocks : 1u << 30);

	coalesced<THREADS><<<grid, dim3(THREADS, rows_per_block), 0, (cudaStream_t)stream>>>(
	    (const float *)views[0].data, (float *)views[1].data, p);
}

} // namespace

extern "C" CUDA_LAUNCH(softmax_coalesced)
{
	plan p = plan_of(args);

	if (p.cols <= 1024)
		launch_rows<32>(p, args->views, 4, launch->stream);
	else if (p.cols <= 8192)
		launch_rows<256>(p, args->views, 1, launch->stream);
	else
		launch_rows<1024>(p, args->views, 1, launch->stream);
	return cuda_launch_status();
}
