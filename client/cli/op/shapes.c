#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "kernel.h"
#include "op/operation.h"

#define EXTENT_MAX (1ull << 40)

/* ---- shapes ---- */

void bench_shape_name(const struct operation *op, struct bench_shape *shape)
{
	const uint64_t *e = shape->extents;

	if (op->bench.n_extents == 3)
		snprintf(shape->text, sizeof(shape->text), "%" PRIu64 "x%" PRIu64 "x%" PRIu64, e[0], e[1],
		         e[2]);
	else
		snprintf(shape->text, sizeof(shape->text), "%" PRIu64 "x%" PRIu64, e[0], e[1]);
}

/* One shape of `length` characters. */
static bool read_shape(const struct operation *op, const char *text, size_t length, struct bench_shape *ret)
{
	const char *end = text + length;
	size_t n = 0, n_extents = op->bench.n_extents;
	char *next;

	for (;; text = next + 1) {
		if (text >= end || *text < '0' || *text > '9' || n == n_extents)
			return false;
		ret->extents[n] = strtoull(text, &next, 10);
		if (ret->extents[n] == 0 || ret->extents[n] > EXTENT_MAX)
			return false;
		n++;
		if (next == end)
			break;
		if (*next != 'x')
			return false;
	}
	for (size_t i = 1; n == 1 && i < n_extents; i++)
		ret->extents[i] = ret->extents[0];
	bench_shape_name(op, ret);
	return n == 1 || n == n_extents;
}

int bench_shapes_read(const struct operation *op, const char *text, struct bench_shapes *ret, char *why)
{
	for (ret->n = 0; ret->n < BENCH_SHAPES_MAX; text++) {
		size_t length = strcspn(text, ",");
		if (!read_shape(op, text, length, &ret->list[ret->n]))
			return why_invalid(
			    why, "'%.*s' is not a valid shape for %s: write %s, with commas between several",
			    (int)length, text, op->name, op->bench.form);
		ret->n++;
		text += length;
		if (*text == '\0')
			return 0;
	}
	return why_invalid(why, "more than %d shapes", BENCH_SHAPES_MAX);
}

/* ---- operands ---- */

bool operation_has_optional(const struct operation *op, unsigned i)
{
	return !op_by_name(op->name)->of_size && !operation_is_extra(op, i);
}

static void set_inputs(struct step *step, kops_dtype dtype, const uint64_t *extents)
{
	struct op_args args = {.op = op_by_name(step->op->name)};

	if (args.op->of_size)
		args.op->of_size(extents, &args);
	for (unsigned i = 0; i < operation_required(step->op); i++) {
		kops_dtype of_input = op_dtype_beside(args.op, i, dtype);
		step->in[i] = args.op->of_size
		                  ? kops_tensor(NULL, 0, of_input, args.views[i].rank, args.views[i].shape)
		                  : step_matrix(of_input, extents[0], extents[1]);
	}
}

int bench_shape_step(const struct operation *op, kops_dtype dtype, const struct bench_shape *shape,
                     struct step *ret_step, char *why)
{
	struct step step = step_of(op);
	int rc;

	set_inputs(&step, dtype, shape->extents);
	for (unsigned i = 0; i < operation_required(op); i++)
		if ((rc = step_fits(&step.in[i], why)) < 0)
			return rc;
	for (unsigned i = operation_required(op); i < op->n_inputs; i++)
		if (operation_has_optional(op, i))
			step_fit_optional(&step, i, dtype, ANY_COUNT);
	if ((rc = step_result(&step, why)) < 0)
		return rc;
	if (step.out.rank == 1)
		step.out = step_matrix(step.out.dtype, step.out.shape[0], 1);
	*ret_step = step;
	return 0;
}
