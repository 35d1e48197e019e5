/*
 * softmax on the CPU.
 *
 * vectorised  Rows of up to LONG columns take three passes inside the cache: max; exp and sum; divide. Longer
 *             ones take max and sum of pieces, combined in float64, then one writing pass. Rows without unit
 *             stride go through the workspace, up to 64 at a time. Threads take rows, or the pieces of few long
 *             rows. f16 and bf16 are widened to f32 piece by piece in a buffer that stays in the first-level
 *             cache, and results are rounded from there.
 *             A part of an op is one pass over pieces of its rows; those without unit stride are gathered piece
 *             by piece. f64 has code of its own (cpu_f64.c). A mask is added while a piece is loaded: what is
 *             computed then are the softmaxes of scale * x + mask.
 * reference   plain loops, float64
 *
 * All passes work on t = factor * (half * x - shift), where shift = half * (the x of the largest scale * x),
 * half = 1 and factor = scale. If |scale| < 1, half = 0.5 and factor = 2 * scale, so that half * x - shift
 * overflows only if t does. If |scale| >= 1, an overflow to -Inf is the right limit.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "common/cpu.h"
#include "common/half.h"
#include "common/move.h"
#include "common/threads.h"
#include "softmax/cpu_f64.h"
#include "softmax/cpu_partial.h"
#include "softmax/operands.h"

enum { X = SOFTMAX_X, MASK = SOFTMAX_MASK, Y = SOFTMAX_Y };

#define LONG          8192  /* columns; x and y of one row then fill half a first-level cache */
#define PIECE         LONG  /* columns of one piece of a long row */
#define SUM_BLOCK     256   /* terms added in f32, perhaps one by one, before float64 takes over */
#define PART_ELEMENTS 16384 /* per thread part */
#define TILE_ROWS     64    /* rows moved together through the workspace */
#define TILE_BYTES    (1024 * 1024)

/* masked: elements come scaled, and a row of -Inf alone is 0. */
struct scaling {
	float half, factor;
	double scale;
	bool log, masked;
};

/* Returns the x whose scale * x is largest; -Inf or Inf if all are NaN. */
CPU_CLONES static float find_peak(const float *x, int64_t n, bool descending)
{
	float max = -INFINITY, min = INFINITY;

	if (descending) {
		CPU_EXTREMES(reduction(min : min))
		for (int64_t i = 0; i < n; i++)
			min = x[i] < min ? x[i] : min;
		return min;
	}
	CPU_EXTREMES(reduction(max : max))
	for (int64_t i = 0; i < n; i++)
		max = x[i] > max ? x[i] : max;
	return max;
}

CPU_CLONES static float sum_block(const float *x, int64_t n, float half, float factor, float shift)
{
	float sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t i = 0; i < n; i++)
		sum += cpu_exp_negative(factor * (half * x[i] - shift));
	return sum;
}

CPU_CLONES static float exp_block(float *y, const float *x, int64_t n, float half, float factor, float shift)
{
	float sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t i = 0; i < n; i++) {
		float e = cpu_exp_negative(factor * (half * x[i] - shift));
		y[i] = e;
		sum += e;
	}
	return sum;
}

CPU_CLONES static void multiply(float *y, int64_t n, float by)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] *= by;
}

CPU_CLONES static void write_exp(float *y, const float *x, int64_t n, float half, float factor, float shift,
                                 float by)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] = cpu_exp_negative(factor * (half * x[i] - shift)) * by;
}

CPU_CLONES static void write_log(float *y, const float *x, int64_t n, float half, float factor, float shift,
                                 float log_sum)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] = factor * (half * x[i] - shift) - log_sum;
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Returns the sum of exp(t) over a row, and stores exp(t) in y if given. */
static double sum_row(float *y, const float *x, int64_t n, const struct scaling *s, float shift)
{
	double sum = 0;

	for (int64_t i = 0; i < n; i += SUM_BLOCK) {
		int64_t width = least(n - i, SUM_BLOCK);
		sum += (double)(y ? exp_block(y + i, x + i, width, s->half, s->factor, shift)
		                  : sum_block(x + i, width, s->half, s->factor, shift));
	}
	return sum;
}

/* Of a row that is masked as a whole: 0, from which all is far. */
static float shift_of(const struct scaling *s, float peak)
{
	return s->masked && peak == -INFINITY ? 0 : s->half * peak;
}

/* The sum of such a row is 0. */
static double divisor(const struct scaling *s, double sum)
{
	return s->masked && sum == 0 ? 1 : sum;
}

static void write_row(float *y, const float *x, int64_t n, const struct scaling *s, float shift, double sum)
{
	if (s->log)
		write_log(y, x, n, s->half, s->factor, shift, (float)log(divisor(s, sum)));
	else
		write_exp(y, x, n, s->half, s->factor, shift, (float)(1 / divisor(s, sum)));
}

static void short_row(float *y, const float *x, int64_t n, const struct scaling *s)
{
	float shift = shift_of(s, find_peak(x, n, s->factor < 0));
	double sum = sum_row(s->log ? NULL : y, x, n, s, shift);

	if (s->log)
		write_row(y, x, n, s, shift, sum);
	else
		multiply(y, n, (float)(1 / divisor(s, sum)));
}

/* ---- Rows of any type as pieces in f32 ---- */

/* x and y of one op may be the same. Of x: the mask that is added to scale * x, or NULL. */
struct row {
	char *data;
	kops_dtype dtype;
	int64_t stride;
	const char *mask;
	int64_t mask_stride;
	float scale;
};

static char *row_from(const struct row *r, int64_t first)
{
	return r->data + first * r->stride * (int64_t)dtype_size(r->dtype);
}

static bool is_run_of_f32(const struct row *r)
{
	return r->dtype == KOPS_F32 && r->stride == 1;
}

/* Returns n elements as f32: in place, or widened or gathered into `room` of PIECE. */
static const float *load_run(const char *from, kops_dtype dtype, int64_t stride, int64_t n, float *room)
{
	if (dtype == KOPS_F32 && stride == 1)
		return (const float *)(const void *)from;
	if (stride == 1)
		half_widen(room, from, dtype, n);
	else
		for (int64_t i = 0; i < n; i++)
			room[i] = (float)half_load(from, dtype, i * stride);
	return room;
}

CPU_CLONES static void add_mask(float *to, const float *x, const float *mask, int64_t n, float scale)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		to[i] = scale * x[i] + mask[i];
}

/* Returns elements first … first + n - 1 of x as f32, or of scale * x + mask: in place, or in `room` of PIECE.
 */
static const float *load_piece(const struct row *x, int64_t first, int64_t n, float *room)
{
	const float *elements = load_run(row_from(x, first), x->dtype, x->stride, n, room);
	float mask_room[PIECE];

	if (!x->mask)
		return elements;
	add_mask(room, elements,
	         load_run(x->mask + first * x->mask_stride * (int64_t)dtype_size(x->dtype), x->dtype,
	                  x->mask_stride, n, mask_room),
	         n, x->scale);
	return room;
}

/* Returns where to write the f32 results of a piece of y; store_piece() must follow. */
static float *place_piece(const struct row *y, int64_t first, float *room)
{
	return is_run_of_f32(y) ? (float *)(void *)row_from(y, first) : room;
}

static void store_piece(const struct row *y, int64_t first, int64_t n, const float *room)
{
	char *to = row_from(y, first);

	if (is_run_of_f32(y))
		return;
	if (y->stride == 1)
		half_narrow(to, y->dtype, room, n);
	else
		for (int64_t i = 0; i < n; i++)
			half_store(to, y->dtype, i * y->stride, (double)room[i]);
}

/* ---- Long rows: a partial has the x that is the peak ---- */

/*
 * A piece of -Inf alone (of scale * x) has peak -Inf, relative to which there is no sum. Relative to 0 the sum
 * is 0, or NaN if the piece has one.
 */
static struct softmax_partial sum_piece(const float *x, int64_t n, const struct scaling *s)
{
	float peak = find_peak(x, n, s->factor < 0);
	bool nothing = peak == (s->factor < 0 ? INFINITY : -INFINITY);

	return (struct softmax_partial){(double)peak, sum_row(NULL, x, n, s, nothing ? 0 : s->half * peak)};
}

static struct softmax_partial sum_pieces(const struct row *x, int64_t from, int64_t to, const struct scaling *s)
{
	struct softmax_partial total = softmax_no_partial(s->factor);
	float room[PIECE];

	for (int64_t i = from; i < to; i += PIECE) {
		int64_t n = least(to - i, PIECE);
		struct softmax_partial piece = sum_piece(load_piece(x, i, n, room), n, s);
		softmax_add_partial(&total, &piece, s->scale);
	}
	return total;
}

static void write_pieces(const struct row *y, const struct row *x, int64_t from, int64_t to,
                         const struct scaling *s, const struct softmax_partial *total)
{
	float room[PIECE], shift = shift_of(s, (float)total->peak);

	for (int64_t i = from; i < to; i += PIECE) {
		int64_t n = least(to - i, PIECE);
		write_row(place_piece(y, i, room), load_piece(x, i, n, room), n, s, shift, total->sum);
		store_piece(y, i, n, room);
	}
}

static void long_row(const struct row *y, const struct row *x, int64_t n, const struct scaling *s)
{
	struct softmax_partial total = sum_pieces(x, 0, n, s);

	write_pieces(y, x, 0, n, s, &total);
}

/* ---- One row by all threads ---- */

#define SPLIT_MAX 4096 /* upper limit of threads */

struct split {
	struct row y, x;
	uint64_t n;
	const struct scaling *scaling;
	struct softmax_partial total;
	unsigned n_parts;
	struct softmax_partial *partials; /* one for each part */
};

static void split_sum(void *ctx, unsigned part)
{
	struct split *p = ctx;

	p->partials[part] = sum_pieces(&p->x, (int64_t)threads_bound(p->n, part, p->n_parts),
	                               (int64_t)threads_bound(p->n, part + 1, p->n_parts), p->scaling);
}

static void split_write(void *ctx, unsigned part)
{
	struct split *p = ctx;

	write_pieces(&p->y, &p->x, (int64_t)threads_bound(p->n, part, p->n_parts),
	             (int64_t)threads_bound(p->n, part + 1, p->n_parts), p->scaling, &p->total);
}

static struct split split_of(struct row y, struct row x, uint64_t n, const struct scaling *s)
{
	struct split p = {.y = y, .x = x, .n = n, .scaling = s, .total = softmax_no_partial(s->factor)};

	p.n_parts = threads_parts(n, PART_ELEMENTS);
	p.n_parts = p.n_parts < SPLIT_MAX ? p.n_parts : SPLIT_MAX;
	return p;
}

static void add_sums(struct split *p)
{
	struct softmax_partial partials[SPLIT_MAX];

	p->partials = partials;
	threads_run(p->n_parts, split_sum, p);
	for (unsigned i = 0; i < p->n_parts; i++)
		softmax_add_partial(&p->total, &partials[i], p->scaling->scale);
}

static void split_row(struct split p)
{
	add_sums(&p);
	threads_run(p.n_parts, split_write, &p);
}

/* Computes a part of an op, of one row: updates what is carried, or writes results from it. */
static void pass_row(struct split p, const struct softmax_params *params, struct softmax_partial *carried)
{
	if (params->pass == SOFTMAX_WRITE || params->goes_on)
		p.total = *carried;
	if (params->pass == SOFTMAX_SUM) {
		add_sums(&p);
		*carried = p.total;
	} else {
		threads_run(p.n_parts, split_write, &p);
	}
}

/* ---- All rows ---- */

struct job {
	const struct view *x, *mask, *y; /* mask: NULL if absent */
	float scale;                     /* of x, with a mask */
	struct scaling scaling;
	uint64_t n_rows, tile_rows; /* tile_rows: rows per step; more than 1 only through the workspace */
	char *tiles;                /* one tile per part; NULL: rows are used in place */
	unsigned n_parts;
};

static struct row row_at(const struct view *v, uint64_t row)
{
	return (struct row){.data = (char *)v->data + view_row(v, row) * (int64_t)dtype_size(v->dtype),
	                    .dtype = v->dtype,
	                    .stride = v->shape[3] == 1 ? 1 : v->strides[3]};
}

/* Adds the mask of this row to a row of x. */
static struct row masked(const struct job *j, struct row x, uint64_t row)
{
	if (!j->mask)
		return x;
	x.mask = (const char *)j->mask->data + view_row(j->mask, row) * (int64_t)dtype_size(j->mask->dtype);
	x.mask_stride = j->mask->strides[3];
	x.scale = j->scale;
	return x;
}

static void run_row(struct row y, struct row x, int64_t n, const struct scaling *s)
{
	float room[PIECE];

	if (n > LONG) {
		long_row(&y, &x, n, s);
		return;
	}
	short_row(place_piece(&y, 0, room), load_piece(&x, 0, n, room), n, s);
	store_piece(&y, 0, n, room);
}

/* Computes `rows` rows that follow each other along axis 2. */
static void run_tile(const struct job *j, uint64_t row, uint64_t rows, char *tile)
{
	uint64_t cols = j->y->shape[3];
	int64_t pitch = (int64_t)cols;
	size_t size = dtype_size(j->y->dtype);

	move_matrix(tile, pitch, 1, row_at(j->x, row).data, j->x->strides[2], j->x->strides[3], rows, cols,
	            size);
	for (uint64_t i = 0; i < rows; i++) {
		struct row r = {.data = tile + i * cols * size, .dtype = j->y->dtype, .stride = 1};
		run_row(r, masked(j, r, row + i), pitch, &j->scaling);
	}
	move_matrix(row_at(j->y, row).data, j->y->strides[2], j->y->strides[3], tile, pitch, 1, rows, cols,
	            size);
}

static void run_part(void *ctx, unsigned part)
{
	const struct job *j = ctx;
	uint64_t to = threads_bound(j->n_rows, part + 1, j->n_parts), cols = j->y->shape[3], rows;

	for (uint64_t row = threads_bound(j->n_rows, part, j->n_parts); row < to; row += rows) {
		rows = 1;
		if (!j->tiles) {
			run_row(row_at(j->y, row), masked(j, row_at(j->x, row), row), (int64_t)cols,
			        &j->scaling);
			continue;
		}
		uint64_t left = j->y->shape[2] - row % j->y->shape[2];
		rows = to - row < left ? to - row : left;
		rows = rows < j->tile_rows ? rows : j->tile_rows;
		run_tile(j, row, rows, j->tiles + part * j->tile_rows * cols * dtype_size(j->y->dtype));
	}
}

static bool is_unit(const struct view *v)
{
	return v->shape[3] == 1 || v->strides[3] == 1;
}

static bool is_part(const struct op_args *args)
{
	return args->params.softmax.pass != SOFTMAX_WHOLE;
}

static bool is_strided(const struct op_args *args)
{
	return !is_unit(&args->views[X]) || !is_unit(&args->views[Y]);
}

static bool needs_tiles(const struct op_args *args)
{
	return is_strided(args) && !is_part(args);
}

static uint64_t tile_rows(const struct view *y)
{
	uint64_t fit = TILE_BYTES / dtype_size(y->dtype) / (y->shape[3] ? y->shape[3] : 1);

	return fit < 1 ? 1 : fit < TILE_ROWS ? fit : TILE_ROWS;
}

static uint64_t count_rows(const struct view *y)
{
	return y->shape[0] * y->shape[1] * y->shape[2];
}

/* Limits the parts to the number of threads if each needs a tile of its own. */
static unsigned count_parts(const struct view *y, bool tiles)
{
	uint64_t rows = count_rows(y), parts = threads_parts(rows * y->shape[3], PART_ELEMENTS);

	if (tiles && parts > threads_count())
		parts = threads_count();
	return (unsigned)(parts < rows ? parts : rows);
}

static uint64_t workspace(const struct op_args *args)
{
	const struct view *y = &args->views[Y];
	uint64_t bytes;

	if (y->dtype == KOPS_F64 || !needs_tiles(args) || view_elements(y) == 0)
		return 0;
	if (__builtin_mul_overflow(count_parts(y, true) * tile_rows(y) * dtype_size(y->dtype), y->shape[3],
	                           &bytes))
		return UINT64_MAX;
	return bytes;
}

/* Returns true if there are few long rows, each of which all threads share. */
static bool splits_rows(const struct op_args *args)
{
	const struct view *y = &args->views[Y];

	return is_part(args) || (!is_strided(args) && count_rows(y) < threads_count() && y->shape[3] > LONG);
}

static double time_ns(const struct op_args *args)
{
	const double row_ns = 160, moved_ns = 2.5, mask_ns = 1.5;
	const struct view *y = &args->views[Y];
	double elements = (double)view_elements(y), rows = (double)count_rows(y);
	double element_ns = y->dtype == KOPS_F32 ? 1.0 : 1.5;

	if (elements == 0)
		return 0;
	if (y->dtype == KOPS_F64)
		return softmax_f64_ns(args);
	element_ns = is_part(args) || y->shape[3] <= LONG ? element_ns : 2.0;
	element_ns += is_strided(args) ? moved_ns : 0;
	element_ns += softmax_is_masked(args) ? mask_ns : 0;
	double parts = splits_rows(args) ? elements / PART_ELEMENTS : count_parts(y, needs_tiles(args));
	double ns = (rows * row_ns + elements * element_ns) / cpu_threads(parts);
	return is_strided(args) ? ns + cpu_memory_ns(args, parts) : fmax(ns, cpu_memory_ns(args, parts));
}

static void run_split(const struct job *j, const struct op_args *args)
{
	struct softmax_partial *carried = args->carried;

	for (uint64_t row = 0; row < j->n_rows; row++) {
		struct split p =
		    split_of(row_at(j->y, row), masked(j, row_at(j->x, row), row), j->y->shape[3], &j->scaling);

		if (is_part(args))
			pass_row(p, &args->params.softmax, &carried[row]);
		else
			split_row(p);
	}
}

static int launch_vectorised(const struct op_args *args, const struct launch *launch)
{
	const struct softmax_params *p = &args->params.softmax;
	bool is_masked = softmax_is_masked(args);
	double scale = is_masked ? 1 : p->scale;
	bool small = fabs(scale) < 1;
	struct job j = {
	    .x = &args->views[X],
	    .mask = is_masked ? &args->views[MASK] : NULL,
	    .y = &args->views[Y],
	    .scale = (float)p->scale,
	    .scaling = {small ? 0.5f : 1.0f, (float)(small ? 2 * scale : scale), scale, p->log, is_masked},
	    .n_rows = count_rows(&args->views[Y]),
	    .tile_rows = tile_rows(&args->views[Y]),
	    .tiles = needs_tiles(args) ? launch->workspace : NULL,
	    .n_parts = count_parts(&args->views[Y], needs_tiles(args)),
	};

	if (j.y->dtype == KOPS_F64)
		return softmax_f64(args);
	if (splits_rows(args))
		run_split(&j, args);
	else
		threads_run(j.n_parts, run_part, &j);
	return 0;
}

static const struct kernel kernels[] = {
    {.name = "vectorised",
     .idea = "polynomial exp in vectors, f32 with float64 sums, rows kept in cache, threads",
     .dtypes = "f32 f64 f16 bf16",
     .takes = "any strides",
     .supports = cpu_reference_supports,
     .workspace = workspace,
     .time_ns = time_ns,
     .carries = true,
     .launch = launch_vectorised},
    CPU_REFERENCE_KERNEL("f32 f64 f16 bf16"),
};

const struct kernel_list softmax_cpu_kernels = {kernels, sizeof kernels / sizeof kernels[0]};
