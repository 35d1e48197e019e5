/* transposition.cuh: a transposition as the kernels see it, and the grids that cover it. */
#ifndef KOPS_KERNELS_TRANSPOSE_TRANSPOSITION_CUH
#define KOPS_KERNELS_TRANSPOSE_TRANSPOSITION_CUH

#include "common/together.cuh"

namespace
{

constexpr unsigned GRID_YZ_MAX = 65535;

/* x: rows × cols per batch, the longer axis of batches second. Strides in elements; y's are those of x's axes.
 */
struct transposition {
	uint64_t rows, cols, batch[2];
	int64_t x_row, x_col, x_batch[2];
	int64_t y_row, y_col, y_batch[2];
	bool y_by_cols; /* y's finest axis is x's cols too (after orient()) */
};

/* The matrix of this block: z of the grid numbers the batches; or ops of one matrix each, whose strides here
 * are 0. */
__device__ __forceinline__ int64_t begin(const transposition &p, const int64_t strides[2])
{
	unsigned inner = blockIdx.z, n = (unsigned)p.batch[1];

	if (p.batch[0] == 1)
		return inner * strides[1];
	return inner / n * strides[0] + inner % n * strides[1];
}

/* How much of a tile lies inside. */
struct part {
	int rows, cols;
};

__device__ __forceinline__ int clip(uint64_t extent, uint64_t from, int side)
{
	return extent - from < (uint64_t)side ? (int)(extent - from) : side;
}

template <typename V> void exchange(V &a, V &b)
{
	V was = a;

	a = b;
	b = was;
}

inline transposition transposition_of(const struct op_args *args)
{
	const view *x = &args->views[0], *y = &args->views[1];
	uint32_t r = x->rank;
	transposition p = {};

	p.rows = x->shape[r - 2];
	p.cols = x->shape[r - 1];
	p.x_row = x->strides[r - 2];
	p.x_col = x->strides[r - 1];
	p.y_row = y->strides[r - 1];
	p.y_col = y->strides[r - 2];
	for (uint32_t i = 0; i < 2; i++) {
		uint32_t back = 4 - i; /* axis r - 4, then r - 3 */
		bool there = r >= back;

		p.batch[i] = there ? x->shape[r - back] : 1;
		p.x_batch[i] = p.batch[i] > 1 ? x->strides[r - back] : 0;
		p.y_batch[i] = p.batch[i] > 1 ? y->strides[r - back] : 0;
	}
	if (p.batch[0] > p.batch[1]) {
		exchange(p.batch[0], p.batch[1]);
		exchange(p.x_batch[0], p.x_batch[1]);
		exchange(p.y_batch[0], p.y_batch[1]);
	}
	return p;
}

/* Whether an axis of n indices is finer than the other, of m. */
inline bool is_finer(uint64_t n, int64_t stride, uint64_t m, int64_t other)
{
	return n > 1 && (m == 1 || stride_magnitude(stride) < stride_magnitude(other));
}

/* Names the axes so that cols are x's finest. */
inline void orient(transposition &p)
{
	if (is_finer(p.rows, p.x_row, p.cols, p.x_col)) {
		exchange(p.rows, p.cols);
		exchange(p.x_row, p.x_col);
		exchange(p.y_row, p.y_col);
	}
	p.y_by_cols = is_finer(p.cols, p.y_col, p.rows, p.y_row);
}

/* The common case: both matrices row-major, dense or pitched. */
inline bool has_unit_rows(const transposition &p)
{
	return (p.x_col == 1 || p.cols == 1) && (p.y_row == 1 || p.rows == 1) && !p.y_by_cols;
}

inline uint64_t tiles(uint64_t extent, uint64_t side)
{
	return (extent + side - 1) / side;
}

/*
 * Calls enqueue(part of the transposition, x, y, grid) until blocks of rows × cols have covered it: once,
 * unless it needs more blocks than a grid has along y or z. x of the grid along rows: neighbouring blocks write
 * neighbouring parts of the same rows of y, so that what is being written at any moment is a few whole rows.
 */
template <typename T, typename Enqueue>
inline void cover(transposition p, const T *x, T *y, unsigned rows, unsigned cols, Enqueue enqueue)
{
	uint64_t all_cols = p.cols, outer = p.batch[0], inner = p.batch[1], together = outer;

	if (outer > 1 && outer * inner > GRID_YZ_MAX)
		together = 1;
	for (uint64_t b = 0; b < outer; b += together)
		for (uint64_t c = 0; c < inner; c += GRID_YZ_MAX)
			for (uint64_t col = 0; col < all_cols; col += (uint64_t)GRID_YZ_MAX * cols) {
				uint64_t left = all_cols - col;

				p.batch[0] = together;
				p.batch[1] = inner - c < GRID_YZ_MAX ? inner - c : GRID_YZ_MAX;
				p.cols =
				    left < (uint64_t)GRID_YZ_MAX * cols ? left : (uint64_t)GRID_YZ_MAX * cols;
				enqueue(p,
				        x + (int64_t)b * p.x_batch[0] + (int64_t)c * p.x_batch[1] +
				            (int64_t)col * p.x_col,
				        y + (int64_t)b * p.y_batch[0] + (int64_t)c * p.y_batch[1] +
				            (int64_t)col * p.y_col,
				        dim3((unsigned)tiles(p.rows, rows), (unsigned)tiles(p.cols, cols),
				             (unsigned)(p.batch[0] * p.batch[1])));
			}
}

/* An op: its operands where a kernel takes them. enqueue(part of the transposition, operands, grid) as cover()
 * has it.
 */
template <typename T, typename Enqueue>
inline void cover(const transposition &p, const operands<2, 1> &where, unsigned rows, unsigned cols,
                  Enqueue enqueue)
{
	cover(p, (const T *)where.of[0][0], (T *)where.of[0][1], rows, cols,
	      [&](const transposition &q, const T *x, T *y, dim3 grid) {
		      enqueue(q, operands<2, 1>{{{(void *)x, y}}, 1}, grid);
	      });
}

/* Several ops, of one small matrix each. */
template <typename T, typename Enqueue>
inline void cover(const transposition &p, const operands<2, TOGETHER_MAX> &where, unsigned rows, unsigned cols,
                  Enqueue enqueue)
{
	enqueue(p, where, dim3((unsigned)tiles(p.rows, rows), (unsigned)tiles(p.cols, cols), where.n));
}

/* Larger tiles would be half empty. */
inline bool is_narrow(const transposition &p, uint64_t side)
{
	return p.rows <= side || p.cols <= side;
}

/* A tile would be nearly empty. */
inline bool is_thin(const struct op_args *args)
{
	const view *x = &args->views[0];

	return x->shape[x->rank - 2] < 12 || x->shape[x->rank - 1] < 12;
}

} // namespace

#endif
