/*
 * reference.c: the check of an op by its description: the reference computes the result again, in float64 where
 * the op has bounds(), else rounded to the type as the only right result is. Or the result is multiplied back,
 * if the op has residual().
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "kernel.h"
#include "op/operation.h"

#define ELEMENT_BUDGET (1ull << 26) /* elements that are computed again */
#define ELEMENT_FLOPS  2            /* that take as long as an element */

struct again {
	struct op_args args; /* checked; the output is dense, and nowhere yet */
	struct elements y;
	struct check_sample sample; /* of y's rows */
	bool row_by_row;            /* each of them by a run of the reference */
	kops_dtype dtype;           /* of what that computes */
	void *wanted;
	double *got_row, *want_row, *bounds;
	struct check check;
};

/* ---- What is computed again ---- */

static struct view view_of(const struct elements *e)
{
	struct view v = {.data = (void *)(uintptr_t)e->data, .dtype = e->dtype, .rank = e->rank};

	memcpy(v.shape, e->shape, sizeof v.shape);
	memcpy(v.strides, e->strides, sizeof v.strides);
	return v;
}

/* y as the op's bounds() count rows: an axis of the first input that y does not have has one index. */
static struct elements with_rows(const struct elements *y, const struct elements *first)
{
	struct elements e = *y;

	while (e.rank < first->rank) {
		e.shape[e.rank] = 1;
		e.strides[e.rank++] = 0;
	}
	return e;
}

/* dense: the output is to be computed again, and is dense whatever y is. Else other outputs are there, too. */
static int check_operands(const struct step *step, const struct elements *in, const struct elements *y,
                          bool dense, struct op_args *ret)
{
	unsigned out = step->op->n_inputs;
	char why[WHY_BYTES];

	*ret = (struct op_args){.op = op_by_name(step->op->name)};
	for (unsigned i = 0; i < out; i++)
		ret->views[i] = view_of(&in[i]);
	ret->views[out] = view_of(y);
	for (unsigned i = 0; !dense && i < step->op->n_more; i++) {
		if (!step->more[i].buffer)
			continue;
		struct elements more = elements_of(&step->more[i]);
		ret->views[out + 1 + i] = view_of(&more);
		ret->views[out + 1 + i].space = &ret->views[out + 1 + i];
	}
	ret->views[out].space = ret; /* which no input lies in */
	if (dense)
		view_make_dense(&ret->views[out]);
	step_set_attributes(step, ret);
	return op_check(ret, why);
}

/* Leaves n elements of the dense output from `first` on, all along one axis, and what they come from. */
static bool narrow_to_row(struct op_args *args, uint64_t first, uint64_t n)
{
	const struct view *y = op_output_const(args);

	for (uint32_t d = 0; d < y->rank; d++) {
		uint64_t stride = (uint64_t)y->strides[d], at;
		if (y->shape[d] == 1)
			continue;
		at = first / stride;
		first %= stride;
		if (!op_narrow(args, d, at, stride == 1 ? n : 1))
			return false;
	}
	return true;
}

/* KOPS_E_NOMEM, or as op_check() has it. */
static int prepare(struct again *a, const struct step *step, const struct elements *in,
                   const struct elements *y)
{
	uint64_t columns, rows, of_inputs = elements_count(&in[0]), elements = elements_count(y);
	int rc = check_operands(step, in, y, true, &a->args);
	struct cost cost;

	if (rc < 0)
		return rc;
	a->y = with_rows(y, &in[0]);
	columns = elements_columns(&a->y);
	rows = elements_rows(&a->y);
	a->args.op->cost(&a->args, &cost);
	double work = fmax((double)(of_inputs > elements ? of_inputs : elements), cost.flops / ELEMENT_FLOPS);
	a->sample = check_sample_rows(rows, work / (double)rows, (double)ELEMENT_BUDGET, &a->check);
	struct op_args one = a->args;
	a->row_by_row = a->sample.n < rows && narrow_to_row(&one, 0, columns);
	a->dtype = a->args.op->bounds ? KOPS_F64 : y->dtype;
	a->wanted = malloc((a->row_by_row ? columns : elements) * kops_dtype_size(a->dtype));
	a->got_row = malloc(3 * columns * sizeof *a->got_row);
	a->want_row = a->got_row + columns;
	a->bounds = a->want_row + columns;
	return a->wanted && a->got_row ? 0 : KOPS_E_NOMEM;
}

static void release(struct again *a)
{
	free(a->wanted);
	free(a->got_row);
}

static void compute(const struct again *a, struct op_args *args)
{
	op_output(args)->dtype = a->dtype;
	op_output(args)->data = a->wanted;
	args->op->reference(args);
}

/* ---- How it compares ---- */

/* What the op's bounds leave out. */
static double rounding(kops_dtype dtype, double want)
{
	if (kops_dtype_size(dtype) > 2)
		return 0;
	return 1.01 * element_type(dtype)->roundoff * fabs(want) +
	       (dtype == KOPS_F16 ? check_tiny_error(dtype) : 0);
}

/* Whether all bits of a row are the expected ones: most rows of exact ops, and no number needs to be looked at.
 */
static bool is_same(struct again *a, uint64_t row, const struct elements *want, uint64_t row_of_want)
{
	uint64_t columns = elements_columns(&a->y);

	if (a->y.dtype != want->dtype || kops_dtype_size(want->dtype) > sizeof *a->got_row)
		return false;
	elements_gather(&a->y, row, 0, columns, a->got_row);
	elements_gather(want, row_of_want, 0, columns, a->want_row);
	if (memcmp(a->got_row, a->want_row, columns * kops_dtype_size(want->dtype)) != 0)
		return false;
	double first = element_get(want->dtype, a->want_row);
	check_compare(&a->check, row, 0, first, first, 0, element_type(want->dtype)->largest);
	a->check.compared += columns - 1;
	return true;
}

/* Of complex numbers, one part. What nobody can judge passes. */
static void compare_part(struct again *a, uint64_t row, const struct elements *y, const struct elements *want,
                         uint64_t row_of_want)
{
	uint64_t columns = elements_columns(y);
	double largest = element_type(y->dtype)->largest;

	elements_row(y, row, 0, columns, a->got_row);
	elements_row(want, row_of_want, 0, columns, a->want_row);
	for (uint64_t j = 0; j < columns; j++) {
		double got = a->got_row[j], wanted = a->want_row[j], bound = a->bounds[j];
		if (bound > 0)
			bound += rounding(y->dtype, wanted);
		if (bound < 0)
			a->check.compared++;
		else
			check_compare(&a->check, row, j, got, wanted, bound, largest);
	}
}

/* args: of the row, or of all. */
static void compare_row(struct again *a, const struct op_args *args, uint64_t row)
{
	uint64_t columns = elements_columns(&a->y), row_of_want = a->row_by_row ? 0 : row;
	struct elements want = a->y;
	unsigned parts = dtype_components(a->y.dtype);

	want.dtype = a->dtype;
	want = elements_dense(a->wanted, &want);
	if (!args->op->bounds && is_same(a, row, &want, row_of_want))
		return;
	memset(a->bounds, 0, columns * sizeof *a->bounds);
	if (args->op->bounds)
		args->op->bounds(args, row_of_want, a->bounds);
	for (unsigned part = 0; part < parts; part++) {
		struct elements got_part = elements_part(&a->y, part), want_part = elements_part(&want, part);
		compare_part(a, row, &got_part, &want_part, row_of_want);
	}
	a->check.compared -= (parts - 1) * columns;
}

static void compare(struct again *a)
{
	uint64_t columns = elements_columns(&a->y);

	if (!a->row_by_row)
		compute(a, &a->args);
	for (uint64_t i = 0; i < a->sample.n; i++) {
		uint64_t row = check_sample_row(&a->sample, i);
		struct op_args args = a->args;
		if (a->row_by_row && narrow_to_row(&args, row * columns, columns))
			compute(a, &args);
		compare_row(a, &args, row);
	}
}

/* ---- By multiplying back ---- */

/* Errors are told in units of what a row may be off by. */
static int check_by_residual(const struct step *step, const struct elements *in, const struct elements *y,
                             struct check *check)
{
	struct op_args args;
	struct cost cost;
	int rc = check_operands(step, in, y, false, &args);

	if (rc < 0)
		return rc;
	args.op->cost(&args, &cost);
	const struct view *checked = op_output_const(&args); /* whose last axis need not be y's */
	uint64_t columns = checked->shape[checked->rank - 1], rows = elements_count(y) / columns;
	struct check_sample sample =
	    check_sample_rows(rows, cost.flops / ELEMENT_FLOPS / (double)rows, (double)ELEMENT_BUDGET, check);
	for (uint64_t i = 0; i < sample.n; i++) {
		uint64_t row = check_sample_row(&sample, i);

		check_compare(check, row, 0, args.op->residual(&args, &args, row), 0, 1, DBL_MAX);
		check->compared += columns - 1;
	}
	return 0;
}

int check_by_reference(const struct step *step, const struct elements *in, const struct elements *y,
                       struct check *ret_check)
{
	struct again a = {.check = {.elements = elements_count(y), .us = cli_now_us()}};
	int rc = 0;

	if (a.check.elements > 0 && op_by_name(step->op->name)->residual)
		rc = check_by_residual(step, in, y, &a.check);
	else if (a.check.elements > 0 && (rc = prepare(&a, step, in, y)) == 0)
		compare(&a);
	release(&a);
	a.check.us = cli_now_us() - a.check.us;
	*ret_check = a.check;
	return rc;
}
