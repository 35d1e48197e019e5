/* cpu.c: copies and fills matrices and their triangles by threads. See cpu.h. */
#include "linalg/cpu.h"

#include <limits.h>
#include <math.h>

#include "common/cpu.h"
#include "common/move.h"
#include "common/threads.h"

#define TILE  64    /* rows and columns of a copy that stay in the cache */
#define GRAIN 65536 /* elements that are worth a thread */

/* Whether lines of `length` elements, one of which is adjacent to the next, lie so far apart. */
static bool has_lines(uint64_t lines, uint64_t length, int64_t apart, int64_t along)
{
	return length <= INT_MAX && lines <= INT_MAX && (along == 1 || length <= 1) &&
	       ((apart >= (int64_t)length && apart <= INT_MAX) || lines <= 1);
}

static int64_t apart_of(uint64_t lines, uint64_t length, int64_t apart)
{
	return lines > 1 ? apart : length > 1 ? (int64_t)length : 1;
}

/* A single column whose elements are adjacent is one, whatever lies between rows. */
static bool is_by_columns(const struct linalg_matrix *m)
{
	bool by_rows = has_lines(m->rows, m->cols, m->row, m->col) && m->rows > 1 && m->row != 1;

	return has_lines(m->cols, m->rows, m->col, m->row) && !by_rows;
}

static bool has_any_lines(const struct linalg_matrix *m)
{
	return has_lines(m->rows, m->cols, m->row, m->col) || has_lines(m->cols, m->rows, m->col, m->row);
}

bool linalg_lay_out(struct linalg_matrix *m, void *room)
{
	bool takes = has_any_lines(m), by_columns = is_by_columns(m);

	if (!takes) {
		by_columns = m->cols == 1 || stride_magnitude(m->row) < stride_magnitude(m->col);
		m->data = room;
		m->row = m->col = by_columns ? (int64_t)m->rows : (int64_t)m->cols;
	}
	if (by_columns) {
		m->col = apart_of(m->cols, m->rows, m->col);
		m->row = 1;
	} else {
		m->row = apart_of(m->rows, m->cols, m->row);
		m->col = 1;
	}
	return takes;
}

uint64_t linalg_room(const struct linalg_matrix *m)
{
	uint64_t bytes;

	if (has_any_lines(m))
		return 0;
	if (__builtin_mul_overflow(m->rows * m->cols, dtype_size(m->dtype), &bytes)) /* both below 2^31 */
		return UINT64_MAX;
	return cpu_align(bytes);
}

struct linalg_matrix linalg_transposed(const struct linalg_matrix *m)
{
	return (struct linalg_matrix){m->data, m->dtype, m->cols, m->rows, m->col, m->row};
}

struct linalg_matrix linalg_reversed_rows(const struct linalg_matrix *m)
{
	struct linalg_matrix r = *m;

	r.data = m->rows > 0 ? linalg_at(m, m->rows - 1, 0) : m->data;
	r.row = -m->row;
	return r;
}

/* ---- Copies ---- */

struct copying {
	const struct linalg_matrix *y, *x;
	bool lower;
	unsigned n_parts;
};

static void copy_block(const struct copying *c, uint64_t row, uint64_t col, uint64_t rows, uint64_t cols)
{
	const struct linalg_matrix *y = c->y, *x = c->x;

	move_matrix(linalg_at(y, row, col), y->row, y->col, linalg_at(x, row, col), x->row, x->col, rows, cols,
	            dtype_size(y->dtype));
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The rows of one row of tiles. */
static void copy_tiles(const struct copying *c, uint64_t row)
{
	uint64_t rows = least(TILE, c->y->rows - row);

	if (!c->lower) {
		copy_block(c, row, 0, rows, c->y->cols);
		return;
	}
	copy_block(c, row, 0, rows, row);
	for (uint64_t i = 0; i < rows; i++)
		copy_block(c, row + i, row, 1, i + 1);
}

static void copy_part(void *ctx, unsigned part)
{
	const struct copying *c = ctx;
	uint64_t tiles = (c->y->rows + TILE - 1) / TILE;

	/* Rows of a triangle become longer: every part gets some of each kind. */
	for (uint64_t i = part; i < tiles; i += c->n_parts)
		copy_tiles(c, i * TILE);
}

static void copy(const struct linalg_matrix *y, const struct linalg_matrix *x, bool lower)
{
	struct copying c = {y, x, lower, threads_parts(y->rows * y->cols, GRAIN)};

	threads_run(c.n_parts, copy_part, &c);
}

void linalg_copy_lower(const struct linalg_matrix *y, const struct linalg_matrix *x)
{
	copy(y, x, true);
}

void linalg_copy_all(const struct linalg_matrix *y, const struct linalg_matrix *x)
{
	copy(y, x, false);
}

double linalg_copy_ns(const struct view *v)
{
	return (double)view_elements(v) * 0.5 / cpu_threads((double)view_elements(v) / GRAIN);
}

/* ---- Triangles ---- */

struct filling {
	const struct linalg_matrix *m;
	bool lower;
	unsigned n_parts;
};

/* n elements from (row, col) on, of a row or of a column. */
static void fill_line(const struct linalg_matrix *m, uint64_t row, uint64_t col, uint64_t n, int64_t stride,
                      bool nan)
{
	struct number x = {nan ? (double)NAN : 0, nan ? (double)NAN : 0};
	char *at = linalg_at(m, row, col);

	if (!nan && stride == 1)
		memset(at, 0, n * dtype_size(m->dtype));
	else
		for (uint64_t i = 0; i < n; i++)
			number_store(at, m->dtype, (int64_t)i * stride, x);
}

/* Lines of the triangle, rows or columns, whichever have adjacent elements. */
static void fill_part(void *ctx, unsigned part)
{
	const struct filling *f = ctx;
	const struct linalg_matrix *m = f->m;
	bool by_columns = stride_magnitude(m->row) < stride_magnitude(m->col);

	for (uint64_t i = part; i < m->rows; i += f->n_parts) {
		uint64_t before = i + f->lower, behind = m->rows - i - !f->lower;

		if (f->lower)
			fill_line(m, i, by_columns ? i : 0, by_columns ? behind : before,
			          by_columns ? m->row : m->col, true);
		else
			fill_line(m, by_columns ? 0 : i, by_columns ? i : i + 1, by_columns ? before : behind,
			          by_columns ? m->row : m->col, false);
	}
}

static void fill(const struct linalg_matrix *m, bool lower)
{
	struct filling f = {m, lower, threads_parts(m->rows * m->cols, GRAIN)};

	threads_run(f.n_parts, fill_part, &f);
}

void linalg_clear_upper(const struct linalg_matrix *m)
{
	fill(m, false);
}

void linalg_spoil_lower(const struct linalg_matrix *m)
{
	fill(m, true);
}
