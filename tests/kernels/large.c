/*
 * large.c: outputs of more than 2^31 elements, so that an index kept in 32 bits shows. Inputs are one row
 * or column, repeated by a stride of 0: only the output is large. It is compared at a million random places
 * and at both ends.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "half.h"

#define ROWS   65537ull
#define COLS   32771ull /* ROWS * COLS = 2^31 + 229379 */
#define PLACES 1000000

struct large {
	const char *op;
	kops_dtype dtype;
	void (*views)(struct op_args *args);
	double (*want)(uint64_t i, uint64_t j);
	double tolerance; /* relative */
};

static double row_value(uint64_t j)
{
	return (double)(j % 251) / 64 - 1;
}

static void repeat_row(struct view *v)
{
	*v = (struct view){.dtype = v->dtype, .rank = 2, .shape = {ROWS, COLS}, .strides = {0, 1}};
}

static void views_row(struct op_args *args)
{
	repeat_row(&args->views[0]);
}

static void views_add(struct op_args *args)
{
	repeat_row(&args->views[0]);
	args->views[1] = (struct view){.dtype = args->views[1].dtype, .rank = 1, .shape = {1}, .strides = {1}};
}

/* x: COLS × ROWS, x[i, j] = row_value(i): its transpose has rows that are all the same. */
static void views_transpose(struct op_args *args)
{
	args->views[0] = (struct view){.dtype = KOPS_F32, .rank = 2, .shape = {COLS, ROWS}, .strides = {1, 0}};
}

static void views_gemm(struct op_args *args)
{
	args->views[0] =
	    (struct view){.dtype = args->views[0].dtype, .rank = 2, .shape = {ROWS, 1}, .strides = {1, 1}};
	args->views[1] = (struct view){
	    .dtype = args->views[1].dtype, .rank = 2, .shape = {1, COLS}, .strides = {(int64_t)COLS, 1}};
}

static double want_row(uint64_t i, uint64_t j)
{
	(void)i;
	return row_value(j);
}

/* The scalar of add is element 0 of the same input row. */
static double want_add(uint64_t i, uint64_t j)
{
	(void)i;
	return row_value(j) + row_value(0);
}

static double want_softmax(uint64_t i, uint64_t j)
{
	static double sum;

	(void)i;
	if (sum == 0)
		for (uint64_t k = 0; k < COLS; k++)
			sum += exp(row_value(k));
	return exp(row_value(j)) / sum;
}

/* Quarters of a sixteenth: exact in f32, rounded once to the result. */
static double want_gemm(uint64_t i, uint64_t j)
{
	return row_value(i) * row_value(j);
}

static const struct large larges[] = {
    {"copy", KOPS_F16, views_row, want_row, 0},
    {"add", KOPS_F32, views_add, want_add, 0},
    {"transpose", KOPS_F32, views_transpose, want_row, 0},
    {"softmax", KOPS_F32, views_row, want_softmax, 1e-5},
    {"gemm", KOPS_BF16, views_gemm, want_gemm, 0x1p-8},
};

static bool is_right(const struct large *l, const struct space *s, uint64_t at)
{
	double got = half_load(s->host, l->dtype, (int64_t)at), want = l->want(at / COLS, at % COLS);

	if (fabs(got - want) <= l->tolerance * fabs(want))
		return true;
	printf("FAILED large %s: element (%llu, %llu) is %.9g, should be %.9g\n", l->op,
	       (unsigned long long)(at / COLS), (unsigned long long)(at % COLS), got, want);
	return false;
}

static bool compare(const struct large *l, const struct space *s, uint64_t seed)
{
	struct random r = {seed};
	uint64_t n = ROWS * COLS;

	for (unsigned i = 0; i < PLACES; i++)
		if (!is_right(l, s, random_below(&r, n)))
			return false;
	for (uint64_t i = 0; i < 1000; i++)
		if (!is_right(l, s, i) || !is_right(l, s, n - 1 - i))
			return false;
	return true;
}

/* One image each: three of the output would not fit. */
static bool make_spaces(struct space *in, struct space *out, const struct large *l)
{
	uint64_t size = dtype_size(l->dtype);

	if (!space_map(in, ROWS * size))
		return false;
	for (uint64_t i = 0; i < ROWS; i++)
		half_store(in->host, l->dtype, (int64_t)i, row_value(i));
	if (!space_map(out, ROWS * COLS * size)) {
		space_free(in);
		return false;
	}
	return true;
}

static int run_large(struct target *t, const struct options *o, const struct large *l, struct space *in,
                     struct space *out, char why[WHY_BYTES])
{
	struct op_args args = {.op = op_by_name(l->op)};
	struct view *y = op_output(&args);

	for (unsigned i = 0; i < OP_VIEWS_MAX; i++)
		args.views[i].dtype = l->dtype;
	if (strcmp(l->op, "gemm") == 0)
		args.params.gemm.alpha = 1;
	else
		args.params.softmax.scale = 1;
	l->views(&args);
	for (unsigned i = 0; i < args.op->n_inputs; i++)
		args.views[i].space = &in->memory;
	*y = (struct view){.space = &out->memory, .dtype = l->dtype, .rank = 2, .shape = {ROWS, COLS}};
	view_make_dense(y);
	struct run_op op = {.args = args, .pinned = o->row && strcmp(o->row, "auto") ? o->row : ""};
	struct run run = {.ops = &op, .n_ops = 1};
	int rc = op.args.op->check(&op.args, run.error);
	in->memory = (struct memory){.host = in->host, .bytes = in->bytes};
	out->memory = (struct memory){.host = out->host, .bytes = out->bytes};
	if (rc == 0)
		rc = t->backend->plan(t->dev, &run);
	if (rc == 0) {
		t->backend->start(t->dev, &run);
		rc = target_wait(t, 1) ? run.status : KOPS_E_TIMEOUT;
	}
	snprintf(why, WHY_BYTES, "%s", rc < 0 ? run.error : op.kernel->name);
	return rc;
}

static unsigned check_one(struct target *t, const struct options *o, const struct large *l)
{
	struct space in, out;
	char why[WHY_BYTES];

	if (!make_spaces(&in, &out, l)) {
		printf("FAILED large %s: out of memory\n", l->op);
		return 1;
	}
	int rc = run_large(t, o, l, &in, &out, why);
	bool right = rc == 0 && compare(l, &out, o->seed);
	if (rc < 0 && rc != KOPS_E_UNSUPPORTED)
		printf("FAILED large %s: status %d: %s\n", l->op, rc, why);
	printf("%-6s %-10s %-12s %s\n", t->name, l->op, rc == 0 ? why : "refused",
	       right ? "large: right" : "large");
	space_free(&in);
	space_free(&out);
	return right || rc == KOPS_E_UNSUPPORTED ? 0 : 1;
}

unsigned large_check(struct target *t, const struct options *o)
{
	unsigned failed = 0;

	for (size_t i = 0; i < sizeof larges / sizeof larges[0]; i++)
		if (!o->op || strcmp(o->op, larges[i].op) == 0)
			failed += check_one(t, o, &larges[i]);
	return failed;
}
