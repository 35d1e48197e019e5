/*
 * layer_norm and rms_norm of rows that threads keep in their registers: x is read once, y written once.
 *
 *   kernel  idea                                          threads to a row               bound
 *   kept    some threads keep a row, 16 bytes at a time;  4 to 32, or 128 to 1024, with  HBM
 *           mean first, then what elements are apart      up to 64 bytes each
 *           from it, which also mends the mean
 *
 * The first mean is a sum in f32, so it is off by some roundings of the elements' size. Then Σ(x − near) and
 * Σ(x − near)² give the mean and the variance as exactly as f32 can: the first is small where near is near.
 * Rows whose squares leave f32's range, at either end, are done again in f64.
 *
 * Rows that do not begin at multiples of 16 bytes go element by element, the same otherwise.
 */
#include "layer_norm/rows.cuh"

namespace
{

/* Of each of N numbers, over the threads of a row; all get it. Calls with one N have to take turns with those
 * of another: their barrier is what keeps a warp from writing while others still read. */
template <int THREADS, int N, typename F> __device__ __forceinline__ void sum_row(F (&v)[N])
{
	constexpr int LANES = THREADS < 32 ? THREADS : 32, WARPS = THREADS / LANES;

#pragma unroll
	for (int step = LANES / 2; step > 0; step /= 2)
#pragma unroll
		for (int k = 0; k < N; k++)
			v[k] += __shfl_xor_sync(0xffffffff, v[k], step);
	if (WARPS == 1)
		return;

	__shared__ F of_warp[N][WARPS];
	if (threadIdx.x % 32 == 0)
#pragma unroll
		for (int k = 0; k < N; k++)
			of_warp[k][threadIdx.x / 32] = v[k];
	__syncthreads();
#pragma unroll
	for (int k = 0; k < N; k++)
		v[k] = of_warp[k][threadIdx.x % WARPS];
#pragma unroll
	for (int step = WARPS / 2; step > 0; step /= 2)
#pragma unroll
		for (int k = 0; k < N; k++)
			v[k] += __shfl_xor_sync(0xffffffff, v[k], step);
}

/* VECTOR elements side by side. */
template <typename T, int VECTOR> struct alignas(VECTOR * sizeof(T)) some {
	T of[VECTOR];
};

/*
 * A thread's elements of a row: `VECTORS` times VECTOR side by side, THREADS · VECTOR apart. Those behind the
 * row's end are 0.
 */
template <typename T, int THREADS, int VECTOR, int VECTORS> struct mine {
	some<T, VECTOR> v[VECTORS];

	static __device__ __forceinline__ uint64_t first(int i)
	{
		return ((uint64_t)i * THREADS + threadIdx.x % THREADS) * VECTOR;
	}

	__device__ __forceinline__ void load(const T *x, uint64_t cols)
	{
#pragma unroll
		for (int i = 0; i < VECTORS; i++)
			v[i] = first(i) < cols ? *(const some<T, VECTOR> *)(x + first(i)) : some<T, VECTOR>{};
	}

	__device__ __forceinline__ void add(const T *residual, uint64_t cols)
	{
#pragma unroll
		for (int i = 0; i < VECTORS; i++)
			if (first(i) < cols) {
				some<T, VECTOR> r = *(const some<T, VECTOR> *)(residual + first(i));
#pragma unroll
				for (int k = 0; k < VECTOR; k++)
					v[i].of[k] = sum_of(v[i].of[k], r.of[k]);
			}
	}

	/* use(x) of those that are there, in order. */
	template <typename F, typename Use> __device__ __forceinline__ void each(uint64_t cols, Use use) const
	{
#pragma unroll
		for (int i = 0; i < VECTORS; i++)
			if (first(i) < cols)
#pragma unroll
				for (int k = 0; k < VECTOR; k++)
					use((F)(real<T>)v[i].of[k]);
	}
};

/* The row is (x − near − beyond) · inverse; in f32 `near` takes most of the mean without a rounding. */
template <typename F> struct measures {
	F near, beyond, inverse, squares;
};

/* All threads of the row come to the same. */
template <typename F, int THREADS, typename Mine>
__device__ __forceinline__ measures<F> measure(const problem &p, const Mine &row)
{
	F n = (F)p.cols, sum[1] = {0}, rest[2] = {0, 0};

	if (p.is_rms) {
		if (THREADS > 32)
			__syncthreads(); /* all have read the last row's */
		row.template each<F>(p.cols, [&](F x) { sum[0] += x * x; });
		sum_row<THREADS>(sum);
		return {0, 0, (F)1 / sqrt(sum[0] / n + (F)p.eps), sum[0]};
	}
	row.template each<F>(p.cols, [&](F x) { sum[0] += x; });
	sum_row<THREADS>(sum);
	F near = sum[0] / n;
	row.template each<F>(p.cols, [&](F x) {
		F d = x - near;
		rest[0] += d;
		rest[1] += d * d;
	});
	sum_row<THREADS>(rest);
	F apart = rest[0] / n, squares = rest[1] - rest[0] * apart;
	return {near, apart, (F)1 / sqrt(fmax(squares, (F)0) / n + (F)p.eps), squares};
}

/* As is_in_f32() of cpu.c. */
__device__ __forceinline__ bool is_in_range(const problem &p, const measures<float> &m)
{
	return m.squares <= 1e37f && fmax(m.squares, 0.0f) >= p.least_squares && p.eps <= 1e37;
}

template <typename T, int VECTOR>
__device__ __forceinline__ some<T, VECTOR> load_or(const void *from, uint64_t at, float otherwise)
{
	some<T, VECTOR> v;

	if (from)
		return *(const some<T, VECTOR> *)((const T *)from + at);
#pragma unroll
	for (int k = 0; k < VECTOR; k++)
		v.of[k] = (T)otherwise;
	return v;
}

template <typename F, typename T, int THREADS, int VECTOR, int VECTORS>
__device__ __forceinline__ void write_row(const problem &p, const mine<T, THREADS, VECTOR, VECTORS> &row,
                                          const measures<F> &m, T *y, T *sum)
{
#pragma unroll
	for (int i = 0; i < VECTORS; i++) {
		uint64_t at = row.first(i);

		if (at >= p.cols)
			continue;
		some<T, VECTOR> weight = load_or<T, VECTOR>(p.weight, at, 1),
		                bias = load_or<T, VECTOR>(p.bias, at, 0), out;
#pragma unroll
		for (int k = 0; k < VECTOR; k++) {
			F t = ((F)(real<T>)row.v[i].of[k] - m.near - m.beyond) * m.inverse;
			out.of[k] = (T)(real<T>)(t * (F)(real<T>)weight.of[k] + (F)(real<T>)bias.of[k]);
		}
		*(some<T, VECTOR> *)(y + at) = out;
		if (sum)
			*(some<T, VECTOR> *)(sum + at) = row.v[i];
	}
}

/* Rows of a warp, or of a part of one, come several to a block. */
template <int THREADS> constexpr int ROWS = THREADS < 128 ? 128 / THREADS : 1;

/* Threads whose rows are behind the last go through the motions: others of their warp wait for them. */
template <typename T, int THREADS, int VECTOR, int VECTORS>
__global__ void __launch_bounds__(ROWS<THREADS> *THREADS) kept(const __grid_constant__ problem p)
{
	constexpr uint64_t rows = ROWS<THREADS>;

	await_kernel_before();
	for (uint64_t base = blockIdx.x * rows; base < p.rows; base += gridDim.x * rows) {
		uint64_t i = base + threadIdx.x / THREADS;
		bool is_row = i < p.rows;
		mine<T, THREADS, VECTOR, VECTORS> row;

		i = is_row ? i : base;
		row.load((const T *)p.x + at_row(p, p.x_batch, i), p.cols);
		if (p.residual)
			row.add((const T *)p.residual + at_row(p, p.residual_batch, i), p.cols);
		T *y = (T *)p.y + at_row(p, p.y_batch, i);
		T *sum = p.sum ? (T *)p.sum + at_row(p, p.sum_batch, i) : NULL;
		measures<real<T>> m = measure<real<T>, THREADS>(p, row);
		bool is_wide = false;
		if constexpr (sizeof(real<T>) == sizeof(float))
			is_wide = !is_in_range(p, m);
		if (is_row && !is_wide)
			write_row(p, row, m, y, sum);
		if (!__all_sync(0xffffffff, !is_wide)) {
			measures<double> wide = measure<double, THREADS>(p, row);
			if (is_row && is_wide)
				write_row(p, row, wide, y, sum);
		}
	}
	let_next_kernel_come();
}

/* ---- Launches ---- */

template <typename T, int THREADS, int VECTOR, int VECTORS>
void launch_kept(const problem &p, cudaStream_t stream)
{
	constexpr unsigned rows = ROWS<THREADS>;

	launch_kernel(kept<T, THREADS, VECTOR, VECTORS>,
	              {grid_of((p.rows + rows - 1) / rows), dim3(rows * THREADS)}, stream, p);
}

/* Few threads with many bytes each join their sums in fewer steps; of short rows there are several to a warp.
 */
template <typename T, int VECTOR> void launch_width(const problem &p, cudaStream_t stream)
{
	constexpr int VECTORS = LAYER_NORM_KEPT_BYTES / (VECTOR * sizeof(T));
	uint64_t threads = (p.cols * sizeof(T) + LAYER_NORM_KEPT_BYTES - 1) / LAYER_NORM_KEPT_BYTES;

	if (threads <= 2)
		launch_kept<T, 4, VECTOR, VECTORS / 2>(p, stream);
	else if (threads <= 4)
		launch_kept<T, 8, VECTOR, VECTORS / 2>(p, stream);
	else if (threads <= 8)
		launch_kept<T, 16, VECTOR, VECTORS / 2>(p, stream);
	else if (threads <= 16)
		launch_kept<T, 32, VECTOR, VECTORS / 2>(p, stream);
	else if (threads <= 32)
		launch_kept<T, 32, VECTOR, VECTORS>(p, stream);
	else if (threads <= 128)
		launch_kept<T, 128, VECTOR, VECTORS>(p, stream);
	else if (threads <= 256)
		launch_kept<T, 256, VECTOR, VECTORS>(p, stream);
	else if (threads <= 512)
		launch_kept<T, 512, VECTOR, VECTORS>(p, stream);
	else
		launch_kept<T, LAYER_NORM_KEPT_THREADS, VECTOR, VECTORS>(p, stream);
}

bool is_aligned(const void *data)
{
	return (uintptr_t)data % 16 == 0;
}

/* Whether each row of all operands begins at a multiple of 16 bytes and has whole vectors. */
bool takes_vectors(const problem &p, uint64_t size)
{
	bool aligned = is_aligned(p.x) && is_aligned(p.y) && is_aligned(p.weight) && is_aligned(p.bias) &&
	               is_aligned(p.residual) && is_aligned(p.sum) && p.cols * size % 16 == 0;

	for (int i = 0; i < 3; i++)
		aligned = aligned && (uint64_t)p.x_batch[i] * size % 16 == 0 &&
		          (uint64_t)p.y_batch[i] * size % 16 == 0 &&
		          (uint64_t)p.residual_batch[i] * size % 16 == 0 &&
		          (uint64_t)p.sum_batch[i] * size % 16 == 0;
	return aligned;
}

template <typename T> void launch_as(const op_args *args, cudaStream_t stream)
{
	problem p = problem_of(args);

	if (takes_vectors(p, sizeof(T)))
		launch_width<T, 16 / sizeof(T)>(p, stream);
	else
		launch_width<T, 1>(p, stream);
}

} // namespace

extern "C" CUDA_LAUNCH(layer_norm_kept)
{
	switch (args->views[LAYER_NORM_X].dtype) {
	case KOPS_F64:
		launch_as<double>(args, cuda_stream(launch));
		break;
	case KOPS_F16:
		launch_as<__half>(args, cuda_stream(launch));
		break;
	case KOPS_BF16:
		launch_as<__nv_bfloat16>(args, cuda_stream(launch));
		break;
	default:
		launch_as<float>(args, cuda_stream(launch));
	}
	return cuda_launch_status();
}
