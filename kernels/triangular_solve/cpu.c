/*
 * triangular_solve on the CPU.
 *
 * openblas: BLAS's trsm for each matrix, in x if its rows or columns are runs of elements, else in the
 * workspace, where an a goes that BLAS does not take. Parts subtract the products of the rows before theirs.
 *
 * small: triangles of up to SMALL_ORDER by loops along columns of x that become vectors, shared among threads.
 */
#include <math.h>
#include <string.h>

#include "common/cpu.h"
#include "common/threads.h"
#include "linalg/cpu.h"
#include "triangular_solve/operands.h"

enum { A = SOLVE_A, B = SOLVE_B, X = SOLVE_X };

/* ---- OpenBLAS ---- */

/* One matrix, in which no row has a negative stride if all had one: then it is the upper triangle, and rows are
 * numbered from the other end. */
struct system {
	struct linalg_matrix a, b, x;
	bool upper;
	uint64_t begin, end;   /* rows of the part */
	uint64_t first, after; /* rows before it, in the order of solving */
};

static struct system system_of(const struct op_args *args, uint64_t matrix)
{
	struct system s = {.a = linalg_matrix_of(&args->views[A], matrix),
	                   .b = linalg_matrix_of(&args->views[B], matrix),
	                   .x = linalg_matrix_of(&args->views[X], matrix),
	                   .begin = linalg_begin(args),
	                   .end = linalg_end(args),
	                   .after = linalg_begin(args)};
	uint64_t n = s.x.rows;

	if (s.a.row >= 0 || s.a.col >= 0)
		return s;
	struct linalg_matrix turned = linalg_reversed_rows(&s.a), columns = linalg_transposed(&turned),
	                     reversed = linalg_reversed_rows(&columns);
	s.a = linalg_transposed(&reversed);
	s.b = linalg_reversed_rows(&s.b);
	s.x = linalg_reversed_rows(&s.x);
	s.upper = true;
	s.begin = n - linalg_end(args);
	s.end = s.first = n - linalg_begin(args);
	s.after = n;
	return s;
}

static struct linalg_matrix rows_of(const struct linalg_matrix *m, uint64_t begin, uint64_t end)
{
	return linalg_block(m, begin, 0, end - begin, m->cols);
}

static void copy_rows(const struct linalg_matrix *y, const struct linalg_matrix *x, uint64_t begin,
                      uint64_t end)
{
	struct linalg_matrix to = rows_of(y, begin, end), from = rows_of(x, begin, end);

	linalg_copy_all(&to, &from);
}

static void solve(const struct op_args *args, uint64_t matrix, char *room)
{
	struct system s = system_of(args, matrix);
	struct linalg_matrix a = s.a, x = s.x;
	bool conj = solve_has(args, SOLVE_CONJ), x_is_direct, is_in_place;

	if (!linalg_lay_out(&a, room))
		linalg_copy_all(&a, &s.a);
	x_is_direct = linalg_lay_out(&x, room ? room + linalg_room(&s.a) : NULL);
	is_in_place = view_same(&args->views[B], &args->views[X]);
	if (!x_is_direct)
		copy_rows(&x, &s.x, s.first, s.after);
	if (!x_is_direct || !is_in_place)
		copy_rows(&x, &s.b, s.begin, s.end);
	struct linalg_matrix before = rows_of(&x, s.first, s.after), part = rows_of(&x, s.begin, s.end),
	                     beside = linalg_block(&a, s.begin, s.first, s.end - s.begin, s.after - s.first);
	const struct blas_triangle corner = {
	    linalg_block(&a, s.begin, s.begin, s.end - s.begin, s.end - s.begin), s.upper, conj,
	    solve_has(args, SOLVE_UNIT)};
	blas_subtract_product(&beside, conj, &before, &part);
	blas_solve(&corner, &part);
	if (!x_is_direct)
		copy_rows(&s.x, &x, s.begin, s.end);
}

static int launch_openblas(const struct op_args *args, const struct launch *launch)
{
	for (uint64_t i = 0; i < linalg_matrices(&args->views[X]); i++)
		solve(args, i, launch->workspace);
	return 0;
}

static uint64_t openblas_workspace(const struct op_args *args)
{
	struct system s = system_of(args, 0);
	uint64_t bytes;

	return __builtin_add_overflow(linalg_room(&s.a), linalg_room(&s.x), &bytes) ? UINT64_MAX : bytes;
}

/* OpenBLAS computes smaller ones in the calling thread. */
static bool openblas_exclusive(const struct op_args *args)
{
	const struct view *x = &args->views[X];

	return (double)x->shape[2] * (double)x->shape[3] > 1024;
}

static double openblas_ns(const struct op_args *args)
{
	const struct view *x = &args->views[X];
	struct cost cost;
	double n = (double)x->shape[2], m = (double)x->shape[3], matrices = (double)linalg_matrices(x);
	double flop_ns = dtype_component(x->dtype) == KOPS_F64 ? 1 / 12.0 : 1 / 23.0;

	args->op->cost(args, &cost);
	return matrices * (400 + n * 8) +
	       cost.flops * flop_ns * (1 + 64 / (n + 1) + 4 / (m + 1)) / cpu_threads(n * m / 4096) +
	       linalg_copy_ns(x) +
	       (openblas_workspace(args) > 0 ? linalg_copy_ns(&args->views[A]) + linalg_copy_ns(x) : 0) +
	       cpu_memory_ns(args, n * m / 4096);
}

/* ---- Small matrices ---- */

#define SMALL_ORDER 64
#define COLUMNS     32 /* of x at a time */

/* t: n rows of n elements; x: n rows of `width` elements. */
#define NUMBERS(NAME, R, PARTS)                                                                                \
	static inline __attribute__((always_inline)) void NAME##_subtract(R *restrict y, const R *restrict x,  \
	                                                                  R re, R im, int width)               \
	{                                                                                                      \
		if (PARTS == 1) {                                                                              \
			for (int j = 0; j < width; j++)                                                        \
				y[j] -= x[j] * re;                                                             \
			return;                                                                                \
		}                                                                                              \
		for (int j = 0; j < width; j++) {                                                              \
			y[PARTS * j] -= x[PARTS * j] * re - x[PARTS * j + PARTS - 1] * im;                     \
			y[PARTS * j + PARTS - 1] -= x[PARTS * j + PARTS - 1] * re + x[PARTS * j] * im;         \
		}                                                                                              \
	}                                                                                                      \
                                                                                                               \
	static inline __attribute__((always_inline)) void NAME##_divide(R *x, R re, R im, int width)           \
	{                                                                                                      \
		bool by_re = PARTS == 1 || (R)fabs((double)re) >= (R)fabs((double)im);                         \
		R ratio = PARTS == 1 || im == 0 ? 0                                                            \
		          : by_re               ? im / re                                                      \
		                                : re / im,                                                                   \
		  whole = by_re ? re + im * ratio : im + re * ratio;                                           \
                                                                                                               \
		for (int j = 0; j < width * PARTS; j += PARTS) {                                               \
			R a = x[j], b = PARTS > 1 ? x[j + PARTS - 1] : 0;                                      \
			if (PARTS == 1 || im == 0) {                                                           \
				x[j] = a / re;                                                                 \
				if (PARTS > 1)                                                                 \
					x[j + PARTS - 1] = b / re;                                             \
				continue;                                                                      \
			}                                                                                      \
			x[j] = (by_re ? a + b * ratio : a * ratio + b) / whole;                                \
			x[j + PARTS - 1] = (by_re ? b - a * ratio : b * ratio - a) / whole;                    \
		}                                                                                              \
	}                                                                                                      \
                                                                                                               \
	static CPU_CLONES void NAME##_solve(const R *t, R *x, int n, int width, bool unit)                     \
	{                                                                                                      \
		for (int i = 0; i < n; i++) {                                                                  \
			const R *row = t + (i * n) * PARTS;                                                    \
			R *y = x + (i * width) * PARTS;                                                        \
                                                                                                               \
			for (int k = 0; k < i; k++)                                                            \
				NAME##_subtract(y, x + (k * width) * PARTS, row[k * PARTS],                    \
				                PARTS > 1 ? row[k * PARTS + PARTS - 1] : 0, width);            \
			if (!unit)                                                                             \
				NAME##_divide(y, row[i * PARTS], PARTS > 1 ? row[i * PARTS + PARTS - 1] : 0,   \
				              width);                                                          \
		}                                                                                              \
	}                                                                                                      \
                                                                                                               \
	/* Row after row of a block of m; of a triangle, up to the diagonal. */                                \
	static void NAME##_take(R *to, const struct linalg_matrix *m, bool triangle, bool conj)                \
	{                                                                                                      \
		const R *from = (const R *)m->data;                                                            \
		int cols = (int)m->cols;                                                                       \
                                                                                                               \
		for (int i = 0; i < (int)m->rows; i++)                                                         \
			for (int j = 0; j < (triangle ? i + 1 : cols); j++)                                    \
				for (int part = 0; part < PARTS; part++) {                                     \
					R v = from[(i * m->row + j * m->col) * PARTS + part];                  \
					to[(i * cols + j) * PARTS + part] = conj && part > 0 ? -v : v;         \
				}                                                                              \
	}                                                                                                      \
                                                                                                               \
	static void NAME##_give(const struct linalg_matrix *m, const R *from)                                  \
	{                                                                                                      \
		R *to = (R *)m->data;                                                                          \
                                                                                                               \
		for (int i = 0; i < (int)m->rows; i++)                                                         \
			for (int j = 0; j < (int)m->cols; j++)                                                 \
				for (int part = 0; part < PARTS; part++)                                       \
					to[(i * m->row + j * m->col) * PARTS + part] =                         \
					    from[(i * (int)m->cols + j) * PARTS + part];                       \
	}                                                                                                      \
                                                                                                               \
	static void NAME##_small(const struct op_args *args, uint64_t matrix, char *room)                      \
	{                                                                                                      \
		struct linalg_matrix a = linalg_matrix_of(&args->views[A], matrix),                            \
		                     b = linalg_matrix_of(&args->views[B], matrix),                            \
		                     x = linalg_matrix_of(&args->views[X], matrix);                            \
		R *t = (R *)room, *y = t + SMALL_ORDER * SMALL_ORDER * PARTS;                                  \
                                                                                                               \
		NAME##_take(t, &a, true, solve_has(args, SOLVE_CONJ));                                         \
		for (uint64_t j = 0; j < x.cols; j += COLUMNS) {                                               \
			uint64_t width = x.cols - j < COLUMNS ? x.cols - j : COLUMNS;                          \
			struct linalg_matrix from = linalg_block(&b, 0, j, b.rows, width),                     \
			                     to = linalg_block(&x, 0, j, x.rows, width);                       \
                                                                                                               \
			NAME##_take(y, &from, false, false);                                                   \
			NAME##_solve(t, y, (int)x.rows, (int)width, solve_has(args, SOLVE_UNIT));              \
			NAME##_give(&to, y);                                                                   \
		}                                                                                              \
	}

NUMBERS(f32, float, 1)
NUMBERS(f64, double, 1)
NUMBERS(c64, float, 2)
NUMBERS(c128, double, 2)

static void solve_small(const struct op_args *args, uint64_t matrix)
{
	_Alignas(64) char room[SMALL_ORDER * (SMALL_ORDER + COLUMNS) * 16];

	switch (args->views[X].dtype) {
	case KOPS_F32:
		f32_small(args, matrix, room);
		break;
	case KOPS_F64:
		f64_small(args, matrix, room);
		break;
	case KOPS_C64:
		c64_small(args, matrix, room);
		break;
	default:
		c128_small(args, matrix, room);
		break;
	}
}

struct batch {
	const struct op_args *args;
	unsigned n_parts;
};

static void small_part(void *ctx, unsigned part)
{
	const struct batch *b = ctx;
	uint64_t n = linalg_matrices(&b->args->views[X]);

	for (uint64_t i = threads_bound(n, part, b->n_parts); i < threads_bound(n, part + 1, b->n_parts); i++)
		solve_small(b->args, i);
}

/* Products of a matrix, which may be many columns. */
static double small_work(const struct op_args *args)
{
	const struct view *x = &args->views[X];

	return (double)x->shape[2] * (double)x->shape[2] * (double)x->shape[3];
}

#define GRAIN 65536.0

static int launch_small(const struct op_args *args, const struct launch *launch)
{
	uint64_t matrices = linalg_matrices(&args->views[X]);
	double parts = fmin((double)matrices * small_work(args) / GRAIN, 1e6);
	struct batch b = {args, threads_parts(parts < 1 ? 1 : (uint64_t)parts, 1)};

	(void)launch;
	threads_run(b.n_parts, small_part, &b);
	return 0;
}

static bool small_supports(const struct op_args *args, const char **ret_why_not)
{
	*ret_why_not = "takes triangles of up to 64 rows";
	if (args->views[X].shape[2] > SMALL_ORDER)
		return false;
	*ret_why_not = "takes whole triangles";
	return linalg_begin(args) == 0 && linalg_end(args) == args->views[X].shape[2];
}

static double small_ns(const struct op_args *args)
{
	const struct view *x = &args->views[X];
	double matrices = (double)linalg_matrices(x), n = (double)x->shape[2], m = (double)x->shape[3],
	       wide = (double)dtype_size(x->dtype) / 4 * dtype_components(x->dtype),
	       ns = 50 + n * n * 1.2 + n * m * 2.5 + n * n * (2 + m * 0.06 * wide),
	       parts = fmin(matrices * small_work(args) / GRAIN, matrices);

	return matrices * ns / cpu_threads(parts) + cpu_memory_ns(args, parts);
}

static const struct kernel kernels[] = {
    {.name = "openblas",
     .idea = "BLAS's trsm of OpenBLAS; parts by gemm, too",
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

const struct kernel_list triangular_solve_cpu_kernels = {kernels, sizeof kernels / sizeof kernels[0]};
