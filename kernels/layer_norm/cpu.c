/*
 * layer_norm and rms_norm on the CPU, as `vectorised`. Each piece of a row stays in the first-level cache while
 * it is measured in f32 (f64 in f64): first its mean, then the deviations from it. The results of pieces are
 * joined in float64, and a second pass writes. 16-bit elements are widened in a buffer. Threads take rows, or
 * the pieces of few long rows. Rows whose squares exceed f32 are computed in float64, element by element. A
 * residual is added while a piece is loaded, each time.
 *
 * Bound by memory for rows of 60 elements or more.
 */
#include <math.h>

#include "common/cpu.h"
#include "common/half.h"
#include "common/threads.h"
#include "layer_norm/cpu.h"
#include "layer_norm/cpu_lanes.h"
#include "layer_norm/rows.h"

#define PIECE         2048  /* elements of a row that are processed at once */
#define SUM_BLOCK     256   /* terms added in f32 before float64 takes over */
#define PART_ELEMENTS 16384 /* elements that are worth a thread */

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* ---- Loops over n elements side by side ---- */

/* A first mean, the sum of deviations from it, and the sum of their squares. */
struct sums {
	double near, apart, squares;
};

/* The measures of a row. near: the mean in the type of the loops; beyond: what that leaves out. */
struct measures {
	double mean, near, beyond, inverse;
	bool is_wide; /* f32 loops are not accurate enough */
};

/* weight and bias are NULL if absent. y may be x. */
#define WRITE(T, value)                                                                                        \
	_Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                                    \
	{                                                                                                      \
		T t = (x[i] - near - beyond) * inverse;                                                        \
		y[i] = value;                                                                                  \
	}
/* Sums a block in streams that do not wait for each other. */
#define LOOPS(T)                                                                                               \
	static inline T sum_##T(const T *x, int64_t n)                                                         \
	{                                                                                                      \
		T a = 0, b = 0, c = 0, d = 0;                                                                  \
		int64_t q = n / 4;                                                                             \
		_Pragma("omp simd reduction(+ : a, b, c, d)") for (int64_t i = 0; i < q; i++)                  \
		{                                                                                              \
			a += x[i];                                                                             \
			b += x[q + i];                                                                         \
			c += x[2 * q + i];                                                                     \
			d += x[3 * q + i];                                                                     \
		}                                                                                              \
		for (int64_t i = 4 * q; i < n; i++)                                                            \
			a += x[i];                                                                             \
		return a + b + (c + d);                                                                        \
	}                                                                                                      \
	static inline void sums_##T(const T *x, int64_t n, T near, struct sums *add)                           \
	{                                                                                                      \
		T a = 0, b = 0, a2 = 0, b2 = 0;                                                                \
		int64_t h = n / 2;                                                                             \
		_Pragma("omp simd reduction(+ : a, b, a2, b2)") for (int64_t i = 0; i < h; i++)                \
		{                                                                                              \
			T d = x[i] - near, e = x[h + i] - near;                                                \
			a += d;                                                                                \
			a2 += d * d;                                                                           \
			b += e;                                                                                \
			b2 += e * e;                                                                           \
		}                                                                                              \
		T last = n % 2 ? x[n - 1] - near : 0;                                                          \
		add->apart += (double)(a + b + last);                                                          \
		add->squares += (double)(a2 + b2 + last * last);                                               \
	}                                                                                                      \
	CPU_CLONES static void measure_##T(const T *x, int64_t n, struct sums *ret)                            \
	{                                                                                                      \
		struct sums s = {0, 0, 0};                                                                     \
		double sum = 0;                                                                                \
		for (int64_t from = 0; from < n; from += SUM_BLOCK)                                            \
			sum += (double)sum_##T(x + from, least(n - from, SUM_BLOCK));                          \
		T near = (T)(sum / (double)n);                                                                 \
		for (int64_t from = 0; from < n; from += SUM_BLOCK)                                            \
			sums_##T(x + from, least(n - from, SUM_BLOCK), near, &s);                              \
		s.near = (double)near;                                                                         \
		*ret = s;                                                                                      \
	}                                                                                                      \
	CPU_CLONES static void squares_##T(const T *x, int64_t n, struct sums *ret)                            \
	{                                                                                                      \
		struct sums s = {0, 0, 0};                                                                     \
		for (int64_t from = 0; from < n; from += SUM_BLOCK) {                                          \
			struct sums block = {0, 0, 0};                                                         \
			sums_##T(x + from, least(n - from, SUM_BLOCK), 0, &block);                             \
			s.squares += block.squares;                                                            \
		}                                                                                              \
		*ret = s;                                                                                      \
	}                                                                                                      \
	CPU_CLONES static void add_##T(T *to, const T *a, const T *b, int64_t n)                               \
	{                                                                                                      \
		_Pragma("omp simd") for (int64_t i = 0; i < n; i++) to[i] = a[i] + b[i];                       \
	}                                                                                                      \
	CPU_CLONES static void write_##T(T *y, const T *x, int64_t n, const T *weight, const T *bias,          \
	                                 const struct measures *m)                                             \
	{                                                                                                      \
		const T near = (T)m->near, beyond = (T)m->beyond, inverse = (T)m->inverse;                     \
		if (weight && bias)                                                                            \
			WRITE(T, weight[i] * t + bias[i])                                                      \
		else if (weight)                                                                               \
			WRITE(T, weight[i] * t)                                                                \
		else if (bias)                                                                                 \
			WRITE(T, t + bias[i])                                                                  \
		else                                                                                           \
			WRITE(T, t)                                                                            \
	}

LOOPS(float)
LOOPS(double)

/* ---- Measures ---- */

static struct layer_norm_partial partial_of(const struct sums *s, int64_t n)
{
	double count = (double)n, squares = s->squares - s->apart * s->apart / count;

	return (struct layer_norm_partial){count, s->near + s->apart / count, squares < 0 ? 0 : squares};
}

/* Measures elements of a 16-bit type or f32 in float64. */
static struct layer_norm_partial measure_wide(const struct op_args *args, const struct layer_norm_place *at,
                                              int64_t n)
{
	struct sums s = {0, 0, 0};

	for (int64_t i = 0; i < n && !layer_norm_is_rms(args); i++)
		s.near += layer_norm_element(args, at, i);
	s.near /= (double)n;
	for (int64_t i = 0; i < n; i++) {
		double d = layer_norm_element(args, at, i) - s.near;
		s.apart += layer_norm_is_rms(args) ? 0 : d;
		s.squares += d * d;
	}
	return partial_of(&s, n);
}

static struct measures measures_of(const struct op_args *args, struct layer_norm_partial known)
{
	bool is_f64 = args->views[LAYER_NORM_X].dtype == KOPS_F64;
	double near = is_f64 ? known.mean : (double)(float)known.mean, eps = layer_norm_eps(args);

	return (struct measures){.mean = known.mean,
	                         .near = near,
	                         .beyond = known.mean - near,
	                         .inverse = 1 / sqrt(known.squares / known.count + eps),
	                         .is_wide = !is_f64 && !layer_norm_is_in_f32(known.squares, known.count, eps)};
}

/* ---- Pieces of a row ---- */

/* Elements in the type of the loops: f64 for f64, else f32. */
union buffer {
	float f[PIECE];
	double d[PIECE];
};

/* Returns n elements from element `at` on, in the buffer or in place. */
static const void *gather(const struct view *v, unsigned axis, int64_t at, int64_t n, union buffer *room)
{
	int64_t step = v->strides[axis];
	const char *first = (const char *)v->data + at * (int64_t)dtype_size(v->dtype);

	if (step == 1 && (v->dtype == KOPS_F32 || v->dtype == KOPS_F64))
		return first;
	if (step == 1) {
		half_widen(room->f, first, v->dtype, n);
		return room->f;
	}
	for (int64_t i = 0; i < n; i++)
		if (v->dtype == KOPS_F64)
			room->d[i] = ((const double *)(const void *)first)[i * step];
		else
			room->f[i] = (float)half_load(first, v->dtype, i * step);
	return room;
}

static void scatter(const struct view *y, int64_t at, const union buffer *from, int64_t n)
{
	int64_t step = y->strides[3];
	char *first = (char *)y->data + at * (int64_t)dtype_size(y->dtype);

	if (step == 1 && y->dtype != KOPS_F64) {
		half_narrow(first, y->dtype, from->f, n);
		return;
	}
	for (int64_t i = 0; i < n; i++)
		half_store(first, y->dtype, i * step, y->dtype == KOPS_F64 ? from->d[i] : (double)from->f[i]);
}

/* Rounds elements of a buffer to a type whose loops are in f32. */
static void round_to(union buffer *room, kops_dtype dtype, int64_t n)
{
	uint16_t narrow[PIECE];

	if (dtype == KOPS_F32)
		return;
	half_narrow(narrow, dtype, room->f, n);
	half_widen(room->f, narrow, dtype, n);
}

/* Returns n elements of a row, of x or of x + residual: in the buffer, or x's in place. */
static const void *load(const struct op_args *args, const struct layer_norm_place *at, int64_t n,
                        union buffer *room)
{
	const struct view *x = &args->views[LAYER_NORM_X], *residual = &args->views[LAYER_NORM_RESIDUAL];
	const void *elements = gather(x, 3, at->of[LAYER_NORM_X], n, room), *added;
	union buffer other;

	if (view_is_absent(residual))
		return elements;
	added = gather(residual, 3, at->of[LAYER_NORM_RESIDUAL], n, &other);
	if (x->dtype == KOPS_F64) {
		add_double(room->d, elements, added, n);
	} else {
		add_float(room->f, elements, added, n);
		round_to(room, x->dtype, n);
	}
	return room;
}

/* weight and bias of some columns, in the type of the loops; NULL if absent. */
struct vectors {
	const void *weight, *bias;
	union buffer weight_room, bias_room;
};

static const void *gather_vector(const struct view *v, int64_t column, int64_t n, union buffer *room)
{
	return view_is_absent(v) ? NULL : gather(v, 0, column * v->strides[0], n, room);
}

static void gather_vectors(const struct op_args *args, int64_t column, int64_t n, struct vectors *ret)
{
	ret->weight = gather_vector(&args->views[LAYER_NORM_WEIGHT], column, n, &ret->weight_room);
	ret->bias = gather_vector(&args->views[LAYER_NORM_BIAS], column, n, &ret->bias_room);
}

/* piece: its elements in the type of the loops. */
static struct layer_norm_partial measure_piece(const struct op_args *args, const struct layer_norm_place *at,
                                               const void *piece, int64_t n)
{
	bool is_rms = layer_norm_is_rms(args);
	struct sums s;

	if (args->views[LAYER_NORM_X].dtype == KOPS_F64) {
		(is_rms ? squares_double : measure_double)(piece, n, &s);
		return partial_of(&s, n);
	}
	(is_rms ? squares_float : measure_float)(piece, n, &s);
	return layer_norm_is_in_f32(s.squares, (double)n, layer_norm_eps(args)) ? partial_of(&s, n)
	                                                                        : measure_wide(args, at, n);
}

/* Measures columns [from, to) of a row. */
static struct layer_norm_partial measure(const struct op_args *args, const struct layer_norm_place *row,
                                         int64_t from, int64_t to)
{
	struct layer_norm_partial known = {0, 0, 0};
	union buffer room;

	for (int64_t i = from; i < to; i += PIECE) {
		int64_t n = least(to - i, PIECE);
		struct layer_norm_place at = layer_norm_column(args, *row, i);
		known = layer_norm_join(known, measure_piece(args, &at, load(args, &at, n, &room), n));
	}
	return known;
}

static double vector_at(const struct view *v, int64_t column, double otherwise)
{
	return view_is_absent(v) ? otherwise : half_load(v->data, v->dtype, column * v->strides[0]);
}

/* at: of column `column`. */
static void write_wide(const struct op_args *args, const struct layer_norm_place *at, int64_t column, int64_t n,
                       const struct measures *m)
{
	const struct view *y = &args->views[LAYER_NORM_Y], *sum = &args->views[LAYER_NORM_SUM];

	for (int64_t i = 0; i < n; i++) {
		double element = layer_norm_element(args, at, i), t = (element - m->mean) * m->inverse;
		half_store(y->data, y->dtype, at->of[LAYER_NORM_Y] + i * y->strides[3],
		           t * vector_at(&args->views[LAYER_NORM_WEIGHT], column + i, 1) +
		               vector_at(&args->views[LAYER_NORM_BIAS], column + i, 0));
		if (!view_is_absent(sum))
			half_store(sum->data, sum->dtype, at->of[LAYER_NORM_SUM] + i * sum->strides[3],
			           element);
	}
}

/* Returns where to write n elements of y: in place, or in the buffer, from which scatter() takes them. */
static void *place_of(const struct view *y, int64_t at, union buffer *room)
{
	bool is_direct = y->strides[3] == 1 && (y->dtype == KOPS_F32 || y->dtype == KOPS_F64);

	return is_direct ? (char *)y->data + at * (int64_t)dtype_size(y->dtype) : (char *)room;
}

/* piece: x + residual, in a buffer. */
static void write_sum(const struct op_args *args, const struct layer_norm_place *at, const void *piece,
                      int64_t n)
{
	const struct view *sum = &args->views[LAYER_NORM_SUM];
	union buffer room;

	if (view_is_absent(sum))
		return;
	void *to = place_of(sum, at->of[LAYER_NORM_SUM], &room);
	if (to == &room)
		scatter(sum, at->of[LAYER_NORM_SUM], piece, n);
	else
		memcpy(to, piece, (size_t)n * dtype_size(sum->dtype));
}

/* piece: the elements there in the type of the loops. */
static void write_piece(const struct op_args *args, const void *piece, const struct layer_norm_place *at,
                        int64_t n, const struct vectors *v, const struct measures *m)
{
	const struct view *y = &args->views[LAYER_NORM_Y];
	int64_t y_at = at->of[LAYER_NORM_Y];
	union buffer room;
	void *to = place_of(y, y_at, &room);

	if (y->dtype == KOPS_F64)
		write_double(to, piece, n, v->weight, v->bias, m);
	else
		write_float(to, piece, n, v->weight, v->bias, m);
	if (to == &room)
		scatter(y, y_at, &room, n);
	write_sum(args, at, piece, n);
}

/* Writes columns [from, to) of the row. */
static void write_columns(const struct op_args *args, const struct layer_norm_place *row, int64_t from,
                          int64_t to, const struct measures *m)
{
	struct vectors v;
	union buffer room;

	for (int64_t i = from; i < to; i += PIECE) {
		int64_t n = least(to - i, PIECE);
		struct layer_norm_place at = layer_norm_column(args, *row, i);

		if (m->is_wide) {
			write_wide(args, &at, i, n, m);
			continue;
		}
		gather_vectors(args, i, n, &v);
		write_piece(args, load(args, &at, n, &room), &at, n, &v, m);
	}
}

/* Computes a row of one piece. v: for all columns. */
static void short_row(const struct op_args *args, const struct layer_norm_place *row, int64_t n,
                      const struct vectors *v)
{
	union buffer room;
	const void *piece = load(args, row, n, &room);
	struct measures m = measures_of(args, measure_piece(args, row, piece, n));

	if (m.is_wide)
		write_wide(args, row, 0, n, &m);
	else
		write_piece(args, piece, row, n, v, &m);
}

/* ---- Rows ---- */

struct work {
	const struct op_args *args;
	uint64_t rows, columns;
	unsigned n_parts,
	    column_parts; /* parts into which the columns of each row are cut; 0: parts are whole rows */
	struct layer_norm_partial *found; /* for each part and row */
};

static struct layer_norm_partial *carried_of(const struct op_args *args, uint64_t row)
{
	return (struct layer_norm_partial *)args->carried + row;
}

static void hand_on(const struct op_args *args, uint64_t row, struct layer_norm_partial known)
{
	struct layer_norm_partial *carried = carried_of(args, row);

	*carried = layer_norm_goes_on(args) ? layer_norm_join(*carried, known) : known;
}

static void long_row(const struct op_args *args, uint64_t row, int64_t columns)
{
	enum layer_norm_pass pass = layer_norm_pass(args);
	struct layer_norm_place place = layer_norm_row(args, row);
	struct layer_norm_partial known =
	    pass == LAYER_NORM_WRITE ? *carried_of(args, row) : measure(args, &place, 0, columns);
	struct measures m = measures_of(args, known);

	if (pass == LAYER_NORM_MEASURE)
		hand_on(args, row, known);
	else
		write_columns(args, &place, 0, columns, &m);
}

/* Computes rows [first, end), each of one piece. */
static void short_rows(const struct work *w, uint64_t first, uint64_t end, const struct vectors *v)
{
	for (uint64_t row = first; row < end; row++) {
		struct layer_norm_place place = layer_norm_row(w->args, row);
		short_row(w->args, &place, (int64_t)w->columns, v);
	}
}

/* Returns true if rows are short enough to be computed together. With a residual, a row that has to be done
 * again could have been overwritten by its sum. */
static bool goes_in_lanes(const struct op_args *args)
{
	const struct view *x = &args->views[LAYER_NORM_X];

	return layer_norm_pass(args) == LAYER_NORM_WHOLE && x->dtype != KOPS_F64 &&
	       !layer_norm_has_residual(args) && x->shape[3] <= LAYER_NORM_LANES_COLUMNS;
}

/* Loads one of several rows into its lane. */
static void load_lane(const struct view *x, int64_t at, int64_t n, struct layer_norm_lanes *lanes,
                      unsigned lane)
{
	union buffer room;
	const float *from = gather(x, 3, at, n, &room);

	for (int64_t i = 0; i < n; i++)
		lanes->at[i][lane] = from[i];
}

static void store_lane(const struct view *y, int64_t at, int64_t n, const struct layer_norm_lanes *lanes,
                       unsigned lane)
{
	union buffer room;
	float *to = place_of(y, at, &room);

	for (int64_t i = 0; i < n; i++)
		to[i] = lanes->at[i][lane];
	if ((void *)to == &room)
		scatter(y, at, &room, n);
}

static void rows_in_lanes(const struct work *w, uint64_t first, uint64_t end, const struct vectors *v)
{
	const struct view *x = &w->args->views[LAYER_NORM_X], *y = &w->args->views[LAYER_NORM_Y];
	int64_t n = (int64_t)w->columns;
	struct layer_norm_lanes lanes = {{{0}}};

	for (; first < end; first += LAYER_NORM_LANES) {
		unsigned rows = (unsigned)least((int64_t)(end - first), LAYER_NORM_LANES);
		for (unsigned i = 0; i < rows; i++)
			load_lane(x, view_row(x, first + i), n, &lanes, i);
		uint32_t bad = layer_norm_of_lanes(&lanes, n, layer_norm_is_rms(w->args), v->weight, v->bias,
		                                   layer_norm_eps(w->args));
		for (unsigned i = 0; i < rows; i++)
			if (bad >> i & 1)
				short_rows(w, first + i, first + i + 1, v);
			else
				store_lane(y, view_row(y, first + i), n, &lanes, i);
	}
}

static void whole_rows(void *ctx, unsigned part)
{
	const struct work *w = ctx;
	uint64_t first = threads_bound(w->rows, part, w->n_parts),
	         end = threads_bound(w->rows, part + 1, w->n_parts);
	struct vectors v;

	if (layer_norm_pass(w->args) != LAYER_NORM_WHOLE || w->columns > PIECE) {
		for (; first < end; first++)
			long_row(w->args, first, (int64_t)w->columns);
		return;
	}
	gather_vectors(w->args, 0, (int64_t)w->columns, &v);
	if (goes_in_lanes(w->args))
		rows_in_lanes(w, first, end, &v);
	else
		short_rows(w, first, end, &v);
}

static void measure_some(void *ctx, unsigned part)
{
	const struct work *w = ctx;
	uint64_t row = part / w->column_parts;
	unsigned piece = part % w->column_parts;

	struct layer_norm_place place = layer_norm_row(w->args, row);
	w->found[part] = measure(w->args, &place, (int64_t)threads_bound(w->columns, piece, w->column_parts),
	                         (int64_t)threads_bound(w->columns, piece + 1, w->column_parts));
}

static void write_some(void *ctx, unsigned part)
{
	const struct work *w = ctx;
	uint64_t row = part / w->column_parts;
	unsigned piece = part % w->column_parts;
	struct measures m = measures_of(w->args, w->found[row * w->column_parts]);

	struct layer_norm_place place = layer_norm_row(w->args, row);
	write_columns(w->args, &place, (int64_t)threads_bound(w->columns, piece, w->column_parts),
	              (int64_t)threads_bound(w->columns, piece + 1, w->column_parts), &m);
}

/* Joins the results of parts, always in the same order, into the first part of each row. */
static void join_parts(const struct work *w)
{
	const struct op_args *args = w->args;

	for (uint64_t row = 0; row < w->rows; row++) {
		struct layer_norm_partial *found = &w->found[row * w->column_parts];

		for (unsigned i = 1; i < w->column_parts; i++)
			found[0] = layer_norm_join(found[0], found[i]);
		if (layer_norm_pass(args) == LAYER_NORM_MEASURE)
			hand_on(args, row, found[0]);
	}
}

static void by_columns(struct work *w)
{
	enum layer_norm_pass pass = layer_norm_pass(w->args);

	if (pass != LAYER_NORM_WRITE) {
		threads_run(w->n_parts, measure_some, w);
		join_parts(w);
	} else {
		for (uint64_t row = 0; row < w->rows; row++)
			w->found[row * w->column_parts] = *carried_of(w->args, row);
	}
	if (pass != LAYER_NORM_MEASURE)
		threads_run(w->n_parts, write_some, w);
}

/* Returns how many parts each row has if there are fewer rows than useful parts; 0: parts are whole rows. */
static unsigned column_parts(uint64_t rows, uint64_t columns)
{
	unsigned parts = threads_parts(rows * columns, PART_ELEMENTS);

	return rows > 0 && rows < parts ? parts / (unsigned)rows + 1 : 0;
}

uint64_t layer_norm_vectorised_workspace(const struct op_args *args)
{
	uint64_t rows = layer_norm_rows(args);

	return cpu_align(column_parts(rows, args->views[LAYER_NORM_X].shape[3]) * rows *
	                 sizeof(struct layer_norm_partial));
}

int layer_norm_vectorised(const struct op_args *args, const struct launch *launch)
{
	struct work w = {.args = args,
	                 .rows = layer_norm_rows(args),
	                 .columns = args->views[LAYER_NORM_X].shape[3],
	                 .found = launch->workspace};

	w.column_parts = column_parts(w.rows, w.columns);
	w.n_parts = w.column_parts ? (unsigned)w.rows * w.column_parts
	                           : threads_parts(w.rows * w.columns, PART_ELEMENTS);
	if (w.column_parts)
		by_columns(&w);
	else
		threads_run(w.n_parts, whole_rows, &w);
	return 0;
}

double layer_norm_vectorised_ns(const struct op_args *args)
{
	const double apart_ns = 1.5;
	const struct view *x = &args->views[LAYER_NORM_X];
	double row_ns = goes_in_lanes(args) ? 15 : 75;
	double element_ns = goes_in_lanes(args)    ? 2
	                    : x->dtype == KOPS_F32 ? 0.5
	                    : x->dtype == KOPS_F16 ? 1.5
	                                           : 1;
	double elements = (double)view_elements(x), rows = (double)layer_norm_rows(args);
	double parts = elements / PART_ELEMENTS;

	for (unsigned v = 0; v < LAYER_NORM_OPERANDS; v++)
		if (layer_norm_has_rows(v) && !view_is_absent(&args->views[v]) &&
		    args->views[v].strides[3] != 1)
			element_ns += apart_ns;
	if (layer_norm_has_residual(args))
		element_ns *= 1.5;
	return fmax((rows * row_ns + elements * element_ns) / cpu_threads(parts), cpu_memory_ns(args, parts));
}

LAYER_NORM_CPU_KERNELS(layer_norm);
