/*
 * reduce on the CPU.
 *
 * vectorised  Vector loops over pieces of a row: 256 elements are added in f32 before float64 takes over;
 *             f64 is added in float64. Rows without unit stride are first moved through a tile, up to 64
 *             rows at a time, so that their cache lines are used whole. Threads take rows, or the pieces of
 *             few long rows. f16 and bf16 are widened to f32 piece by piece, in a buffer that stays in the
 *             first-level cache.
 * reference   plain loops, float64
 */
#include <math.h>

#include "common/cpu.h"
#include "common/half.h"
#include "common/move.h"
#include "common/threads.h"

enum { X, Y };

#define SUM_BLOCK     256   /* terms added in f32, perhaps one by one, before float64 takes over */
#define SHORT         32    /* elements of a row without use for vectors */
#define PIECE         4096  /* elements of a row that are widened or moved at a time */
#define TILE_ROWS     64    /* rows moved together */
#define TILE_COLS     256   /* elements of each such row */
#define PART_ELEMENTS 65536 /* elements that are worth a thread */

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

CPU_CLONES static float sum_block(const float *x, int64_t n)
{
	float sum = 0;

	_Pragma("omp simd reduction(+ : sum)") for (int64_t i = 0; i < n; i++) sum += x[i];
	return sum;
}

/* Sums in float64, which holds what exceeds f32's range. */
static double sum_wide(const float *x, int64_t n)
{
	double sum = 0;

	for (int64_t i = 0; i < n; i++)
		sum += (double)x[i];
	return sum;
}

/* Returns the largest, or NaN if there is one. */
CPU_CLONES static float max_block(const float *x, int64_t n)
{
	float max = -INFINITY;
	int nans = 0;

	CPU_EXTREMES(reduction(max : max) reduction(+ : nans))
	for (int64_t i = 0; i < n; i++) {
		max = x[i] > max ? x[i] : max;
		nans += x[i] != x[i];
	}
	return nans ? NAN : max;
}

CPU_CLONES static double sum_f64(const double *x, int64_t n)
{
	double sum = 0;

	_Pragma("omp simd reduction(+ : sum)") for (int64_t i = 0; i < n; i++) sum += x[i];
	return sum;
}

CPU_CLONES static double max_f64(const double *x, int64_t n)
{
	double max = -(double)INFINITY;
	int64_t nans = 0;

	CPU_EXTREMES(reduction(max : max) reduction(+ : nans))
	for (int64_t i = 0; i < n; i++) {
		max = x[i] > max ? x[i] : max;
		nans += x[i] != x[i];
	}
	return nans ? (double)NAN : max;
}

/* Sums rows that are too short for vectors to matter, `pitch` elements apart. */
CPU_CLONES static void sum_short(double *results, const float *x, int64_t pitch, int64_t rows, int64_t n)
{
	for (int64_t r = 0; r < rows; r++, x += pitch) {
		float sum = 0;

		for (int64_t i = 0; i < n; i++)
			sum += x[i];
		results[r] = isfinite(sum) ? (double)sum : sum_wide(x, n);
	}
}

static double larger(double a, double b)
{
	return a > b || isnan(a) ? a : b;
}

static double nothing(kops_reduction kind)
{
	return kind == KOPS_MAX ? -(double)INFINITY : 0;
}

static double join(kops_reduction kind, double a, double b)
{
	return kind == KOPS_MAX ? larger(a, b) : a + b;
}

static double reduce_floats(kops_reduction kind, const float *x, int64_t n)
{
	double result = nothing(kind);

	if (kind == KOPS_MAX)
		return n > 0 ? (double)max_block(x, n) : result;
	for (int64_t i = 0; i < n; i += SUM_BLOCK) {
		int64_t width = least(n - i, SUM_BLOCK);
		float sum = sum_block(x + i, width);

		result += isfinite(sum) ? (double)sum : sum_wide(x + i, width);
	}
	return result;
}

/* Sums by blocks, so that roundings add up over blocks and not over all elements. */
static double reduce_doubles(kops_reduction kind, const double *x, int64_t n)
{
	double result = nothing(kind);

	for (int64_t i = 0; i < n; i += PIECE) {
		int64_t width = least(n - i, PIECE);

		result = join(kind, result, kind == KOPS_MAX ? max_f64(x + i, width) : sum_f64(x + i, width));
	}
	return result;
}

/* Reduces n adjacent elements. */
static double reduce_run(kops_reduction kind, const void *x, kops_dtype dtype, int64_t n)
{
	double result = nothing(kind);
	float room[PIECE];

	if (dtype == KOPS_F32)
		return reduce_floats(kind, x, n);
	if (dtype == KOPS_F64)
		return reduce_doubles(kind, x, n);
	for (int64_t i = 0; i < n; i += PIECE) {
		int64_t width = least(n - i, PIECE);

		half_widen(room, (const uint16_t *)x + i, dtype, width);
		result = join(kind, result, reduce_floats(kind, room, width));
	}
	return result;
}

/* ---- Rows ---- */

static const char *element(const struct view *v, int64_t at)
{
	return (const char *)v->data + at * (int64_t)dtype_size(v->dtype);
}

/*
 * Reduces columns [from, to) of `rows` rows from `row` on, which follow each other along axis 2. Writes one
 * result for each.
 */
static void reduce_tiles(const struct op_args *args, uint64_t row, int64_t rows, int64_t from, int64_t to,
                         double results[TILE_ROWS])
{
	const struct view *x = &args->views[X];
	kops_reduction kind = args->params.reduce.kind;
	size_t size = dtype_size(x->dtype);
	double tile[TILE_ROWS * TILE_COLS / 2];
	int64_t cols = size <= sizeof(float) ? TILE_COLS : TILE_COLS / 2;

	for (int64_t i = from; i < to; i += cols) {
		int64_t width = least(to - i, cols);

		move_matrix(tile, width, 1, element(x, view_row(x, row) + i * x->strides[3]), x->strides[2],
		            x->strides[3], (uint64_t)rows, (uint64_t)width, size);
		for (int64_t r = 0; r < rows; r++)
			results[r] = join(
			    kind, results[r],
			    reduce_run(kind, (const char *)tile + (size_t)(r * width) * size, x->dtype, width));
	}
}

/* Returns true if the elements of a row are adjacent. */
static bool is_run(const struct view *x)
{
	return x->strides[3] == 1 || x->shape[3] <= 1;
}

/*
 * Returns how many rows to reduce together: long ones one by one, else some that follow each other along axis
 * 2.
 */
static int64_t rows_together(const struct view *x, uint64_t row, uint64_t end)
{
	uint64_t left = x->shape[2] - row % x->shape[2];

	if (is_run(x) && x->shape[3] > SUM_BLOCK)
		return 1;
	left = left < end - row ? left : end - row;
	return left < TILE_ROWS ? (int64_t)left : TILE_ROWS;
}

static void reduce_columns(const struct op_args *args, uint64_t row, int64_t rows, int64_t from, int64_t to,
                           double results[TILE_ROWS])
{
	const struct view *x = &args->views[X];
	kops_reduction kind = args->params.reduce.kind;
	int64_t at = view_row(x, row) + from;

	if (is_run(x) && to - from <= SHORT && x->dtype == KOPS_F32 && kind != KOPS_MAX) {
		sum_short(results, (const float *)(const void *)element(x, at), x->strides[2], rows, to - from);
		return;
	}
	if (is_run(x)) {
		for (int64_t r = 0; r < rows; r++)
			results[r] = reduce_run(kind, element(x, at + r * x->strides[2]), x->dtype, to - from);
		return;
	}
	for (int64_t r = 0; r < rows; r++)
		results[r] = nothing(kind);
	reduce_tiles(args, row, rows, from, to, results);
}

static void store(const struct op_args *args, uint64_t row, double result)
{
	const struct reduce_params *p = &args->params.reduce;
	const struct view *y = &args->views[Y];
	int64_t at = view_row(y, row);

	result *= p->scale;
	if (p->goes_on)
		result = join(p->kind, half_load(y->data, y->dtype, at), result);
	half_store(y->data, y->dtype, at, result);
}

/* ---- Threads ---- */

struct reduction {
	const struct op_args *args;
	uint64_t rows, columns;
	unsigned n_parts;
	double *partials; /* one for each part and row; NULL: parts are whole rows */
};

static void whole_rows(void *ctx, unsigned part)
{
	const struct reduction *r = ctx;
	uint64_t row = threads_bound(r->rows, part, r->n_parts),
	         end = threads_bound(r->rows, part + 1, r->n_parts);
	double results[TILE_ROWS];

	while (row < end) {
		int64_t n = rows_together(&r->args->views[X], row, end);

		reduce_columns(r->args, row, n, 0, (int64_t)r->columns, results);
		for (int64_t i = 0; i < n; i++)
			store(r->args, row + (uint64_t)i, results[i]);
		row += (uint64_t)n;
	}
}

static void some_columns(void *ctx, unsigned part)
{
	const struct reduction *r = ctx;
	int64_t from = (int64_t)threads_bound(r->columns, part, r->n_parts);
	int64_t to = (int64_t)threads_bound(r->columns, part + 1, r->n_parts);
	double *partials = r->partials + part * r->rows, results[TILE_ROWS];

	for (uint64_t row = 0; row < r->rows;) {
		int64_t n = rows_together(&r->args->views[X], row, r->rows);

		reduce_columns(r->args, row, n, from, to, results);
		for (int64_t i = 0; i < n; i++)
			partials[row + (uint64_t)i] = results[i];
		row += (uint64_t)n;
	}
}

/* Returns how many parts each row has if there are fewer rows than parts; 0: parts are whole rows. */
static unsigned column_parts(uint64_t rows, uint64_t columns)
{
	unsigned parts = threads_parts(rows * columns, PART_ELEMENTS);

	return parts > 1 && rows < parts ? parts : 0;
}

static void shape_of(const struct op_args *args, uint64_t *ret_rows, uint64_t *ret_columns)
{
	*ret_rows = view_elements(&args->views[Y]);
	*ret_columns = args->views[X].shape[3];
}

static uint64_t workspace(const struct op_args *args)
{
	uint64_t rows, columns;

	shape_of(args, &rows, &columns);
	return cpu_align(column_parts(rows, columns) * rows * sizeof(double));
}

static double time_ns(const struct op_args *args)
{
	const double row_ns = 15, moved_ns = 1.2;
	const struct view *x = &args->views[X];
	double element_ns = x->dtype == KOPS_F32 ? 0.12 : x->dtype == KOPS_F16 ? 0.6 : 0.25 /* f64: as bf16 */;
	double elements = (double)view_elements(x), parts, ns;
	uint64_t rows, columns;

	shape_of(args, &rows, &columns);
	if (rows == 0)
		return 0;
	if (is_run(x)) {
		parts = elements / PART_ELEMENTS;
		ns = ((double)rows * row_ns + elements * element_ns) / cpu_threads(parts);
		return fmax(ns, cpu_memory_ns(args, parts));
	}
	parts = elements / PART_ELEMENTS;
	ns = ((double)rows * row_ns + elements * (element_ns + moved_ns)) / cpu_threads(parts);
	return ns + cpu_memory_ns(args, parts);
}

static int vectorised(const struct op_args *args, const struct launch *launch)
{
	struct reduction r = {.args = args};

	shape_of(args, &r.rows, &r.columns);
	r.n_parts = column_parts(r.rows, r.columns);
	if (r.n_parts == 0) {
		r.n_parts = threads_parts(r.rows * (r.columns ? r.columns : 1), PART_ELEMENTS);
		threads_run(r.n_parts, whole_rows, &r);
		return 0;
	}
	r.partials = launch->workspace;
	threads_run(r.n_parts, some_columns, &r);
	for (uint64_t row = 0; row < r.rows; row++) {
		double result = r.partials[row];

		for (unsigned part = 1; part < r.n_parts; part++)
			result = join(args->params.reduce.kind, result, r.partials[part * r.rows + row]);
		store(args, row, result);
	}
	return 0;
}

static const struct kernel kernels[] = {
    {.name = "vectorised",
     .idea = "vector loops, sums in f32 and float64, strided rows through a tile, threads",
     .dtypes = "f32 f64 f16 bf16",
     .takes = "any strides",
     .supports = cpu_reference_supports,
     .workspace = workspace,
     .time_ns = time_ns,
     .carries = true,
     .launch = vectorised},
    CPU_REFERENCE_KERNEL("f32 f64 f16 bf16"),
};

const struct kernel_list reduce_cpu_kernels = {kernels, sizeof kernels / sizeof kernels[0]};
