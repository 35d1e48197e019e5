/* entry.c: converts BLAS arguments to a product, or to a triangular call. */
#include "entry.h"

int entry_trans(char letter)
{
	switch (letter | 0x20) {
	case 'n':
		return NO_TRANS;
	case 't':
		return TRANS;
	case 'c':
		return CONJ_TRANS;
	}
	return 0;
}

/* What is conjugated is transposed too. */
const char *entry_letter(bool trans, bool conj)
{
	return conj ? "C" : trans ? "T" : "N";
}

int entry_uplo(char letter)
{
	return (letter | 0x20) == 'u' ? CBLAS_UPPER : (letter | 0x20) == 'l' ? CBLAS_LOWER : 0;
}

int entry_diag(char letter)
{
	return (letter | 0x20) == 'n' ? NON_UNIT : (letter | 0x20) == 'u' ? UNIT : 0;
}

int entry_side(char letter)
{
	return (letter | 0x20) == 'l' ? LEFT : (letter | 0x20) == 'r' ? RIGHT : 0;
}

static bool is_order(int order)
{
	return order == ROW_MAJOR || order == COL_MAJOR;
}

static bool is_trans(int trans)
{
	return trans >= NO_TRANS && trans <= CONJ_TRANS;
}

static bool is_conjugated(kops_dtype dtype, int trans)
{
	return trans == CONJ_TRANS && (dtype == KOPS_C64 || dtype == KOPS_C128);
}

static bool is_uplo(int uplo)
{
	return uplo == CBLAS_UPPER || uplo == CBLAS_LOWER;
}

static struct operand operand(struct entry_matrix matrix, enum triangle triangle)
{
	return (struct operand){matrix.data, matrix.each, matrix.ld, triangle};
}

/* What a row-major matrix has above its diagonal, the column-major one of the same memory has below. */
static enum triangle triangle_of(int order, int uplo)
{
	return (uplo == CBLAS_UPPER) == (order == COL_MAJOR) ? UPPER : LOWER;
}

static bool is_same_matrix(struct entry_matrix a, int64_t rows_a, int64_t cols_a, struct entry_matrix b,
                           int64_t rows_b, int64_t cols_b)
{
	return a.data && a.data == b.data && a.ld == b.ld && rows_a == rows_b && cols_a == cols_b;
}

struct product entry_gemm(kops_dtype dtype, int order, int trans_a, int trans_b, int64_t m, int64_t n,
                          int64_t k, double complex alpha, struct entry_matrix a, struct entry_matrix b,
                          double complex beta, struct entry_matrix c)
{
	if (order == ROW_MAJOR)
		return entry_gemm(dtype, COL_MAJOR, trans_b, trans_a, n, m, k, alpha, b, a, beta, c);
	bool t_a = trans_a != NO_TRANS, t_b = trans_b != NO_TRANS;
	return (struct product){.dtype = dtype,
	                        .invalid = !is_order(order) || !is_trans(trans_a) || !is_trans(trans_b),
	                        .trans_a = t_a,
	                        .trans_b = t_b,
	                        .conj_a = is_conjugated(dtype, trans_a),
	                        .conj_b = is_conjugated(dtype, trans_b),
	                        .b_is_a =
	                            is_same_matrix(a, t_a ? k : m, t_a ? m : k, b, t_b ? n : k, t_b ? k : n),
	                        .m = m,
	                        .n = n,
	                        .k = k,
	                        .alpha = alpha,
	                        .beta = beta,
	                        .a = operand(a, WHOLE),
	                        .b = operand(b, WHOLE),
	                        .c = operand(c, WHOLE)};
}

/* c = alpha * op(a) * op(a)' + beta * c. Of complex numbers, a conjugate transpose would be herk. */
struct product entry_syrk(kops_dtype dtype, int order, int uplo, int trans, int64_t n, int64_t k,
                          double complex alpha, struct entry_matrix a, double complex beta,
                          struct entry_matrix c)
{
	bool trans_a = (trans != NO_TRANS) == (order == COL_MAJOR);
	return (struct product){.dtype = dtype,
	                        .invalid = !is_order(order) || !is_trans(trans) || !is_uplo(uplo) ||
	                                   is_conjugated(dtype, trans),
	                        .trans_a = trans_a,
	                        .trans_b = !trans_a,
	                        .b_is_a = true,
	                        .m = n,
	                        .n = n,
	                        .k = k,
	                        .alpha = alpha,
	                        .beta = beta,
	                        .a = operand(a, WHOLE),
	                        .b = operand(a, WHOLE),
	                        .c = operand(c, triangle_of(order, uplo))};
}

/* c = alpha * a * b + beta * c, or b * a, where a is symmetric */
struct product entry_symm(kops_dtype dtype, int order, int side, int uplo, int64_t m, int64_t n,
                          double complex alpha, struct entry_matrix a, struct entry_matrix b,
                          double complex beta, struct entry_matrix c)
{
	bool left = (side == LEFT) == (order == COL_MAJOR);
	int64_t rows = order == COL_MAJOR ? m : n, cols = order == COL_MAJOR ? n : m;
	struct operand symmetric = operand(a, triangle_of(order, uplo));
	return (struct product){.dtype = dtype,
	                        .invalid =
	                            !is_order(order) || !is_uplo(uplo) || (side != LEFT && side != RIGHT),
	                        .m = rows,
	                        .n = cols,
	                        .k = left ? rows : cols,
	                        .alpha = alpha,
	                        .beta = beta,
	                        .a = left ? symmetric : operand(b, WHOLE),
	                        .b = left ? operand(b, WHOLE) : symmetric,
	                        .c = operand(c, WHOLE)};
}

struct product entry_herk(kops_dtype dtype, int order, int uplo, int trans, int64_t n, int64_t k, double alpha,
                          struct entry_matrix a, double beta, struct entry_matrix c)
{
	int trans_of_syrk = trans == CONJ_TRANS ? TRANS : trans == NO_TRANS ? NO_TRANS : 0;
	struct product p = entry_syrk(dtype, order, uplo, trans_of_syrk, n, k, alpha, a, beta, c);
	p.conj_a = p.trans_a;
	p.conj_b = p.trans_b;
	p.hermitian = true;
	return p;
}

struct product entry_hemm(kops_dtype dtype, int order, int side, int uplo, int64_t m, int64_t n,
                          double complex alpha, struct entry_matrix a, struct entry_matrix b,
                          double complex beta, struct entry_matrix c)
{
	struct product p = entry_symm(dtype, order, side, uplo, m, n, alpha, a, b, beta, c);
	p.hermitian = true;
	return p;
}

/* b = alpha * op(a) * b, or with op(a)'s inverse, or from the right */
struct triangular entry_triangular(kops_dtype dtype, bool solve, int order, int side, int uplo, int trans,
                                   int diag, int64_t m, int64_t n, double complex alpha, struct entry_matrix a,
                                   struct entry_matrix b)
{
	bool by_cols = order == COL_MAJOR;
	return (struct triangular){.dtype = dtype,
	                           .invalid = !is_order(order) || !is_uplo(uplo) || !is_trans(trans) ||
	                                      (side != LEFT && side != RIGHT) ||
	                                      (diag != NON_UNIT && diag != UNIT),
	                           .solve = solve,
	                           .left = (side == LEFT) == by_cols,
	                           .upper = triangle_of(order, uplo) == UPPER,
	                           .trans = trans != NO_TRANS,
	                           .conj = is_conjugated(dtype, trans),
	                           .unit = diag == UNIT,
	                           .m = by_cols ? m : n,
	                           .n = by_cols ? n : m,
	                           .alpha = alpha,
	                           .a = operand(a, WHOLE),
	                           .b = operand(b, WHOLE)};
}
