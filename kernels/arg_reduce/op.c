/*
 * arg_reduce: y = where x is largest, or smallest, along its last axis: the first index of equal ones; x of
 * f32, f64, f16 and bf16, y of i32. The first NaN counts as the largest and as the smallest.
 *
 * After check() the views are as those of reduce: rank 4, the last axis has one index in y, and the three
 * before it number the rows. Rows have 1 to INT32_MAX elements.
 *
 * A part of an op sees some columns. Each row hands on what it found in args->carried, in a form that is the
 * kernel's own, and writes y from it. So the last part leaves the result there.
 */
#include <math.h>

#include "arg_reduce/arg_reduce.h"
#include "common/half.h"
#include "common/rules.h"

enum { X, Y };

static const struct op_operand operands[] = {
    [X] = {.name = "x", .dtypes = RULES_FLOATS, .about = "1 to 4 axes; the last one has an element"},
    [Y] = {.name = "y",
           .role = OPERAND_OUTPUT,
           .dtypes = DTYPE_BIT(KOPS_I32),
           .dtype_of = OWN_DTYPE,
           .about = "x's shape without the last axis, or with 1 there"},
};

static const char *const kinds[] = {[ARG_MAX] = "max", [ARG_MIN] = "min"};

static const struct op_attribute attributes[] = {
    {.name = "kind",
     .type = ATTRIBUTE_CHOICE,
     .offset = offsetof(struct arg_reduce_params, kind),
     .otherwise = ARG_MAX,
     .choices = kinds,
     .n_choices = sizeof kinds / sizeof kinds[0],
     .about = "what to look for in each row"},
};

static int check_extent(const struct view *x, const struct view *y, char why[WHY_BYTES])
{
	uint64_t n = x->shape[x->rank - 1];
	char text[RULES_SHAPE_BYTES];

	if (n > INT32_MAX)
		return rules_refuse(
		    why, KOPS_E_SHAPE,
		    "x has %llu elements along its last axis; indices are i32, so it may have %d",
		    (unsigned long long)n, INT32_MAX);
	if (n == 0 && !view_is_empty(y))
		return rules_refuse(why, KOPS_E_SHAPE, "x is %s: there is no index along its last axis",
		                    rules_shape(x, text));
	return 0;
}

static int result(struct op_args *args, char why[WHY_BYTES])
{
	int rc = rules_reduced_result(args, why);

	return rc < 0 ? rc : check_extent(&args->views[X], &args->views[Y], why);
}

static int check(struct op_args *args, char why[WHY_BYTES])
{
	struct view *x = &args->views[X], *y = &args->views[Y];
	struct arg_reduce_params *p = &args->params.arg_reduce;
	int rc;

	if ((rc = rules_reduced(x, y, why)) < 0 || (rc = check_extent(x, y, why)) < 0 ||
	    (rc = rules_outputs(args, why)) < 0)
		return rc;
	p->is_part = p->goes_on = false;
	p->first = 0;
	rules_pad_rank(x, 4);
	rules_pad_rank(y, 4);
	rules_fold((struct view *[]){x, y}, 2, 3);
	return 0;
}

static void cost(const struct op_args *args, struct cost *ret)
{
	ret->flops = (double)view_elements(&args->views[X]);
	ret->bytes = rules_bytes(&args->views[X]) + rules_bytes(&args->views[Y]);
}

/* x0: index of the row's first element, relative to the view's first. */
static struct reduce_found find(const struct op_args *args, int64_t x0)
{
	const struct view *x = &args->views[X];
	const struct arg_reduce_params *p = &args->params.arg_reduce;
	struct reduce_found found = arg_nothing(p->kind);

	for (int64_t i = 0; i < (int64_t)x->shape[3]; i++) {
		struct reduce_found next = {half_load(x->data, x->dtype, x0 + i * x->strides[3]), p->first + i};

		arg_join(p->kind, &found, &next);
	}
	return found;
}

static void reference(const struct op_args *args)
{
	const struct view *y = &args->views[Y];
	uint64_t rows = view_elements(y);

	for (uint64_t row = 0; row < rows; row++) {
		struct reduce_found found = find(args, view_row(&args->views[X], row));
		arg_store(args, row, &found);
	}
}

static bool sample_of(kops_dtype dtype, bool large, struct op_args *args)
{
	*args = (struct op_args){.op = &op_arg_reduce, .params.arg_reduce = {.kind = ARG_MIN}};
	rules_reduced_sample(args, dtype, KOPS_I32, large);
	return op_takes(&op_arg_reduce, dtype);
}

static bool sample(kops_dtype dtype, struct op_args *args)
{
	return sample_of(dtype, false, args);
}

static bool large_sample(kops_dtype dtype, struct op_args *args)
{
	return sample_of(dtype, true, args);
}

static double tolerance(const struct op_args *args)
{
	(void)args;
	return 0;
}

static uint64_t steps(const struct op_args *args)
{
	return args->views[X].shape[3];
}

static uint64_t carried_bytes(const struct op_args *args)
{
	return rules_row_bytes(&args->views[Y], sizeof(struct reduce_found));
}

static void step_part(struct op_args *args, unsigned pass, uint64_t first, uint64_t n)
{
	struct arg_reduce_params *p = &args->params.arg_reduce;

	view_narrow(&args->views[X], 3, first, n);
	p->is_part = true;
	p->goes_on = first > 0;
	p->first = (int64_t)first;
	(void)pass;
}

static const struct part_axis part_axes[] = {{{0, 0}, false}, {{1, 1}, false}, {{2, 2}, false}};

const struct op op_arg_reduce = {
    .name = "arg_reduce",
    .title = "where max or min is, over the last axis",
    .about = "y = the index of the largest or smallest element of x along its last axis",
    .notes = "Of equal elements it is the first. The first NaN counts as the largest, and as the smallest.",
    .operands = operands,
    .n_operands = sizeof operands / sizeof operands[0],
    .attributes = attributes,
    .n_attributes = sizeof attributes / sizeof attributes[0],
    .last_axis = AXIS_DROPPED,
    .part_axes = part_axes,
    .n_part_axes = sizeof part_axes / sizeof part_axes[0],
    .passes = 1,
    .steps = steps,
    .step_part = step_part,
    .carried_bytes = carried_bytes,
    .check = check,
    .result = result,
    .cost = cost,
    .reference = reference,
    .sample = sample,
    .large_sample = large_sample,
    .tolerance = tolerance,
    .bench_shapes = "64x1024,256x1024,1024x1024,4096x1024,16384x1024,65536x1024,4194304x16,4096x16384,"
                    "64x1048576,262144x1024,1048576x1024",
};
