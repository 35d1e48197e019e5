#include "check.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "random.h"
#include "show.h"

#define PRODUCT_BUDGET (1ull << 30) /* multiply-adds: 1024³, about a second */
#define ELEMENT_BUDGET (1ull << 26) /* elements of the other ops */
#define ROWS_AT_LEAST  4

#define CHUNK 32   /* rows of C at a time */
#define DEPTH 32   /* of K */
#define WIDTH 1024 /* of N */

/* ---- sampling and comparing ---- */

/* Which rows are looked at: all, or the first, the last and random ones between them. */
struct sample {
	uint64_t rows, n;
	struct random random;
};

static struct sample sample_rows(uint64_t rows, double cost_of_row, double budget, struct check *c)
{
	double most = budget / (cost_of_row > 1 ? cost_of_row : 1);
	struct sample s = {.rows = rows, .n = rows};

	if (most < ROWS_AT_LEAST)
		most = ROWS_AT_LEAST;
	if ((double)rows > most)
		s.n = (uint64_t)most;
	c->seed = random_seed();
	random_start(&s.random, c->seed);
	return s;
}

/* The i-th row to look at, in ascending order: one of each n-th part of the rows. */
static uint64_t sample_row(struct sample *s, uint64_t i)
{
	uint64_t low = (uint64_t)((unsigned __int128)i * s->rows / s->n);
	uint64_t high = (uint64_t)((unsigned __int128)(i + 1) * s->rows / s->n);

	if (i == 0 || s->n == s->rows)
		return low;
	return i == s->n - 1 ? high - 1 : low + random_below(&s->random, high - low);
}

/* Whether an infinite or not-a-number result is the right one. */
static bool special_is_right(double got, double want, double bound, double largest)
{
	if (isnan(want) || isnan(got))
		return isnan(want) && isnan(got);
	if (isinf(want))
		return got == want;
	/* Overflow is right where the true value is within its bound of overflowing. */
	return signbit(got) == signbit(want) && fabs(want) + bound > largest * (1 - 0x1p-12);
}

static void compare(struct check *c, uint64_t row, uint64_t column, double got, double want, double bound,
                    double largest)
{
	double error = fabs(got - want);
	bool right;

	c->compared++;
	if (isfinite(got) && isfinite(want)) {
		right = error <= bound;
	} else {
		right = special_is_right(got, want, bound, largest);
		error = right ? 0 : (double)INFINITY;
	}
	c->wrong += right ? 0 : 1;
	if (error > c->max_error)
		c->max_error = error;
	/* error/bound, without a division by 0 */
	bool first = c->compared == 1;
	if (!first && !(error * c->bound > c->error * bound) && !(!right && c->error <= c->bound))
		return;
	c->row = row;
	c->column = column;
	c->error = error;
	c->bound = bound;
	c->got = got;
	c->want = want;
}

static double sum_growth(uint64_t n)
{
	double root = 8 * sqrt((double)n);

	return (root < (double)n ? root : (double)n) + 4;
}

/* How far a tiny result may lie off: kernels may flush what is subnormal in f32 to 0; the subnormals of f16 are
 * exact to half their spacing. */
static double tiny_error(kops_dtype dtype)
{
	return dtype == KOPS_F16 ? 0x1p-25 : element_smallest(dtype);
}

/* ---- gemm ---- */

/* Storage of one check_gemm(). */
struct tiles {
	double a[CHUNK][DEPTH];
	double b[DEPTH][WIDTH];
	double sum[CHUNK][WIDTH];
	double a_square[CHUNK], b_square[WIDTH];
	double old[WIDTH], got[WIDTH];
	uint64_t rows[CHUNK];
};

/* A row of an operand's matrix in the batch that row `row` of C belongs to. */
static uint64_t operand_row(const struct elements *operand, const struct elements *y, uint64_t row,
                            uint64_t in_matrix)
{
	uint64_t batch = row / y->shape[y->rank - 2];
	uint64_t batches = elements_rows(operand) / operand->shape[operand->rank - 2];

	return (batches > 1 ? batch : 0) * operand->shape[operand->rank - 2] + in_matrix;
}

static void load_a(struct tiles *t, const struct check_product *p, unsigned n_rows, uint64_t k, uint64_t depth)
{
	uint64_t m = p->y->shape[p->y->rank - 2];

	for (unsigned r = 0; r < n_rows; r++) {
		elements_row(p->a, operand_row(p->a, p->y, t->rows[r], t->rows[r] % m), k, depth, t->a[r]);
		for (uint64_t i = 0; i < depth; i++)
			t->a_square[r] += t->a[r][i] * t->a[r][i];
	}
}

static void load_b(struct tiles *t, const struct check_product *p, uint64_t k, uint64_t depth, uint64_t j,
                   uint64_t width)
{
	for (uint64_t i = 0; i < depth; i++) {
		elements_row(p->b, operand_row(p->b, p->y, t->rows[0], k + i), j, width, t->b[i]);
		for (uint64_t c = 0; c < width; c++)
			t->b_square[c] += t->b[i][c] * t->b[i][c];
	}
}

static void multiply(struct tiles *t, unsigned n_rows, uint64_t depth, uint64_t width)
{
	for (unsigned r = 0; r < n_rows; r++) {
		double *restrict sum = t->sum[r];
		uint64_t i = 0;
		for (; i + 4 <= depth; i += 4) {
			const double *b0 = t->b[i], *b1 = t->b[i + 1], *b2 = t->b[i + 2], *b3 = t->b[i + 3];
			double a0 = t->a[r][i], a1 = t->a[r][i + 1], a2 = t->a[r][i + 2], a3 = t->a[r][i + 3];
			for (uint64_t c = 0; c < width; c++)
				sum[c] += (a0 * b0[c] + a1 * b1[c]) + (a2 * b2[c] + a3 * b3[c]);
		}
		for (; i < depth; i++)
			for (uint64_t c = 0; c < width; c++)
				sum[c] += t->a[r][i] * t->b[i][c];
	}
}

/* Relative error that the kernel may put on each product a·b. */
static double product_roundoff(const struct check_product *p)
{
	bool rounds = p->y->dtype == KOPS_F32;

	if (rounds && p->precision == KOPS_PRECISION_TF32)
		return 2 * 0x1p-11;
	if (rounds && p->precision == KOPS_PRECISION_BF16)
		return 2 * 0x1p-8;
	return 0;
}

static void compare_tile(struct tiles *t, const struct check_product *p, unsigned n_rows, uint64_t j,
                         uint64_t width, uint64_t depth, struct check *c)
{
	kops_dtype dtype = p->y->dtype;
	/* Small types accumulate in f32; f64 is checked by f64, which may be as wrong itself. */
	double accumulate =
	    element_roundoff(dtype == KOPS_F64 ? KOPS_F64 : KOPS_F32) * (dtype == KOPS_F64 ? 2 : 1);
	double per_norm = fabs(p->alpha) * (accumulate * sum_growth(depth) + product_roundoff(p));
	double result = 2 * element_roundoff(dtype), largest = element_largest(dtype);
	double tiny = 2 * tiny_error(dtype);

	for (unsigned r = 0; r < n_rows; r++) {
		double a_norm = sqrt(t->a_square[r]);
		elements_row(p->y, t->rows[r], j, width, t->got);
		if (p->old)
			elements_row(p->old, t->rows[r], j, width, t->old);
		for (uint64_t i = 0; i < width; i++) {
			double old = p->old ? p->beta * t->old[i] : 0;
			double want = (p->alpha == 0 ? 0 : p->alpha * t->sum[r][i]) + old;
			double bound =
			    per_norm * a_norm * sqrt(t->b_square[i]) + result * (fabs(want) + fabs(old)) + tiny;
			compare(c, t->rows[r], j + i, t->got[i], want, bound, largest);
		}
	}
}

/* The rows in t->rows, all of one batch, against N columns. */
static void check_rows(struct tiles *t, const struct check_product *p, unsigned n_rows, struct check *c)
{
	uint64_t columns = elements_columns(p->y), depth = elements_columns(p->a);

	for (uint64_t j = 0; j < columns; j += WIDTH) {
		uint64_t width = columns - j < WIDTH ? columns - j : WIDTH;
		memset(t->sum, 0, sizeof(t->sum));
		memset(t->a_square, 0, sizeof(t->a_square));
		memset(t->b_square, 0, sizeof(t->b_square));
		for (uint64_t k = 0; k < depth; k += DEPTH) {
			uint64_t d = depth - k < DEPTH ? depth - k : DEPTH;
			load_a(t, p, n_rows, k, d);
			load_b(t, p, k, d, j, width);
			multiply(t, n_rows, d, width);
		}
		compare_tile(t, p, n_rows, j, width, depth, c);
	}
}

int check_gemm(const struct check_product *product, struct check *ret_check)
{
	struct check c = {.elements = elements_count(product->y)};
	struct tiles *t = malloc(sizeof(*t));
	double start = cli_now_us();
	unsigned n = 0;

	if (t == NULL)
		return KOPS_E_NOMEM;
	uint64_t m = product->y->shape[product->y->rank - 2];
	double row_cost = (double)elements_columns(product->y) * (double)elements_columns(product->a);
	struct sample s = sample_rows(elements_rows(product->y), row_cost, (double)PRODUCT_BUDGET, &c);
	for (uint64_t i = 0; i < s.n; i++) {
		uint64_t row = sample_row(&s, i);
		bool full = n == CHUNK || (n > 0 && row / m != t->rows[0] / m);
		if (full)
			check_rows(t, product, n, &c);
		n = full ? 0 : n;
		t->rows[n++] = row;
	}
	if (n > 0)
		check_rows(t, product, n, &c);
	free(t);
	c.us = cli_now_us() - start;
	*ret_check = c;
	return 0;
}

/* ---- ops that work row by row ---- */

/* Fills what row `row` of y ought to be and how far from it each element may lie. */
struct by_row {
	const struct elements *a, *b, *y;
	double scale;
	bool log;
	double alpha, beta;
	uint32_t steps;
	void (*want)(const struct by_row *op, uint64_t row, double *want, double *bound, double *scratch);
};

static int check_by_row(const struct by_row *op, struct check *ret_check)
{
	uint64_t columns = elements_columns(op->y);
	struct check c = {.elements = elements_count(op->y)};
	struct sample s = sample_rows(elements_rows(op->y), (double)columns, (double)ELEMENT_BUDGET, &c);
	double *room = malloc((4 * columns + 1) * sizeof(*room));
	double *want = room, *bound = room + columns, *got = room + 2 * columns, *scratch = room + 3 * columns;
	double start = cli_now_us(), largest = element_largest(op->y->dtype);

	if (room == NULL)
		return KOPS_E_NOMEM;
	for (uint64_t i = 0; i < s.n && columns > 0; i++) {
		uint64_t row = sample_row(&s, i);
		op->want(op, row, want, bound, scratch);
		elements_row(op->y, row, 0, columns, got);
		for (uint64_t j = 0; j < columns; j++)
			compare(&c, row, j, got[j], want[j], bound[j], largest);
	}
	free(room);
	c.us = cli_now_us() - start;
	*ret_check = c;
	return 0;
}

static void want_softmax(const struct by_row *op, uint64_t row, double *want, double *bound, double *x)
{
	uint64_t n = elements_columns(op->y);
	kops_dtype dtype = op->y->dtype;
	double u = element_roundoff(KOPS_F32), max = -(double)INFINITY, sum = 0;
	/* Of the result to a 16-bit type; a tenth more, as it is rounded from f32. */
	double last = dtype == KOPS_F32 ? 0 : 1.1 * element_roundoff(dtype);

	elements_row(op->a, row, 0, n, x);
	for (uint64_t j = 0; j < n; j++) {
		x[j] *= op->scale;
		max = x[j] > max || isnan(x[j]) ? x[j] : max;
	}
	for (uint64_t j = 0; j < n; j++)
		sum += exp(x[j] - max);
	for (uint64_t j = 0; j < n; j++) {
		double distance = fabs(x[j] - max);
		/* Rounding of the exponent's argument, of exp() and of the sum. */
		double relative = u * (16 + sum_growth(n) + 4 * distance + 2 * fabs(x[j]) + 2 * fabs(max));
		want[j] = op->log ? x[j] - max - log(sum) : exp(x[j] - max) / sum;
		bound[j] =
		    (op->log ? relative : relative * want[j]) + last * fabs(want[j]) + 1.1 * tiny_error(dtype);
	}
}

int check_softmax(const struct elements *x, const struct elements *y, double scale, bool log,
                  struct check *ret_check)
{
	struct by_row op = {.a = x, .y = y, .scale = scale, .log = log, .want = want_softmax};

	return check_by_row(&op, ret_check);
}

static void want_same(const struct by_row *op, uint64_t row, double *want, double *bound, double *scratch)
{
	uint64_t n = elements_columns(op->y);

	(void)scratch;
	elements_row(op->a, row, 0, n, want);
	memset(bound, 0, n * sizeof(*bound));
}

int check_copy(const struct elements *x, const struct elements *y, struct check *ret_check)
{
	struct by_row op = {.a = x, .y = y, .want = want_same};

	return check_by_row(&op, ret_check);
}

int check_transpose(const struct elements *x, const struct elements *y, struct check *ret_check)
{
	struct elements turned = *x;
	uint32_t last = x->rank - 1;

	turned.shape[last] = x->shape[last - 1];
	turned.shape[last - 1] = x->shape[last];
	turned.strides[last] = x->strides[last - 1];
	turned.strides[last - 1] = x->strides[last];
	return check_copy(&turned, y, ret_check);
}

static void want_sum(const struct by_row *op, uint64_t row, double *want, double *bound, double *scratch)
{
	uint64_t n = elements_columns(op->y);
	double u = element_roundoff(op->y->dtype), tiny = tiny_error(op->y->dtype);

	elements_row(op->a, row, 0, n, want);
	elements_row(op->b, row, 0, n, scratch);
	for (uint64_t j = 0; j < n; j++) {
		want[j] += scratch[j];
		bound[j] = u * fabs(want[j]) + tiny;
	}
}

/* An operand with the shape of y: extents of 1 and missing ones get stride 0. */
static struct elements repeated(const struct elements *e, const struct elements *y)
{
	struct elements wide = *y;

	wide.data = e->data;
	wide.dtype = e->dtype;
	for (uint32_t d = 0; d < y->rank; d++) {
		uint32_t missing = y->rank - e->rank;
		bool repeats = d < missing || e->shape[d - missing] == 1;
		wide.strides[d] = repeats ? 0 : e->strides[d - missing];
	}
	return wide;
}

int check_add(const struct elements *a, const struct elements *b, const struct elements *y,
              struct check *ret_check)
{
	struct elements wide_a = repeated(a, y), wide_b = repeated(b, y);
	struct by_row op = {.a = &wide_a, .b = &wide_b, .y = y, .want = want_sum};

	return check_by_row(&op, ret_check);
}

/* Each step rounds, and passes on alpha times the error that it found. */
static void want_iterated(const struct by_row *op, uint64_t row, double *want, double *bound, double *scratch)
{
	uint64_t n = elements_columns(op->y);
	double u = element_roundoff(op->y->dtype), tiny = element_smallest(op->y->dtype);

	elements_row(op->a, row, 0, n, scratch);
	for (uint64_t j = 0; j < n; j++) {
		double v = scratch[j], error = 0;

		for (uint32_t s = 0; s < op->steps; s++) {
			error = fabs(op->alpha) * error + u * fabs(op->alpha * v);
			v = fma(op->alpha, v, op->beta);
			error += u * fabs(v) + tiny;
		}
		want[j] = v;
		bound[j] = 2 * error; /* the reference rounds too, which matters where y is f64 */
	}
}

int check_fma(const struct elements *x, const struct elements *y, double alpha, double beta, uint32_t steps,
              struct check *ret_check)
{
	struct by_row op = {
	    .a = x, .y = y, .alpha = alpha, .beta = beta, .steps = steps, .want = want_iterated};

	return check_by_row(&op, ret_check);
}

/* ---- results ---- */

bool check_passed(const struct check *check)
{
	return check->wrong == 0;
}

void check_show(FILE *out, const char *op, const struct check *check)
{
	fprintf(out, "check of %s: %s, %" PRIu64 " of %" PRIu64 " elements compared", op,
	        check_passed(check) ? "ok" : "WRONG", check->compared, check->elements);
	if (check->compared < check->elements)
		fprintf(out, " (random rows, seed %" PRIu64 ")", check->seed);
	fprintf(out, ", largest error %.3g", check->max_error);
	if (check->compared > 0)
		fprintf(out, ", %s %.3g where %.3g is allowed",
		        check_passed(check) ? "nearest to its bound" : "worst", check->error, check->bound);
	fprintf(out, "; took %s\n", show_us(check->us).text);
	if (!check_passed(check))
		fprintf(out,
		        "  %" PRIu64 " beyond their bound, worst at row %" PRIu64 ", column %" PRIu64
		        ": %.9g where %.9g is right\n",
		        check->wrong, check->row, check->column, check->got, check->want);
}

void check_json(struct json *json, const char *key, const char *op, const struct check *check)
{
	json_object(json, key);
	json_text(json, "op", op);
	json_bool(json, "passed", check_passed(check));
	json_count(json, "elements", check->elements);
	json_count(json, "compared", check->compared);
	json_count(json, "wrong", check->wrong);
	json_real(json, "max_error", check->max_error);
	json_object(json, "worst");
	json_count(json, "row", check->row);
	json_count(json, "column", check->column);
	json_real(json, "got", check->got);
	json_real(json, "want", check->want);
	json_real(json, "error", check->error);
	json_real(json, "bound", check->bound);
	json_close_object(json);
	json_count(json, "seed", check->seed);
	json_us(json, "check_us", check->us);
	json_close_object(json);
}
