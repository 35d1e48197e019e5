/*
 * copy: y = x, bit for bit, any type.
 *
 * After check() both views have rank 4 and one shape. The axes are sorted by falling stride of y, and folded if
 * both views allow it. Dense views become (1, 1, 1, elements), and a matrix with a leading dimension becomes
 * (1, 1, rows, columns). Axes of one index have stride 0.
 */
#include <string.h>

#include "common/rules.h"

enum { X, Y };

static const struct op_operand operands[] = {
    [X] = {.name = "x", .dtypes = RULES_MOVED, .about = "1 to 4 axes"},
    [Y] = {.name = "y", .role = OPERAND_OUTPUT, .dtypes = RULES_MOVED, .about = "x's shape"},
};

static int check(struct op_args *args, char why[WHY_BYTES])
{
	struct view *x = &args->views[X], *y = &args->views[Y];
	int rc;

	if ((rc = rules_rank(x, "x", 1, 4, why)) < 0 || (rc = rules_same_shape(x, "x", y, "y", why)) < 0 ||
	    (rc = rules_outputs(args, why)) < 0)
		return rc;
	rules_pad_rank(x, 4);
	rules_pad_rank(y, 4);
	struct view *const both[] = {x, y};
	rules_order(both, 2);
	rules_fold(both, 2, 4);
	return 0;
}

static void cost(const struct op_args *args, struct cost *ret)
{
	ret->flops = 0;
	ret->bytes = rules_bytes(&args->views[X]) + rules_bytes(&args->views[Y]);
}

static void reference(const struct op_args *args)
{
	const struct view *x = &args->views[X], *y = &args->views[Y];
	const int64_t *sx = x->strides, *sy = y->strides;
	int64_t size = (int64_t)dtype_size(y->dtype);

	for (int64_t i = 0; i < (int64_t)y->shape[0]; i++)
		for (int64_t j = 0; j < (int64_t)y->shape[1]; j++)
			for (int64_t k = 0; k < (int64_t)y->shape[2]; k++)
				for (int64_t l = 0; l < (int64_t)y->shape[3]; l++)
					memcpy((char *)y->data +
					           (i * sy[0] + j * sy[1] + k * sy[2] + l * sy[3]) * size,
					       (const char *)x->data +
					           (i * sx[0] + j * sx[1] + k * sx[2] + l * sx[3]) * size,
					       (size_t)size);
}

/* Makes the form that check() leaves. */
static bool sample(kops_dtype dtype, struct op_args *args)
{
	if (!op_takes(&op_copy, dtype))
		return false;
	*args = (struct op_args){.op = &op_copy};
	for (unsigned i = X; i <= Y; i++)
		args->views[i] = (struct view){
		    .dtype = dtype, .rank = 4, .shape = {1, 1, 1, 16411}, .strides = {0, 0, 0, 1}};
	return true;
}

static double tolerance(const struct op_args *args)
{
	(void)args;
	return 0;
}

static const struct part_axis part_axes[] = {
    {{0, 0}, false}, {{1, 1}, false}, {{2, 2}, false}, {{3, 3}, false}};

const struct op op_copy = {
    .name = "copy",
    .title = "copy of any dtype",
    .about = "y = x, bit for bit",
    .notes = "x and y may be in memory of different kinds, such as shared memory and a device's.",
    .operands = operands,
    .n_operands = sizeof operands / sizeof operands[0],
    .part_axes = part_axes,
    .n_part_axes = sizeof part_axes / sizeof part_axes[0],
    .check = check,
    .cost = cost,
    .reference = reference,
    .sample = sample,
    .tolerance = tolerance,
};
