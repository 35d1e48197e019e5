/*
 * reduce on GPUs: sums, products, means, largest and smallest over the last axis, read once at the memory's
 * rate.
 *
 *   way      what it takes                   idea                                        bound
 *   short    rows of 1, 2, 4, … 128          some lanes of a warp keep a row in          HBM
 *            vectors of 16 bytes; of any     registers, four loads of 16 bytes
 *            number of them if there are     each under way
 *            gaps between rows
 *   flat     others of up to 2 KiB without   a tile of whole rows goes to shared         HBM; of rows of one
 *            gaps                            memory; some lanes of a warp add up a       element, instructions
 *                                            row (flat.cuh)
 *   long     other rows whose elements       a warp or a block for each row, four        HBM
 *            are side by side                vectors under way; few long rows are cut
 *                                            into pieces that a second kernel joins
 *   strided  anything else                   a warp's lanes on neighbouring rows, 16     HBM where rows are
 *                                            bytes of them each where they are side by   side by side
 *                                            side, eight elements of each row under
 *                                            way; cut likewise
 */
#include "common/hopper/global.cuh"
#include "reduce/flat.cuh"
#include "reduce/problem.cuh"

namespace
{

constexpr int UNROLL = 4;
constexpr int FLUSH = 4; /* unrolled steps between f32 and f64 */
constexpr int DEEP = 8;  /* elements of a row under way, of strided */

/* Every `step`th vector from i to `to`, in f64. */
template <typename T>
__device__ __forceinline__ double add_wide(const uint4 *vectors, uint64_t i, uint64_t to, unsigned step)
{
	double sum = 0;

#pragma unroll 1
	for (; i < to; i += step)
		sum = add_wide<T>(sum, vectors[i]);
	return sum;
}

/* ---- short: rows in the registers of some lanes ---- */

constexpr uint64_t SHORT_VECTORS_MAX = UNROLL * WARP; /* of a row */

/* Blocks that a multiprocessor has registers for. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr unsigned SHORT_RESIDENT = 4; /* as many threads as it holds */
#else
constexpr unsigned SHORT_RESIDENT = 5;
#endif

/*
 * ROWS rows from `first` on, THREADS / GROUP apart, of up to GROUP · VECTORS vectors each. WHOLE: there are all
 * those rows.
 */
template <total_kind KIND, typename T, unsigned GROUP, unsigned VECTORS, unsigned ROWS, bool WHOLE>
__device__ __forceinline__ void reduce_rows_at(const problem &p, uint64_t first)
{
	constexpr unsigned APART = THREADS / GROUP, N = sizeof(uint4) / sizeof(T);
	unsigned lane = threadIdx.x % GROUP, vectors = (unsigned)p.cols / N;
	uint4 v[ROWS][VECTORS];

#pragma unroll
	for (unsigned r = 0; r < ROWS; r++) {
		uint64_t row = WHOLE || first + r * APART < p.rows ? first + r * APART : 0;
		const uint4 *x = (const uint4 *)((const T *)p.x + (int64_t)row * p.x_batch[2]) + lane;

#pragma unroll
		for (unsigned u = 0; u < VECTORS; u++)
			if (lane + u * GROUP < vectors)
				v[r][u] = hopper::load_once(x + u * GROUP);
	}
#pragma unroll
	for (unsigned r = 0; r < ROWS; r++) {
		uint64_t row = first + r * APART;
		part_type<KIND, T> sum = total<KIND>::nothing();

#pragma unroll
		for (unsigned u = 0; u < VECTORS; u++)
			if (lane + u * GROUP < vectors)
				sum = join_vector<KIND, T>(sum, v[r][u]);
		sum = join_lanes<KIND, GROUP>(sum);

		double result = (double)sum;
		if (overflows<KIND, T, GROUP>(sum)) {
			const uint4 *x =
			    (const uint4 *)((const T *)p.x + (int64_t)(row < p.rows ? row : 0) * p.x_batch[2]);

			result = join_lanes<KIND, GROUP>(add_wide<T>(x, lane, vectors, GROUP));
			result = is_finite(sum) ? (double)sum : result; /* another row's was not */
		}
		if (lane == 0 && (WHOLE || row < p.rows))
			store_at<KIND, T>(p, (int64_t)row * p.y_batch[2], result);
	}
}

template <total_kind KIND, typename T, unsigned GROUP, unsigned VECTORS>
__global__ void __launch_bounds__(THREADS, SHORT_RESIDENT) reduce_short(problem p)
{
	constexpr unsigned APART = THREADS / GROUP, ROWS = UNROLL / VECTORS, TILE = APART * ROWS;

	await_kernel_before();
	for (uint64_t base = (uint64_t)blockIdx.x * TILE; base < p.rows; base += (uint64_t)gridDim.x * TILE) {
		uint64_t row = base + threadIdx.x / GROUP;

		if (base + TILE <= p.rows)
			reduce_rows_at<KIND, T, GROUP, VECTORS, ROWS, true>(p, row);
		else
#pragma unroll 1
			for (unsigned r = 0; r < ROWS; r++, row += APART)
				reduce_rows_at<KIND, T, GROUP, VECTORS, 1, false>(p, row);
	}
	let_next_kernel_come();
}

/* ---- long: rows whose elements are side by side ---- */

/* n elements side by side, by GROUP threads of which this is one: its share. */
template <total_kind KIND, typename T, unsigned GROUP>
__device__ __forceinline__ double reduce_run(const T *x, uint64_t n, unsigned thread)
{
	constexpr uint64_t N = sizeof(uint4) / sizeof(T);
	uint64_t head = (sizeof(uint4) - (uintptr_t)x % sizeof(uint4)) % sizeof(uint4) / sizeof(T);
	double result = total<KIND>::nothing();

	head = head < n ? head : n;
	const uint4 *vectors = (const uint4 *)(x + head);
	uint64_t n_vectors = (n - head) / N, i = thread;
	const T *tail = x + head + n_vectors * N;
	unsigned n_tail = (unsigned)(n - head - n_vectors * N);

	while (i < n_vectors) {
		part_type<KIND, T> sum = total<KIND>::nothing();
		uint64_t first = i;

		for (int flush = 0; flush < FLUSH && i < n_vectors; flush++) {
			uint4 v[UNROLL];
#pragma unroll
			for (int u = 0; u < UNROLL; u++)
				if (i + u * GROUP < n_vectors)
					v[u] = vectors[i + u * GROUP];
#pragma unroll
			for (int u = 0; u < UNROLL; u++)
				if (i + u * GROUP < n_vectors)
					sum = join_vector<KIND, T>(sum, v[u]);
			i += UNROLL * GROUP;
		}
		double share = (double)sum;
		if (overflows<KIND, T, 1>(sum))
			share = add_wide<T>(vectors, first, i < n_vectors ? i : n_vectors, GROUP);
		result = total<KIND>::join(result, share);
	}
	for (unsigned k = thread; k < head; k += GROUP)
		result = total<KIND>::join(result, (double)(sum_type<T>)x[k]);
	for (unsigned k = thread; k < n_tail; k += GROUP)
		result = total<KIND>::join(result, (double)(sum_type<T>)tail[k]);
	return result;
}

template <total_kind KIND, typename T, unsigned GROUP>
__global__ void __launch_bounds__(THREADS) reduce_long(problem p)
{
	constexpr unsigned GROUPS = THREADS / GROUP;
	uint64_t pieces = p.rows * p.splits, step = (uint64_t)gridDim.x * GROUPS;

	await_kernel_before();
	for (uint64_t base = (uint64_t)blockIdx.x * GROUPS; base < pieces; base += step) {
		uint64_t piece = base + threadIdx.x / GROUP, row = piece / p.splits, part = piece % p.splits;
		uint64_t from = part * p.chunk, n = 0;
		double result;

		if (piece < pieces && from < p.cols)
			n = p.chunk < p.cols - from ? p.chunk : p.cols - from;
		result = reduce_run<KIND, T, GROUP>((const T *)p.x +
		                                        (n ? at_row(p, p.x_batch, row) + (int64_t)from : 0),
		                                    n, threadIdx.x % GROUP);
		if constexpr (GROUP == THREADS)
			result = join_block<KIND>(result);
		else
			result = join_lanes<KIND, GROUP>(result);
		if (threadIdx.x % GROUP == 0 && piece < pieces)
			store_piece<KIND, T>(p, row, part, result);
	}
	let_next_kernel_come();
}

/* ---- strided ---- */

/* Elements of a row, in f64. */
template <typename T> __device__ __forceinline__ double add_apart(const T *x, int64_t x_col, uint64_t n)
{
	double sum = 0;

#pragma unroll 1
	for (uint64_t i = 0; i < n; i++)
		sum += (double)(sum_type<T>)x[(int64_t)i * x_col];
	return sum;
}

/* Of N rows' elements k, k + WARPS, … up to `to`, DEEP at most: all are loaded before the first is waited for.
 */
template <total_kind KIND, typename T, unsigned N>
__device__ __forceinline__ void join_some(double (&results)[N], const T *x, uint64_t k, uint64_t to,
                                          int64_t x_col)
{
	some<T, N> v[DEEP];
	part_type<KIND, T> sums[N];

#pragma unroll
	for (int u = 0; u < DEEP; u++)
		if (k + u < to)
			v[u] = *(const some<T, N> *)(x + (int64_t)(k + u) * x_col);
#pragma unroll
	for (unsigned i = 0; i < N; i++)
		sums[i] = total<KIND>::nothing();
#pragma unroll
	for (int u = 0; u < DEEP; u++)
#pragma unroll
		for (unsigned i = 0; i < N; i++)
			if (k + u < to)
				sums[i] =
				    total<KIND>::join(sums[i], (part_type<KIND, T>)(sum_type<T>)v[u].of[i]);
#pragma unroll
	for (unsigned i = 0; i < N; i++) {
		double sum = (double)sums[i];
		if (overflows<KIND, T, 1>(sums[i]))
			sum = add_apart(x + (int64_t)k * x_col + i, x_col, to - k < DEEP ? to - k : DEEP);
		results[i] = total<KIND>::join(results[i], sum);
	}
}

/*
 * A piece is a warp's: N rows for each lane, 1 or as many as are 16 bytes where rows are side by side from a
 * multiple of that on. Neighbouring warps are on neighbouring rows.
 */
template <total_kind KIND, typename T, unsigned N>
__global__ void __launch_bounds__(THREADS) reduce_strided(problem p)
{
	constexpr unsigned TILE = WARP * N;
	uint64_t tiles = (p.rows + TILE - 1) / TILE, pieces = tiles * p.splits,
	         step = (uint64_t)gridDim.x * WARPS;

	await_kernel_before();
	for (uint64_t piece = (uint64_t)blockIdx.x * WARPS + threadIdx.x / WARP; piece < pieces;
	     piece += step) {
		uint64_t row = piece % tiles * TILE + threadIdx.x % WARP * N, part = piece / tiles;
		uint64_t from = part * p.chunk < p.cols ? part * p.chunk : p.cols;
		uint64_t to = p.chunk < p.cols - from ? from + p.chunk : p.cols;
		double results[N];

		if (row >= p.rows)
			continue;
#pragma unroll
		for (unsigned i = 0; i < N; i++)
			results[i] = total<KIND>::nothing();
		const T *x = (const T *)p.x + at_row(p, p.x_batch, row);
		for (uint64_t k = from; k < to; k += DEEP)
			join_some<KIND, T, N>(results, x, k, to, p.x_col);
#pragma unroll
		for (unsigned i = 0; i < N; i++)
			store_piece<KIND, T>(p, row + i, part, results[i]);
	}
	let_next_kernel_come();
}

/* ---- Pieces of a row ---- */

/* Of few rows: a block for each. */
template <total_kind KIND, typename T> __global__ void __launch_bounds__(THREADS) join_few(problem p)
{
	await_kernel_before();
	for (uint64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
		double result = total<KIND>::nothing();
		for (uint32_t i = threadIdx.x; i < p.splits; i += THREADS)
			result = total<KIND>::join(result, p.partials[i * p.rows + row]);
		result = join_block<KIND>(result);
		if (threadIdx.x == 0)
			store_row<KIND, T>(p, row, result);
	}
	let_next_kernel_come();
}

/* Of many: a warp's lanes on neighbouring rows, the warps of a block along their pieces. */
template <total_kind KIND, typename T> __global__ void __launch_bounds__(THREADS) join_many(problem p)
{
	__shared__ double of_warps[WARPS][WARP];
	unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;

	await_kernel_before();
	for (uint64_t first = (uint64_t)blockIdx.x * WARP; first < p.rows;
	     first += (uint64_t)gridDim.x * WARP) {
		uint64_t row = first + lane;
		double result = total<KIND>::nothing();

		for (uint32_t i = warp; i < p.splits && row < p.rows; i += WARPS)
			result = total<KIND>::join(result, p.partials[i * p.rows + row]);
		__syncthreads(); /* those before are through with of_warps */
		of_warps[warp][lane] = result;
		__syncthreads();
		if (warp > 0 || row >= p.rows)
			continue;
		for (unsigned w = 1; w < WARPS; w++)
			result = total<KIND>::join(result, of_warps[w][lane]);
		store_row<KIND, T>(p, row, result);
	}
	let_next_kernel_come();
}

/* ---- Launching ---- */

problem problem_of(const op_args *args, const reduce_split &s, void *workspace)
{
	const view *x = &args->views[0], *y = &args->views[1];
	problem p = {};

	set_rows(&p, args, s);
	p.partials = (double *)workspace;
	p.scale = args->params.reduce.scale;
	p.goes_on = args->params.reduce.goes_on;
	p.wide = y->dtype == KOPS_F32;
	p.plain = p.y_batch[2] == 1 && !p.goes_on && y->dtype == x->dtype;
	return p;
}

/* The rows follow each other without gaps. */
bool is_flat(const problem &p)
{
	return p.batch[0] == 1 && p.batch[1] == 1 && (p.batch[2] == 1 || p.x_batch[2] == (int64_t)p.cols);
}

/* Rows are along one axis, and each is whole vectors. */
bool is_aligned(const problem &p, uint64_t size)
{
	uint64_t apart = (uintptr_t)p.x | (uint64_t)p.x_batch[2] * size | p.cols * size;

	return p.batch[2] == p.rows && apart % sizeof(uint4) == 0;
}

/* Rows are side by side, each column of them from a multiple of 16 bytes on, and they are whole vectors. */
bool has_columns(const problem &p, uint64_t size)
{
	uint64_t apart = (uintptr_t)p.x | (uint64_t)p.x_col * size | p.batch[2] * size |
	                 (uint64_t)p.x_batch[1] * size | (uint64_t)p.x_batch[0] * size;

	return p.x_batch[2] == 1 && apart % sizeof(uint4) == 0;
}

bool is_power_of_two(uint64_t n)
{
	return (n & (n - 1)) == 0;
}

template <total_kind KIND, typename T, unsigned GROUP, unsigned VECTORS>
void launch_short(const problem &p, cudaStream_t stream)
{
	launch_kernel(reduce_short<KIND, T, GROUP, VECTORS>,
	              {dim3(grid_of(p.rows, THREADS / GROUP * (UNROLL / VECTORS))), dim3(THREADS)}, stream, p);
}

/* vectors: of a row. */
template <total_kind KIND, typename T>
void launch_short(const problem &p, uint64_t vectors, cudaStream_t stream)
{
	if (vectors <= 1)
		launch_short<KIND, T, 1, 1>(p, stream);
	else if (vectors <= 2)
		launch_short<KIND, T, 2, 1>(p, stream);
	else if (vectors <= 4)
		launch_short<KIND, T, 4, 1>(p, stream);
	else if (vectors <= 8)
		launch_short<KIND, T, 8, 1>(p, stream);
	else if (vectors <= 16)
		launch_short<KIND, T, 16, 1>(p, stream);
	else if (vectors <= WARP)
		launch_short<KIND, T, WARP, 1>(p, stream);
	else if (vectors <= 2 * WARP)
		launch_short<KIND, T, WARP, 2>(p, stream);
	else
		launch_short<KIND, T, WARP, 4>(p, stream);
}

template <total_kind KIND, typename T, unsigned GROUP> void launch_long(const problem &p, cudaStream_t stream)
{
	launch_kernel(reduce_long<KIND, T, GROUP>,
	              {dim3(grid_of(p.rows * p.splits, THREADS / GROUP)), dim3(THREADS)}, stream, p);
}

template <total_kind KIND, typename T> void launch_rows(const problem &p, cudaStream_t stream)
{
	/* Not f64, nor products, which are made in it: short and long take those rows. */
	constexpr bool FLAT = sizeof(T) <= sizeof(float) && KIND != PRODUCT;
	uint64_t bytes = p.cols * sizeof(T);
	bool small = p.splits == 1 && p.cols > 0 && bytes <= SHORT_VECTORS_MAX * sizeof(uint4);

	if (small && is_aligned(p, sizeof(T)) && (!FLAT || is_power_of_two(bytes) || !is_flat(p))) {
		launch_short<KIND, T>(p, bytes / sizeof(uint4), stream);
		return;
	}
	if constexpr (FLAT)
		if (small && is_flat(p)) {
			launch_flat<KIND, T>(p, bytes, stream);
			return;
		}
	if (bytes <= 512 * sizeof(uint4))
		launch_long<KIND, T, WARP>(p, stream);
	else
		launch_long<KIND, T, THREADS>(p, stream);
}

template <total_kind KIND, typename T> void launch_join(const problem &p, cudaStream_t stream)
{
	if (p.splits > 1 && p.rows < WARP)
		launch_kernel(join_few<KIND, T>, {dim3(grid_of(p.rows, 1)), dim3(THREADS)}, stream, p);
	else if (p.splits > 1)
		launch_kernel(join_many<KIND, T>, {dim3(grid_of(p.rows, WARP)), dim3(THREADS)}, stream, p);
}

template <total_kind KIND, typename T, unsigned N> void launch_tiles(const problem &p, cudaStream_t stream)
{
	uint64_t pieces = (p.rows + WARP * N - 1) / (WARP * N) * p.splits;

	launch_kernel(reduce_strided<KIND, T, N>, {dim3(grid_of(pieces, WARPS)), dim3(THREADS)}, stream, p);
}

template <total_kind KIND, typename T> void launch_strided(const problem &p, cudaStream_t stream)
{
	if (has_columns(p, sizeof(T)))
		launch_tiles<KIND, T, sizeof(uint4) / sizeof(T)>(p, stream);
	else
		launch_tiles<KIND, T, 1>(p, stream);
}

template <bool STRIDED, total_kind KIND, typename T> void launch_as(const problem &p, cudaStream_t stream)
{
	if constexpr (STRIDED)
		launch_strided<KIND, T>(p, stream);
	else
		launch_rows<KIND, T>(p, stream);
	launch_join<KIND, T>(p, stream);
}

template <bool STRIDED, total_kind KIND>
int launch_by_type(const op_args *args, const problem &p, cudaStream_t stream)
{
	switch (args->views[0].dtype) {
	case KOPS_F16:
		launch_as<STRIDED, KIND, __half>(p, stream);
		break;
	case KOPS_BF16:
		launch_as<STRIDED, KIND, __nv_bfloat16>(p, stream);
		break;
	case KOPS_F32:
		launch_as<STRIDED, KIND, float>(p, stream);
		break;
	case KOPS_F64:
		launch_as<STRIDED, KIND, double>(p, stream);
		break;
	default:
		return KOPS_E_UNSUPPORTED;
	}
	return cuda_launch_status();
}

template <bool STRIDED> int launch_any(const op_args *args, const launch *launch)
{
	reduce_split s = STRIDED ? reduce_split_tiles(args) : reduce_split_rows(args);
	problem p = problem_of(args, s, launch->workspace);
	cudaStream_t stream = cuda_stream(launch);

	switch (args->params.reduce.kind) {
	case KOPS_MAX:
		return launch_by_type<STRIDED, LARGEST>(args, p, stream);
	case KOPS_MIN:
		return launch_by_type<STRIDED, SMALLEST>(args, p, stream);
	case KOPS_PROD:
		return launch_by_type<STRIDED, PRODUCT>(args, p, stream);
	case KOPS_SUM:
	case KOPS_MEAN:
		break;
	}
	return launch_by_type<STRIDED, SUM>(args, p, stream);
}

} // namespace

extern "C" CUDA_LAUNCH(reduce_rows)
{
	return launch_any<false>(args, launch);
}

extern "C" CUDA_LAUNCH(reduce_strided)
{
	return launch_any<true>(args, launch);
}
