/*
 * Softmax with each element read once and written once (the other kernels: softmax.cu): a row is kept from the
 * first pass to the last. 128-bit accesses, single elements before and behind them; one exp per element, two
 * for those in shared memory. Maxima and sums of warps, blocks and clusters are exchanged together, so that a
 * row costs one barrier of its block and two of its cluster.
 *
 *   columns f32   f16        a row is kept by                     vectors of 16 bytes per thread
 *   1024          1280       1 … 32 lanes of a warp, registers    1 to 5; 8 for f32
 *   32768         65536      one block of up to 512 threads       4 (f32) or 2 in registers, up to 14 in shared
 *                                                                 memory by cp.async
 *   1179648       2097152    a cluster of 2, 4, 8 or 16 blocks,   the same; a row's results make room for the
 *                            row after row                        next one's elements
 *   longer rows              nobody: parts of rows, two launches; read twice, from L2 with luck
 *
 * Bound: HBM, 4.2 TB/s read + written, while enough bytes are under way. An SM must hold much of several rows,
 * one being read while another is written: hence few threads with much each, and shared memory beside the
 * registers. Rows for which a block takes a whole SM miss that, and a cluster of 16 finds fewer places.
 *
 * Measured, H200, GB/s, 512 MB of x, no launch finds its data in a cache:
 *
 *   columns        128   256   512  1000  1024  2048  4096  4097  8192 16384 32768 65536  128K  256K  512K 1M
 *   f32           4200  4193  4125  4112  4117  4121  4089  4053  4101  4079  4049  3817  3667  3656  3596 3231
 *   device copy   4173  4179  4181  4175  4174  4179  4177  4187  4188  4180  4170  4185  4181  4173  4176 4181
 *   f16           4152  4119  4102  4147  4126  4162  4109  4056  4109  4089  4081  4011  3467  3214  3165 3067
 *
 * Other shapes, and what else was tried: docs/lab/softmax.md.
 */
#include "common/launch.cuh"
#include "common/together.cuh"
#include "softmax/fused.cuh"

namespace
{

/* ---- Rows of a warp or a part of it ---- */

constexpr unsigned THREADS = 128;

/* Of the elements before and behind the vectors, a thread's part. */
template <typename T, unsigned LANES> constexpr int ENDS_OF = (2 * (WIDE<T> - 1) + (int)LANES - 1) / (int)LANES;

/*
 * Elements of a row that it may have more than the vectors hold. Few threads take them one after another: more
 * threads are faster then.
 */
template <typename T, unsigned LANES> constexpr unsigned ends_max()
{
	if (LANES <= 4)
		return LANES < 4 ? 0 : WIDE<T> - 1;
	return ENDS_OF<T, LANES> * LANES;
}

/* y of the grid numbers the ops of a launch. */
template <unsigned OPS> __device__ __forceinline__ void go_to_op(problem &p, const operands<3, OPS> &where)
{
	p.x = where.at(SOFTMAX_X, blockIdx.y);
	p.y = where.at(SOFTMAX_Y, blockIdx.y);
}

template <typename T, int VECTORS, unsigned LANES, bool LOG, unsigned OPS>
__global__ void __launch_bounds__(THREADS)
    fused_lanes(const __grid_constant__ operands<3, OPS> where, problem p, row_params q)
{
	constexpr unsigned ROWS = THREADS / LANES;
	go_to_op(p, where);
	p.log = LOG;
	p.cols = (uint32_t)p.cols; /* the compiler calculates in 32 bits */
	uint64_t i = (uint64_t)blockIdx.x * ROWS + threadIdx.x / LANES;
	unsigned me = threadIdx.x % LANES;
	vectors<T> v = vectors_of<T>(p, q, i < p.rows ? i : 0, VECTORS * LANES);
	unsigned count = i < p.rows ? (unsigned)v.count : 0, ends = i < p.rows ? v.ends : 0;
	held<T, VECTORS, ENDS_OF<T, LANES>> h;

	await_kernel_before();
	load_held(p, q, v, ends, v.x, count, me, LANES, &h);
	float most = largest_of_lanes<LANES>(most_of_held(p, q, h));
	float sum = sum_of_lanes<LANES>(raise_held(p, q, &h, local_shift(p, most)));
	finish f = finish_of(p, q, {most, sum}, most);
	store_vectors(p, q, f, v.y, count, me, LANES, h);
	if (q.ends)
		store_ends(p, f, v, ends, me, LANES, h);
	let_next_kernel_come();
}

/* ---- Rows of a block or a cluster of them ---- */

/* The vectors of a row that are this block's. */
struct span {
	uint64_t first;
	unsigned count;
};

__device__ __forceinline__ span span_of(uint64_t vectors, uint64_t part, uint64_t parts)
{
	uint64_t each = (vectors + parts - 1) / parts, first = part * each;
	uint64_t left = first < vectors ? vectors - first : 0;

	return {first, (unsigned)(left < each ? left : each)};
}

__device__ __forceinline__ void begin_cluster(const row_params &q)
{
#if __CUDA_ARCH__ >= 900
	if (q.cluster > 1)
		cooperative_groups::this_cluster().barrier_arrive();
#endif
}

/*
 * Each block's total given to all blocks of the cluster, in `of`. One barrier says that the others have begun
 * and their shared memory is there, one that all totals are.
 */
__device__ __forceinline__ void exchange(const row_params &q, unsigned rank, const total &mine, total *of)
{
#if __CUDA_ARCH__ >= 900
	cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();

	cluster.barrier_wait();
	if (threadIdx.x < q.cluster)
		*cluster.map_shared_rank(&of[rank], threadIdx.x) = mine;
	cluster.sync();
#endif
}

/* Given to each thread: the total of the row, from those of warps. */
__device__ __forceinline__ total total_of_row(const problem &p, const row_params &q, unsigned rank,
                                              const total &warp)
{
	__shared__ total of_warp[THREADS_MAX / WARP], of_block[CLUSTER_MAX];

	__syncthreads(); /* of_warp may still be read from the last row */
	if (threadIdx.x % WARP == 0)
		of_warp[threadIdx.x / WARP] = warp;
	__syncthreads();
	total mine = combine(p, q, of_warp, blockDim.x / WARP);
	if (q.cluster == 1)
		return mine;
	exchange(q, rank, mine, of_block);
	return combine(p, q, of_block, q.cluster);
}

/* A block's part of a row: x and y are its first vector. The first block has the ends of the row too. */
template <typename T> struct part {
	vectors<T> row;
	const T *x;
	T *y;
	unsigned count, ends;
};

/* Of no row beyond the last. */
template <typename T>
__device__ __forceinline__ part<T> part_of(const problem &p, const row_params &q, uint64_t i, unsigned rank)
{
	if (i >= p.rows)
		return {};
	vectors<T> v = vectors_of<T>(p, q, i);
	span s = span_of(v.count, rank, q.cluster);

	return {v, v.x + s.first * WIDE<T>, v.y + s.first * WIDE<T>, s.count, rank == 0 ? v.ends : 0};
}

/*
 * A thread's vectors beyond those in registers: as they are in memory, in shared memory. No other thread has to
 * do with its places there.
 */
template <typename T, int VECTORS> __device__ __forceinline__ unsigned first_stored()
{
	return threadIdx.x + VECTORS * blockDim.x;
}

template <typename T, int VECTORS>
__device__ __forceinline__ void fetch(uint4 *stored, const part<T> &t, unsigned n)
{
	__pipeline_memcpy_async(&stored[n - VECTORS * blockDim.x], t.x + (size_t)n * WIDE<T>, 16);
}

template <typename T, int VECTORS, typename Use>
__device__ __forceinline__ void each_stored(const uint4 *stored, const part<T> &t, Use use)
{
	for (unsigned n = first_stored<T, VECTORS>(); n < t.count; n += blockDim.x) {
		float v[WIDE<T>];
		unpack<T>(stored[n - VECTORS * blockDim.x], v);
		use(v);
	}
}

/* Writes the results of vectors in shared memory and fetches those of the next row in their place. */
template <typename T, int VECTORS>
__device__ __forceinline__ void turn_over(const problem &p, const row_params &q, const finish &f, uint4 *stored,
                                          const part<T> &t, const part<T> &next)
{
	unsigned count = t.count > next.count ? t.count : next.count;

	for (unsigned n = first_stored<T, VECTORS>(); n < count; n += blockDim.x) {
		if (n < t.count) {
			float v[WIDE<T>];
			unpack<T>(stored[n - VECTORS * blockDim.x], v);
			raise_values(p, q, v, f.shift);
			store_values(p, q, f, t.y + (size_t)n * WIDE<T>, v);
		}
		if (n < next.count)
			fetch<T, VECTORS>(stored, next, n);
	}
	__pipeline_commit();
}

/*
 * Threads of a block alone at most. Two such blocks to an SM leave 56 registers to a thread, with which there
 * are three of 384. Turing has no room for two.
 */
constexpr unsigned ONE_MAX = 576;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr unsigned ONE_BLOCKS = 1;
#else
constexpr unsigned ONE_BLOCKS = 2;
#endif

/* A block for each row; or as many clusters as there is room for, each with one row after the other. */
template <typename T, int VECTORS, bool CLUSTERS, bool LOG, unsigned OPS>
__global__ void __launch_bounds__(CLUSTERS ? THREADS_MAX : ONE_MAX, CLUSTERS ? 1 : ONE_BLOCKS)
    fused_block(const __grid_constant__ operands<3, OPS> where, problem p, row_params q)
{
	extern __shared__ uint4 stored[];
	go_to_op(p, where);
	p.log = LOG;
	q.cluster = CLUSTERS ? q.cluster : 1;
	unsigned me = threadIdx.x, threads = blockDim.x, rank = blockIdx.x % q.cluster;
	uint64_t i = blockIdx.x / q.cluster;
	part<T> t = part_of<T>(p, q, i, rank);

	await_kernel_before();
	for (unsigned n = first_stored<T, VECTORS>(); n < t.count; n += threads)
		fetch<T, VECTORS>(stored, t, n);
	__pipeline_commit();
	do {
		held<T, VECTORS, 1> h;

		begin_cluster(q);
		load_held(p, q, t.row, t.ends, t.x, t.count, me, threads, &h);
		float most = most_of_held(p, q, h);
		__pipeline_wait_prior(0);
		each_stored<T, VECTORS>(stored, t,
		                        [&](float(&v)[WIDE<T>]) { most = most_of_values(p, v, most); });
		most = largest_of_lanes(most);
		float shift = local_shift(p, most), sum = raise_held(p, q, &h, shift);
		each_stored<T, VECTORS>(stored, t,
		                        [&](float(&v)[WIDE<T>]) { sum += raise_values(p, q, v, shift); });
		total all = total_of_row(p, q, rank, {most, sum_of_lanes(sum)});
		finish f = finish_of(p, q, all, most);
		store_vectors(p, q, f, t.y, t.count, me, threads, h);
		if (q.ends)
			store_ends(p, f, t.row, t.ends, me, threads, h);
		f.factor = 1 / all.sum;
		i += gridDim.x / q.cluster;
		part<T> next = CLUSTERS ? part_of<T>(p, q, i, rank) : part<T>{};
		turn_over<T, VECTORS>(p, q, f, stored, t, next);
		t = next;
	} while (CLUSTERS && i < p.rows);
	let_next_kernel_come();
}

/* ---- Rows longer than a cluster holds ---- */

/*
 * Split among blocks; a second launch reads x again, from the last block to the first, and from L2 as long as
 * the rows of one launch fit there.
 */
constexpr unsigned SPLIT_THREADS = 512, PARTS_MAX = 1024;
constexpr uint64_t PART_MIN = 32768;       /* elements */
constexpr uint64_t ROWS_BYTES = 32u << 20; /* of x in one launch: L2 keeps as much until the second */
constexpr int BATCH = 4;                   /* vectors of a thread under way */

struct split {
	uint64_t first; /* row of this launch */
	unsigned parts; /* blocks of a row */
	total *of_part; /* [row - first][part] */
};

/* use(n, h) for the thread's vectors of a span, from the n-th on, some at a time. */
template <typename T, typename Use>
__device__ __forceinline__ void each_batch(const problem &p, const T *x, const span &s, Use use)
{
	for (unsigned n = threadIdx.x; n < s.count; n += BATCH * SPLIT_THREADS) {
		uint4 raw[BATCH];
		held<T, BATCH, 1> h;

		fetch_vectors(p, x, s.count, n, SPLIT_THREADS, raw);
		unpack_vectors<T>(raw, h.body);
		use(n, &h);
	}
}

/* Sums of a thread are in f64: millions of equal terms would all round the same way. */
struct wide_total {
	float most;
	double sum;
};

template <int N>
__device__ __forceinline__ void add_values(const problem &p, const row_params &q, float (&v)[N], wide_total *t)
{
	float most = most_of_values(p, v, t->most);

	if (most > t->most && t->sum != 0)
		t->sum *= (double)rescale(p, q, t->most, most);
	t->most = most;
	t->sum += (double)raise_values(p, q, v, local_shift(p, most));
}

template <typename T>
__global__ void __launch_bounds__(SPLIT_THREADS) fused_totals(problem p, row_params q, split d)
{
	__shared__ total of_warp[SPLIT_THREADS / WARP];
	unsigned part = blockIdx.x % d.parts;
	vectors<T> v = vectors_of<T>(p, q, d.first + blockIdx.x / d.parts);
	span s = span_of(v.count, part, d.parts);
	wide_total t = {-INFINITY, 0};
	T raw[1];

	let_next_kernel_come();
	fetch_ends(p, v, part == 0 ? v.ends : 0, threadIdx.x, SPLIT_THREADS, raw);
	float end[1] = {(float)raw[0]};
	add_values(p, q, end, &t);
	each_batch(p, v.x + s.first * WIDE<T>, s, [&](unsigned, held<T, BATCH, 1> *b) {
#pragma unroll
		for (int j = 0; j < BATCH; j++)
			add_values(p, q, b->body[j], &t);
	});
	float most = largest_of_lanes(t.most), sum = rescaled_sum(p, q, {t.most, (float)t.sum}, most);
	sum = sum_of_lanes(sum);
	if (threadIdx.x % WARP == 0)
		of_warp[threadIdx.x / WARP] = {most, sum};
	__syncthreads();
	total mine = combine(p, q, of_warp, SPLIT_THREADS / WARP);
	await_kernel_before(); /* the launch before may still read its totals */
	if (threadIdx.x == 0)
		d.of_part[blockIdx.x] = mine;
}

template <typename T>
__global__ void __launch_bounds__(SPLIT_THREADS) fused_finish(problem p, row_params q, split d)
{
	unsigned block = gridDim.x - 1 - blockIdx.x, row = block / d.parts, part = block % d.parts;

	let_next_kernel_come();
	await_kernel_before();

	vectors<T> v = vectors_of<T>(p, q, d.first + row);
	span s = span_of(v.count, part, d.parts);
	total all = combine(p, q, d.of_part + (size_t)row * d.parts, d.parts);
	finish f = finish_of(p, q, all, all.most);
	unsigned ends = part == 0 ? v.ends : 0;
	T *y = v.y + s.first * WIDE<T>;
	T raw[1];
	held<T, 1, 1> h;

	each_batch(p, v.x + s.first * WIDE<T>, s, [&](unsigned n, held<T, BATCH, 1> *b) {
#pragma unroll
		for (int j = 0; j < BATCH; j++)
			raise_values(p, q, b->body[j], f.shift);
		store_vectors(p, q, f, y, s.count, n, SPLIT_THREADS, *b);
	});
	fetch_ends(p, v, ends, threadIdx.x, SPLIT_THREADS, raw);
	h.ends[0] = (float)raw[0];
	raise_values(p, q, h.ends, f.shift);
	store_ends(p, f, v, ends, threadIdx.x, SPLIT_THREADS, h);
}

/* ---- Launches ---- */

template <unsigned OPS> using fused_kernel = void (*)(operands<3, OPS>, problem, row_params);

template <unsigned OPS> struct lanes_row {
	unsigned vectors, ends; /* up to so many, and so many elements around them */
	unsigned lanes;         /* threads to a row */
	fused_kernel<OPS> plain, log;
};

/* NULL where rows are longer than a warp holds. */
template <typename T, unsigned OPS> const lanes_row<OPS> *lanes_for(const problem &p, const row_params &q)
{
#define LANES_ROW(vectors, lanes)                                                                              \
	{                                                                                                      \
		(vectors) * (lanes), ends_max<T, lanes>(), lanes, fused_lanes<T, vectors, lanes, false, OPS>,  \
		    fused_lanes<T, vectors, lanes, true, OPS>                                                  \
	}
	static const lanes_row<OPS> rows[] = {
	    LANES_ROW(1, 1),
	    LANES_ROW(1, 2),
	    LANES_ROW(2, 2),
	    LANES_ROW(2, 4),
	    LANES_ROW(2, 8),
	    LANES_ROW(3, 8),
	    LANES_ROW(2, 16),
	    LANES_ROW(3, 16),
	    LANES_ROW(2, 32),
	    LANES_ROW(3, 32),
	    LANES_ROW(4, 32),
	    LANES_ROW(sizeof(T) == 4 ? 8 : 5, 32), /* of 16-bit types a block is faster beyond */
	};
#undef LANES_ROW

	for (const lanes_row<OPS> &row : rows)
		if (p.cols <= row.vectors * WIDE<T> + (q.ends ? row.ends : 0))
			return &row;
	return NULL;
}

template <unsigned OPS>
void launch_lanes(const operands<3, OPS> &where, const problem &p, const row_params &q,
                  const lanes_row<OPS> &row, cudaStream_t stream)
{
	uint64_t blocks = ceil_div(p.rows, THREADS / row.lanes);

	launch_kernel(p.log ? row.log : row.plain, {dim3((unsigned)blocks, where.n), dim3(THREADS)}, stream,
	              where, p, q);
}

/* Rows of blocks: how many to a row, threads of each, and vectors of a thread beyond its registers. */
struct blocks {
	unsigned cluster, threads, stored;
};

template <typename T> constexpr uint64_t HELD = 16 / WIDE<T>; /* of a thread, in registers */

/* A row over so many blocks, with so many vectors to a thread unless there are too few threads. */
template <typename T> blocks blocks_of(uint64_t vectors, unsigned cluster, uint64_t each, uint64_t threads_max)
{
	uint64_t mine = ceil_div(vectors, cluster), threads = ceil_div(ceil_div(mine, each), WARP) * WARP;

	threads = threads < threads_max ? threads : threads_max;
	each = ceil_div(mine, threads);
	return {cluster, (unsigned)threads, (unsigned)(each > HELD<T> ? each - HELD<T> : 0)};
}

/* What was fastest for each length: few threads with much each, three blocks to an SM or two. */
template <typename T> blocks choose_blocks(uint64_t vectors)
{
	constexpr uint64_t EACH = 16, THREADS_OF_CLUSTER = 512;
	unsigned cluster = 1;

	if (vectors <= 384 * 11)
		return blocks_of<T>(vectors, 1, 10, 384);
	while (cluster < CLUSTER_MAX && vectors > cluster * THREADS_OF_CLUSTER * EACH)
		cluster *= 2;
	return blocks_of<T>(vectors, cluster, cluster == 1 ? 10 : EACH,
	                    cluster == CLUSTER_MAX ? THREADS_MAX : THREADS_OF_CLUSTER);
}

size_t stored_bytes(const blocks &b)
{
	return (size_t)b.stored * b.threads * 16;
}

bool has_clusters()
{
	return cuda_device_attribute(cudaDevAttrComputeCapabilityMajor) >= 9;
}

/* False, with nothing launched, where the GPU has no room for a row. */
template <unsigned OPS>
bool launch_blocks(const operands<3, OPS> &where, problem p, row_params q, fused_kernel<OPS> kernel,
                   const blocks &b, cudaStream_t stream)
{
	launch_form form = {dim3(b.cluster, where.n), dim3(b.threads), stored_bytes(b), b.cluster};
	int clusters = INT_MAX; /* with room at a time */

	q.cluster = b.cluster;
	if (stored_bytes(b) > 0) {
		if (stored_bytes(b) + 1024 >
		    (size_t)cuda_device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin))
			return false;
		cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)stored_bytes(b));
	}
	if (b.cluster > 1) {
		if (!has_clusters())
			return false;
		cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
		launch_config c(form, stream);
		if (cudaOccupancyMaxActiveClusters(&clusters, kernel, &c.config) != cudaSuccess)
			return false;
	}
	if (clusters == 0)
		return false;
	form.grid.x *= (unsigned)(p.rows < (uint64_t)clusters ? p.rows : (uint64_t)clusters);
	launch_kernel(kernel, form, stream, where, p, q);
	return true;
}

template <typename T>
void launch_split(const problem &p, const row_params &q, const struct launch *launch,
                  uint64_t bytes = ROWS_BYTES)
{
	uint64_t rows = bytes / (p.cols * sizeof(T)), parts = ceil_div(p.cols, PART_MIN);
	split d = {0, (unsigned)(parts < PARTS_MAX ? parts : PARTS_MAX), (total *)launch->workspace};
	cudaStream_t stream = cuda_stream(launch);

	rows = rows < PARTS_MAX / d.parts ? rows : PARTS_MAX / d.parts;
	rows = rows ? rows : 1;
	for (; d.first < p.rows; d.first += rows) {
		uint64_t left = p.rows - d.first;
		unsigned n = (unsigned)(left < rows ? left : rows) * d.parts;
		launch_form finish = {dim3(n), dim3(SPLIT_THREADS)}, totals = finish;

		totals.early = d.first > 0; /* it reads x before it waits */
		launch_kernel(fused_totals<T>, totals, stream, p, q, d);
		launch_kernel(fused_finish<T>, finish, stream, p, q, d);
	}
}

template <typename T, unsigned OPS> fused_kernel<OPS> block_kernel(const problem &p, const blocks &b)
{
	constexpr int VECTORS = (int)HELD<T>;

	if constexpr (OPS == 1)
		if (b.cluster > 1)
			return p.log ? fused_block<T, VECTORS, true, true, OPS>
			             : fused_block<T, VECTORS, true, false, OPS>;
	return p.log ? fused_block<T, VECTORS, false, true, OPS> : fused_block<T, VECTORS, false, false, OPS>;
}

/* False, with nothing launched, where the GPU has no room for a row. */
template <typename T, unsigned OPS>
bool launch_whole_rows(const operands<3, OPS> &where, const problem &p, const row_params &q,
                       cudaStream_t stream)
{
	const lanes_row<OPS> *lanes = lanes_for<T, OPS>(p, q);

	if (lanes) {
		launch_lanes(where, p, q, *lanes, stream);
		return true;
	}
	const blocks b = choose_blocks<T>(p.cols / WIDE<T>);
	return launch_blocks(where, p, q, block_kernel<T, OPS>(p, b), b, stream);
}

template <typename T> void launch_fused(const op_args *args, const struct launch *launch)
{
	problem p = problem_of(args);
	row_params q = row_params_of<T>(p);

	if (!launch_whole_rows<T>(operands_of<3>(args), p, q, cuda_stream(launch)))
		launch_split<T>(p, q, launch);
}

/* There is room: a row of CUDA_TOGETHER_BYTES is one block's, with 54 KiB of shared memory. */
template <typename T>
void launch_fused_together(const op_args *const *args, unsigned n, const struct launch *launch)
{
	problem p = problem_of(args[0]);

	static_assert(CUDA_TOGETHER_BYTES / 16 <= 384 * 11, "choose_blocks() gives it one block");
	launch_whole_rows<T>(operands_of<3>(args, n, launch), p, row_params_of<T>(p), cuda_stream(launch));
}

} // namespace

/* The totals of split rows. */
extern "C" uint64_t softmax_fused_workspace(const op_args *args)
{
	const view *y = &args->views[SOFTMAX_Y];

	return y->shape[y->rank - 1] > PART_MIN / 2 ? PARTS_MAX * sizeof(total) : 0;
}

extern "C" CUDA_LAUNCH(softmax_fused)
{
	switch (args->views[SOFTMAX_X].dtype) {
	case KOPS_F16:
		launch_fused<__half>(args, launch);
		break;
	case KOPS_BF16:
		launch_fused<__nv_bfloat16>(args, launch);
		break;
	default:
		launch_fused<float>(args, launch);
	}
	return cuda_launch_status();
}

extern "C" CUDA_TOGETHER(softmax_fused_together)
{
	switch (args[0]->views[SOFTMAX_X].dtype) {
	case KOPS_F16:
		launch_fused_together<__half>(args, n, launch);
		break;
	case KOPS_BF16:
		launch_fused_together<__nv_bfloat16>(args, n, launch);
		break;
	default:
		launch_fused_together<float>(args, n, launch);
	}
	return cuda_launch_status();
}
