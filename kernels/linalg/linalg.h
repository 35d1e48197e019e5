/*
 * linalg.h: what ops on matrices in LAPACK's sense share.
 *
 * After check() their views have rank 4. The first two axes number the matrices, and the last two are rows and
 * columns. Operands with fewer elements for each matrix, such as info, have axes of one index there.
 *
 * A factorisation that takes long is done in steps, columns after columns. A part has some columns; what is
 * left to be done lies in the output. Solving is done rows after rows.
 */
#ifndef KOPS_LINALG_H
#define KOPS_LINALG_H

#include <math.h>

#include "common/rules.h"
#include "gemm/complex/number.h"
#include "linalg/counts.h"

#define LINALG_TYPES (DTYPE_BIT(KOPS_F32) | DTYPE_BIT(KOPS_F64) | DTYPE_BIT(KOPS_C64) | DTYPE_BIT(KOPS_C128))

/* One matrix. Strides in elements. */
struct linalg_matrix {
	char *data;
	kops_dtype dtype;
	uint64_t rows, cols;
	int64_t row, col; /* from row to row, from column to column */
};

static inline uint64_t linalg_matrices(const struct view *v)
{
	return v->shape[0] * v->shape[1];
}

/* Returns how many elements after the first one matrix i begins. */
static inline int64_t linalg_place(const struct view *v, uint64_t i)
{
	return (int64_t)(i / v->shape[1]) * v->strides[0] + (int64_t)(i % v->shape[1]) * v->strides[1];
}

static inline struct linalg_matrix linalg_matrix_of(const struct view *v, uint64_t i)
{
	char *data = v->data ? (char *)v->data + linalg_place(v, i) * (int64_t)dtype_size(v->dtype) : NULL;

	return (struct linalg_matrix){data, v->dtype, v->shape[2], v->shape[3], v->strides[2], v->strides[3]};
}

static inline int64_t linalg_index(const struct linalg_matrix *m, uint64_t row, uint64_t col)
{
	return (int64_t)row * m->row + (int64_t)col * m->col;
}

/* Plans have no data yet. */
static inline char *linalg_at(const struct linalg_matrix *m, uint64_t row, uint64_t col)
{
	return m->data ? m->data + linalg_index(m, row, col) * (int64_t)dtype_size(m->dtype) : NULL;
}

static inline struct linalg_matrix linalg_block(const struct linalg_matrix *m, uint64_t row, uint64_t col,
                                                uint64_t rows, uint64_t cols)
{
	return (struct linalg_matrix){linalg_at(m, row, col), m->dtype, rows, cols, m->row, m->col};
}

static inline struct number linalg_load(const struct linalg_matrix *m, uint64_t row, uint64_t col)
{
	return number_load(m->data, m->dtype, linalg_index(m, row, col));
}

static inline void linalg_store(const struct linalg_matrix *m, uint64_t row, uint64_t col, struct number x)
{
	number_store(m->data, m->dtype, linalg_index(m, row, col), x);
}

static inline double linalg_magnitude(struct number x)
{
	return fabs(x.re) + fabs(x.im);
}

static inline bool linalg_is_finite(struct number x)
{
	return isfinite(x.re) && isfinite(x.im);
}

/* sum - x·y */
static inline struct number linalg_less_product(struct number sum, struct number x, struct number y)
{
	return number_add_product(sum, (struct number){-x.re, -x.im}, y);
}

/* x / y, in long double, since squares may leave float64's range. */
static inline struct number linalg_quotient(struct number x, struct number y)
{
	long double re = y.re, im = y.im, square = re * re + im * im;

	if (y.im == 0)
		return (struct number){x.re / y.re, x.im / y.re};
	return (struct number){(double)((x.re * re + x.im * im) / square),
	                       (double)((x.im * re - x.re * im) / square)};
}

/* The unit roundoff of numbers of this type, or of their parts; and a number that is small beside any result
 * but of those that may be flushed to 0. */
double linalg_roundoff(kops_dtype dtype);
double linalg_smallest(kops_dtype dtype);

/* Checks ranks of 2 to 4, and that rows and columns can be counted by i32; and that the matrices are square. */
int linalg_check_matrices(const struct view *v, const char *name, char why[WHY_BYTES]);
int linalg_check_square(const struct view *v, const char *name, char why[WHY_BYTES]);

/*
 * Checks that v has the shape of a without the axes of its matrices, and of the last one `last` indices;
 * NO_LAST_AXIS: no such axis. A single number has shape [1]. Axes of one index may stand in the place of those
 * that are missing, so that views that have been checked pass again.
 */
#define NO_LAST_AXIS UINT64_MAX
int linalg_check_beside(const struct view *a, const struct view *v, const char *name, uint64_t last,
                        char why[WHY_BYTES]);

/* For op.result: gives v such a shape. */
void linalg_result_beside(const struct view *a, struct view *v, uint64_t last);

/* Gives views that passed the form of the comment above, with as few axes of matrices as they have in common.
 * beside: bit i is set if views[i] passed linalg_check_beside(). */
void linalg_fold(struct view *const views[], unsigned n, unsigned beside);

/*
 * For op.steps and op.step_part: n columns, or rows, of lines with so many elements are done in steps of a few,
 * so that lines of blocks begin as those of the matrix do. Of a few columns, which may be long, and of very
 * long ones each is a step.
 */
uint64_t linalg_steps(uint64_t n, uint64_t length);
void linalg_set_part(struct op_args *args, uint64_t n, uint64_t length, uint64_t first, uint64_t steps);

/* Exchange the last two axes of a view of rank 4, or let one of them begin at its other end. */
void linalg_transpose(struct view *v);
void linalg_reverse(struct view *v, uint32_t axis);

/* For op.of_size, "BATCHxN": square matrices. */
void linalg_of_size(const uint64_t *extents, struct op_args *args);
extern const struct size_span linalg_size_spans[];

#endif
