/*
 * large.c: checks outputs of more than 2^31 elements, to find indices kept in 32 bits. The shapes are an odd
 * one, one that fits vectors and tiles of 128, and one of more rows than a grid has blocks along y.
 *
 * Inputs and outputs are RESIDENT and shared by all kernels; they are never transferred. The output is poisoned
 * before each run and compared at some 10^6 places: two random lattices over all of it, both ends, and the
 * bytes beside them.
 *
 * Inputs repeat one block of PERIOD elements. PERIOD is prime and no divisor of 2^31 or 2^32 is near it, so a
 * wrapped index finds another value.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "common/half.h"

#define PERIOD       65521ull
#define ELEMENTS_MAX (67108867ull * 33)
#define SHIFT        8       /* elements between the two inputs of add: vectors stay aligned */
#define GUARD        4096ull /* poisoned bytes before and after the output */
#define PLACES       500000  /* of one lattice, about */
#define ACROSS       700     /* most columns of a lattice */
#define END          2000    /* elements compared at each end */
#define PLAN_MAX_US  5e6

struct shape {
	uint64_t rows, cols;
};

static const struct shape shapes[] = {{65537, 32771}, {65664, 32896}, {67108867, 33}};

/*
 * Returns K of gemm: some kernels refuse less than 64, and one less than 768. A must not be larger than the
 * output.
 */
static uint64_t depth_of(const struct shape *s)
{
	if (s->rows > 1 << 20)
		return 4;
	return s->cols % 128 == 0 ? 768 : 64;
}

#define SHAPES (sizeof shapes / sizeof shapes[0])

/* ---- Values ---- */

/* Returns a multiple of 1/64 in [-1, 3): exact in every dtype, as are the sums and products below in f32. */
static double value(uint64_t i)
{
	return (double)(i % PERIOD % 251) / 64 - 1;
}

static double want_same(const struct shape *s, uint64_t i, uint64_t j)
{
	return value(i * s->cols + j);
}

static double want_transposed(const struct shape *s, uint64_t i, uint64_t j)
{
	return value(j * s->rows + i);
}

static double want_sum(const struct shape *s, uint64_t i, uint64_t j)
{
	return value(i * s->cols + j) + value(i * s->cols + j + SHIFT);
}

static double want_product(const struct shape *s, uint64_t i, uint64_t j)
{
	double sum = 0;

	for (uint64_t k = 0; k < depth_of(s); k++)
		sum += value(i * depth_of(s) + k) * value(k * s->cols + j);
	return sum;
}

/* Returns the sum of exp over elements 0 … n - 1, from that of one block. */
static double sum_exp(uint64_t n)
{
	static double sums[PERIOD + 1];

	for (uint64_t i = 0; sums[PERIOD] == 0 && i < PERIOD; i++)
		sums[i + 1] = sums[i] + exp(value(i));
	return (double)(n / PERIOD) * sums[PERIOD] + sums[n % PERIOD];
}

static double want_softmax(const struct shape *s, uint64_t i, uint64_t j)
{
	/*
	 * Counts from the block in which the row starts: differences of sums over all rows would lose digits.
	 */
	uint64_t first = i * s->cols % PERIOD;

	return exp(value(first + j)) / (sum_exp(first + s->cols) - sum_exp(first));
}

/* ---- Problems: views of the input and, last, the output ---- */

static struct view dense(kops_dtype dtype, uint64_t rows, uint64_t cols)
{
	struct view v = {.dtype = dtype, .rank = 2, .shape = {rows, cols}};

	view_make_dense(&v);
	return v;
}

static void views_same(struct op_args *args, kops_dtype dtype, const struct shape *s)
{
	args->views[0] = dense(dtype, s->rows, s->cols);
}

static void views_softmax(struct op_args *args, kops_dtype dtype, const struct shape *s)
{
	args->views[0] = dense(dtype, s->rows, s->cols);
	args->params.softmax.scale = 1;
}

static void views_transpose(struct op_args *args, kops_dtype dtype, const struct shape *s)
{
	args->views[0] = dense(dtype, s->cols, s->rows);
}

static void views_add(struct op_args *args, kops_dtype dtype, const struct shape *s)
{
	args->views[0] = args->views[1] = dense(dtype, s->rows, s->cols);
	args->views[1].offset = SHIFT * dtype_size(dtype);
}

static void views_gemm(struct op_args *args, kops_dtype dtype, const struct shape *s)
{
	args->views[0] = dense(dtype, s->rows, depth_of(s));
	args->views[1] = dense(dtype, depth_of(s), s->cols);
	args->params.gemm.alpha = 1;
}

/* A new op adds its line. */
static const struct large {
	const char *op;
	kops_dtype dtypes[2];
	/* Sets inputs and parameters for an output of this shape. */
	void (*views)(struct op_args *args, kops_dtype dtype, const struct shape *s);
	double (*want)(const struct shape *s, uint64_t i, uint64_t j);
	double tolerance; /* relative, in f32; 16-bit results may then be a neighbour */
} larges[] = {
    {"copy", {KOPS_F32, KOPS_F16}, views_same, want_same, 0},
    {"add", {KOPS_F32, KOPS_F16}, views_add, want_sum, 0},
    {"transpose", {KOPS_F32, KOPS_F16}, views_transpose, want_transposed, 0},
    {"softmax", {KOPS_F32, KOPS_BF16}, views_softmax, want_softmax, 1e-5},
    {"gemm", {KOPS_F32, KOPS_BF16}, views_gemm, want_product, 1e-6},
};

#define LARGES (sizeof larges / sizeof larges[0])

/* ---- Memory ---- */

/* Memory for one dtype at a time. */
struct arena {
	struct target *t;
	kops_dtype dtype;
	struct space block;    /* RESIDENT: PERIOD elements, then GUARD bytes of poison */
	struct space places;   /* SHARED: places fetched from the output */
	struct memory in, out; /* RESIDENT; the output lies between two guards */
};

static uint64_t in_elements(void)
{
	return (ELEMENTS_MAX + SHIFT + PERIOD - 1) / PERIOD * PERIOD;
}

static struct view strided(const struct memory *space, uint64_t offset, kops_dtype dtype, uint64_t rows,
                           uint64_t cols, int64_t row_stride, int64_t col_stride)
{
	return (struct view){.space = space,
	                     .offset = offset,
	                     .dtype = dtype,
	                     .rank = 2,
	                     .shape = {rows, cols},
	                     .strides = {row_stride, col_stride}};
}

static int copy(struct arena *a, struct view to, struct view from, char why[WHY_BYTES])
{
	struct run_op op = {.args = {.op = op_by_name("copy"), .views = {from, to}}, .pinned = ""};
	struct run run = {.ops = &op, .n_ops = 1};
	int rc = op_check(&op.args, run.error);

	if (rc == 0)
		rc = target_compute(a->t, &run);
	if (rc < 0)
		snprintf(why, WHY_BYTES, "copying: %.200s", run.error);
	return rc;
}

/* Repeats the block. */
static int fill_input(struct arena *a, char why[WHY_BYTES])
{
	uint64_t times = in_elements() / PERIOD;

	return copy(a, strided(&a->in, 0, a->dtype, times, PERIOD, PERIOD, 1),
	            strided(&a->block.memory, 0, a->dtype, times, PERIOD, 0, 1), why);
}

/* Poisons the whole output and its guards; elements of two bytes are poisoned by fours. */
static int poison_output(struct arena *a, char why[WHY_BYTES])
{
	const uint64_t width = GUARD / sizeof(float), rows = a->out.bytes / GUARD;
	uint64_t at = a->block.bytes - GUARD;

	return copy(a, strided(&a->out, 0, KOPS_F32, rows, width, (int64_t)width, 1),
	            strided(&a->block.memory, at, KOPS_F32, rows, width, 0, 1), why);
}

static int allocate(struct arena *a, struct memory *m, uint64_t bytes, char why[WHY_BYTES])
{
	*m = (struct memory){.owner = a->t->dev, .bytes = bytes};
	int rc = target_alloc(a->t, bytes, &m->device);
	if (rc < 0)
		snprintf(why, WHY_BYTES, "no %.1f GiB of memory on the device", (double)bytes / 0x1p30);
	return rc;
}

static int make_block(struct arena *a, char why[WHY_BYTES])
{
	uint64_t bytes = (PERIOD * dtype_size(a->dtype) + 7) / 8 * 8 + GUARD;

	if (!space_make(&a->block, bytes) || !space_make(&a->places, (PLACES + 2 * END) * sizeof(double))) {
		snprintf(why, WHY_BYTES, "out of memory");
		return KOPS_E_NOMEM;
	}
	for (uint64_t i = 0; i < PERIOD; i++)
		half_store(a->block.before, a->dtype, (int64_t)i, value(i));
	a->block.resident = true;
	int rc = target_load(a->t, &a->block, why);
	return rc < 0 ? rc : target_load(a->t, &a->places, why);
}

static void arena_free(struct arena *a)
{
	target_drop(a->t, &a->block);
	target_drop(a->t, &a->places);
	space_free(&a->block);
	space_free(&a->places);
	if (a->in.device)
		target_free(a->t, a->in.device);
	if (a->out.device)
		target_free(a->t, a->out.device);
}

static int arena_make(struct arena *a, struct target *t, kops_dtype dtype, char why[WHY_BYTES])
{
	uint64_t size = dtype_size(dtype);
	int rc;

	*a = (struct arena){.t = t, .dtype = dtype};
	if ((rc = make_block(a, why)) < 0 || (rc = allocate(a, &a->in, in_elements() * size, why)) < 0 ||
	    (rc = allocate(a, &a->out, (ELEMENTS_MAX * size / GUARD + 3) * GUARD, why)) < 0)
		return rc;
	return fill_input(a, why);
}

/* ---- Comparing ---- */

struct judged {
	struct arena *a;
	const struct large *l;
	const struct shape *s;
	char *why; /* CHECK_TEXT_BYTES */
};

static bool is_right(const struct judged *c, int64_t place, uint64_t i, uint64_t j)
{
	kops_dtype dtype = c->a->dtype;
	double got = half_load(c->a->places.host, dtype, place), rounded[1];
	double tolerance = dtype == KOPS_F32 || c->l->tolerance == 0 ? c->l->tolerance : 0x1p-7;

	half_store(rounded, dtype, 0, c->l->want(c->s, i, j));
	double want = half_load(rounded, dtype, 0);
	if (fabs(got - want) <= tolerance * fabs(want))
		return true;
	snprintf(c->why, CHECK_TEXT_BYTES, "element (%llu, %llu) is %.9g, should be %.9g",
	         (unsigned long long)i, (unsigned long long)j, got, want);
	return false;
}

/* Fetches rows × cols elements of the output from element `first` on. */
static bool fetch(const struct judged *c, uint64_t first, uint64_t rows, uint64_t cols, uint64_t row_stride,
                  uint64_t col_stride)
{
	uint64_t size = dtype_size(c->a->dtype);
	char why[WHY_BYTES];

	memset(c->a->places.host, 0xff, c->a->places.bytes);
	int rc = copy(c->a, strided(&c->a->places.memory, 0, c->a->dtype, rows, cols, (int64_t)cols, 1),
	              strided(&c->a->out, GUARD + first * size, c->a->dtype, rows, cols, (int64_t)row_stride,
	                      (int64_t)col_stride),
	              why);

	if (rc < 0)
		snprintf(c->why, CHECK_TEXT_BYTES, "%s", why);
	return rc == 0;
}

/* Compares evenly spaced rows and columns from a random place on. */
static bool compare_lattice(const struct judged *c, struct random *r)
{
	uint64_t cols = c->s->cols < ACROSS ? c->s->cols : ACROSS, right = c->s->cols / cols;
	/* Checks fewer places for long sums, which take time. */
	uint64_t places =
	    c->l->want == want_product && depth_of(c->s) > 64 ? PLACES * 64 / depth_of(c->s) : PLACES;
	uint64_t rows = c->s->rows < places / cols ? c->s->rows : places / cols, down = c->s->rows / rows;
	uint64_t i0 = random_below(r, c->s->rows - (rows - 1) * down);
	uint64_t j0 = random_below(r, c->s->cols - (cols - 1) * right);

	if (!fetch(c, i0 * c->s->cols + j0, rows, cols, down * c->s->cols, right))
		return false;
	for (uint64_t i = 0; i < rows; i++)
		for (uint64_t j = 0; j < cols; j++)
			if (!is_right(c, (int64_t)(i * cols + j), i0 + i * down, j0 + j * right))
				return false;
	return true;
}

static bool compare_run(const struct judged *c, uint64_t first)
{
	if (!fetch(c, first, 1, END, END, 1))
		return false;
	for (uint64_t i = 0; i < END; i++)
		if (!is_right(c, (int64_t)i, (first + i) / c->s->cols, (first + i) % c->s->cols))
			return false;
	return true;
}

/* Compares bytes `at` … at + GUARD of the output's memory. */
static bool compare_guard(const struct judged *c, uint64_t at)
{
	const unsigned char *bytes = c->a->places.host;
	const uint64_t width = GUARD / 2;
	char why[WHY_BYTES];

	memset(c->a->places.host, 0, GUARD);
	if (copy(c->a, strided(&c->a->places.memory, 0, KOPS_F16, 1, width, (int64_t)width, 1),
	         strided(&c->a->out, at, KOPS_F16, 1, width, (int64_t)width, 1), why) < 0) {
		snprintf(c->why, CHECK_TEXT_BYTES, "%s", why);
		return false;
	}
	for (uint64_t i = 0; i < GUARD; i++)
		if (bytes[i] != 0xff) {
			snprintf(c->why, CHECK_TEXT_BYTES, "a byte beside the output became 0x%02x", bytes[i]);
			return false;
		}
	return true;
}

static bool compare(const struct judged *c, uint64_t seed)
{
	struct random r = {seed};
	uint64_t n = c->s->rows * c->s->cols;

	return compare_run(c, 0) && compare_run(c, n - END) && compare_guard(c, 0) &&
	       compare_guard(c, GUARD + n * dtype_size(c->a->dtype)) && compare_lattice(c, &r) &&
	       compare_lattice(c, &r);
}

/* ---- Kernels ---- */

#define KERNELS_MAX 32

struct tally {
	unsigned right, wrong, refused, too_long;
	char reason[WHY_BYTES]; /* of the last refusal */
};

/* Returns 0 if it ran. */
static int run_kernel(struct arena *a, const struct large *l, const struct shape *s, const char *kernel,
                      struct tally *tally, char why[CHECK_TEXT_BYTES])
{
	struct run_op op = {.args = {.op = op_by_name(l->op)}, .pinned = kernel};
	struct run run = {.ops = &op, .n_ops = 1};
	struct view *y = op_output(&op.args);

	l->views(&op.args, a->dtype, s);
	for (unsigned i = 0; i < op_first_output(op.args.op); i++)
		op.args.views[i].space = &a->in;
	*y = dense(a->dtype, s->rows, s->cols);
	y->space = &a->out;
	y->offset = GUARD;
	int rc = op_check(&op.args, run.error);
	if (rc == 0)
		rc = plan_run(&a->t->planner, &run);
	if (rc == 0 && run.plan_us > PLAN_MAX_US) {
		run_forget_plan(&run);
		snprintf(tally->reason, WHY_BYTES, "planned to take %.3g s", run.plan_us / 1e6);
		tally->too_long++;
		return KOPS_E_QUOTA;
	}
	if (rc == 0 && (rc = poison_output(a, run.error)) == 0)
		rc = target_compute(a->t, &run);
	if (rc == KOPS_E_UNSUPPORTED) {
		snprintf(tally->reason, WHY_BYTES, "%s", run.error);
		tally->refused++;
	}
	snprintf(why, CHECK_TEXT_BYTES, "status %d: %s", rc, run.error);
	return rc;
}

static void check_kernel(struct arena *a, const struct options *o, const struct large *l, const char *kernel,
                         struct tally *tally)
{
	char why[CHECK_TEXT_BYTES];

	for (size_t i = 0; i < SHAPES; i++) {
		struct judged c = {a, l, &shapes[i], why};
		int rc = run_kernel(a, l, &shapes[i], kernel, tally, why);
		if (rc == KOPS_E_UNSUPPORTED || rc == KOPS_E_QUOTA)
			continue;
		if (rc == 0 && compare(&c, o->seed)) {
			tally->right++;
			continue;
		}
		tally->wrong++;
		printf("FAILED large %s kernel %s %s %llux%llu: %s\n", l->op, kernel, dtype_name(a->dtype),
		       (unsigned long long)shapes[i].rows, (unsigned long long)shapes[i].cols, why);
	}
}

static bool is_wanted(const struct options *o, const struct large *l)
{
	return !o->op || strcmp(o->op, l->op) == 0;
}

/* The CPU's reference takes a minute for each shape, so it runs only if named. */
static bool is_kernel_wanted(const struct options *o, const char *kernel)
{
	return o->kernel ? strcmp(o->kernel, kernel) == 0 : strcmp(kernel, "reference") != 0;
}

static void check_op(struct arena *a, const struct options *o, const struct large *l,
                     struct tally tallies[KERNELS_MAX])
{
	const struct kernel_list *list = a->t->driver->kernels(op_by_name(l->op));

	for (size_t i = 0; i < list->n && i < KERNELS_MAX; i++)
		if (is_kernel_wanted(o, list->kernels[i].name))
			check_kernel(a, o, l, list->kernels[i].name, &tallies[i]);
}

static bool takes(const struct large *l, kops_dtype dtype)
{
	return l->dtypes[0] == dtype || l->dtypes[1] == dtype;
}

/* Returns 1 if there is no memory. */
static unsigned check_dtype(struct target *t, const struct options *o, kops_dtype dtype,
                            struct tally tallies[LARGES][KERNELS_MAX])
{
	char why[WHY_BYTES];
	struct arena a;
	bool needed = false;

	for (size_t i = 0; i < LARGES; i++)
		needed = needed || (is_wanted(o, &larges[i]) && takes(&larges[i], dtype));
	if (!needed)
		return 0;
	int rc = arena_make(&a, t, dtype, why);
	if (rc < 0)
		printf("FAILED large %s on %s: %s\n", dtype_name(dtype), t->name, why);
	for (size_t i = 0; rc == 0 && i < LARGES; i++)
		if (is_wanted(o, &larges[i]) && takes(&larges[i], dtype))
			check_op(&a, o, &larges[i], tallies[i]);
	arena_free(&a);
	return rc < 0;
}

/* Returns how many kernels failed. A kernel may take too long, but may not refuse everything. */
static unsigned print_tallies(const struct target *t, const struct options *o, const struct large *l,
                              const struct tally tallies[KERNELS_MAX])
{
	const struct kernel_list *list = t->driver->kernels(op_by_name(l->op));
	unsigned failed = 0;

	for (size_t i = 0; i < list->n && i < KERNELS_MAX; i++) {
		const struct tally *kernel = &tallies[i];
		bool idle = kernel->right + kernel->wrong + kernel->too_long == 0;
		if (!is_kernel_wanted(o, list->kernels[i].name))
			continue;
		failed += kernel->wrong + idle;
		printf("%-6s %-10s %-12s large: %u right, %u failed, %u refused, %u too long%s%s%s\n", t->name,
		       l->op, list->kernels[i].name, kernel->right, kernel->wrong, kernel->refused,
		       kernel->too_long, kernel->reason[0] ? ": " : "", kernel->reason,
		       idle ? "  FAILED: took none" : "");
	}
	return failed;
}

unsigned large_check(struct target *t, const struct options *o)
{
	static struct tally tallies[LARGES][KERNELS_MAX];
	unsigned failed = 0;

	memset(tallies, 0, sizeof tallies);
	for (kops_dtype dtype = DTYPE_FIRST; dtype < DTYPE_END; dtype++)
		failed += check_dtype(t, o, dtype, tallies);
	for (size_t i = 0; i < LARGES; i++)
		if (is_wanted(o, &larges[i]))
			failed += print_tallies(t, o, &larges[i], tallies[i]);
	return failed;
}
