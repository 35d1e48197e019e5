/*
 * cholesky on the CPU.
 *
 * openblas: LAPACK's potrf for each matrix, in the factor if its rows or columns are runs of elements, else in
 * the workspace. Parts solve for what lies below their columns, and subtract its square from what is left.
 *
 * small: matrices of up to SMALL_ORDER by plain loops that become vectors, shared among threads.
 */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "cholesky/cholesky.h"
#include "common/cpu.h"
#include "common/threads.h"
#include "linalg/cpu.h"

enum { A = CHOLESKY_A, FACTOR = CHOLESKY_FACTOR, INFO = CHOLESKY_INFO };

#define SMALL_ORDER 64

static void put_info(const struct op_args *args, uint64_t matrix, uint64_t info)
{
	const struct view *v = &args->views[INFO];

	if (!view_is_absent(v))
		((int32_t *)v->data)[linalg_place(v, matrix)] = (int32_t)info;
}

/* ---- OpenBLAS ---- */

/* The matrix that the work is done in. */
struct target {
	struct linalg_matrix factor, m;
	bool is_direct;
};

static struct target target_of(const struct op_args *args, uint64_t matrix, void *room)
{
	struct target t = {.factor = linalg_matrix_of(&args->views[FACTOR], matrix)};

	t.m = t.factor;
	t.is_direct = linalg_lay_out(&t.m, room);
	return t;
}

/* potrf takes the diagonal as real, and products with it do not. */
static void make_diagonal_real(const struct linalg_matrix *m)
{
	for (uint64_t i = 0; dtype_components(m->dtype) > 1 && i < m->rows; i++)
		linalg_store(m, i, i, (struct number){linalg_load(m, i, i).re, 0});
}

static void begin(const struct op_args *args, uint64_t matrix, const struct target *t)
{
	struct linalg_matrix a = linalg_matrix_of(&args->views[A], matrix);

	if (!cholesky_is_first(args)) {
		if (!t->is_direct)
			linalg_copy_lower(&t->m, &t->factor);
		return;
	}
	if (!t->is_direct || !cholesky_is_in_place(args))
		linalg_copy_lower(&t->m, &a);
	make_diagonal_real(&t->m);
}

/* Columns [from, to), and what they change of those behind. Marks the pivot that is not positive, if there is
 * one. */
static void factor_columns(const struct linalg_matrix *m, uint64_t from, uint64_t to)
{
	uint64_t below = m->rows - to;
	struct linalg_matrix corner = linalg_block(m, from, from, to - from, to - from),
	                     panel = linalg_block(m, to, from, below, to - from),
	                     rest = linalg_block(m, to, to, below, below);
	int info = blas_cholesky(&corner);

	if (info > 0) {
		linalg_store(&corner, (uint64_t)info - 1, (uint64_t)info - 1, (struct number){(double)NAN, 0});
		return;
	}
	struct linalg_matrix turned = linalg_transposed(&panel);
	blas_solve(&(struct blas_triangle){corner, .conjugated = true}, &turned);
	blas_subtract_square(&panel, &rest);
}

static uint64_t first_nan(const struct linalg_matrix *m)
{
	for (uint64_t j = 0; j < m->rows; j++)
		if (isnan(linalg_load(m, j, j).re))
			return j + 1;
	return 0;
}

static void end(const struct op_args *args, uint64_t matrix, const struct target *t)
{
	uint64_t info = cholesky_is_last(args) ? first_nan(&t->m) : 0;

	if (info > 0)
		linalg_spoil_lower(&t->factor);
	else if (!t->is_direct)
		linalg_copy_lower(&t->factor, &t->m);
	if (!cholesky_is_last(args))
		return;
	if (!cholesky_keeps(args))
		linalg_clear_upper(&t->factor);
	put_info(args, matrix, info);
}

static int launch_openblas(const struct op_args *args, const struct launch *launch)
{
	for (uint64_t i = 0; i < linalg_matrices(&args->views[FACTOR]); i++) {
		struct target t = target_of(args, i, launch->workspace);

		begin(args, i, &t);
		factor_columns(&t.m, linalg_begin(args), linalg_end(args));
		end(args, i, &t);
	}
	return 0;
}

static uint64_t openblas_workspace(const struct op_args *args)
{
	struct linalg_matrix m = linalg_matrix_of(&args->views[FACTOR], 0);

	return linalg_room(&m);
}

/* OpenBLAS computes smaller ones in the calling thread. */
static bool openblas_exclusive(const struct op_args *args)
{
	return cholesky_order(args) > 32;
}

static double openblas_ns(const struct op_args *args)
{
	const struct view *factor = &args->views[FACTOR];
	struct cost cost;
	double matrices = (double)linalg_matrices(factor), n = (double)cholesky_order(args);
	double flop_ns = dtype_component(factor->dtype) == KOPS_F64 ? 1 / 12.0 : 1 / 23.0;
	bool copies = openblas_workspace(args) > 0;

	args->op->cost(args, &cost);
	return matrices * (400 + 40 * n) + cost.flops * flop_ns * (1 + 64 / (n + 1)) / cpu_threads(n / 128) +
	       linalg_copy_ns(factor) * (copies ? 2 : 1) + cpu_memory_ns(args, n * n / 65536);
}

/* ---- Small matrices ---- */

/*
 * w: n columns of n elements, the lower triangle. Column after column is scaled, and subtracted from those
 * behind. For a pivot that is not positive returns its number, from 1 on.
 */
#define NUMBERS(NAME, R, PARTS)                                                                                \
	static inline __attribute__((always_inline)) void NAME##_subtract(R *restrict y, const R *restrict x,  \
	                                                                  R re, R im, int n)                   \
	{                                                                                                      \
		if (PARTS == 1) {                                                                              \
			for (int i = 0; i < n; i++)                                                            \
				y[i] -= x[i] * re;                                                             \
			return;                                                                                \
		}                                                                                              \
		for (int i = 0; i < n; i++) {                                                                  \
			y[PARTS * i] -= x[PARTS * i] * re + x[PARTS * i + PARTS - 1] * im;                     \
			y[PARTS * i + PARTS - 1] -= x[PARTS * i + PARTS - 1] * re - x[PARTS * i] * im;         \
		}                                                                                              \
	}                                                                                                      \
                                                                                                               \
	static CPU_CLONES int NAME##_factor(R *w, int n)                                                       \
	{                                                                                                      \
		for (int j = 0; j < n; j++) {                                                                  \
			R *column = w + (j * n + j) * PARTS, root;                                             \
			int below = n - j - 1;                                                                 \
                                                                                                               \
			if (!(column[0] > 0))                                                                  \
				return j + 1;                                                                  \
			root = (R)sqrt((double)column[0]);                                                     \
			column[0] = root;                                                                      \
			column[PARTS - 1] = PARTS > 1 ? 0 : root; /* which FMAs may leave */                   \
			for (int i = PARTS; i < (below + 1) * PARTS; i++)                                      \
				column[i] /= root;                                                             \
			for (int k = 1; k <= below; k++)                                                       \
				NAME##_subtract(w + ((j + k) * n + j + k) * PARTS, column + k * PARTS,         \
				                column[k * PARTS],                                             \
				                PARTS > 1 ? column[k * PARTS + PARTS - 1] : 0, below - k + 1); \
		}                                                                                              \
		return 0;                                                                                      \
	}                                                                                                      \
                                                                                                               \
	/* Between a matrix and w. */                                                                          \
	static void NAME##_take(R *w, int n, const struct linalg_matrix *m)                                    \
	{                                                                                                      \
		const R *from = (const R *)m->data;                                                            \
                                                                                                               \
		for (int j = 0; j < n; j++)                                                                    \
			for (int i = j; i < n; i++)                                                            \
				for (int part = 0; part < PARTS; part++)                                       \
					w[(j * n + i) * PARTS + part] =                                        \
					    i == j && part > 0                                                 \
					        ? 0                                                            \
					        : from[(i * m->row + j * m->col) * PARTS + part];              \
	}                                                                                                      \
                                                                                                               \
	static void NAME##_give(const struct linalg_matrix *m, const R *w, int n, bool keeps, bool failed)     \
	{                                                                                                      \
		R *to = (R *)m->data;                                                                          \
                                                                                                               \
		for (int i = 0; i < n; i++)                                                                    \
			for (int j = 0; j < (keeps ? i + 1 : n); j++)                                          \
				for (int part = 0; part < PARTS; part++)                                       \
					to[(i * m->row + j * m->col) * PARTS + part] =                         \
					    j > i    ? 0                                                       \
					    : failed ? (R)NAN                                                  \
					             : w[(j * n + i) * PARTS + part];                          \
	}

NUMBERS(f32, float, 1)
NUMBERS(f64, double, 1)
NUMBERS(c64, float, 2)
NUMBERS(c128, double, 2)

#define BY_TYPE(dtype, CASE)                                                                                   \
	switch (dtype) {                                                                                       \
	case KOPS_F32:                                                                                         \
		CASE(f32, float);                                                                              \
		break;                                                                                         \
	case KOPS_F64:                                                                                         \
		CASE(f64, double);                                                                             \
		break;                                                                                         \
	case KOPS_C64:                                                                                         \
		CASE(c64, float);                                                                              \
		break;                                                                                         \
	default:                                                                                               \
		CASE(c128, double);                                                                            \
		break;                                                                                         \
	}

static void factor_small(const struct op_args *args, uint64_t matrix)
{
	_Alignas(64) char room[SMALL_ORDER * SMALL_ORDER * 16];
	struct linalg_matrix a = linalg_matrix_of(&args->views[A], matrix),
	                     factor = linalg_matrix_of(&args->views[FACTOR], matrix);
	int n = (int)factor.rows, info;

#define FACTOR_OF(name, R)                                                                                     \
	name##_take((R *)room, n, &a);                                                                         \
	info = name##_factor((R *)room, n);                                                                    \
	name##_give(&factor, (const R *)room, n, cholesky_keeps(args), info > 0)
	BY_TYPE(factor.dtype, FACTOR_OF)
	put_info(args, matrix, (uint64_t)info);
}

struct batch {
	const struct op_args *args;
	unsigned n_parts;
};

static void small_part(void *ctx, unsigned part)
{
	const struct batch *b = ctx;
	uint64_t n = linalg_matrices(&b->args->views[FACTOR]);

	for (uint64_t i = threads_bound(n, part, b->n_parts); i < threads_bound(n, part + 1, b->n_parts); i++)
		factor_small(b->args, i);
}

static int launch_small(const struct op_args *args, const struct launch *launch)
{
	const uint64_t grain = 1 << 16; /* n³ */
	uint64_t n = cholesky_order(args);
	struct batch b = {args, threads_parts(linalg_matrices(&args->views[FACTOR]) * n * n * n, grain)};

	(void)launch;
	threads_run(b.n_parts, small_part, &b);
	return 0;
}

static bool small_supports(const struct op_args *args, const char **ret_why_not)
{
	*ret_why_not = "takes orders up to 64";
	if (cholesky_order(args) > SMALL_ORDER)
		return false;
	*ret_why_not = "takes whole matrices";
	return cholesky_is_whole(args);
}

static double small_ns(const struct op_args *args)
{
	const struct view *factor = &args->views[FACTOR];
	double n = (double)cholesky_order(args), matrices = (double)linalg_matrices(factor),
	       wide = (double)dtype_size(factor->dtype) / 4 * dtype_components(factor->dtype),
	       ns = 60 + n * 15 + n * n * 1.5 + n * n * n * 0.035 * wide;

	return matrices * ns / cpu_threads(matrices * n * n * n / (1 << 16)) +
	       cpu_memory_ns(args, matrices * n * n * n / (1 << 16));
}

static const struct kernel kernels[] = {
    {.name = "openblas",
     .idea = "LAPACK's potrf of OpenBLAS; parts by trsm and syrk",
     .dtypes = "f32 f64 c64 c128",
     .takes = "any strides",
     .supports = cpu_reference_supports,
     .workspace = openblas_workspace,
     .time_ns = openblas_ns,
     .exclusive = openblas_exclusive,
     .launch = launch_openblas},
    {.name = "small",
     .idea = "vector loops for each matrix, threads for batches",
     .dtypes = "f32 f64 c64 c128",
     .takes = "any strides",
     .supports = small_supports,
     .time_ns = small_ns,
     .launch = launch_small},
    CPU_REFERENCE_KERNEL("f32 f64 c64 c128"),
};

const struct kernel_list cholesky_cpu_kernels = {kernels, sizeof kernels / sizeof kernels[0]};
