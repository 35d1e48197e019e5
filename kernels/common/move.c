/*
 * move.c: strided copies.
 *
 * rows    a unit stride that both sides share: memcpy per row
 * tiles   unit strides along different axes: tiles of 8×8 (8-byte elements: 4×4) are transposed in registers.
 *         Whole lines are read and written at a time, in blocks of 64×64 that stay in the first-level cache,
 * and the next lines are prefetched. others  the same blocks, element by element; also element sizes without a
 * loop of their own
 *
 * On 4096×4096, whose rows fall into few sets of the cache, whole lines are 1.6 times as fast, and prefetching
 * adds a factor of 1.25.
 */
#include "common/move.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "common/cpu.h"
#include "common/threads.h"

#define BLOCK       64
#define LINE        64           /* bytes of a cache line */
#define GRAIN_BYTES (128 * 1024) /* per part: takes about ten microseconds */

#define DEFINE_BLOCK(type, name)                                                                               \
	static void name(type *restrict y, int64_t y_row, int64_t y_col, const type *restrict x,               \
	                 int64_t x_row, int64_t x_col, uint64_t rows, uint64_t cols)                           \
	{                                                                                                      \
		for (int64_t i = 0; i < (int64_t)rows; i++)                                                    \
			for (int64_t j = 0; j < (int64_t)cols; j++)                                            \
				y[i * y_row + j * y_col] = x[i * x_row + j * x_col];                           \
	}
DEFINE_BLOCK(uint16_t, block_2)
DEFINE_BLOCK(uint32_t, block_4)
DEFINE_BLOCK(uint64_t, block_8)

/* Moves elements of any size; strides are in elements. */
static void block_of_size(char *y, int64_t y_row, int64_t y_col, const char *x, int64_t x_row, int64_t x_col,
                          uint64_t rows, uint64_t cols, size_t size)
{
	int64_t width = (int64_t)size;

	for (int64_t i = 0; i < (int64_t)rows; i++)
		for (int64_t j = 0; j < (int64_t)cols; j++)
			memcpy(y + (i * y_row + j * y_col) * width, x + (i * x_row + j * x_col) * width, size);
}

#if defined(__GNUC__) && (defined(__clang__) || __GNUC__ >= 12)
typedef uint16_t lanes_2 __attribute__((vector_size(16), aligned(2), may_alias));
typedef uint32_t lanes_4 __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint64_t lanes_8 __attribute__((vector_size(32), aligned(8), may_alias));
#define MIX(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#define INLINE         static inline __attribute__((always_inline))

/* tile_N: y[j, i] = x[i, j] for elements of N bytes, rows y_ld and x_ld apart; 8×8, 8×8 and 4×4. */

#define LOW1(a, b)  MIX(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH1(a, b) MIX(a, b, 4, 12, 5, 13, 6, 14, 7, 15)

/* Interleaves rows i and i + 4 into rows 2 i and 2 i + 1, three times. */
INLINE void tile_2(uint16_t *y, int64_t y_ld, const uint16_t *x, int64_t x_ld)
{
	lanes_2 r[8], s[8];

	for (int i = 0; i < 8; i++)
		r[i] = *(const lanes_2 *)(x + i * x_ld);
	for (int i = 0; i < 4; i++) {
		s[2 * i] = LOW1(r[i], r[i + 4]);
		s[2 * i + 1] = HIGH1(r[i], r[i + 4]);
	}
	for (int i = 0; i < 4; i++) {
		r[2 * i] = LOW1(s[i], s[i + 4]);
		r[2 * i + 1] = HIGH1(s[i], s[i + 4]);
	}
	for (int i = 0; i < 4; i++) {
		*(lanes_2 *)(y + 2 * i * y_ld) = LOW1(r[i], r[i + 4]);
		*(lanes_2 *)(y + (2 * i + 1) * y_ld) = HIGH1(r[i], r[i + 4]);
	}
}

#define LOW2(a, b)  MIX(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
#define HIGH2(a, b) MIX(a, b, 2, 10, 3, 11, 6, 14, 7, 15)
#define LOW4(a, b)  MIX(a, b, 0, 1, 8, 9, 4, 5, 12, 13)
#define HIGH4(a, b) MIX(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
#define LOW8(a, b)  MIX(a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define HIGH8(a, b) MIX(a, b, 4, 5, 6, 7, 12, 13, 14, 15)

INLINE void tile_4(uint32_t *y, int64_t y_ld, const uint32_t *x, int64_t x_ld)
{
	lanes_4 r[8], s[8];

	for (int i = 0; i < 8; i++)
		r[i] = *(const lanes_4 *)(x + i * x_ld);
	for (int i = 0; i < 8; i += 2) {
		s[i] = LOW2(r[i], r[i + 1]);
		s[i + 1] = HIGH2(r[i], r[i + 1]);
	}
	for (int i = 0; i < 8; i += 4) {
		r[i] = LOW4(s[i], s[i + 2]);
		r[i + 1] = HIGH4(s[i], s[i + 2]);
		r[i + 2] = LOW4(s[i + 1], s[i + 3]);
		r[i + 3] = HIGH4(s[i + 1], s[i + 3]);
	}
	for (int i = 0; i < 4; i++) {
		*(lanes_4 *)(y + i * y_ld) = LOW8(r[i], r[i + 4]);
		*(lanes_4 *)(y + (i + 4) * y_ld) = HIGH8(r[i], r[i + 4]);
	}
}

INLINE void tile_8(uint64_t *y, int64_t y_ld, const uint64_t *x, int64_t x_ld)
{
	lanes_8 r[4], s[4];

	for (int i = 0; i < 4; i++)
		r[i] = *(const lanes_8 *)(x + i * x_ld);
	for (int i = 0; i < 4; i += 2) {
		s[i] = MIX(r[i], r[i + 1], 0, 4, 2, 6);
		s[i + 1] = MIX(r[i], r[i + 1], 1, 5, 3, 7);
	}
	for (int i = 0; i < 2; i++) {
		*(lanes_8 *)(y + i * y_ld) = MIX(s[i], s[i + 2], 0, 1, 4, 5);
		*(lanes_8 *)(y + (i + 2) * y_ld) = MIX(s[i], s[i + 2], 2, 3, 6, 7);
	}
}

/* Prefetches the lines of x two lines further on, in `rows` rows; harmless beyond the end. */
INLINE void prefetch_ahead(const void *x, int64_t row_bytes, int rows)
{
	for (int i = 0; i < rows; i++)
		__builtin_prefetch((const void *)((uintptr_t)x + (uint64_t)(i * row_bytes + 2 * LINE)));
}

/*
 * Computes y[j, i] = x[i, j] for rows × cols of x, both multiples of `tile`, in squares of whole lines of both.
 */
#define DEFINE_FLIP(bytes, type, tile)                                                                         \
	CPU_CLONES static void flip_##bytes(type *y, int64_t y_ld, const type *x, int64_t x_ld, int64_t rows,  \
	                                    int64_t cols)                                                      \
	{                                                                                                      \
		const int64_t side = LINE / bytes;                                                             \
		for (int64_t j = 0; j < cols; j += side)                                                       \
			for (int64_t i = 0; i < rows; i += side) {                                             \
				prefetch_ahead(x + i * x_ld + j, x_ld * bytes, LINE / bytes);                  \
				for (int64_t jj = j; jj < j + side && jj < cols; jj += tile)                   \
					for (int64_t ii = i; ii < i + side && ii < rows; ii += tile)           \
						tile_##bytes(y + jj * y_ld + ii, y_ld, x + ii * x_ld + jj,     \
						             x_ld);                                            \
			}                                                                                      \
	}                                                                                                      \
	/* A block whose rows lie along x and whose columns lie along y: full tiles, then the two edges. */    \
	static void flip_block_##bytes(type *y, int64_t y_ld, const type *x, int64_t x_ld, uint64_t rows,      \
	                               uint64_t cols)                                                          \
	{                                                                                                      \
		uint64_t full_rows = rows / tile * tile, full_cols = cols / tile * tile;                       \
		flip_##bytes(y, y_ld, x, x_ld, (int64_t)full_rows, (int64_t)full_cols);                        \
		block_##bytes(y + (int64_t)full_cols * y_ld, 1, y_ld, x + full_cols, x_ld, 1, full_rows,       \
		              cols - full_cols);                                                               \
		block_##bytes(y + full_rows, 1, y_ld, x + (int64_t)full_rows * x_ld, x_ld, 1,                  \
		              rows - full_rows, cols);                                                         \
	}
#else
#define DEFINE_FLIP(bytes, type, tile)                                                                         \
	static void flip_block_##bytes(type *y, int64_t y_ld, const type *x, int64_t x_ld, uint64_t rows,      \
	                               uint64_t cols)                                                          \
	{                                                                                                      \
		block_##bytes(y, 1, y_ld, x, x_ld, 1, rows, cols);                                             \
	}
#endif
DEFINE_FLIP(2, uint16_t, 8)
DEFINE_FLIP(4, uint32_t, 8)
DEFINE_FLIP(8, uint64_t, 4)

#define DEFINE_MOVE(bytes)                                                                                     \
	static void move_block_##bytes(void *to, int64_t y_row, int64_t y_col, const void *from,               \
	                               int64_t x_row, int64_t x_col, uint64_t rows, uint64_t cols)             \
	{                                                                                                      \
		if (y_row == 1 && x_col == 1)                                                                  \
			flip_block_##bytes(to, y_col, from, x_row, rows, cols);                                \
		else                                                                                           \
			block_##bytes(to, y_row, y_col, from, x_row, x_col, rows, cols);                       \
	}
DEFINE_MOVE(2)
DEFINE_MOVE(4)
DEFINE_MOVE(8)

static void move_block(char *y, int64_t y_row, int64_t y_col, const char *x, int64_t x_row, int64_t x_col,
                       uint64_t rows, uint64_t cols, size_t size)
{
	switch (size) {
	case 2:
		move_block_2(y, y_row, y_col, x, x_row, x_col, rows, cols);
		break;
	case 4:
		move_block_4(y, y_row, y_col, x, x_row, x_col, rows, cols);
		break;
	case 8:
		move_block_8(y, y_row, y_col, x, x_row, x_col, rows, cols);
		break;
	case 16:
		block_of_size(y, y_row, y_col, x, x_row, x_col, rows, cols, 16);
		break;
	default:
		block_of_size(y, y_row, y_col, x, x_row, x_col, rows, cols, size);
	}
}

static void move_rows(char *y, int64_t y_row, const char *x, int64_t x_row, uint64_t rows, uint64_t row_bytes)
{
	for (int64_t i = 0; i < (int64_t)rows; i++)
		memcpy(y + i * y_row, x + i * x_row, row_bytes);
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

void move_matrix(void *y, int64_t y_row, int64_t y_col, const void *x, int64_t x_row, int64_t x_col,
                 uint64_t rows, uint64_t cols, size_t size)
{
	int64_t width = (int64_t)size;

	if (y_col == 1 && x_col == 1) {
		move_rows(y, y_row * width, x, x_row * width, rows, cols * size);
		return;
	}
	if (y_row == 1 && x_row == 1) {
		move_rows(y, y_col * width, x, x_col * width, cols, rows * size);
		return;
	}
	if (x_row == 1 && x_col != 1) { /* swap the axes: the inner loop goes along x */
		move_matrix(y, y_col, y_row, x, x_col, x_row, cols, rows, size);
		return;
	}
	for (uint64_t i = 0; i < rows; i += BLOCK)
		for (uint64_t j = 0; j < cols; j += BLOCK)
			move_block((char *)y + ((int64_t)i * y_row + (int64_t)j * y_col) * width, y_row, y_col,
			           (const char *)x + ((int64_t)i * x_row + (int64_t)j * x_col) * width, x_row,
			           x_col, least(rows - i, BLOCK), least(cols - j, BLOCK), size);
}

/* A move divided into slabs: `per_plane` in each of shape[0] * shape[1] planes, `rows` × `cols` each. */
struct slabs {
	struct move m; /* axis 3: y's of unit stride, if any; axis 2: x's, if it is another */
	uint64_t rows, cols, down, across, n;
	unsigned n_parts;
};

static void run_slab(const struct slabs *s, uint64_t at)
{
	const struct move *m = &s->m;
	uint64_t j = at % s->across * s->cols, i = at / s->across % s->down * s->rows;
	uint64_t plane = at / s->across / s->down, b0 = plane / m->shape[1], b1 = plane % m->shape[1];
	int64_t y = (int64_t)b0 * m->y_strides[0] + (int64_t)b1 * m->y_strides[1] +
	            (int64_t)i * m->y_strides[2] + (int64_t)j * m->y_strides[3];
	int64_t x = (int64_t)b0 * m->x_strides[0] + (int64_t)b1 * m->x_strides[1] +
	            (int64_t)i * m->x_strides[2] + (int64_t)j * m->x_strides[3];

	move_matrix(m->y + y * (int64_t)m->size, m->y_strides[2], m->y_strides[3], m->x + x * (int64_t)m->size,
	            m->x_strides[2], m->x_strides[3], least(m->shape[2] - i, s->rows),
	            least(m->shape[3] - j, s->cols), m->size);
}

static void run_part(void *ctx, unsigned part)
{
	const struct slabs *s = ctx;

	for (uint64_t at = threads_bound(s->n, part, s->n_parts);
	     at < threads_bound(s->n, part + 1, s->n_parts); at++)
		run_slab(s, at);
}

static void swap_axes(struct move *m, unsigned d, unsigned e)
{
	uint64_t extent = m->shape[d];
	int64_t y = m->y_strides[d], x = m->x_strides[d];

	m->shape[d] = m->shape[e];
	m->y_strides[d] = m->y_strides[e];
	m->x_strides[d] = m->x_strides[e];
	m->shape[e] = extent;
	m->y_strides[e] = y;
	m->x_strides[e] = x;
}

/* Returns the axis of more than one index whose stride is 1, or `otherwise`. */
static unsigned unit_axis(const struct move *m, const int64_t strides[4], unsigned otherwise)
{
	for (unsigned d = 4; d-- > 0;)
		if (m->shape[d] > 1 && strides[d] == 1)
			return d;
	return otherwise;
}

/* Moves the longest of axes 0, 1 and 2 to axis 2. */
static void longest_to_2(struct move *m)
{
	for (unsigned d = 0; d < 2; d++)
		if (m->shape[d] > m->shape[2])
			swap_axes(m, d, 2);
}

static void order_axes(struct move *m)
{
	swap_axes(m, unit_axis(m, m->y_strides, 3), 3);
	unsigned x_unit = unit_axis(m, m->x_strides, 3);
	if (x_unit != 3)
		swap_axes(m, x_unit, 2);
	else
		longest_to_2(m);
}

static uint64_t ceil_div(uint64_t a, uint64_t b)
{
	return a / b + (a % b != 0);
}

static bool has_unit_rows(const struct move *m)
{
	return m->y_strides[3] == 1 && m->x_strides[3] == 1;
}

/* Divides a move that has elements. */
static struct slabs slabs_of(const struct move *move)
{
	struct slabs s = {.m = *move};

	order_axes(&s.m);
	bool unit_rows = has_unit_rows(&s.m);
	s.cols = least(unit_rows ? GRAIN_BYTES / s.m.size : BLOCK, s.m.shape[3]);
	s.rows = least(unit_rows ? ceil_div(GRAIN_BYTES / s.m.size, s.cols) : 32 * BLOCK, s.m.shape[2]);
	s.down = ceil_div(s.m.shape[2], s.rows);
	s.across = ceil_div(s.m.shape[3], s.cols);
	s.n = s.m.shape[0] * s.m.shape[1] * s.down * s.across;
	return s;
}

static bool is_empty(const struct move *move)
{
	return move->shape[0] == 0 || move->shape[1] == 0 || move->shape[2] == 0 || move->shape[3] == 0;
}

double move_ns(const struct move *move)
{
	const double slab_ns = 55, row_ns = 8, element_ns = 0.8, turned_byte_ns = 0.35;

	if (is_empty(move))
		return 0;
	struct slabs s = slabs_of(move);
	double slabs = (double)s.n, ns = slabs * slab_ns;
	double rows = (double)s.m.shape[0] * (double)s.m.shape[1] * (double)s.m.shape[2];
	double elements = rows * (double)s.m.shape[3];
	if (has_unit_rows(&s.m))
		ns += rows * row_ns;
	else
		ns += elements * (element_ns + (double)s.m.size * turned_byte_ns);
	return ns / cpu_threads(fmin(slabs, elements * (double)s.m.size / GRAIN_BYTES));
}

void move_run(const struct move *move)
{
	if (is_empty(move))
		return;
	struct slabs s = slabs_of(move);
	s.n_parts =
	    threads_parts(s.m.shape[0] * s.m.shape[1] * s.m.shape[2] * s.m.shape[3], GRAIN_BYTES / s.m.size);
	threads_run(s.n_parts, run_part, &s);
}
