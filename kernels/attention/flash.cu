/*
 * attention of f16 and bf16 on tensor cores, after FlashAttention-2 (T. Dao, 2023): o = softmax(scale q kT +
 * mask) v.
 *
 *   kernel  idea                                    tiles, threads          bound
 *   flash   scores of a tile stay in registers;     64 or 128 queries by    arithmetic: the products, and the
 *           the largest and the sum so far are      64 keys, 128; depth is  exponentials between them; few
 *           carried along, and results scaled       padded to 64, 128       queries: memory
 *           down when there is a larger one         or 256
 *
 * Each warp has 16 queries, or 32, which halves what it reads of k and v. Tiles of k and v come by cp.async,
 * one tile ahead. Of few queries with several heads for one head of k and v, a block has all (flash.h). If
 * there are few blocks, each has a part of the keys, and join.cuh adds up what they found.
 *
 * Exponentials are made by exp2 of scores times log2(e), in f32, and rounded to the type before they are
 * multiplied by v. Their sum is of those that are not rounded.
 */
#include <float.h>
#include <math.h>

#include "attention/flash.h"
#include "attention/join.cuh"
#include "attention/problem.cuh"
#include "common/hopper/async_copy.cuh"
#include "common/hopper/barrier.cuh"
#include "common/hopper/element.cuh"
#include "common/hopper/mma.cuh"
#include "common/hopper/shared.cuh"
#include "common/launch.cuh"
#include "softmax/exp2.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#pragma nv_diag_suppress 177 /* the kernel is empty there, and what it would use unused */
#endif

namespace
{

constexpr int FLASH_THREADS = 128;
constexpr int FLASH_STAGES = 2;
constexpr float LN_2 = 0.69314718f;
constexpr uint64_t FLASH_GRID_MAX = 1u << 30;

struct flash_work {
	attention_problem p;
	flash_plan plan;
	float *sums;    /* what join.cuh joins; NULL: there is one part */
	float factor;   /* of scores, log2(e) included */
	bool has_pairs; /* two columns of o can be written at once */
};

/* Of a row of a unit: where it belongs. */
struct row_place {
	int64_t batch, head;
	int query;
};

__device__ __forceinline__ row_place place_of_row(const flash_work &w, uint64_t unit, uint64_t row)
{
	int64_t units = w.p.heads / (int64_t)w.plan.packed;
	int64_t first = (int64_t)unit % units * (int64_t)w.plan.packed;

	return {(int64_t)unit / units, first + (int64_t)(row / w.plan.queries), (int)(row % w.plan.queries)};
}

#if __CUDA_ARCH__ >= 900

/* How a tile with rows of D elements lies in shared memory. */
template <int D> struct tile_form {
	static constexpr int PITCH = D * 2 + 16; /* 8 lines meet 32 banks */
	static constexpr int BYTES = 64 * PITCH;
	static constexpr int PIECES = D / 8;
};

/* A piece of 8 elements from `column` on, as far as there are some. */
template <class T>
__device__ __forceinline__ void fetch_piece(uint32_t to, const T *row, int column, int columns, bool is_there)
{
	int left = is_there ? (columns - column) * 2 : 0;

	left = left < 0 ? 0 : left < 16 ? left : 16;
	hopper::copy_piece(to, left > 0 ? row + column : row, left);
}

/* Rows of k or v from `first` on. */
template <class T, int D>
__device__ __forceinline__ void fetch_keys(uint32_t tile, const T *from, int64_t apart, int first, int end,
                                           int columns)
{
	using form = tile_form<D>;
	constexpr int ROWS = FLASH_THREADS / form::PIECES; /* that the block fetches at a time */
	int key = (int)threadIdx.x / form::PIECES, piece = (int)threadIdx.x % form::PIECES;
	const T *row = from + (first + key) * apart;

	tile += key * form::PITCH + piece * 16;
#pragma unroll
	for (int i = 0; i < FLASH_KEYS; i += ROWS) {
		bool is_there = first + key + i < end;

		fetch_piece(tile + i * form::PITCH, is_there ? row + i * apart : from, piece * 8, columns,
		            is_there);
	}
}

/* A block's rows, and its keys. */
struct block_part {
	uint64_t unit, row; /* the first */
	int length;         /* of its batch: length_of() */
	int rows, begin, end;
	int plain_begin,
	    plain_end; /* keys that all rows see, if there is no mask, and larger products are larger scores */
	unsigned part;
};

/* The length of the batch that a part belongs to, the same in all threads. */
__device__ __forceinline__ int length_of_part(const flash_work &w, uint64_t number)
{
	__shared__ int length;

	if (!w.p.lengths)
		return 0;
	__syncthreads(); /* all have read the one before */
	if (threadIdx.x == 0)
		length = length_of(w.p, place_of_row(w, number / w.plan.parts % w.plan.units, 0).batch);
	__syncthreads();
	return length;
}

__device__ __forceinline__ block_part part_of_number(const flash_work &w, uint64_t number)
{
	const flash_plan &plan = w.plan;
	block_part b;
	uint64_t rest = number / plan.parts, left;

	b.length = length_of_part(w, number);
	b.part = (unsigned)(number % plan.parts);
	/* Later rows see more keys, if it is causal: they begin first. */
	b.row = (plan.tiles - 1 - rest / plan.units) * plan.block_rows;
	b.unit = rest % plan.units;
	left = plan.rows - b.row;
	b.rows = left < plan.block_rows ? (int)left : (int)plan.block_rows;

	bool is_packed = plan.packed > 1, is_plain = !w.p.mask.data && w.factor >= 0;
	int64_t first = is_packed ? 0 : (int64_t)b.row,
	        last = is_packed ? (int64_t)plan.queries - 1 : (int64_t)b.row + b.rows - 1;
	attention_rule rule = rule_for(w.p, b.length);
	attention_keys of_first = attention_keys_of(&rule, first), of_last = attention_keys_of(&rule, last);
	int64_t begin = of_first.begin, end = of_last.end;
	int64_t tiles = end > begin ? (end - begin + FLASH_KEYS - 1) / FLASH_KEYS : 0;

	b.begin = (int)(begin + tiles * b.part / plan.parts * FLASH_KEYS);
	b.end = (int)(begin + tiles * (b.part + 1) / plan.parts * FLASH_KEYS);
	b.end = b.end < end ? b.end : (int)end;
	b.plain_begin = (int)of_last.begin;
	b.plain_end = is_plain ? (int)of_first.end : 0;
	return b;
}

/* A warp has M times 16 neighbouring rows; a thread two of each, 8 apart. Row i of the thread, as the block
 * counts. */
template <int M> __device__ __forceinline__ int row_of_thread(int i)
{
	return (int)threadIdx.x / 32 * M * 16 + i / 2 * 16 + i % 2 * 8 + (int)threadIdx.x % 32 / 4;
}

/* What a thread keeps of its rows. */
template <int D, int M> struct thread_rows {
	float peak[2 * M], total[2 * M];
	float sums[M][D / 8][4];
};

template <int M> using tile_scores = float[M][FLASH_KEYS / 8][4];

template <int D, int M> __device__ __forceinline__ void begin_rows(thread_rows<D, M> &r)
{
#pragma unroll
	for (int i = 0; i < 2 * M; i++) {
		r.peak[i] = -INFINITY;
		r.total[i] = 0;
	}
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int j = 0; j < D / 8; j++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				r.sums[m][j][i] = 0;
}

/*
 * Scores of the warp's rows with a tile's keys. Fragments are loaded one step ahead: instructions stay in this
 * order.
 */
template <class T, int D, int M>
__device__ __forceinline__ void multiply_keys(tile_scores<M> &scores, uint32_t q, uint32_t k)
{
	constexpr int PITCH = tile_form<D>::PITCH, BLOCKS = FLASH_KEYS / 16, STEPS = D / 16 * BLOCKS;
	int row = (int)threadIdx.x / 32 * M * 16;
	uint32_t of_q[2][M][4], of_k[2][4];

#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int j = 0; j < FLASH_KEYS / 8; j++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				scores[m][j][i] = 0;
#pragma unroll
	for (int m = 0; m < M; m++)
		load_block<true, PITCH>(of_q[0][m], q, row + m * 16, 0);
	load_block<true, PITCH>(of_k[0], k, 0, 0);
#pragma unroll
	for (int step = 0; step < STEPS; step++) {
		int d = step / BLOCKS, key = step % BLOCKS, next = step + 1;

		if (next < STEPS)
			load_block<true, PITCH>(of_k[next % 2], k, next % BLOCKS * 16, next / BLOCKS * 16);
		if (key == 0 && next + BLOCKS - 1 < STEPS)
#pragma unroll
			for (int m = 0; m < M; m++)
				load_block<true, PITCH>(of_q[(d + 1) % 2][m], q, row + m * 16, (d + 1) * 16);
#pragma unroll
		for (int m = 0; m < M; m++)
#pragma unroll
			for (int half = 0; half < 2; half++)
				hopper::add_products<element_of<T>::E>(
				    scores[m][key * 2 + half], of_q[d % 2][m],
				    {of_k[step % 2][half], of_k[step % 2][half + 2]});
	}
}

/* Which key a score of the thread belongs to, of a tile's 64. */
__device__ __forceinline__ int key_of(int j, int i)
{
	return j * 8 + (int)threadIdx.x % 4 * 2 + i % 2;
}

template <int M> __device__ __forceinline__ void scale_scores(tile_scores<M> &scores, float factor)
{
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int j = 0; j < FLASH_KEYS / 8; j++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				scores[m][j][i] *= factor;
}

/* Adds the mask, and makes scores of keys that a row does not see -Inf. */
template <class T, int M>
__device__ __forceinline__ void mask_scores(tile_scores<M> &scores, const flash_work &w, const block_part &b,
                                            int first)
{
	const float log2e = 1.44269504f;
	attention_rule rule = rule_for(w.p, b.length);

#pragma unroll
	for (int row = 0; row < 2 * M; row++) {
		int number = row_of_thread<M>(row);
		row_place at = place_of_row(w, b.unit, b.row + (number < b.rows ? number : 0));
		attention_keys keys = attention_keys_of(&rule, at.query);
		const T *mask = w.p.mask.data ? row_of<T>(w.p.mask, at.batch, at.head, at.query) : nullptr;

#pragma unroll
		for (int j = 0; j < FLASH_KEYS / 8; j++)
#pragma unroll
			for (int i = row % 2 * 2; i < row % 2 * 2 + 2; i++) {
				int key = first + key_of(j, i);
				bool is_seen = number < b.rows && key >= keys.begin && key < keys.end;
				float score = scores[row / 2][j][i];

				if (mask && is_seen)
					score += (float)mask[key * w.p.mask.strides[3]] * log2e;
				scores[row / 2][j][i] = is_seen ? score : -INFINITY;
			}
	}
}

/* The largest of a row, over the four lanes that share it. half: of the 16 rows, the upper or the lower 8. */
__device__ __forceinline__ float peak_of_row(const float (&scores)[FLASH_KEYS / 8][4], int half)
{
	float peak = -INFINITY;

#pragma unroll
	for (int j = 0; j < FLASH_KEYS / 8; j++)
		peak = fmaxf(peak, fmaxf(scores[j][half * 2], scores[j][half * 2 + 1]));
	peak = fmaxf(peak, __shfl_xor_sync(~0u, peak, 1));
	return fmaxf(peak, __shfl_xor_sync(~0u, peak, 2));
}

/* Makes exponentials of a row's scores times `factor`, which is not negative, relative to the largest so far.
 */
template <int D, int M>
__device__ __forceinline__ void weigh_row(tile_scores<M> &scores, thread_rows<D, M> &r, int row, float factor)
{
	int m = row / 2, half = row % 2;
	float peak = fmaxf(r.peak[row], peak_of_row(scores[m], half) * factor);
	float base = peak == -INFINITY ? 0 : peak, down = exp2_fast(r.peak[row] - base), total = 0;

	r.peak[row] = peak;
#pragma unroll
	for (int j = 0; j < D / 8; j++) {
		r.sums[m][j][half * 2] *= down;
		r.sums[m][j][half * 2 + 1] *= down;
	}
#pragma unroll
	for (int j = 0; j < FLASH_KEYS / 8; j++)
#pragma unroll
		for (int i = half * 2; i < half * 2 + 2; i++) {
			scores[m][j][i] = exp2_fast(scores[m][j][i] * factor - base);
			total += scores[m][j][i];
		}
	r.total[row] = r.total[row] * down + total;
}

/* The same with what the keys weigh, and values. */
template <class T, int D, int M>
__device__ __forceinline__ void add_values(thread_rows<D, M> &r, const tile_scores<M> &weights, uint32_t v)
{
	constexpr int PITCH = tile_form<D>::PITCH, BLOCKS = D / 16, STEPS = FLASH_KEYS / 16 * BLOCKS;
	const T *type = nullptr;
	uint32_t of_p[M][4], of_v[2][4];

	load_block<false, PITCH>(of_v[0], v, 0, 0);
#pragma unroll
	for (int step = 0; step < STEPS; step++) {
		int key = step / BLOCKS, column = step % BLOCKS, next = step + 1;

		if (next < STEPS)
			load_block<false, PITCH>(of_v[next % 2], v, next % BLOCKS * 16, next / BLOCKS * 16);
		if (column == 0)
#pragma unroll
			for (int m = 0; m < M; m++)
#pragma unroll
				for (int i = 0; i < 4; i++) {
					const float(&four)[4] = weights[m][key * 2 + i / 2];
					of_p[m][i] = pack_pair(type, four[i % 2 * 2], four[i % 2 * 2 + 1]);
				}
#pragma unroll
		for (int m = 0; m < M; m++)
#pragma unroll
			for (int half = 0; half < 2; half++)
				hopper::add_products<element_of<T>::E>(
				    r.sums[m][column * 2 + half], of_p[m],
				    {of_v[step % 2][half], of_v[step % 2][half + 2]});
	}
}

/* Sums up what the four lanes of a row have. */
__device__ __forceinline__ float sum_of_row(float x)
{
	x += __shfl_xor_sync(~0u, x, 1);
	return x + __shfl_xor_sync(~0u, x, 2);
}

template <class T, int D, int M>
__device__ __forceinline__ void write_rows(const thread_rows<D, M> &r, const flash_work &w, const block_part &b)
{
	const T *type = nullptr;

#pragma unroll
	for (int i = 0; i < 2 * M; i++) {
		float total = sum_of_row(r.total[i]), by = total == 0 ? 0 : 1 / total;
		int row = row_of_thread<M>(i);

		if (row >= b.rows)
			continue;
		row_place at = place_of_row(w, b.unit, b.row + row);
		T *o = row_of<T>(w.p.o, at.batch, at.head, at.query);
		if (threadIdx.x % 4 == 0)
			write_lse(w.p, at.batch, at.head, at.query, r.peak[i] * LN_2, total);
#pragma unroll
		for (int j = 0; j < D / 8; j++) {
			int column = j * 8 + (int)threadIdx.x % 4 * 2;
			float low = r.sums[i / 2][j][i % 2 * 2] * by,
			      high = r.sums[i / 2][j][i % 2 * 2 + 1] * by;

			if (w.has_pairs && column + 1 < w.p.values) {
				*(uint32_t *)(o + column) = pack_pair(type, low, high);
				continue;
			}
			if (column < w.p.values)
				o[column * w.p.o.strides[3]] = (T)low;
			if (column + 1 < w.p.values)
				o[(column + 1) * w.p.o.strides[3]] = (T)high;
		}
	}
}

/* What join.cuh joins. */
template <int D, int M>
__device__ __forceinline__ void keep_rows(const thread_rows<D, M> &r, const flash_work &w, const block_part &b)
{
	int columns = w.p.values;

#pragma unroll
	for (int i = 0; i < 2 * M; i++) {
		float total = sum_of_row(r.total[i]);
		int row = row_of_thread<M>(i);

		if (row >= b.rows)
			continue;
		float *to = w.sums + ((b.unit * w.plan.rows + b.row + row) * w.plan.parts + b.part) *
		                         (uint64_t)(columns + 2);
#pragma unroll
		for (int j = 0; j < D / 8; j++)
#pragma unroll
			for (int e = 0; e < 2; e++) {
				int column = j * 8 + (int)threadIdx.x % 4 * 2 + e;
				if (column < columns)
					to[column] = r.sums[i / 2][j][i % 2 * 2 + e];
			}
		if (threadIdx.x % 4 == 0) {
			to[columns] = r.peak[i] * LN_2;
			to[columns + 1] = total;
		}
	}
}

/* The tiles of a block: q, and stages of k and v. */
template <class T, int D, int M> struct tiles_of {
	const flash_work &w;
	uint32_t memory, barriers;
	const T *of_k, *of_v; /* the head of the block's rows */

	__device__ __forceinline__ uint32_t k(unsigned stage) const
	{
		return memory + (M + stage * 2) * tile_form<D>::BYTES;
	}
	__device__ __forceinline__ uint32_t v(unsigned stage) const
	{
		return k(stage) + tile_form<D>::BYTES;
	}
	__device__ __forceinline__ void fetch_queries(const block_part &b) const
	{
		using form = tile_form<D>;

		for (int i = threadIdx.x; i < M * 64 * form::PIECES; i += FLASH_THREADS) {
			int row = i / form::PIECES, piece = i % form::PIECES;
			row_place at = place_of_row(w, b.unit, b.row + (row < b.rows ? row : 0));

			fetch_piece(memory + row * form::PITCH + piece * 16,
			            row_of<const T>(w.p.q, at.batch, at.head, at.query), piece * 8, w.p.depth,
			            row < b.rows);
		}
	}
	/* `step` counts all tiles that the block has fetched. */
	__device__ __forceinline__ void fetch(const block_part &b, uint64_t step, int first) const
	{
		unsigned stage = (unsigned)(step % FLASH_STAGES);

		fetch_keys<T, D>(k(stage), of_k, w.p.k.strides[2], first, b.end, w.p.depth);
		fetch_keys<T, D>(v(stage), of_v, w.p.v.strides[2], first, b.end, w.p.values);
		hopper::barrier_arrive_copied(barriers + stage * 8);
	}
	__device__ __forceinline__ void await(uint64_t step) const
	{
		hopper::barrier_wait(barriers + (unsigned)(step % FLASH_STAGES) * 8,
		                     (unsigned)(step / FLASH_STAGES % 2));
	}
};

template <class T, int D, int M>
__device__ __forceinline__ void attend(const tiles_of<T, D, M> &tiles, thread_rows<D, M> &r,
                                       const block_part &b, uint64_t &step)
{
	bool has_rows = (int)threadIdx.x / 32 * M * 16 < b.rows;

	if (b.begin < b.end)
		tiles.fetch_queries(b);
	for (int i = 0; i < FLASH_STAGES; i++)
		if (b.begin + i * FLASH_KEYS < b.end)
			tiles.fetch(b, step + i, b.begin + i * FLASH_KEYS);
	for (int first = b.begin; first < b.end; first += FLASH_KEYS, step++) {
		unsigned stage = (unsigned)(step % FLASH_STAGES);

		tiles.await(step);
		if (has_rows) {
			tile_scores<M> scores;

			multiply_keys<T, D, M>(scores, tiles.memory, tiles.k(stage));
			bool plain = first >= b.plain_begin && first + FLASH_KEYS <= b.plain_end;
			if (!plain) {
				scale_scores<M>(scores, tiles.w.factor);
				mask_scores<T, M>(scores, tiles.w, b, first);
			}
#pragma unroll
			for (int row = 0; row < 2 * M; row++)
				weigh_row<D, M>(scores, r, row, plain ? tiles.w.factor : 1);
			add_values<T, D, M>(r, scores, tiles.v(stage));
		}
		__syncthreads();
		if (first + FLASH_STAGES * FLASH_KEYS < b.end)
			tiles.fetch(b, step + FLASH_STAGES, first + FLASH_STAGES * FLASH_KEYS);
	}
}

#endif

template <class T, int D, int M>
__global__ void __launch_bounds__(FLASH_THREADS) flash(const __grid_constant__ flash_work w, uint64_t n_blocks)
{
#if __CUDA_ARCH__ >= 900
	extern __shared__ __align__(128) char memory[];
	__shared__ uint64_t barriers[FLASH_STAGES];
	tiles_of<T, D, M> tiles = {w, hopper::shared_address(memory), hopper::shared_address(barriers), nullptr,
	                           nullptr};
	uint64_t step = 0;

	if (threadIdx.x == 0) {
		for (int i = 0; i < FLASH_STAGES; i++)
			hopper::barrier_init(tiles.barriers + i * 8, FLASH_THREADS);
		hopper::barriers_ready();
	}
	__syncthreads();
	await_kernel_before();
	let_next_kernel_come();
	for (uint64_t number = blockIdx.x; number < n_blocks; number += gridDim.x) {
		block_part b = part_of_number(w, number);
		row_place at = place_of_row(w, b.unit, b.row);
		thread_rows<D, M> r;

		tiles.of_k = row_of<const T>(w.p.k, at.batch, shared_head(w.p, at.head), 0);
		tiles.of_v = row_of<const T>(w.p.v, at.batch, shared_head(w.p, at.head), 0);
		begin_rows(r);
		attend<T, D, M>(tiles, r, b, step);
		if (w.sums)
			keep_rows<D, M>(r, w, b);
		else
			write_rows<T, D, M>(r, w, b);
	}
#endif
}

/* ---- Launches ---- */

template <class T, int D, int M> void launch_flash(const flash_work &w, cudaStream_t stream)
{
	const int bytes = (M + 2 * FLASH_STAGES) * 64 * (D * 2 + 16);
	uint64_t blocks = w.plan.units * w.plan.tiles * w.plan.parts;

	cudaFuncSetAttribute(flash<T, D, M>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
	launch_kernel(flash<T, D, M>,
	              {dim3((unsigned)(blocks < FLASH_GRID_MAX ? blocks : FLASH_GRID_MAX)), dim3(FLASH_THREADS),
	               (size_t)bytes},
	              stream, w, blocks);
}

template <class T> int launch_by_depth(const op_args *args, const flash_work &w, cudaStream_t stream)
{
	int depth = w.p.depth > w.p.values ? w.p.depth : w.p.values;

	if (w.plan.block_rows > 64)
		launch_flash<T, 64, 2>(w, stream);
	else if (depth <= 64)
		launch_flash<T, 64, 1>(w, stream);
	else if (depth <= 128)
		launch_flash<T, 128, 1>(w, stream);
	else
		launch_flash<T, 256, 1>(w, stream);
	if (w.sums)
		launch_join<T, float>(args, w.p, findings_of<float>(args, w.sums, w.plan.parts), stream);
	return cuda_launch_status();
}

bool has_aligned_rows(const view *v)
{
	const int64_t piece = 16 / (int64_t)dtype_size(v->dtype);
	bool aligned = (uintptr_t)v->data % 16 == 0 && v->offset % 16 == 0;

	for (unsigned d = 0; d < 3; d++)
		aligned &= v->shape[d] <= 1 || v->strides[d] % piece == 0;
	return aligned && (v->shape[3] <= 1 || v->strides[3] == 1);
}

/* Where they are faster: 208 TFLOP/s for 4096 x 4096 x 64, not 188, but slower where rows see different keys.
 */
bool has_large_blocks(const op_args *args)
{
	attention_rule rule = attention_rule_of(args);
	const view *v = args->views;

	return v[ATTENTION_Q].shape[2] >= 512 && v[ATTENTION_Q].shape[3] <= 64 &&
	       v[ATTENTION_V].shape[3] <= 64 && !rule.causal && rule.window == 0;
}

/* Parts of fewer keys are not worth being joined. */
constexpr uint64_t PART_KEYS = 4 * FLASH_KEYS;
constexpr double PARTS_MAX = 64;

unsigned parts_of(const op_args *args, uint64_t blocks)
{
	uint64_t keys = args->views[ATTENTION_K].shape[2];
	double wanted = 2 * cuda_multiprocessors() / (double)blocks, most = floor((double)keys / PART_KEYS);

	return (unsigned)fmax(fmin(fmin(floor(wanted), most), PARTS_MAX), 1);
}

bool has_pairs(const tensor &o)
{
	return o.strides[3] == 1 && (uintptr_t)o.data % 4 == 0 && o.strides[0] % 2 == 0 &&
	       o.strides[1] % 2 == 0 && o.strides[2] % 2 == 0;
}

} // namespace

extern "C" bool attention_flash_supports(const op_args *args, const char **ret_why_not)
{
	const view *q = &args->views[ATTENTION_Q], *v = &args->views[ATTENTION_V];

	*ret_why_not = "takes f16 and bf16";
	if (dtype_size(q->dtype) != 2)
		return false;
	*ret_why_not = "takes head_dim and value_dim up to 256";
	if (q->shape[3] > FLASH_DEPTH_MAX || v->shape[3] > FLASH_DEPTH_MAX)
		return false;
	*ret_why_not = "needs rows of q, k and v that begin at multiples of 16 bytes, of elements side by side";
	for (unsigned i = ATTENTION_Q; i <= ATTENTION_V; i++)
		if (!has_aligned_rows(&args->views[i]))
			return false;
	*ret_why_not = "takes up to 2^31 queries and keys";
	return q->shape[2] <= INT32_MAX / 2 && v->shape[2] <= INT32_MAX / 2 && q->shape[1] <= INT32_MAX;
}

extern "C" flash_plan flash_plan_of(const op_args *args)
{
	const view *q = &args->views[ATTENTION_Q];
	const double *numbers = args->params.plain.numbers;
	uint64_t group = (uint64_t)numbers[ATTENTION_GROUP], first = (uint64_t)numbers[ATTENTION_HEAD];
	flash_plan p = {q->shape[2], 1, 0, 64, 0, 0, 1};

	/* A part of the heads may begin or end within a group. */
	if (p.queries * group <= p.block_rows && first % group == 0 && q->shape[1] % group == 0)
		p.packed = group;
	p.rows = p.queries * p.packed;
	p.units = q->shape[0] * (q->shape[1] / p.packed);
	if (has_large_blocks(args))
		p.block_rows = 128;
	p.tiles = (p.rows + p.block_rows - 1) / p.block_rows;
	p.parts = parts_of(args, p.units * p.tiles);
	return p;
}

extern "C" uint64_t attention_flash_workspace(const op_args *args)
{
	return attention_found_bytes(args, flash_plan_of(args).parts, sizeof(float));
}

extern "C" CUDA_LAUNCH(attention_flash)
{
	flash_work w = {problem_of(args), flash_plan_of(args), nullptr, 0, false};
	double factor = w.p.rule.scale * 1.4426950408889634;

	w.sums = attention_flash_workspace(args) > 0 ? (float *)launch->workspace : nullptr;
	w.factor = (float)fmax(fmin(factor, (double)FLT_MAX), -(double)FLT_MAX);
	w.has_pairs = has_pairs(w.p.o);
	return args->views[ATTENTION_O].dtype == KOPS_F16
	           ? launch_by_depth<__half>(args, w, cuda_stream(launch))
	           : launch_by_depth<__nv_bfloat16>(args, w, cuda_stream(launch));
}
