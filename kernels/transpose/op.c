/*
 * transpose: y[…, j, i] = x[…, i, j], bit for bit, any type.
 *
 * After check() both views have rank 4: x is (b0, b1, M, N) and y is (b0, b1, N, M). The batches are folded
 * into b1 if both views allow it, so b0 is 1 for dense tensors. Axes of one index have stride 0.
 */
#include <string.h>

#include "common/rules.h"

enum { X, Y };

static const struct op_operand operands[] = {
    [X] = {.name = "x", .dtypes = RULES_MOVED, .about = "2 to 4 axes"},
    [Y] = {.name = "y",
           .role = OPERAND_OUTPUT,
           .dtypes = RULES_MOVED,
           .about = "x's shape with the last two extents exchanged"},
};

static int check_shapes(const struct view *x, const struct view *y, char why[WHY_BYTES])
{
	char tx[RULES_SHAPE_BYTES], ty[RULES_SHAPE_BYTES];
	uint32_t rank = x->rank;
	bool fits = y->rank == rank;

	for (uint32_t d = 0; fits && d + 2 < rank; d++)
		fits = x->shape[d] == y->shape[d];
	if (fits && x->shape[rank - 2] == y->shape[rank - 1] && x->shape[rank - 1] == y->shape[rank - 2])
		return 0;
	return rules_refuse(why, KOPS_E_SHAPE,
	                    "x is %s, y is %s: y must be x with its last two extents exchanged",
	                    rules_shape(x, tx), rules_shape(y, ty));
}

static int result(struct op_args *args, char why[WHY_BYTES])
{
	struct view *y = &args->views[Y];
	int rc = rules_rank(y, "x", 2, 4, why);
	uint64_t rows;

	if (rc < 0)
		return rc;
	rows = y->shape[y->rank - 2];
	y->shape[y->rank - 2] = y->shape[y->rank - 1];
	y->shape[y->rank - 1] = rows;
	return 0;
}

static int check(struct op_args *args, char why[WHY_BYTES])
{
	struct view *x = &args->views[X], *y = &args->views[Y];
	int rc;

	if ((rc = rules_rank(x, "x", 2, 4, why)) < 0 || (rc = check_shapes(x, y, why)) < 0 ||
	    (rc = rules_outputs(args, why)) < 0)
		return rc;
	rules_pad_rank(x, 4);
	rules_pad_rank(y, 4);
	rules_fold((struct view *[]){x, y}, 2, 2);
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

	for (int64_t b = 0; b < (int64_t)y->shape[0]; b++)
		for (int64_t c = 0; c < (int64_t)y->shape[1]; c++)
			for (int64_t j = 0; j < (int64_t)y->shape[2]; j++)
				for (int64_t i = 0; i < (int64_t)y->shape[3]; i++)
					memcpy((char *)y->data +
					           (b * sy[0] + c * sy[1] + j * sy[2] + i * sy[3]) * size,
					       (const char *)x->data +
					           (b * sx[0] + c * sx[1] + i * sx[2] + j * sx[3]) * size,
					       (size_t)size);
}

/*
 * A problem that kernels for large matrices take too. It needs only one thread of the CPU: others would touch
 * memory of their own.
 */
static bool sample(kops_dtype dtype, struct op_args *args)
{
	if (!op_takes(&op_transpose, dtype))
		return false;
	*args = (struct op_args){.op = &op_transpose};
	args->views[X] = (struct view){.dtype = dtype, .rank = 4, .shape = {1, 1, 129, 253}};
	args->views[Y] = (struct view){.dtype = dtype, .rank = 4, .shape = {1, 1, 253, 129}};
	view_make_dense(&args->views[X]);
	view_make_dense(&args->views[Y]);
	return true;
}

static double tolerance(const struct op_args *args)
{
	(void)args;
	return 0;
}

static const struct part_axis part_axes[] = {
    {{0, 0}, false}, {{1, 1}, false}, {{3, 2}, false}, {{2, 3}, false}};

const struct op op_transpose = {
    .name = "transpose",
    .title = "exchange of the last two axes",
    .about = "y[…, j, i] = x[…, i, j], bit for bit",
    .notes = "No op needs it for an operand: ops take transposed views, and copy nothing.",
    .operands = operands,
    .n_operands = sizeof operands / sizeof operands[0],
    .part_axes = part_axes,
    .n_part_axes = sizeof part_axes / sizeof part_axes[0],
    .check = check,
    .result = result,
    .cost = cost,
    .reference = reference,
    .sample = sample,
    .tolerance = tolerance,
    .bench_shapes = "512,1024,2048,4096,8192,16384,16383x16381,23168",
};
