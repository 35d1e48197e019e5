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
	size_t used = 0;

	for (unsigned i = 0; i < op->bench.n_extents; i++) {
		bool follows = op->bench.follows[i];
		if (!follows || e[i] != e[i - 1])
			used += (size_t)snprintf(shape->text + used, sizeof(shape->text) - used, "%s%" PRIu64,
			                         i == 0    ? ""
			                         : follows ? "/"
			                                   : "x",
			                         e[i]);
	}
}

bool bench_takes_cubes(const struct operation *op)
{
	return op->bench.n_extents <= 3;
}

/* Moves *text behind the number. */
static bool read_extent(const char **text, const char *end, uint64_t *ret)
{
	char *next;

	if (*text >= end || **text < '0' || **text > '9')
		return false;
	*ret = strtoull(*text, &next, 10);
	*text = next;
	return *ret > 0 && *ret <= EXTENT_MAX;
}

/* One shape of `length` characters. */
static bool read_shape(const struct operation *op, const char *text, size_t length, struct bench_shape *ret)
{
	const char *end = text + length;
	unsigned n = 0;

	for (; n < op->bench.n_extents; n++) {
		bool follows = op->bench.follows[n], is_there = text < end && *text == (follows ? '/' : 'x');
		if (n > 0 && !is_there && !follows)
			break;
		text += n > 0 && is_there;
		if (n > 0 && !is_there)
			ret->extents[n] = ret->extents[n - 1];
		else if (!read_extent(&text, end, &ret->extents[n]))
			return false;
	}
	if (text != end || (n < op->bench.n_extents && !(n == 1 && bench_takes_cubes(op))))
		return false;
	for (; n < op->bench.n_extents; n++)
		ret->extents[n] = ret->extents[0];
	bench_shape_name(op, ret);
	return true;
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

/* The shapes that the op gives its inputs. */
static struct op_args sized_args(const struct operation *op, const uint64_t *extents)
{
	struct op_args args = {.op = op_by_name(op->name)};

	if (args.op->of_size)
		args.op->of_size(extents, &args);
	return args;
}

static void set_inputs(struct step *step, kops_dtype dtype, const uint64_t *extents)
{
	struct op_args args = sized_args(step->op, extents);

	for (unsigned i = 0; i < operation_required(step->op); i++) {
		kops_dtype of_input = op_dtype_beside(args.op, i, dtype);
		step->in[i] = args.op->of_size
		                  ? kops_tensor(NULL, 0, of_input, args.views[i].rank, args.views[i].shape)
		                  : step_matrix(of_input, extents[0], extents[1]);
	}
}

bool bench_tells_optional(const struct operation *op, unsigned i)
{
	const uint64_t any[BENCH_EXTENTS_MAX] = {1, 1, 1, 1, 1, 1};

	return i >= operation_required(op) && sized_args(op, any).views[i].rank > 0;
}

int bench_shape_optional(struct step *step, unsigned i, kops_dtype dtype, const struct bench_shape *shape)
{
	if (bench_tells_optional(step->op, i)) {
		struct op_args args = sized_args(step->op, shape->extents);
		step->in[i] = kops_tensor(NULL, 0, op_dtype_beside(args.op, i, dtype), args.views[i].rank,
		                          args.views[i].shape);
		return 0;
	}
	return step_fit_optional(step, i, dtype,
	                         operation_is_extra(step->op, i) ? step_elements(&step->out)
	                                                         : step_extent(&step->out, 0));
}

int bench_shape_step(const struct operation *op, kops_dtype dtype, const struct bench_shape *shape,
                     const struct settings *set, struct step *ret_step, char *why)
{
	struct step step = step_of(op);
	int rc;

	if (set)
		step.set = *set;
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
