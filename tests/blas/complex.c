/*
 * complex.c: a program linked with the BLAS library: N random calls of each complex routine, whose results are
 * compared with plain sums. Prints what is wrong; exit status 0 means nothing is.
 *
 * Elements are multiples of 1/64 below 1, exact in either type, and lie in matrices of double complex. For
 * routines of single precision they are copied there and back.
 */
#include <complex.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../seed.h"

enum { ROW_MAJOR = 101, COL_MAJOR, NO_TRANS = 111, TRANS, CONJ_TRANS, UPPER = 121, LOWER };
enum { NON_UNIT = 131, UNIT, LEFT = 141, RIGHT };

#define DECLARE(l, type, real)                                                                                 \
	void l##herk_(const char *, const char *, const int *, const int *, const real *, const type *,        \
	              const int *, const real *, type *, const int *, size_t, size_t);                         \
	void l##hemm_(const char *, const char *, const int *, const int *, const type *, const type *,        \
	              const int *, const type *, const int *, const type *, type *, const int *, size_t,       \
	              size_t);                                                                                 \
	void cblas_##l##herk(int, int, int, int, int, real, const void *, int, real, void *, int);             \
	void cblas_##l##hemm(int, int, int, int, int, const void *, const void *, int, const void *, int,      \
	                     const void *, void *, int);                                                       \
	void l##gemm_(const char *, const char *, const int *, const int *, const int *, const type *,         \
	              const type *, const int *, const type *, const int *, const type *, type *, const int *, \
	              size_t, size_t);                                                                         \
	void l##syrk_(const char *, const char *, const int *, const int *, const type *, const type *,        \
	              const int *, const type *, type *, const int *, size_t, size_t);                         \
	void l##symm_(const char *, const char *, const int *, const int *, const type *, const type *,        \
	              const int *, const type *, const int *, const type *, type *, const int *, size_t,       \
	              size_t);                                                                                 \
	void l##trsm_(const char *, const char *, const char *, const char *, const int *, const int *,        \
	              const type *, const type *, const int *, type *, const int *, size_t, size_t, size_t,    \
	              size_t);                                                                                 \
	void l##trmm_(const char *, const char *, const char *, const char *, const int *, const int *,        \
	              const type *, const type *, const int *, type *, const int *, size_t, size_t, size_t,    \
	              size_t);                                                                                 \
	void cblas_##l##gemm(int, int, int, int, int, int, const void *, const void *, int, const void *, int, \
	                     const void *, void *, int);                                                       \
	void cblas_##l##syrk(int, int, int, int, int, const void *, const void *, int, const void *, void *,   \
	                     int);                                                                             \
	void cblas_##l##symm(int, int, int, int, int, const void *, const void *, int, const void *, int,      \
	                     const void *, void *, int);                                                       \
	void cblas_##l##trsm(int, int, int, int, int, int, int, const void *, const void *, int, void *, int); \
	void cblas_##l##trmm(int, int, int, int, int, int, int, const void *, const void *, int, void *, int); \
	void cblas_##l##gemm_batch(int, const int *, const int *, const int *, const int *, const int *,       \
	                           const void *, const void **, const int *, const void **, const int *,       \
	                           const void *, void **, const int *, int, const int *)

DECLARE(c, float complex, float);
DECLARE(z, double complex, double);

static int wrong;

/* ---- Random numbers ---- */

static uint64_t state = 1;

static int below(int n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (int)((state * UINT64_C(0x2545F4914F6CDD1D) >> 11) % (uint64_t)n);
}

static double complex number(void)
{
	return (below(127) - 63) / 64.0 + I * ((below(127) - 63) / 64.0);
}

static double complex factor(void)
{
	static const double complex usual[] = {1, -1, I, 0};
	return below(2) ? usual[below(4)] : number();
}

/* ---- Matrices. What lies between their lines is NaN ---- */

struct matrix {
	bool by_rows;
	int rows, cols, ld;
	double complex *data, *before;
};

static size_t elements(const struct matrix *m)
{
	return (size_t)m->ld * (size_t)(m->by_rows ? m->rows : m->cols);
}

static size_t place(const struct matrix *m, int i, int j)
{
	return m->by_rows ? (size_t)i * (size_t)m->ld + (size_t)j : (size_t)j * (size_t)m->ld + (size_t)i;
}

static struct matrix make(bool by_rows, int rows, int cols, bool empty)
{
	struct matrix m = {by_rows, rows, cols, (by_rows ? cols : rows) + below(5), NULL, NULL};
	m.data = malloc(elements(&m) * sizeof *m.data);
	m.before = malloc(elements(&m) * sizeof *m.before);
	if (!m.data || !m.before)
		exit(2);
	for (size_t i = 0; i < elements(&m); i++)
		m.data[i] = NAN;
	for (int i = 0; i < rows && !empty; i++)
		for (int j = 0; j < cols; j++)
			m.data[place(&m, i, j)] = number();
	memcpy(m.before, m.data, elements(&m) * sizeof *m.data);
	return m;
}

static void release(struct matrix *m)
{
	free(m->data);
	free(m->before);
}

static float complex *narrowed(const struct matrix *m)
{
	float complex *to = malloc(elements(m) * sizeof *to);
	if (!to)
		exit(2);
	for (size_t i = 0; i < elements(m); i++)
		to[i] = (float complex)m->data[i];
	return to;
}

static void take_back(struct matrix *m, float complex *from)
{
	for (size_t i = 0; i < elements(m); i++)
		m->data[i] = from[i];
	free(from);
}

static bool is_stored(int uplo, int i, int j)
{
	return uplo == UPPER ? i <= j : i >= j;
}

/* ---- Calls ---- */

enum routine { GEMM, BATCH, SYRK, HERK, SYMM, HEMM, TRSM, TRMM, ROUTINES };
static const char *const names[] = {"gemm", "gemm_batch", "syrk", "herk", "symm", "hemm", "trsm", "trmm"};

static bool is_rank_k(enum routine routine)
{
	return routine == SYRK || routine == HERK;
}

static bool is_side(enum routine routine)
{
	return routine >= SYMM;
}

struct call {
	enum routine routine;
	bool single, fortran;
	int order, trans_a, trans_b, uplo, side, diag, m, n, k;
	double complex alpha, beta;
	struct matrix a, b, c; /* b: what trsm and trmm write */
};

static const char *letter(int value)
{
	switch (value) {
	case TRANS:
		return "T";
	case CONJ_TRANS:
		return "c";
	case UPPER:
	case UNIT:
		return "U";
	case LOWER:
	case LEFT:
		return "L";
	case RIGHT:
		return "R";
	}
	return "n";
}

#define CALL(l, type, real)                                                                                    \
	static void l##fortran(const struct call *p, const type *a, type *b, type *c)                          \
	{                                                                                                      \
		const type alpha = (type)p->alpha, beta = (type)p->beta;                                       \
		const char *ta = letter(p->trans_a), *tb = letter(p->trans_b), *uplo = letter(p->uplo),        \
		           *side = letter(p->side), *diag = letter(p->diag);                                   \
		const int *m = &p->m, *n = &p->n, *k = &p->k, *lda = &p->a.ld, *ldb = &p->b.ld,                \
		          *ldc = &p->c.ld;                                                                     \
		if (p->routine == GEMM)                                                                        \
			l##gemm_(ta, tb, m, n, k, &alpha, a, lda, b, ldb, &beta, c, ldc, 1, 1);                \
		else if (p->routine == SYRK)                                                                   \
			l##syrk_(uplo, ta, n, k, &alpha, a, lda, &beta, c, ldc, 1, 1);                         \
		else if (p->routine == SYMM)                                                                   \
			l##symm_(side, uplo, m, n, &alpha, a, lda, b, ldb, &beta, c, ldc, 1, 1);               \
		else if (p->routine == HERK)                                                                   \
			l##herk_(uplo, ta, n, k, &(const real){(real)creal(p->alpha)}, a, lda,                 \
			         &(const real){(real)creal(p->beta)}, c, ldc, 1, 1);                           \
		else if (p->routine == HEMM)                                                                   \
			l##hemm_(side, uplo, m, n, &alpha, a, lda, b, ldb, &beta, c, ldc, 1, 1);               \
		else                                                                                           \
			(p->routine == TRSM ? l##trsm_ : l##trmm_)(side, uplo, ta, diag, m, n, &alpha, a, lda, \
			                                           b, ldb, 1, 1, 1, 1);                        \
	}                                                                                                      \
                                                                                                               \
	static void l##cblas(const struct call *p, const type *a, type *b, type *c)                            \
	{                                                                                                      \
		const type alpha = (type)p->alpha, beta = (type)p->beta;                                       \
		int m = p->m, n = p->n, k = p->k, lda = p->a.ld, ldb = p->b.ld, ldc = p->c.ld;                 \
		if (p->routine == GEMM)                                                                        \
			cblas_##l##gemm(p->order, p->trans_a, p->trans_b, m, n, k, &alpha, a, lda, b, ldb,     \
			                &beta, c, ldc);                                                        \
		else if (p->routine == BATCH)                                                                  \
			cblas_##l##gemm_batch(p->order, &p->trans_a, &p->trans_b, &m, &n, &k, &alpha,          \
			                      (const void *[]){a}, &lda, (const void *[]){b}, &ldb, &beta,     \
			                      (void *[]){c}, &ldc, 1, (const int[]){1});                       \
		else if (p->routine == SYRK)                                                                   \
			cblas_##l##syrk(p->order, p->uplo, p->trans_a, n, k, &alpha, a, lda, &beta, c, ldc);   \
		else if (p->routine == SYMM)                                                                   \
			cblas_##l##symm(p->order, p->side, p->uplo, m, n, &alpha, a, lda, b, ldb, &beta, c,    \
			                ldc);                                                                  \
		else if (p->routine == HERK)                                                                   \
			cblas_##l##herk(p->order, p->uplo, p->trans_a, n, k, (real)creal(p->alpha), a, lda,    \
			                (real)creal(p->beta), c, ldc);                                         \
		else if (p->routine == HEMM)                                                                   \
			cblas_##l##hemm(p->order, p->side, p->uplo, m, n, &alpha, a, lda, b, ldb, &beta, c,    \
			                ldc);                                                                  \
		else                                                                                           \
			(p->routine == TRSM ? cblas_##l##trsm : cblas_##l##trmm)(                              \
			    p->order, p->side, p->uplo, p->trans_a, p->diag, m, n, &alpha, a, lda, b, ldb);    \
	}

CALL(c, float complex, float)
CALL(z, double complex, double)

static void compute(struct call *p)
{
	if (!p->single) {
		(p->fortran ? zfortran : zcblas)(p, p->a.data, p->b.data, p->c.data);
		return;
	}
	float complex *a = narrowed(&p->a), *b = narrowed(&p->b), *c = narrowed(&p->c);
	(p->fortran ? cfortran : ccblas)(p, a, b, c);
	take_back(&p->a, a);
	take_back(&p->b, b);
	take_back(&p->c, c);
}

/* ---- What is right ---- */

static double complex stored(const struct matrix *m, int trans, int i, int j)
{
	double complex x = m->before[trans == NO_TRANS ? place(m, i, j) : place(m, j, i)];
	return trans == CONJ_TRANS ? conj(x) : x;
}

/* Element (i, j) of the left (0) or right (1) factor. */
static double complex operand(const struct call *p, int which, int i, int j)
{
	if (p->routine == SYRK || p->routine == HERK) {
		double complex x =
		    which == 0 ? stored(&p->a, p->trans_a, i, j) : stored(&p->a, p->trans_a, j, i);
		return which == 1 && p->routine == HERK ? conj(x) : x;
	}
	if ((p->routine == SYMM || p->routine == HEMM) && which != (p->side == RIGHT))
		return stored(&p->b, NO_TRANS, i, j);
	if (p->routine == HEMM && i == j)
		return creal(stored(&p->a, NO_TRANS, i, j));
	if (p->routine == SYMM || p->routine == HEMM)
		return stored(&p->a,
		              is_stored(p->uplo, i, j) ? NO_TRANS
		              : p->routine == SYMM     ? TRANS
		                                       : CONJ_TRANS,
		              i, j);
	return which == 0 ? stored(&p->a, p->trans_a, i, j) : stored(&p->b, p->trans_b, i, j);
}

/* An element of the triangle op(a). */
static double complex triangle(const struct call *p, int i, int j)
{
	int row = p->trans_a == NO_TRANS ? i : j, col = p->trans_a == NO_TRANS ? j : i;
	if (i == j && p->diag == UNIT)
		return 1;
	return is_stored(p->uplo, row, col) ? stored(&p->a, p->trans_a, i, j) : 0;
}

static void expect(const struct call *p, int i, int j, double complex found, double complex want, double scale)
{
	double epsilon = p->single ? FLT_EPSILON : DBL_EPSILON;
	if (cabs(found - want) <= 8 * epsilon * scale * (p->k + 8))
		return;
	printf("%c%s%s %d x %d x %d, order %d, trans %d %d, uplo %d, side %d, diag %d, alpha %g%+gi, beta "
	       "%g%+gi: [%d, %d] is %g%+gi, not %g%+gi\n",
	       p->single ? 'c' : 'z', names[p->routine], p->fortran ? "_" : "", p->m, p->n, p->k, p->order,
	       p->trans_a, p->trans_b, p->uplo, p->side, p->diag, creal(p->alpha), cimag(p->alpha),
	       creal(p->beta), cimag(p->beta), i, j, creal(found), cimag(found), creal(want), cimag(want));
	wrong++;
}

static void check_product(const struct call *p, int i, int j)
{
	double complex sum = 0;
	double scale = 0;
	for (int l = 0; l < p->k; l++) {
		double complex term = operand(p, 0, i, l) * operand(p, 1, l, j);
		sum += term;
		scale += cabs(term);
	}
	double complex alpha = p->routine == HERK ? creal(p->alpha) : p->alpha,
	               beta = p->routine == HERK ? creal(p->beta) : p->beta;
	double complex old = beta == 0 ? 0 : p->c.before[place(&p->c, i, j)];
	if (p->routine == HERK && i == j)
		old = creal(old);
	expect(p, i, j, p->c.data[place(&p->c, i, j)], alpha * sum + beta * old,
	       cabs(alpha) * scale + cabs(beta * old) + 1e-30);
	if (p->routine == HERK && i == j && cimag(p->c.data[place(&p->c, i, j)]) != 0) {
		printf("herk left an imaginary part on the diagonal\n");
		wrong++;
	}
}

/* op(a) times what trsm found is alpha b; what trmm found is alpha op(a) b. */
static void check_triangular(const struct call *p, int i, int j)
{
	const double complex *x = p->routine == TRSM ? p->b.data : p->b.before;
	double complex sum = 0, other = p->b.before[place(&p->b, i, j)];
	double scale = 1e-30;
	for (int l = 0; l < p->k; l++) {
		double complex term = p->side == LEFT ? triangle(p, i, l) * x[place(&p->b, l, j)]
		                                      : x[place(&p->b, i, l)] * triangle(p, l, j);
		sum += term;
		scale += cabs(term);
	}
	if (p->routine == TRSM)
		expect(p, i, j, sum, p->alpha * other, scale + cabs(p->alpha * other));
	else
		expect(p, i, j, p->b.data[place(&p->b, i, j)], p->alpha * sum, cabs(p->alpha) * scale);
}

/* Every element of the result, and that nothing else was written. */
static void check(const struct call *p)
{
	bool is_triangular = p->routine == TRSM || p->routine == TRMM;
	const struct matrix *y = is_triangular ? &p->b : &p->c;
	int before = wrong;
	for (int i = 0; i < y->rows; i++)
		for (int j = 0; j < y->cols && wrong == before; j++)
			if (!is_rank_k(p->routine) || is_stored(p->uplo, i, j))
				(is_triangular ? check_triangular : check_product)(p, i, j);
	for (int i = 0; i < y->rows; i++)
		for (int j = 0; j < y->cols; j++)
			if (!is_rank_k(p->routine) || is_stored(p->uplo, i, j))
				y->data[place(y, i, j)] = y->before[place(y, i, j)];
	for (size_t i = 0; i < elements(y) && wrong == before; i++)
		if (y->data[i] != y->before[i] && !(isnan(creal(y->data[i])) && isnan(creal(y->before[i])))) {
			printf("%s wrote beside its result\n", names[p->routine]);
			wrong++;
		}
}

/* ---- Random calls ---- */

static struct matrix make_operand(const struct call *p, int trans, int rows, int cols)
{
	return make(p->order == ROW_MAJOR, trans == NO_TRANS ? rows : cols, trans == NO_TRANS ? cols : rows,
	            false);
}

/* Poisons what is not read. Diagonals keep solutions from growing. */
static void make_triangle(struct call *p)
{
	p->a = make(p->order == ROW_MAJOR, p->k, p->k, false);
	for (int i = 0; i < p->k; i++)
		for (int j = 0; j < p->k; j++) {
			double complex *x = &p->a.before[place(&p->a, i, j)];
			if (!is_stored(p->uplo, i, j) || (i == j && p->diag == UNIT && p->routine >= TRSM))
				*x = NAN;
			else if (i == j && p->routine == TRSM)
				*x += 3;
			else if (p->routine == TRSM)
				*x /= p->k > 8 ? 64 : 8;
		}
	memcpy(p->a.data, p->a.before, elements(&p->a) * sizeof *p->a.data);
}

static void run_call(enum routine routine, int largest)
{
	struct call p = {.routine = routine, .single = below(2), .fortran = below(2) && routine != BATCH};
	p.order = p.fortran ? COL_MAJOR : ROW_MAJOR + below(2);
	p.trans_a = routine == HERK ? NO_TRANS + 2 * below(2) : NO_TRANS + below(routine == SYRK ? 2 : 3);
	p.trans_b = NO_TRANS + below(3);
	p.uplo = UPPER + below(2);
	p.side = LEFT + below(2);
	p.diag = NON_UNIT + below(2);
	p.m = 1 + below(largest);
	p.n = 1 + below(largest);
	p.k = 1 + below(largest);
	p.alpha = factor();
	p.beta = factor();
	if (routine == HERK && creal(p.alpha) == 0)
		p.alpha = 1; /* else nothing need be done, not even for the diagonal */
	p.m = is_rank_k(routine) ? p.n : p.m;
	if (is_side(routine)) {
		p.k = p.side == LEFT ? p.m : p.n;
		make_triangle(&p);
		p.b = make(p.order == ROW_MAJOR, p.m, p.n, false);
	} else {
		p.a = make_operand(&p, p.trans_a, p.m, p.k);
		p.b = make_operand(&p, p.trans_b, p.k, p.n);
	}
	p.c = make(p.order == ROW_MAJOR, p.m, p.n, (routine == HERK ? creal(p.beta) : p.beta) == 0);
	compute(&p);
	check(&p);
	release(&p.a);
	release(&p.b);
	release(&p.c);
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 100;

	state = seed_of_run();
	for (int i = 0; i < n; i++)
		for (enum routine routine = GEMM; routine < ROUTINES; routine++)
			run_call(routine, i % 16 == 0 ? 150 : 40);
	return wrong != 0;
}
