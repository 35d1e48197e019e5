/*
 * lu on the CPU: columns are halved until PANEL are left, which plain loops factor; solving for rows and
 * products are OpenBLAS's (S. Toledo, Locality of Reference in LU Decomposition with Partial Pivoting). Its own
 * getrf is not called: its search for pivots may leave a matrix that has NaN.
 *
 * The work is done in lu, if its rows or columns are runs of elements, else in the workspace.
 */
#include "lu/operands.h"

#include <math.h>
#include <string.h>

#include "common/cpu.h"
#include "common/threads.h"
#include "linalg/cpu.h"

enum { A = LU_A, LU = LU_LU, PIVOTS = LU_PIVOTS, INFO = LU_INFO };

#define PANEL      16
#define SMALL_ROWS 65536
#define GRAIN      65536 /* elements that are worth a thread */

/* ---- Panels: n columns of m elements, one after the other ---- */

#define NUMBERS(NAME, R, PARTS)                                                                                \
	static inline __attribute__((always_inline)) R NAME##_size(const R *x)                                 \
	{                                                                                                      \
		R re = x[0] < 0 ? -x[0] : x[0], im = PARTS > 1 ? x[PARTS - 1] : 0;                             \
		return re + (im < 0 ? -im : im);                                                               \
	}                                                                                                      \
                                                                                                               \
	static inline __attribute__((always_inline)) void NAME##_subtract(R *restrict y, const R *restrict x,  \
	                                                                  R re, R im, int64_t n)               \
	{                                                                                                      \
		if (PARTS == 1) {                                                                              \
			for (int64_t i = 0; i < n; i++)                                                        \
				y[i] -= x[i] * re;                                                             \
			return;                                                                                \
		}                                                                                              \
		for (int64_t i = 0; i < n; i++) {                                                              \
			y[PARTS * i] -= x[PARTS * i] * re - x[PARTS * i + PARTS - 1] * im;                     \
			y[PARTS * i + PARTS - 1] -= x[PARTS * i + PARTS - 1] * re + x[PARTS * i] * im;         \
		}                                                                                              \
	}                                                                                                      \
                                                                                                               \
	/* By Smith's method, as squares may leave the range. */                                               \
	static inline __attribute__((always_inline)) void NAME##_divide(R *x, R re, R im, int64_t n)           \
	{                                                                                                      \
		bool by_re = PARTS == 1 || (re < 0 ? -re : re) >= (im < 0 ? -im : im);                         \
		R ratio = PARTS == 1 || im == 0 ? 0                                                            \
		          : by_re               ? im / re                                                      \
		                                : re / im,                                                                   \
		  whole = by_re ? re + im * ratio : im + re * ratio;                                           \
                                                                                                               \
		for (int64_t i = 0; i < n; i++) {                                                              \
			R *at = x + i * PARTS, a = at[0], b = at[PARTS - 1];                                   \
			if (PARTS == 1) {                                                                      \
				at[0] = a / re;                                                                \
				continue;                                                                      \
			}                                                                                      \
			at[0] = (by_re ? a + b * ratio : a * ratio + b) / whole;                               \
			at[PARTS - 1] = (by_re ? b - a * ratio : b * ratio - a) / whole;                       \
		}                                                                                              \
	}                                                                                                      \
                                                                                                               \
	static CPU_CLONES void NAME##_panel(void *room, int64_t m, int64_t n, int32_t *pivots)                 \
	{                                                                                                      \
		R *w = room;                                                                                   \
                                                                                                               \
		for (int64_t j = 0; j < n && j < m; j++) {                                                     \
			R *column = w + j * m * PARTS, most = NAME##_size(column + j * PARTS);                 \
			int64_t pivot = j;                                                                     \
                                                                                                               \
			for (int64_t i = j + 1; i < m; i++) {                                                  \
				R size = NAME##_size(column + i * PARTS);                                      \
				pivot = size > most ? i : pivot;                                               \
				most = size > most ? size : most;                                              \
			}                                                                                      \
			pivots[j] = (int32_t)pivot;                                                            \
			for (int64_t k = 0; k < n && pivot != j; k++)                                          \
				for (int part = 0; part < PARTS; part++) {                                     \
					R *x = w + (k * m + j) * PARTS + part,                                 \
					  *y = w + (k * m + pivot) * PARTS + part, old = *x;                   \
					*x = *y;                                                               \
					*y = old;                                                              \
				}                                                                              \
			R re = column[j * PARTS], im = PARTS > 1 ? column[j * PARTS + PARTS - 1] : 0;          \
			if (re != 0 || im != 0)                                                                \
				NAME##_divide(column + (j + 1) * PARTS, re, im, m - j - 1);                    \
			for (int64_t k = j + 1; k < n; k++)                                                    \
				NAME##_subtract(w + (k * m + j + 1) * PARTS, column + (j + 1) * PARTS,         \
				                w[(k * m + j) * PARTS],                                        \
				                PARTS > 1 ? w[(k * m + j) * PARTS + PARTS - 1] : 0,            \
				                m - j - 1);                                                    \
		}                                                                                              \
	}

NUMBERS(f32, float, 1)
NUMBERS(f64, double, 1)
NUMBERS(c64, float, 2)
NUMBERS(c128, double, 2)

/* A dense panel by columns. */
static struct linalg_matrix panel_at(const struct linalg_matrix *m, void *room)
{
	return (struct linalg_matrix){room, m->dtype, m->rows, m->cols, 1, (int64_t)m->rows};
}

/* pivots: rows of m. room: of the panel. */
static void factor_panel(const struct linalg_matrix *m, int32_t *pivots, void *room)
{
	struct linalg_matrix panel = panel_at(m, room);
	int64_t rows = (int64_t)m->rows, cols = (int64_t)m->cols;

	linalg_copy_all(&panel, m);
	if (m->dtype == KOPS_F32)
		f32_panel(room, rows, cols, pivots);
	else if (m->dtype == KOPS_F64)
		f64_panel(room, rows, cols, pivots);
	else if (m->dtype == KOPS_C64)
		c64_panel(room, rows, cols, pivots);
	else
		c128_panel(room, rows, cols, pivots);
	linalg_copy_all(m, &panel);
}

/* ---- Exchanges of rows ---- */

struct exchanges {
	const struct linalg_matrix *m;
	const int32_t *pivots;
	uint64_t n;
	unsigned n_parts;
};

static void exchange_elements(char *x, char *y, size_t size, uint64_t n, int64_t stride)
{
	char old[16];

	for (uint64_t i = 0; i < n; i++, x += stride, y += stride) {
		memcpy(old, x, size);
		memcpy(x, y, size);
		memcpy(y, old, size);
	}
}

/* Columns of the part. By rows each exchange is a run; by columns all exchanges of a column come at once. */
static void exchange_part(void *ctx, unsigned part)
{
	const struct exchanges *e = ctx;
	const struct linalg_matrix *m = e->m;
	uint64_t from = threads_bound(m->cols, part, e->n_parts),
	         to = threads_bound(m->cols, part + 1, e->n_parts), step = m->col == 1 ? to - from : 1;
	size_t size = dtype_size(m->dtype);

	for (uint64_t j = from; j < to; j += step)
		for (uint64_t i = 0; i < e->n; i++)
			if ((uint64_t)e->pivots[i] != i)
				exchange_elements(linalg_at(m, i, j), linalg_at(m, (uint64_t)e->pivots[i], j),
				                  size, step, m->col * (int64_t)size);
}

static void exchange_rows(const struct linalg_matrix *m, const int32_t *pivots, uint64_t n)
{
	struct exchanges e = {m, pivots, n, threads_parts(n * m->cols, GRAIN / 4)};

	threads_run(e.n_parts, exchange_part, &e);
}

/* ---- Halves ---- */

/* What `left`'s columns, which are factored, change of those to the right. */
static void reduce(const struct linalg_matrix *left, const struct linalg_matrix *right, const int32_t *pivots)
{
	uint64_t n = left->cols < left->rows ? left->cols : left->rows, below = left->rows - n;
	struct linalg_matrix top = linalg_block(right, 0, 0, n, right->cols),
	                     rest = linalg_block(right, n, 0, below, right->cols),
	                     beside = linalg_block(left, n, 0, below, n);

	exchange_rows(right, pivots, n);
	blas_solve(&(struct blas_triangle){linalg_block(left, 0, 0, n, n), .unit = true}, &top);
	blas_subtract_product(&beside, false, &top, &rest);
}

/* A matrix with at most as many columns as rows. */
static void factor(const struct linalg_matrix *m, int32_t *pivots, void *room)
{
	uint64_t half = m->cols / 2 / PANEL * PANEL;

	if (m->cols <= PANEL) {
		factor_panel(m, pivots, room);
		return;
	}
	half = half > 0 ? half : PANEL;
	struct linalg_matrix left = linalg_block(m, 0, 0, m->rows, half),
	                     right = linalg_block(m, 0, half, m->rows, m->cols - half),
	                     rest = linalg_block(m, half, half, m->rows - half, m->cols - half),
	                     beside = linalg_block(m, half, 0, m->rows - half, half);
	factor(&left, pivots, room);
	reduce(&left, &right, pivots);
	factor(&rest, pivots + half, room);
	exchange_rows(&beside, pivots + half, rest.cols);
	for (uint64_t j = half; j < m->cols; j++)
		pivots[j] += (int32_t)half;
}

/* Columns [begin, end), and what they change of all others. */
static void factor_part(const struct linalg_matrix *m, uint64_t begin, uint64_t end, int32_t *pivots,
                        void *room)
{
	uint64_t rows = m->rows - begin;
	struct linalg_matrix panel = linalg_block(m, begin, begin, rows, end - begin),
	                     before = linalg_block(m, begin, 0, rows, begin),
	                     behind = linalg_block(m, begin, end, rows, m->cols - end);

	if (begin == end)
		return;
	factor(&panel, pivots, room);
	exchange_rows(&before, pivots, end - begin);
	reduce(&panel, &behind, pivots);
}

/* ---- Launches ---- */

static uint64_t panel_bytes(const struct view *lu)
{
	uint64_t columns = lu->shape[3] < PANEL ? lu->shape[3] : PANEL;

	return cpu_align(lu->shape[2] * columns * dtype_size(lu->dtype));
}

static uint64_t pivot_bytes(const struct op_args *args)
{
	return cpu_align(lu_pivots(args) * sizeof(int32_t));
}

/* Of one thread at work: pivots, a panel, and the matrix if it is not factored where it lies. */
static uint64_t bytes_each(const struct op_args *args)
{
	struct linalg_matrix m = linalg_matrix_of(&args->views[LU], 0);
	uint64_t bytes;

	return __builtin_add_overflow(panel_bytes(&args->views[LU]) + pivot_bytes(args), linalg_room(&m),
	                              &bytes)
	           ? UINT64_MAX
	           : bytes;
}

static void put_pivots(const struct op_args *args, uint64_t matrix, const int32_t *pivots)
{
	const struct view *v = &args->views[PIVOTS];
	uint64_t begin = linalg_begin(args);

	for (uint64_t j = begin; j < linalg_end(args) && !view_is_absent(v); j++)
		((int32_t *)v->data)[linalg_place(v, matrix) + (int64_t)j * v->strides[3]] =
		    pivots[j - begin] + (int32_t)begin;
}

static void put_info(const struct op_args *args, uint64_t matrix, const struct linalg_matrix *m)
{
	const struct view *v = &args->views[INFO];
	uint64_t k = lu_pivots(args), j = 0;

	if (view_is_absent(v))
		return;
	while (j < k && !(linalg_magnitude(linalg_load(m, j, j)) == 0))
		j++;
	((int32_t *)v->data)[linalg_place(v, matrix)] = j < k ? (int32_t)j + 1 : 0;
}

static void factor_matrix(const struct op_args *args, uint64_t matrix, char *room)
{
	struct linalg_matrix a = linalg_matrix_of(&args->views[A], matrix),
	                     lu = linalg_matrix_of(&args->views[LU], matrix), m = lu;
	int32_t *pivots = (int32_t *)room;
	char *panel = room + pivot_bytes(args);
	bool is_direct = linalg_lay_out(&m, panel + panel_bytes(&args->views[LU])),
	     is_first = linalg_begin(args) == 0, is_in_place = view_same(&args->views[A], &args->views[LU]);

	if (is_first && !(is_direct && is_in_place))
		linalg_copy_all(&m, &a);
	else if (!is_direct)
		linalg_copy_all(&m, &lu);
	factor_part(&m, linalg_begin(args), linalg_end(args), pivots, panel);
	if (!is_direct)
		linalg_copy_all(&lu, &m);
	put_pivots(args, matrix, pivots);
	if (linalg_end(args) == lu_pivots(args))
		put_info(args, matrix, &m);
}

/* Of matrices without elements, which need no workspace. */
static int finish_empty(const struct op_args *args)
{
	for (uint64_t i = 0; i < linalg_matrices(&args->views[LU]); i++) {
		struct linalg_matrix lu = linalg_matrix_of(&args->views[LU], i);
		put_info(args, i, &lu);
	}
	return 0;
}

static int launch_openblas(const struct op_args *args, const struct launch *launch)
{
	if (lu_pivots(args) == 0)
		return finish_empty(args);
	for (uint64_t i = 0; i < linalg_matrices(&args->views[LU]); i++)
		factor_matrix(args, i, launch->workspace);
	return 0;
}

/* OpenBLAS computes smaller products in the calling thread. */
static bool openblas_exclusive(const struct op_args *args)
{
	return lu_pivots(args) > PANEL;
}

static double openblas_ns(const struct op_args *args)
{
	const struct view *lu = &args->views[LU];
	struct linalg_matrix one = linalg_matrix_of(lu, 0);
	struct cost cost;
	double matrices = (double)linalg_matrices(lu), m = (double)lu->shape[2], n = (double)lu->shape[3],
	       k = (double)(linalg_end(args) - linalg_begin(args)),
	       flop_ns = dtype_component(lu->dtype) == KOPS_F64 ? 1 / 12.0 : 1 / 23.0,
	       wide = dtype_components(lu->dtype);

	args->op->cost(args, &cost);
	return matrices * (300 + k * (150 + m * wide * 8)) +
	       cost.flops * flop_ns * (1 + 64 / (k + 1)) / cpu_threads(m * n / 65536) +
	       linalg_copy_ns(lu) * (linalg_room(&one) > 0 ? 3 : 1) + cpu_memory_ns(args, m * n / 65536);
}

/* ---- Small matrices ---- */

static bool small_supports(const struct op_args *args, const char **ret_why_not)
{
	*ret_why_not = "takes up to 16 columns of up to 65536 elements";
	if (args->views[LU].shape[3] > PANEL || args->views[LU].shape[2] > SMALL_ROWS)
		return false;
	*ret_why_not = "takes whole matrices";
	return linalg_begin(args) == 0 && linalg_end(args) == lu_pivots(args);
}

struct batch {
	const struct op_args *args;
	char *room;
	unsigned n_parts;
};

/* No more than matrices. */
static unsigned small_parts(const struct op_args *args)
{
	const struct view *lu = &args->views[LU];
	uint64_t matrices = linalg_matrices(lu);
	unsigned parts = threads_parts(view_elements(lu) * PANEL, GRAIN);

	return parts < matrices ? parts : (unsigned)matrices;
}

static void small_part(void *ctx, unsigned part)
{
	const struct batch *b = ctx;
	const struct op_args *args = b->args;
	uint64_t n = linalg_matrices(&args->views[LU]);
	char *room = b->room + part * (panel_bytes(&args->views[LU]) + pivot_bytes(args));
	int32_t *pivots = (int32_t *)room;

	for (uint64_t i = threads_bound(n, part, b->n_parts); i < threads_bound(n, part + 1, b->n_parts); i++) {
		struct linalg_matrix a = linalg_matrix_of(&args->views[A], i),
		                     lu = linalg_matrix_of(&args->views[LU], i);
		if (!view_same(&args->views[A], &args->views[LU]))
			linalg_copy_all(&lu, &a);
		factor_panel(&lu, pivots, room + pivot_bytes(args));
		put_pivots(args, i, pivots);
		put_info(args, i, &lu);
	}
}

static uint64_t small_workspace(const struct op_args *args)
{
	return small_parts(args) * (panel_bytes(&args->views[LU]) + pivot_bytes(args));
}

static int launch_small(const struct op_args *args, const struct launch *launch)
{
	struct batch b = {args, launch->workspace, small_parts(args)};

	if (lu_pivots(args) == 0)
		return finish_empty(args);
	threads_run(b.n_parts, small_part, &b);
	return 0;
}

static double small_ns(const struct op_args *args)
{
	const struct view *lu = &args->views[LU];
	double matrices = (double)linalg_matrices(lu), m = (double)lu->shape[2], n = (double)lu->shape[3],
	       k = (double)lu_pivots(args),
	       wide = (double)dtype_size(lu->dtype) / 4 * dtype_components(lu->dtype),
	       ns = 150 + 4 * m * n + k * (20 + m * 1.5) + k * n * (3 + m * 0.1 * wide),
	       parts = matrices * m * n * PANEL / GRAIN;

	return matrices * ns / cpu_threads(fmin(parts, matrices)) + cpu_memory_ns(args, parts);
}

static const struct kernel kernels[] = {
    {.name = "openblas",
     .idea = "halves of columns; solving for rows and products by OpenBLAS",
     .dtypes = "f32 f64 c64 c128",
     .takes = "any strides",
     .supports = cpu_reference_supports,
     .workspace = bytes_each,
     .time_ns = openblas_ns,
     .exclusive = openblas_exclusive,
     .launch = launch_openblas},
    {.name = "small",
     .idea = "vector loops for matrices of few columns, threads for batches",
     .dtypes = "f32 f64 c64 c128",
     .takes = "any strides",
     .supports = small_supports,
     .workspace = small_workspace,
     .time_ns = small_ns,
     .launch = launch_small},
    CPU_REFERENCE_KERNEL("f32 f64 c64 c128"),
};

const struct kernel_list lu_cpu_kernels = {kernels, sizeof kernels / sizeof kernels[0]};
