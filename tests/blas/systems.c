/*
 * systems.c: a program linked with the BLAS library, which calls LAPACK's functions for systems of equations.
 *
 *     systems calls N     random calls of each function, whose results are put back into their equations
 *     systems unusual     what is invalid, empty, singular or not positive definite is as ever
 *     systems loop        random calls until standard input ends
 *
 * Prints what is wrong; exit status 0 means nothing is.
 */
#include <complex.h>
#include <math.h>
#include <poll.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../seed.h"

#define MOST    90 /* rows, columns */
#define SIDES   6
#define PADDING 3

/* ---- The functions, under the names of each type ---- */

struct functions {
	char letter;
	size_t element;
	void (*potrf)(const char *uplo, const int *n, void *a, const int *lda, int *info, size_t);
	void (*potrs)(const char *uplo, const int *n, const int *columns, const void *a, const int *lda,
	              void *b, const int *ldb, int *info, size_t);
	void (*posv)(const char *uplo, const int *n, const int *columns, void *a, const int *lda, void *b,
	             const int *ldb, int *info, size_t);
	void (*potri)(const char *uplo, const int *n, void *a, const int *lda, int *info, size_t);
	void (*getrf)(const int *m, const int *n, void *a, const int *lda, int *pivots, int *info);
	void (*getrs)(const char *trans, const int *n, const int *columns, const void *a, const int *lda,
	              const int *pivots, void *b, const int *ldb, int *info, size_t);
	void (*gesv)(const int *n, const int *columns, void *a, const int *lda, int *pivots, void *b,
	             const int *ldb, int *info);
	void (*getri)(const int *n, void *a, const int *lda, const int *pivots, void *workspace,
	              const int *lwork, int *info);
	void (*trtrs)(const char *uplo, const char *trans, const char *diag, const int *n, const int *columns,
	              const void *a, const int *lda, void *b, const int *ldb, int *info, size_t, size_t,
	              size_t);
	void (*trtri)(const char *uplo, const char *diag, const int *n, void *a, const int *lda, int *info,
	              size_t, size_t);
};

#define DECLARE(letter)                                                                                        \
	void letter##potrf_(const char *, const int *, void *, const int *, int *, size_t);                    \
	void letter##potrs_(const char *, const int *, const int *, const void *, const int *, void *,         \
	                    const int *, int *, size_t);                                                       \
	void letter##posv_(const char *, const int *, const int *, void *, const int *, void *, const int *,   \
	                   int *, size_t);                                                                     \
	void letter##potri_(const char *, const int *, void *, const int *, int *, size_t);                    \
	void letter##getrf_(const int *, const int *, void *, const int *, int *, int *);                      \
	void letter##getrs_(const char *, const int *, const int *, const void *, const int *, const int *,    \
	                    void *, const int *, int *, size_t);                                               \
	void letter##gesv_(const int *, const int *, void *, const int *, int *, void *, const int *, int *);  \
	void letter##getri_(const int *, void *, const int *, const int *, void *, const int *, int *);        \
	void letter##trtrs_(const char *, const char *, const char *, const int *, const int *, const void *,  \
	                    const int *, void *, const int *, int *, size_t, size_t, size_t);                  \
	void letter##trtri_(const char *, const char *, const int *, void *, const int *, int *, size_t, size_t)

DECLARE(s);
DECLARE(d);
DECLARE(c);
DECLARE(z);

#define FUNCTIONS(letter, element)                                                                             \
	{                                                                                                      \
#letter[0], element, letter##potrf_, letter##potrs_, letter##posv_, letter##potri_,            \
		        letter##getrf_, letter##getrs_, letter##gesv_, letter##getri_, letter##trtrs_,         \
		        letter##trtri_                                                                         \
	}

static const struct functions all[] = {FUNCTIONS(s, 4), FUNCTIONS(d, 8), FUNCTIONS(c, 8), FUNCTIONS(z, 16)};

static int wrong;

#define EXPECT(condition)                                                                                      \
	do                                                                                                     \
		if (!(condition)) {                                                                            \
			printf("line %d: not %s\n", __LINE__, #condition);                                     \
			wrong++;                                                                               \
		}                                                                                              \
	while (0)

/* ---- Random numbers ---- */

static uint64_t state = 1;

static uint64_t next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state * UINT64_C(0x2545F4914F6CDD1D) >> 11;
}

static int below(int n)
{
	return (int)(next_random() % (uint64_t)n);
}

static double number(void)
{
	return (double)(next_random() % 2001) / 1000 - 1;
}

static int extent(void)
{
	return 1 + below(below(4) == 0 ? MOST : 20);
}

/* ---- Matrices: by columns, in numbers that hold those of every type ---- */

typedef double complex matrix[MOST][MOST]; /* [column][row] */

static bool is_complex(const struct functions *f)
{
	return f->letter == 'c' || f->letter == 'z';
}

static double roundoff(const struct functions *f)
{
	return f->letter == 's' || f->letter == 'c' ? 0x1p-23 : 0x1p-52;
}

/* What the functions see: of this leading dimension, with bytes between the columns that must stay. */
struct stored {
	const struct functions *f;
	int rows, cols, ld;
	alignas(16) char data[(MOST + PADDING) * MOST * 16];
	alignas(16) char before[(MOST + PADDING) * MOST * 16];
};

static double complex load(const struct stored *s, int i, int j)
{
	const char *at = s->data + (size_t)(i + j * s->ld) * s->f->element;
	float f[2] = {0};
	double d[2] = {0};
	if (s->f->letter == 's' || s->f->letter == 'c') {
		memcpy(f, at, s->f->element);
		return f[0] + I * (double)f[1];
	}
	memcpy(d, at, s->f->element);
	return d[0] + I * d[1];
}

static void store(struct stored *s, int i, int j, double complex x)
{
	char *at = s->data + (size_t)(i + j * s->ld) * s->f->element;
	const float f[2] = {(float)creal(x), (float)cimag(x)};
	const double d[2] = {creal(x), cimag(x)};
	memcpy(at, s->f->letter == 's' || s->f->letter == 'c' ? (const void *)f : (const void *)d,
	       s->f->element);
}

enum part { WHOLE, UPPER, LOWER };

static bool is_in(enum part part, int i, int j)
{
	return part == WHOLE || (part == UPPER ? i <= j : i >= j);
}

/* Stores a part of m, rounds m to what was stored, and fills all else with what must not be touched. */
static void fill(struct stored *s, const struct functions *f, int rows, int cols, matrix m, enum part part)
{
	s->f = f;
	s->rows = rows;
	s->cols = cols;
	s->ld = rows + below(PADDING + 1);
	memset(s->data, 0xff, sizeof s->data); /* NaN */
	for (int j = 0; j < cols; j++)
		for (int i = 0; i < rows; i++)
			if (is_in(part, i, j)) {
				store(s, i, j, m[j][i]);
				m[j][i] = load(s, i, j);
			}
	memcpy(s->before, s->data, sizeof s->data);
}

static void get(const struct stored *s, matrix m, enum part part)
{
	for (int j = 0; j < s->cols; j++)
		for (int i = 0; i < s->rows; i++)
			m[j][i] = is_in(part, i, j) ? load(s, i, j) : 0;
}

/* As get(), and expects that nothing else was written. */
static void get_alone(const struct stored *s, matrix m, enum part part)
{
	struct stored *old = malloc(sizeof *old);
	if (!old)
		exit(2);
	get(s, m, part);
	*old = *s;
	memcpy(old->data, s->before, sizeof old->data);
	for (int j = 0; j < s->cols; j++)
		for (int i = 0; i < s->rows; i++)
			if (is_in(part, i, j))
				store(old, i, j, m[j][i]);
	EXPECT(memcmp(old->data, s->data, sizeof old->data) == 0);
	free(old);
}

static void draw(const struct functions *f, int rows, int cols, matrix m)
{
	memset(m, 0, sizeof(matrix));
	for (int j = 0; j < cols; j++)
		for (int i = 0; i < rows; i++)
			m[j][i] = number() + (is_complex(f) ? I * number() : 0);
}

static void transpose(int rows, int cols, matrix from, bool conjugate, matrix to)
{
	static matrix old;
	memcpy(old, from, sizeof old);
	memset(to, 0, sizeof(matrix));
	for (int j = 0; j < cols; j++)
		for (int i = 0; i < rows; i++)
			to[i][j] = conjugate ? conj(old[j][i]) : old[j][i];
}

static double largest(int rows, int cols, matrix m)
{
	double most = 0;
	for (int j = 0; j < cols; j++)
		for (int i = 0; i < rows; i++)
			most = cabs(m[j][i]) <= most ? most : cabs(m[j][i]);
	return most;
}

/* Expects a * b = c, a m × k and b k × n, as near as rounding allows. */
static void expect_product(const struct functions *f, int m, int n, int k, matrix a, matrix b, matrix c)
{
	double bound = roundoff(f) * 20 * (k + 1) * (largest(m, k, a) * largest(k, n, b) + largest(m, n, c));
	int n_wrong = 0;
	for (int j = 0; j < n; j++)
		for (int i = 0; i < m; i++) {
			double complex sum = 0;
			for (int l = 0; l < k; l++)
				sum += a[l][i] * b[j][l];
			n_wrong += !(cabs(sum - c[j][i]) <= bound * (k + 1));
		}
	EXPECT(n_wrong == 0);
}

static void make_identity(int n, matrix m)
{
	memset(m, 0, sizeof(matrix));
	for (int i = 0; i < n; i++)
		m[i][i] = 1;
}

/* ---- Calls ---- */

static matrix a, b, x, factor, other, product;
static struct stored in_a, in_b;
static int pivots[MOST];

/* L * U, or their transposes' product, of the triangles that are in one matrix. */
static void draw_definite(const struct functions *f, int n)
{
	draw(f, n, n, a);
	for (int j = 0; j < n; j++) {
		for (int i = 0; i < j; i++)
			a[j][i] = conj(a[i][j]);
		a[j][j] = 2 * n;
	}
}

/* Far from singular, with rows in any order. */
static void draw_general(const struct functions *f, int m, int n)
{
	int first = below(m);
	draw(f, m, n, a);
	for (int j = 0; j < n && j < m; j++)
		a[j][(j + first) % m] += 2 * n;
}

/* The other triangle of a Hermitian matrix of which one is there. */
static void complete(int n, matrix m, enum part part)
{
	for (int j = 0; j < n; j++)
		for (int i = 0; i < n; i++)
			if (!is_in(part, i, j))
				m[j][i] = conj(m[i][j]);
}

static void by_cholesky(const struct functions *f)
{
	int n = extent(), columns = 1 + below(SIDES), info = 7;
	enum part part = below(2) ? UPPER : LOWER;
	const char *uplo = part == UPPER ? "U" : "l";

	draw_definite(f, n);
	fill(&in_a, f, n, n, a, part);
	complete(n, a, part);
	f->potrf(uplo, &n, in_a.data, &in_a.ld, &info, 1);
	EXPECT(info == 0);
	get_alone(&in_a, factor, part);
	transpose(n, n, factor, true, other);
	if (part == UPPER)
		expect_product(f, n, n, n, other, factor, a);
	else
		expect_product(f, n, n, n, factor, other, a);

	draw(f, n, columns, b);
	fill(&in_b, f, n, columns, b, WHOLE);
	info = 7;
	f->potrs(uplo, &n, &columns, in_a.data, &in_a.ld, in_b.data, &in_b.ld, &info, 1);
	EXPECT(info == 0);
	get_alone(&in_b, x, WHOLE);
	expect_product(f, n, columns, n, a, x, b);

	fill(&in_a, f, n, n, factor, part);
	info = 7;
	f->potri(uplo, &n, in_a.data, &in_a.ld, &info, 1);
	EXPECT(info == 0);
	get_alone(&in_a, x, part);
	complete(n, x, part);
	make_identity(n, product);
	expect_product(f, n, n, n, a, x, product);

	fill(&in_a, f, n, n, a, part);
	fill(&in_b, f, n, columns, b, WHOLE);
	info = 7;
	f->posv(uplo, &n, &columns, in_a.data, &in_a.ld, in_b.data, &in_b.ld, &info, 1);
	EXPECT(info == 0);
	get_alone(&in_a, factor, part);
	get_alone(&in_b, x, WHOLE);
	expect_product(f, n, columns, n, a, x, b);
}

/* Splits what lu leaves; exchanges the rows of a as it says. */
static void expect_factors(const struct functions *f, int m, int n, matrix lu)
{
	int less = m < n ? m : n;
	memcpy(product, a, sizeof a);
	for (int i = 0; i < less; i++) {
		EXPECT(pivots[i] >= i + 1 && pivots[i] <= m);
		for (int j = 0; j < n && pivots[i] >= 1 && pivots[i] <= m; j++) {
			double complex old = product[j][i];
			product[j][i] = product[j][pivots[i] - 1];
			product[j][pivots[i] - 1] = old;
		}
	}
	memset(factor, 0, sizeof factor);
	memset(other, 0, sizeof other);
	for (int j = 0; j < less; j++)
		for (int i = j; i < m; i++)
			factor[j][i] = i == j ? 1 : lu[j][i];
	for (int j = 0; j < n; j++)
		for (int i = 0; i <= j && i < less; i++)
			other[j][i] = lu[j][i];
	expect_product(f, m, n, less, factor, other, product);
}

static void by_lu(const struct functions *f)
{
	static alignas(16) char workspace[MOST * 64 * 16];
	static matrix lu;
	int m = extent(), n = extent(), columns = 1 + below(SIDES), info = 7, lwork = n * 64;
	int trans = below(3);

	draw_general(f, m, n);
	fill(&in_a, f, m, n, a, WHOLE);
	f->getrf(&m, &n, in_a.data, &in_a.ld, pivots, &info);
	EXPECT(info == 0);
	get_alone(&in_a, lu, WHOLE);
	expect_factors(f, m, n, lu);

	draw_general(f, n, n);
	draw(f, n, columns, b);
	fill(&in_a, f, n, n, a, WHOLE);
	fill(&in_b, f, n, columns, b, WHOLE);
	info = 7;
	f->gesv(&n, &columns, in_a.data, &in_a.ld, pivots, in_b.data, &in_b.ld, &info);
	EXPECT(info == 0);
	get_alone(&in_a, lu, WHOLE);
	get_alone(&in_b, x, WHOLE);
	expect_factors(f, n, n, lu);
	expect_product(f, n, columns, n, a, x, b);

	fill(&in_b, f, n, columns, b, WHOLE);
	info = 7;
	f->getrs(&"NTc"[trans], &n, &columns, in_a.data, &in_a.ld, pivots, in_b.data, &in_b.ld, &info, 1);
	EXPECT(info == 0);
	get_alone(&in_b, x, WHOLE);
	memcpy(other, a, sizeof a);
	if (trans > 0)
		transpose(n, n, a, trans == 2, other);
	expect_product(f, n, columns, n, other, x, b);

	fill(&in_a, f, n, n, lu, WHOLE);
	info = 7;
	f->getri(&n, in_a.data, &in_a.ld, pivots, workspace, &lwork, &info);
	EXPECT(info == 0);
	get_alone(&in_a, x, WHOLE);
	make_identity(n, product);
	expect_product(f, n, n, n, a, x, product);
}

static void by_triangle(const struct functions *f)
{
	int n = extent(), columns = 1 + below(SIDES), info = 7, trans = below(3);
	enum part part = below(2) ? UPPER : LOWER;
	bool unit = below(2);
	const char *uplo = part == UPPER ? "U" : "L"; /* OpenBLAS takes no other letters here */

	draw(f, n, n, a);
	for (int j = 0; j < n; j++)
		for (int i = 0; i < n; i++)
			a[j][i] = !is_in(part, i, j) ? 0 : i == j ? 2 + number() : a[j][i] / n;
	fill(&in_a, f, n, n, a, part);
	draw(f, n, columns, b);
	fill(&in_b, f, n, columns, b, WHOLE);
	f->trtrs(uplo, &"NTC"[trans], unit ? "U" : "N", &n, &columns, in_a.data, &in_a.ld, in_b.data, &in_b.ld,
	         &info, 1, 1, 1);
	EXPECT(info == 0);
	get_alone(&in_b, x, WHOLE);
	for (int i = 0; i < n && unit; i++)
		a[i][i] = 1;
	memcpy(other, a, sizeof a);
	if (trans > 0)
		transpose(n, n, a, trans == 2, other);
	expect_product(f, n, columns, n, other, x, b);

	for (int i = 0; i < n && unit; i++)
		a[i][i] = 2;
	fill(&in_a, f, n, n, a, part);
	info = 7;
	f->trtri(uplo, "N", &n, in_a.data, &in_a.ld, &info, 1, 1);
	EXPECT(info == 0);
	get(&in_a, x, part); /* OpenBLAS writes to the other triangle */
	make_identity(n, product);
	expect_product(f, n, n, n, a, x, product);
}

static void calls(int n)
{
	for (int i = 0; i < n; i++)
		for (unsigned j = 0; j < sizeof all / sizeof *all; j++) {
			by_cholesky(&all[j]);
			by_lu(&all[j]);
			by_triangle(&all[j]);
		}
}

/* ---- What is not as usual ---- */

static void unusual(const struct functions *f)
{
	const int n = 8, negative = -1, nothing = 0, short_ld = 7, one = 1, query = -1;
	char answer[16] = {0}, untouched[16] = {0};
	int info = 7, order = 0;

	draw_definite(f, n);
	a[5][5] = -1;
	fill(&in_a, f, n, n, a, LOWER);
	f->potrf("L", &n, in_a.data, &in_a.ld, &info, 1);
	EXPECT(info == 6);
	EXPECT(cabs(load(&in_a, 0, 0) - sqrt(16)) < 1e-5); /* the minors before it are factored, as ever */
	fill(&in_a, f, n, n, a, LOWER);
	draw(f, n, 2, b);
	fill(&in_b, f, n, 2, b, WHOLE);
	f->posv("L", &n, &(int){2}, in_a.data, &in_a.ld, in_b.data, &in_b.ld, &info, 1);
	EXPECT(info == 6);
	EXPECT(memcmp(in_b.data, in_b.before, sizeof in_b.data) == 0);

	draw_general(f, n, n);
	memset(a[3], 0, sizeof a[3]);
	fill(&in_a, f, n, n, a, WHOLE);
	f->getrf(&n, &n, in_a.data, &in_a.ld, pivots, &info);
	EXPECT(info == 4 && pivots[0] >= 1 && pivots[0] <= n);
	fill(&in_a, f, n, n, a, WHOLE);
	f->gesv(&n, &one, in_a.data, &in_a.ld, pivots, in_b.data, &in_b.ld, &info);
	EXPECT(info == 4);
	EXPECT(memcmp(in_b.data, in_b.before, sizeof in_b.data) == 0);

	draw(f, n, n, a);
	a[2][2] = 0;
	fill(&in_a, f, n, n, a, UPPER);
	f->trtrs("U", "N", "N", &n, &one, in_a.data, &in_a.ld, in_b.data, &in_b.ld, &info, 1, 1, 1);
	EXPECT(info == 3);
	f->trtri("U", "N", &n, in_a.data, &in_a.ld, &info, 1, 1);
	EXPECT(info == 3);
	EXPECT(memcmp(in_a.data, in_a.before, sizeof in_a.data) == 0);

	/* Of the size of a workspace. */
	f->getri(&n, in_a.data, &in_a.ld, pivots, answer, &query, &info);
	EXPECT(info == 0 && memcmp(answer, untouched, sizeof answer) != 0);
	EXPECT(memcmp(in_a.data, in_a.before, sizeof in_a.data) == 0);

	info = 7;
	f->potrf("U", &nothing, in_a.data, &one, &info, 1);
	EXPECT(info == 0);
	info = 7;
	f->gesv(&n, &nothing, in_a.data, &in_a.ld, pivots, in_b.data, &n, &info);
	EXPECT(info >= 0);
	f->potrf("X", &n, in_a.data, &in_a.ld, &info, 1);
	EXPECT(info == -1);
	f->getrf(&n, &negative, in_a.data, &in_a.ld, pivots, &info);
	EXPECT(info == -2);
	f->gesv(&n, &one, in_a.data, &short_ld, pivots, in_b.data, &in_b.ld, &info);
	EXPECT(info == -4);
	f->posv("U", &n, &nothing, in_a.data, &n, in_b.data, &order, &info, 1);
	EXPECT(info == -7);
	f->trtrs("U", "Q", "N", &n, &one, in_a.data, &n, in_b.data, &n, &info, 1, 1, 1);
	EXPECT(info == -2);
}

/* Prints a dot after each round, to show that it is alive. */
static void loop(void)
{
	struct pollfd input = {.fd = 0, .events = POLLIN};
	while (poll(&input, 1, 0) == 0) {
		calls(1);
		if (write(1, ".", 1) < 0)
			return;
	}
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	state = seed_of_run() * UINT64_C(0x9E3779B97F4A7C15) | 1;
	if (strcmp(what, "calls") == 0)
		calls(argc > 2 ? atoi(argv[2]) : 100);
	else if (strcmp(what, "unusual") == 0)
		for (unsigned j = 0; j < sizeof all / sizeof *all; j++)
			unusual(&all[j]);
	else if (strcmp(what, "loop") == 0)
		loop();
	else
		return 2;
	return wrong != 0;
}
