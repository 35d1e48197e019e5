/*
 * softmax of f64 on the CPU. Rows are processed in pieces that stay in the first-level cache, in two passes:
 * the largest element and the sum of exponentials, then the results. Threads take rows, or the pieces of few
 * long ones.
 *
 * All passes work on t = factor * (half * x - shift), as in cpu.c, and for the same reason.
 */
#include "softmax/cpu_f64.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "common/cpu.h"
#include "common/threads.h"
#include "softmax/cpu_partial.h"
#include "softmax/operands.h"

enum { X = SOFTMAX_X, MASK = SOFTMAX_MASK, Y = SOFTMAX_Y };

#define PIECE         2048  /* columns at a time */
#define PART_ELEMENTS 16384 /* per thread part */
#define SPLIT_MAX     4096  /* upper limit of threads */

/* masked: elements come scaled, and a row of -Inf alone is 0. */
struct scaling {
	double half, factor, scale;
	bool log, masked;
};

/*
 * exp(t) for t <= 0, to within some 2 ulp; 0 under -708, where results are subnormal; NaN stays. 2^n * p(r)
 * with n = round(t / ln 2), |r| <= ln 2 / 2 and ln 2 in two parts (Cody and Waite); p is the Taylor polynomial
 * of degree 13, whose error there is 4e-18.
 */
static inline __attribute__((always_inline)) double exp_negative(double t)
{
	double shifted = t * 0x1.71547652b82fep0 + 0x1.8p52; /* n in the low bits */
	double n = shifted - 0x1.8p52;
	double r = (t - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;
	double p = 1.0 / 6227020800;
	uint64_t bits;
	double power;

	p = p * r + 1.0 / 479001600;
	p = p * r + 1.0 / 39916800;
	p = p * r + 1.0 / 3628800;
	p = p * r + 1.0 / 362880;
	p = p * r + 1.0 / 40320;
	p = p * r + 1.0 / 5040;
	p = p * r + 1.0 / 720;
	p = p * r + 1.0 / 120;
	p = p * r + 1.0 / 24;
	p = p * r + 1.0 / 6;
	p = p * r + 0.5;
	p = p * r + 1.0;
	p = p * r + 1.0;
	memcpy(&bits, &shifted, sizeof bits);
	bits = (bits + 1023) << 52;
	memcpy(&power, &bits, sizeof power);
	return t < -708 ? 0 : p * power;
}

/* Returns the x whose scale * x is largest; an infinity if all are NaN. */
CPU_CLONES static double find_peak(const double *x, int64_t n, bool descending)
{
	double max = -(double)INFINITY, min = (double)INFINITY;

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

CPU_CLONES static double sum_exp(const double *x, int64_t n, double half, double factor, double shift)
{
	double sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t i = 0; i < n; i++)
		sum += exp_negative(factor * (half * x[i] - shift));
	return sum;
}

CPU_CLONES static void write_exp(double *y, const double *x, int64_t n, double half, double factor,
                                 double shift, double by)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] = exp_negative(factor * (half * x[i] - shift)) * by;
}

CPU_CLONES static void write_log(double *y, const double *x, int64_t n, double half, double factor,
                                 double shift, double log_sum)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] = factor * (half * x[i] - shift) - log_sum;
}

/* ---- Pieces of a row ---- */

/* Elements first, first + stride, … x and y of one op may be the same. Of x: the mask that is added to scale *
 * x, or NULL.
 */
struct row {
	double *data;
	int64_t stride;
	const double *mask;
	int64_t mask_stride;
	double scale;
};

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Returns n elements from `first` on, of x or of scale * x + mask: in place, or in `room` of PIECE. */
static const double *load_piece(const struct row *x, int64_t first, int64_t n, double *room)
{
	const double *from = x->data + first * x->stride;

	if (x->mask) {
		const double *mask = x->mask + first * x->mask_stride;
		for (int64_t i = 0; i < n; i++)
			room[i] = x->scale * from[i * x->stride] + mask[i * x->mask_stride];
		return room;
	}
	if (x->stride == 1)
		return from;
	for (int64_t i = 0; i < n; i++)
		room[i] = from[i * x->stride];
	return room;
}

/*
 * A piece of -Inf alone (of scale * x) has a peak relative to which there is no sum. Relative to 0 the sum is
 * 0, or NaN if the piece has one.
 */
static struct softmax_partial sum_piece(const double *x, int64_t n, const struct scaling *s)
{
	double peak = find_peak(x, n, s->factor < 0);
	bool nothing = peak == (s->factor < 0 ? (double)INFINITY : -(double)INFINITY);

	return (struct softmax_partial){peak, sum_exp(x, n, s->half, s->factor, nothing ? 0 : s->half * peak)};
}

static struct softmax_partial sum_pieces(const struct row *x, int64_t from, int64_t to, const struct scaling *s)
{
	struct softmax_partial total = softmax_no_partial(s->factor);
	double room[PIECE];

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
	bool is_nothing =
	    s->masked && total->peak == -(double)INFINITY; /* masked as a whole; the sum is 0, or NaN */
	double in[PIECE], out[PIECE], shift = is_nothing ? 0 : s->half * total->peak;
	double sum = is_nothing && total->sum == 0 ? 1 : total->sum;

	for (int64_t i = from; i < to; i += PIECE) {
		int64_t n = least(to - i, PIECE);
		const double *piece = load_piece(x, i, n, in);
		double *to_y = y->stride == 1 ? y->data + i : out;

		if (s->log)
			write_log(to_y, piece, n, s->half, s->factor, shift, log(sum));
		else
			write_exp(to_y, piece, n, s->half, s->factor, shift, 1 / sum);
		for (int64_t j = 0; y->stride != 1 && j < n; j++)
			y->data[(i + j) * y->stride] = out[j];
	}
}

/* ---- Threads ---- */

struct job {
	const struct op_args *args;
	struct scaling scaling;
	uint64_t n_rows, columns;
	unsigned n_parts;
	/* The row whose columns the threads share, if they do. */
	struct row x, y;
	struct softmax_partial total, *partials;
};

static struct row row_at(const struct view *v, uint64_t row)
{
	return (struct row){.data = (double *)v->data + view_row(v, row),
	                    .stride = v->shape[3] == 1 ? 1 : v->strides[3]};
}

/* With its mask. */
static struct row row_of_x(const struct op_args *args, uint64_t row)
{
	const struct view *mask = &args->views[MASK];
	struct row x = row_at(&args->views[X], row);

	if (softmax_is_masked(args)) {
		x.mask = (const double *)mask->data + view_row(mask, row);
		x.mask_stride = mask->strides[3];
		x.scale = args->params.softmax.scale;
	}
	return x;
}

static void whole_rows(void *ctx, unsigned part)
{
	const struct job *j = ctx;
	uint64_t end = threads_bound(j->n_rows, part + 1, j->n_parts);

	for (uint64_t i = threads_bound(j->n_rows, part, j->n_parts); i < end; i++) {
		struct row x = row_of_x(j->args, i), y = row_at(&j->args->views[Y], i);
		struct softmax_partial total = sum_pieces(&x, 0, (int64_t)j->columns, &j->scaling);

		write_pieces(&y, &x, 0, (int64_t)j->columns, &j->scaling, &total);
	}
}

static void sum_columns(void *ctx, unsigned part)
{
	struct job *j = ctx;

	j->partials[part] = sum_pieces(&j->x, (int64_t)threads_bound(j->columns, part, j->n_parts),
	                               (int64_t)threads_bound(j->columns, part + 1, j->n_parts), &j->scaling);
}

static void write_columns(void *ctx, unsigned part)
{
	struct job *j = ctx;

	write_pieces(&j->y, &j->x, (int64_t)threads_bound(j->columns, part, j->n_parts),
	             (int64_t)threads_bound(j->columns, part + 1, j->n_parts), &j->scaling, &j->total);
}

static void sum_row(struct job *j)
{
	struct softmax_partial partials[SPLIT_MAX];

	j->partials = partials;
	threads_run(j->n_parts, sum_columns, j);
	for (unsigned i = 0; i < j->n_parts; i++)
		softmax_add_partial(&j->total, &partials[i], j->scaling.scale);
}

/* Computes one row with all threads, or the pass of a part of an op. */
static void run_row(struct job *j, uint64_t row)
{
	const struct softmax_params *p = &j->args->params.softmax;
	struct softmax_partial *carried =
	    p->pass == SOFTMAX_WHOLE ? NULL : (struct softmax_partial *)j->args->carried + row;

	j->x = row_of_x(j->args, row);
	j->y = row_at(&j->args->views[Y], row);
	j->total = carried && (p->pass == SOFTMAX_WRITE || p->goes_on) ? *carried
	                                                               : softmax_no_partial(j->scaling.factor);
	if (p->pass != SOFTMAX_WRITE)
		sum_row(j);
	if (p->pass == SOFTMAX_SUM)
		*carried = j->total;
	else
		threads_run(j->n_parts, write_columns, j);
}

static uint64_t count_rows(const struct op_args *args)
{
	const uint64_t *shape = args->views[Y].shape;

	return shape[0] * shape[1] * shape[2];
}

static bool splits_rows(const struct op_args *args)
{
	return args->params.softmax.pass != SOFTMAX_WHOLE ||
	       (count_rows(args) < threads_count() && args->views[Y].shape[3] > PART_ELEMENTS);
}

static unsigned count_parts(const struct op_args *args)
{
	uint64_t rows = count_rows(args), columns = args->views[Y].shape[3];
	uint64_t most = splits_rows(args) ? SPLIT_MAX : rows;
	uint64_t parts = threads_parts(splits_rows(args) ? columns : rows * columns, PART_ELEMENTS);

	return (unsigned)(parts < most ? parts : most);
}

int softmax_f64(const struct op_args *args)
{
	const struct softmax_params *p = &args->params.softmax;
	bool is_masked = softmax_is_masked(args);
	double scale = is_masked ? 1 : p->scale, half = fabs(scale) < 1 ? 0.5 : 1;
	struct job j = {.args = args,
	                .scaling = {half, scale / half, scale, p->log, is_masked},
	                .n_rows = count_rows(args),
	                .columns = args->views[Y].shape[3],
	                .n_parts = count_parts(args)};

	if (!splits_rows(args))
		threads_run(j.n_parts, whole_rows, &j);
	for (uint64_t row = 0; splits_rows(args) && row < j.n_rows; row++)
		run_row(&j, row);
	return 0;
}

/* Three times as long per element as the kernel of other types, whose vectors have twice as many. */
double softmax_f64_ns(const struct op_args *args)
{
	const double row_ns = 160, element_ns = 5, apart_ns = 2.5;
	const struct view *x = &args->views[X], *y = &args->views[Y];
	double elements = (double)view_elements(y), rows = (double)count_rows(args);
	bool apart = x->strides[3] != 1 || y->strides[3] != 1;

	if (elements == 0)
		return 0;
	double parts = count_parts(args);
	double ns = (rows * row_ns + elements * (element_ns + (apart ? apart_ns : 0))) / cpu_threads(parts);
	return apart ? ns + cpu_memory_ns(args, parts) : fmax(ns, cpu_memory_ns(args, parts));
}
