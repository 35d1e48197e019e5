/*
 * routines.c: a program linked with the BLAS library.
 *
 *     routines calls N     random calls of each routine against sums in long double
 *     routines large N     likewise with matrices of many MiB, also in a child
 *     routines invalid     wrong and empty calls go to the next BLAS, which prints its errors
 *     routines threads     products of many threads
 *     routines fork        products of a parent and its children
 *     routines flags       exact products, which raise no floating-point flags
 *     routines jumps       calls that a signal handler leaves by longjmp()
 *     routines cancel      calls of threads that are cancelled
 *     routines loop        products until standard input ends
 *     routines loop-large  likewise with matrices of many MiB
 *
 * `jumps` and `cancel` print a dot and wait for a byte: the caller then stops kopsd, and continues it at the
 * next dot. Prints what is wrong; exit status 0 means nothing is.
 */
#include <fenv.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../seed.h"
#include "acts.h"

enum { ROW_MAJOR = 101, COL_MAJOR, NO_TRANS = 111, TRANS, CONJ_TRANS, UPPER = 121, LOWER };
enum { NON_UNIT = 131, UNIT, LEFT = 141, RIGHT };

#define DECLARE_TRIANGULAR(letter, real, name)                                                                 \
	void letter##name##_(const char *, const char *, const char *, const char *, const int *, const int *, \
	                     const real *, const real *, const int *, real *, const int *, size_t, size_t,     \
	                     size_t, size_t);                                                                  \
	void cblas_##letter##name(int, int, int, int, int, int, int, real, const real *, int, real *, int)

#define DECLARE(letter, real)                                                                                  \
	void letter##gemm_(const char *, const char *, const int *, const int *, const int *, const real *,    \
	                   const real *, const int *, const real *, const int *, const real *, real *,         \
	                   const int *, size_t, size_t);                                                       \
	void letter##syrk_(const char *, const char *, const int *, const int *, const real *, const real *,   \
	                   const int *, const real *, real *, const int *, size_t, size_t);                    \
	void letter##symm_(const char *, const char *, const int *, const int *, const real *, const real *,   \
	                   const int *, const real *, const int *, const real *, real *, const int *, size_t,  \
	                   size_t);                                                                            \
	void cblas_##letter##gemm(int, int, int, int, int, int, real, const real *, int, const real *, int,    \
	                          real, real *, int);                                                          \
	void cblas_##letter##gemm_batch(int, const int *, const int *, const int *, const int *, const int *,  \
	                                const real *, const real **, const int *, const real **, const int *,  \
	                                const real *, real **, const int *, int, const int *);                 \
	void cblas_##letter##syrk(int, int, int, int, int, real, const real *, int, real, real *, int);        \
	void cblas_##letter##symm(int, int, int, int, int, real, const real *, int, const real *, int, real,   \
	                          real *, int)

DECLARE(s, float);
DECLARE(d, double);
DECLARE_TRIANGULAR(s, float, trsm);
DECLARE_TRIANGULAR(s, float, trmm);
DECLARE_TRIANGULAR(d, double, trsm);
DECLARE_TRIANGULAR(d, double, trmm);

static _Atomic int wrong;

#define EXPECT(condition)                                                                                      \
	do                                                                                                     \
		if (!(condition)) {                                                                            \
			printf("line %d: not %s\n", __LINE__, #condition);                                     \
			wrong++;                                                                               \
		}                                                                                              \
	while (0)

/* ---- Random numbers, one sequence per thread ---- */

static _Thread_local uint64_t state = 1;

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

static double factor(void)
{
	static const double common[] = {0, 1, -1};
	int i = below(5);
	return i < 3 ? common[i] : below(64) / 16.0 - 2;
}

/* ---- Matrices: bytes between the rows or columns must stay ---- */

struct matrix {
	bool f64, by_rows;
	int rows, cols, ld;
	void *data, *before;
};

static size_t elements(const struct matrix *m)
{
	return (size_t)m->ld * (size_t)(m->by_rows ? m->rows : m->cols) + 1;
}

static size_t place(const struct matrix *m, int i, int j)
{
	return m->by_rows ? (size_t)i * (size_t)m->ld + (size_t)j : (size_t)j * (size_t)m->ld + (size_t)i;
}

static double element(const struct matrix *m, const void *data, size_t at)
{
	return m->f64 ? ((const double *)data)[at] : (double)((const float *)data)[at];
}

static void put(struct matrix *m, size_t at, double value)
{
	if (m->f64)
		((double *)m->data)[at] = value;
	else
		((float *)m->data)[at] = (float)value;
}

static size_t bytes(const struct matrix *m)
{
	return elements(m) * (m->f64 ? sizeof(double) : sizeof(float));
}

/* Fills everything but the elements with NaN, and with `empty` the elements too. */
static struct matrix make(bool f64, bool by_rows, int rows, int cols, bool empty)
{
	struct matrix m = {f64, by_rows, rows, cols, (by_rows ? cols : rows) + below(3) * below(9), NULL, NULL};
	if (m.ld == 0)
		m.ld = 1;
	m.data = malloc(bytes(&m));
	m.before = malloc(bytes(&m));
	if (!m.data || !m.before)
		exit(2);
	for (size_t i = 0; i < elements(&m); i++)
		put(&m, i, NAN);
	for (int i = 0; i < rows && !empty; i++)
		for (int j = 0; j < cols; j++)
			put(&m, place(&m, i, j), below(2001) / 1000.0 - 1);
	memcpy(m.before, m.data, bytes(&m));
	return m;
}

/* Makes a matrix of the same extents with other elements. */
static struct matrix make_like(const struct matrix *m, bool empty)
{
	struct matrix like = *m;
	like.data = malloc(bytes(m));
	like.before = malloc(bytes(m));
	if (!like.data || !like.before)
		exit(2);
	memcpy(like.data, m->before, bytes(m));
	for (int i = 0; i < m->rows && !empty; i++)
		for (int j = 0; j < m->cols; j++)
			put(&like, place(&like, i, j), below(2001) / 1000.0 - 1);
	memcpy(like.before, like.data, bytes(m));
	return like;
}

static void release(struct matrix *m)
{
	free(m->data);
	free(m->before);
}

static bool is_stored(int uplo, int i, int j)
{
	return uplo == UPPER ? i <= j : i >= j;
}

/* Poisons what BLAS must not read of a symmetric matrix. */
static void poison_other_triangle(struct matrix *m, int uplo)
{
	for (int i = 0; i < m->rows; i++)
		for (int j = 0; j < m->cols; j++)
			if (!is_stored(uplo, i, j))
				put(m, place(m, i, j), NAN);
}

/* ---- One call of any routine: c = alpha * op(a) * op(b) + beta * c ---- */

struct call {
	const char *routine;
	bool f64, fortran;
	int order, trans_a, trans_b, uplo, side, m, n, k;
	double alpha, beta;
	struct matrix a, b, c;
};

static double operand(const struct call *call, bool is_b, int i, int j)
{
	const struct matrix *m = is_b ? &call->b : &call->a;
	bool symmetric = strcmp(call->routine, "symm") == 0 && is_b == (call->side == RIGHT);
	bool trans = (is_b ? call->trans_b : call->trans_a) != NO_TRANS;
	bool mirrored = symmetric ? !is_stored(call->uplo, i, j) : trans;
	return element(m, m->data, mirrored ? place(m, j, i) : place(m, i, j));
}

static void compare_element(const struct call *call, int i, int j)
{
	const struct matrix *c = &call->c;
	double found = element(c, c->data, place(c, i, j)), before = element(c, c->before, place(c, i, j));
	long double sum = 0, scale = 0;
	for (int l = 0; l < call->k; l++) {
		long double x = (long double)operand(call, false, i, l) * operand(call, true, l, j);
		sum += x;
		scale += fabsl(x);
	}
	sum *= call->alpha;
	scale *= fabs(call->alpha);
	if (call->beta != 0) {
		sum += (long double)call->beta * before;
		scale += fabsl((long double)call->beta * before);
	}
	double epsilon = call->f64 ? DBL_EPSILON : FLT_EPSILON;
	if (fabsl(found - sum) <= scale * epsilon * (call->k + 3))
		return;
	printf(
	    "%c%s%s %d x %d x %d, order %d, trans %d %d, uplo %d, side %d, alpha %g, beta %g: [%d, %d] is %g, "
	    "not %Lg\n",
	    call->f64 ? 'd' : 's', call->routine, call->fortran ? "_" : "", call->m, call->n, call->k,
	    call->order, call->trans_a, call->trans_b, call->uplo, call->side, call->alpha, call->beta, i, j,
	    found, sum);
	wrong++;
}

/* Compares the elements of c (a part of them for large products) and all bytes that must stay. */
static void compare(const struct call *call)
{
	const struct matrix *c = &call->c;
	int every = 1 + (int)((double)call->m * call->n * call->k / 5e4);
	size_t size = call->f64 ? sizeof(double) : sizeof(float);
	char *others = malloc(bytes(c));
	int before = wrong;
	if (!others)
		exit(2);
	memcpy(others, c->data, bytes(c));
	for (int i = 0; i < c->rows; i++)
		for (int j = 0; j < c->cols; j++) {
			if (strcmp(call->routine, "syrk") == 0 && !is_stored(call->uplo, i, j))
				continue;
			if (wrong < before + 1 && below(every) == 0)
				compare_element(call, i, j);
			memcpy(others + place(c, i, j) * size, (char *)c->before + place(c, i, j) * size, size);
		}
	EXPECT(memcmp(others, c->before, bytes(c)) == 0);
	free(others);
}

static char letter(int value)
{
	switch (value) {
	case NO_TRANS:
		return below(2) ? 'N' : 'n';
	case TRANS:
		return below(2) ? 'T' : 't';
	case CONJ_TRANS:
		return below(2) ? 'C' : 'c';
	case UPPER:
		return below(2) ? 'U' : 'u';
	case LOWER:
		return below(2) ? 'L' : 'l';
	case LEFT:
		return below(2) ? 'L' : 'l';
	case NON_UNIT:
		return below(2) ? 'N' : 'n';
	case UNIT:
		return below(2) ? 'U' : 'u';
	}
	return below(2) ? 'R' : 'r';
}

#define CALL(l, real)                                                                                          \
	static void l##call(struct call *p)                                                                    \
	{                                                                                                      \
		real alpha = (real)p->alpha, beta = (real)p->beta;                                             \
		const real *a = p->a.data, *b = p->b.data;                                                     \
		char ta = letter(p->trans_a), tb = letter(p->trans_b), uplo = letter(p->uplo),                 \
		     side = letter(p->side);                                                                   \
		const real *symmetric = p->side == LEFT ? a : b, *other = p->side == LEFT ? b : a;             \
		const int *ld = p->side == LEFT ? &p->a.ld : &p->b.ld,                                         \
		          *other_ld = p->side == LEFT ? &p->b.ld : &p->a.ld;                                   \
		if (strcmp(p->routine, "gemm") == 0 && p->fortran)                                             \
			l##gemm_(&ta, &tb, &p->m, &p->n, &p->k, &alpha, a, &p->a.ld, b, &p->b.ld, &beta,       \
			         p->c.data, &p->c.ld, 1, 1);                                                   \
		else if (strcmp(p->routine, "gemm") == 0)                                                      \
			cblas_##l##gemm(p->order, p->trans_a, p->trans_b, p->m, p->n, p->k, alpha, a, p->a.ld, \
			                b, p->b.ld, beta, p->c.data, p->c.ld);                                 \
		else if (strcmp(p->routine, "syrk") == 0 && p->fortran)                                        \
			l##syrk_(&uplo, &ta, &p->n, &p->k, &alpha, a, &p->a.ld, &beta, p->c.data, &p->c.ld, 1, \
			         1);                                                                           \
		else if (strcmp(p->routine, "syrk") == 0)                                                      \
			cblas_##l##syrk(p->order, p->uplo, p->trans_a, p->n, p->k, alpha, a, p->a.ld, beta,    \
			                p->c.data, p->c.ld);                                                   \
		else if (p->fortran)                                                                           \
			l##symm_(&side, &uplo, &p->m, &p->n, &alpha, symmetric, ld, other, other_ld, &beta,    \
			         p->c.data, &p->c.ld, 1, 1);                                                   \
		else                                                                                           \
			cblas_##l##symm(p->order, p->side, p->uplo, p->m, p->n, alpha, symmetric, *ld, other,  \
			                *other_ld, beta, p->c.data, p->c.ld);                                  \
	}

CALL(s, float)
CALL(d, double)

static struct matrix make_operand(const struct call *p, int trans, int rows, int cols)
{
	bool by_rows = p->order == ROW_MAJOR;
	return trans == NO_TRANS ? make(p->f64, by_rows, rows, cols, false)
	                         : make(p->f64, by_rows, cols, rows, false);
}

/* Makes the matrices of a call whose extents and letters are set. */
static void make_matrices(struct call *p)
{
	p->a = make_operand(p, p->trans_a, p->m, p->k);
	if (strcmp(p->routine, "syrk") == 0) {
		p->b = p->a;
		p->trans_b = p->trans_a == NO_TRANS ? TRANS : NO_TRANS;
	} else {
		p->b = make_operand(p, p->trans_b, p->k, p->n);
	}
	if (strcmp(p->routine, "symm") == 0)
		poison_other_triangle(p->side == LEFT ? &p->a : &p->b, p->uplo);
	p->c = make(p->f64, p->order == ROW_MAJOR, p->m, p->n, p->beta == 0);
}

static void run_call_of(const char *routine, int m, int n, int k)
{
	struct call p = {
	    .routine = routine, .f64 = below(2), .fortran = below(2), .order = ROW_MAJOR + below(2)};
	p.trans_a = NO_TRANS + below(3);
	p.trans_b = NO_TRANS + below(3);
	p.uplo = UPPER + below(2);
	p.side = LEFT + below(2);
	p.m = m;
	p.n = n;
	p.k = k;
	p.alpha = factor();
	p.beta = factor();
	if (p.fortran)
		p.order = COL_MAJOR;
	if (strcmp(routine, "symm") == 0) {
		p.trans_a = p.trans_b = NO_TRANS;
		p.k = p.side == LEFT ? p.m : p.n;
	}
	if (strcmp(routine, "syrk") == 0)
		p.m = p.n;
	make_matrices(&p);
	(p.f64 ? dcall : scall)(&p);
	compare(&p);
	if (p.b.data != p.a.data)
		release(&p.b);
	release(&p.a);
	release(&p.c);
}

static void run_call(const char *routine, int largest)
{
	run_call_of(routine, 1 + below(largest), 1 + below(largest), 1 + below(largest));
}

/* Makes c so large that products go by blocks of columns or rows, and several threads copy. */
static void large_products(int n)
{
	for (int i = 0; i < n; i++) {
		int cols = i % 3 == 0 ? 90 + below(20) : 1900 + below(300), rows = 4400000 / cols + below(99);
		run_call_of("gemm", i % 2 ? rows : cols, i % 2 ? cols : rows, 1 + below(9));
	}
	run_call_of("gemm", 1100 + below(99), 1100 + below(99), 600 + below(99)); /* as a whole */
	run_call_of("syrk", 0, 700 + below(99), 3);
	run_call_of("symm", 600 + below(99), 70, 0);
}

static const char *const routines[] = {"gemm", "syrk", "symm"};

static void products(int n)
{
	for (int i = 0; i < n; i++)
		for (int r = 0; r < 3; r++)
			run_call(routines[r], i % 16 == 0 ? 300 : 48);
}

/* ---- Batches ---- */

#define GROUPS   3
#define PRODUCTS 5

struct batch {
	struct call products[GROUPS * PRODUCTS];
	int order, n, sizes[GROUPS];
	int trans_a[GROUPS], trans_b[GROUPS], extents_m[GROUPS], extents_n[GROUPS], extents_k[GROUPS],
	    lda[GROUPS], ldb[GROUPS], ldc[GROUPS];
	double alpha[GROUPS], beta[GROUPS];
};

#define CALL_BATCH(l, real)                                                                                    \
	static void l##batch(struct batch *t)                                                                  \
	{                                                                                                      \
		const real *a[GROUPS * PRODUCTS], *b[GROUPS * PRODUCTS];                                       \
		real *c[GROUPS * PRODUCTS], alpha[GROUPS], beta[GROUPS];                                       \
		for (int g = 0; g < GROUPS; g++) {                                                             \
			alpha[g] = (real)t->alpha[g];                                                          \
			beta[g] = (real)t->beta[g];                                                            \
		}                                                                                              \
		for (int i = 0; i < t->n; i++) {                                                               \
			a[i] = t->products[i].a.data;                                                          \
			b[i] = t->products[i].b.data;                                                          \
			c[i] = t->products[i].c.data;                                                          \
		}                                                                                              \
		cblas_##l##gemm_batch(t->order, t->trans_a, t->trans_b, t->extents_m, t->extents_n,            \
		                      t->extents_k, alpha, a, t->lda, b, t->ldb, beta, c, t->ldc, GROUPS,      \
		                      t->sizes);                                                               \
	}

CALL_BATCH(s, float)
CALL_BATCH(d, double)

static void add_group(struct batch *t, int g, bool f64)
{
	struct call first = {.routine = "gemm",
	                     .f64 = f64,
	                     .order = t->order,
	                     .trans_a = t->trans_a[g] = NO_TRANS + below(3),
	                     .trans_b = t->trans_b[g] = NO_TRANS + below(3),
	                     .m = t->extents_m[g] = 1 + below(40),
	                     .n = t->extents_n[g] = 1 + below(40),
	                     .k = t->extents_k[g] = 1 + below(40),
	                     .alpha = t->alpha[g] = factor(),
	                     .beta = t->beta[g] = factor()};
	make_matrices(&first);
	t->lda[g] = first.a.ld;
	t->ldb[g] = first.b.ld;
	t->ldc[g] = first.c.ld;
	t->sizes[g] = below(PRODUCTS + 1);
	for (int i = 0; i < t->sizes[g]; i++) {
		struct call *p = &t->products[t->n++];
		*p = first;
		p->a = make_like(&first.a, false);
		p->b = make_like(&first.b, false);
		p->c = make_like(&first.c, first.beta == 0);
	}
	release(&first.a);
	release(&first.b);
	release(&first.c);
}

static void run_batch(void)
{
	struct batch t = {.order = ROW_MAJOR + below(2)};
	bool f64 = below(2);
	for (int g = 0; g < GROUPS; g++)
		add_group(&t, g, f64);
	(f64 ? dbatch : sbatch)(&t);
	for (int i = 0; i < t.n; i++) {
		compare(&t.products[i]);
		release(&t.products[i].a);
		release(&t.products[i].b);
		release(&t.products[i].c);
	}
}

/* ---- Triangular calls: b = alpha * op(a) * b, or b * op(a); or by op(a)'s inverse ---- */

struct triangular {
	bool solve, f64, fortran;
	int order, side, uplo, trans, diag, m, n;
	double alpha;
	struct matrix a, b;
};

#define CALL_TRIANGULAR(l, real)                                                                               \
	static void l##triangular(struct triangular *t)                                                        \
	{                                                                                                      \
		real alpha = (real)t->alpha, *b = t->b.data;                                                   \
		const real *a = t->a.data;                                                                     \
		char side = letter(t->side), uplo = letter(t->uplo), trans = letter(t->trans),                 \
		     diag = letter(t->diag);                                                                   \
		if (t->fortran)                                                                                \
			(t->solve ? l##trsm_ : l##trmm_)(&side, &uplo, &trans, &diag, &t->m, &t->n, &alpha, a, \
			                                 &t->a.ld, b, &t->b.ld, 1, 1, 1, 1);                   \
		else                                                                                           \
			(t->solve ? cblas_##l##trsm : cblas_##l##trmm)(t->order, t->side, t->uplo, t->trans,   \
			                                               t->diag, t->m, t->n, alpha, a, t->a.ld, \
			                                               b, t->b.ld);                            \
	}

CALL_TRIANGULAR(s, float)
CALL_TRIANGULAR(d, double)

/* Keeps solutions from growing with the order, and poisons elements that are not stored. */
static void make_triangle(struct triangular *t)
{
	int order = t->side == LEFT ? t->m : t->n;
	t->a = make(t->f64, t->order == ROW_MAJOR, order, order, false);
	for (int i = 0; i < order; i++)
		for (int j = 0; j < order; j++) {
			size_t at = place(&t->a, i, j);
			if (!is_stored(t->uplo, i, j))
				put(&t->a, at, NAN);
			else if (i != j)
				put(&t->a, at, element(&t->a, t->a.data, at) / order);
			else
				put(&t->a, at, t->diag == UNIT ? NAN : 1 + below(1000) / 1000.0);
		}
}

/* Returns an element of op(a). */
static long double triangle_element(const struct triangular *t, int i, int j)
{
	if (i == j && t->diag == UNIT)
		return 1;
	int row = t->trans == NO_TRANS ? i : j, col = t->trans == NO_TRANS ? j : i;
	return is_stored(t->uplo, row, col) ? element(&t->a, t->a.data, place(&t->a, row, col)) : 0;
}

/*
 * Returns element (i, j) of op(a) times b as in `data`, or of b times op(a). *ret_scale: the same with absolute
 * values.
 */
static long double times_triangle(const struct triangular *t, const void *data, int i, int j,
                                  long double *ret_scale)
{
	int order = t->side == LEFT ? t->m : t->n;
	long double sum = 0;
	*ret_scale = 0;
	for (int l = 0; l < order; l++) {
		long double a = t->side == LEFT ? triangle_element(t, i, l) : triangle_element(t, l, j);
		double b =
		    a == 0 ? 0
		           : element(&t->b, data, t->side == LEFT ? place(&t->b, l, j) : place(&t->b, i, l));
		sum += a * b;
		*ret_scale += fabsl(a * b);
	}
	return sum;
}

static void compare_triangular(const struct triangular *t, int i, int j)
{
	const void *factor = t->solve ? t->b.data : t->b.before;
	size_t at = place(&t->b, i, j);
	long double other = element(&t->b, t->solve ? t->b.before : t->b.data, at), scale;
	long double product = times_triangle(t, factor, i, j, &scale);
	double epsilon = t->f64 ? DBL_EPSILON : FLT_EPSILON;
	int order = t->side == LEFT ? t->m : t->n;
	long double difference = t->solve ? product - t->alpha * other : t->alpha * product - other;
	scale = t->solve ? scale + fabsl(t->alpha * other) : fabsl(t->alpha) * scale;
	if (fabsl(difference) <= scale * epsilon * (order + 3))
		return;
	printf(
	    "%c%s%s %d x %d, order %d, side %d, uplo %d, trans %d, diag %d, alpha %g: [%d, %d] is off by %Lg\n",
	    t->f64 ? 'd' : 's', t->solve ? "trsm" : "trmm", t->fortran ? "_" : "", t->m, t->n, t->order,
	    t->side, t->uplo, t->trans, t->diag, t->alpha, i, j, difference);
	wrong++;
}

static void compare_triangulars(const struct triangular *t)
{
	int every = 1 + (int)((double)t->m * t->n * (t->side == LEFT ? t->m : t->n) / 5e4), before = wrong;
	size_t size = t->f64 ? sizeof(double) : sizeof(float);
	char *others = malloc(bytes(&t->b));
	if (!others)
		exit(2);
	memcpy(others, t->b.data, bytes(&t->b));
	for (int i = 0; i < t->m; i++)
		for (int j = 0; j < t->n; j++) {
			size_t at = place(&t->b, i, j) * size;
			if (wrong == before && below(every) == 0)
				compare_triangular(t, i, j);
			memcpy(others + at, (char *)t->b.before + at, size);
		}
	EXPECT(memcmp(others, t->b.before, bytes(&t->b)) == 0);
	free(others);
}

static void run_triangular(bool solve, int largest)
{
	struct triangular t = {
	    .solve = solve, .f64 = below(2), .fortran = below(2), .order = ROW_MAJOR + below(2)};
	t.side = LEFT + below(2);
	t.uplo = UPPER + below(2);
	t.trans = NO_TRANS + below(3);
	t.diag = NON_UNIT + below(2);
	t.m = 1 + below(largest);
	t.n = 1 + below(largest);
	t.alpha = factor();
	if (t.fortran)
		t.order = COL_MAJOR;
	make_triangle(&t);
	t.b = make(t.f64, t.order == ROW_MAJOR, t.m, t.n, false);
	(t.f64 ? dtriangular : striangular)(&t);
	compare_triangulars(&t);
	release(&t.a);
	release(&t.b);
}

static void calls(int n)
{
	products(n);
	for (int i = 0; i < n; i++) {
		run_triangular(true, i % 16 == 0 ? 300 : 48);
		run_triangular(false, i % 16 == 0 ? 300 : 48);
		run_batch();
	}
}

/* ---- Calls for the next BLAS ---- */

static void invalid_calls(void)
{
	double a[16], b[16], c[16], one = 1, nothing = 0, nan = NAN;
	int four = 4, three = 3, none = 0, minus = -1;
	for (int i = 0; i < 16; i++)
		a[i] = b[i] = c[i] = i;

	dgemm_("X", "N", &four, &four, &four, &one, a, &four, b, &four, &one, c, &four, 1, 1);
	dgemm_("N", "N", &four, &minus, &four, &one, a, &four, b, &four, &one, c, &four, 1, 1);
	dgemm_("N", "N", &four, &four, &four, &one, a, &three, b, &four, &one, c, &four, 1, 1);
	cblas_dgemm(COL_MAJOR, NO_TRANS, NO_TRANS, 4, 4, 4, 1, a, 4, b, 4, 0, c, 3);
	dsyrk_("A", "N", &four, &four, &one, a, &four, &one, c, &four, 1, 1);
	dsymm_("L", "U", &four, &four, &one, a, &three, b, &four, &one, c, &four, 1, 1);
	dtrsm_("L", "U", "N", "X", &four, &four, &one, a, &four, c, &four, 1, 1, 1, 1);
	cblas_dtrmm(COL_MAJOR, LEFT, UPPER, NO_TRANS, UNIT, 4, 4, 1, a, 3, c, 4);
	for (int i = 0; i < 16; i++)
		EXPECT(c[i] == i);

	dtrsm_("L", "U", "N", "N", &four, &none, &one, a, &four, c, &four, 1, 1, 1, 1);
	dgemm_("N", "N", &none, &four, &four, &one, a, &four, b, &four, &nothing, c, &four, 1, 1);
	dgemm_("N", "N", &four, &four, &none, &one, a, &four, b, &four, &one, c, &four, 1, 1);
	for (int i = 0; i < 16; i++)
		EXPECT(c[i] == i);
	dgemm_("N", "N", &four, &four, &none, &one, a, &four, b, &four, &nothing, c, &four, 1, 1);
	for (int i = 0; i < 16; i++)
		EXPECT(c[i] == 0);
	dgemm_("N", "N", &four, &four, &four, &nan, a, &four, b, &four, &one, c, &four, 1, 1);
	for (int i = 0; i < 16; i++)
		EXPECT(isnan(c[i]));
}

/* ---- Threads and processes ---- */

#define THREADS 16

static void *thread(void *number)
{
	state = 977 * (uintptr_t)number;
	for (int i = 0; i < 40; i++)
		run_call(routines[i % 3], 64);
	return NULL;
}

static void threads(void)
{
	pthread_t ids[THREADS];
	for (uintptr_t i = 0; i < THREADS; i++)
		if (pthread_create(&ids[i], NULL, thread, (void *)(i + 1)) != 0)
			exit(2);
	for (int i = 0; i < THREADS; i++)
		pthread_join(ids[i], NULL);
}

/* Runs products of the child between the parent's. */
static void fork_between(void (*run)(int n), int before, int in_child, int after)
{
	run(before);
	pid_t child = fork();
	if (child == 0) {
		run(in_child);
		exit(wrong != 0);
	}
	run(after);
	int status = -1;
	waitpid(child, &status, 0);
	EXPECT(status == 0);
}

/* A race detector takes the parent's threads in the child for the child's. */
#ifdef __SANITIZE_THREAD__
static const bool threads_after_fork = false;
#else
static const bool threads_after_fork = true;
#endif

static void large(int n)
{
	if (threads_after_fork)
		fork_between(large_products, n, 1, 1);
	else
		large_products(n);
}

static void forks(void)
{
	for (int i = 0; i < 6; i++)
		fork_between(products, 2, 3, 2);
}

/* ---- Side effects that a caller must not notice ---- */

#define SIDE 64

static double square_a[SIDE * SIDE], square_b[SIDE * SIDE];

/* Fills with small integers, so that products are exact. */
static void fill_squares(void)
{
	for (int i = 0; i < SIDE * SIDE; i++)
		square_a[i] = square_b[i] = i % 5;
}

static void multiply_squares(double c[SIDE * SIDE])
{
	const int n = SIDE;
	const double one = 1, nothing = 0;
	dgemm_("N", "T", &n, &n, &n, &one, square_a, &n, square_b, &n, &nothing, c, &n, 1, 1);
}

static double square_dot(void)
{
	double sum = 0;
	for (int k = 0; k < SIDE; k++)
		sum += square_a[k * SIDE] * square_b[k * SIDE];
	return sum;
}

static void flags(void)
{
	static double c[SIDE * SIDE];
	for (int i = 0; i < 3; i++) {
		feclearexcept(FE_ALL_EXCEPT);
		multiply_squares(c);
		EXPECT(fetestexcept(FE_ALL_EXCEPT) == 0);
		EXPECT(c[0] == square_dot());
	}
}

/* Multiplies at this depth of the stack, above room that others overwrite. */
static __attribute__((noinline)) int multiply_below(int depth)
{
	volatile char room[512];
	static double c[SIDE * SIDE];
	for (size_t i = 0; i < sizeof room; i++)
		room[i] = (char)depth;
	if (depth == 0)
		multiply_squares(c);
	return depth == 0 ? 0 : multiply_below(depth - 1) + room[depth];
}

static void jumps(void)
{
	static double c[SIDE * SIDE];
	volatile int left = 0;
	multiply_squares(c);
	signal(SIGALRM, leave);
	next_act();
	for (volatile int i = 0; i < 24; i++) {
		const struct itimerval soon = {.it_value.tv_usec = 10000};
		if (sigsetjmp(outside, 1) != 0) {
			left++;
			continue;
		}
		setitimer(ITIMER_REAL, &soon, NULL);
		multiply_below(i % 5);
	}
	EXPECT(left == 24);
	next_act();
	products(4);
}

static _Atomic int inside, done;

static void *cancelled(void *unused)
{
	double c[SIDE * SIDE];
	inside++;
	multiply_squares(c);
	done++;
	pthread_testcancel();
	return unused;
}

static void cancel(void)
{
	static double c[SIDE * SIDE];
	pthread_t ids[4];
	void *ends[4] = {NULL};
	multiply_squares(c);
	next_act();
	for (int i = 0; i < 4; i++)
		if (pthread_create(&ids[i], NULL, cancelled, NULL) != 0)
			exit(2);
	while (inside < 4)
		usleep(1000);
	usleep(100000); /* so that they wait for kopsd */
	for (int i = 0; i < 4; i++)
		pthread_cancel(ids[i]);
	next_act();
	for (int i = 0; i < 4; i++)
		pthread_join(ids[i], &ends[i]);
	for (int i = 0; i < 4; i++)
		EXPECT(ends[i] == PTHREAD_CANCELED);
	EXPECT(done == 4);
	threads();
}

/* Prints a line of dots to show that it is alive. */
static void loop(void (*run)(int n))
{
	struct pollfd input = {.fd = 0, .events = POLLIN};
	while (poll(&input, 1, 0) == 0) {
		run(1);
		if (write(1, ".", 1) < 0)
			return;
	}
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	setlocale(LC_ALL, "");
	fill_squares();
	state = seed_of_run() * UINT64_C(0x9E3779B97F4A7C15) | 1;
	if (strcmp(what, "calls") == 0)
		calls(argc > 2 ? atoi(argv[2]) : 100);
	else if (strcmp(what, "invalid") == 0)
		invalid_calls();
	else if (strcmp(what, "threads") == 0)
		threads();
	else if (strcmp(what, "fork") == 0)
		forks();
	else if (strcmp(what, "flags") == 0)
		flags();
	else if (strcmp(what, "jumps") == 0)
		jumps();
	else if (strcmp(what, "cancel") == 0)
		cancel();
	else if (strcmp(what, "loop") == 0)
		loop(products);
	else if (strcmp(what, "loop-large") == 0)
		loop(large_products);
	else if (strcmp(what, "large") == 0)
		large(argc > 2 ? atoi(argv[2]) : 4);
	else
		return 2;
	return wrong != 0;
}
