/*
 * gather: y[i, :] = x[indices[i], :], rows of a table by their numbers, bit for bit, any type.
 *
 * An index below 0 or beyond the last row gives a row of zeros. The job cannot fail then: a GPU finds out after
 * the launch, and the client may change its indices until a kernel reads them.
 *
 * After check() x has rank 2, indices 2 and y 3. The axes of indices are folded if y allows it: a vector of
 * indices becomes (1, n) and its y (1, n, columns). Axes of one index have stride 0.
 */
#include <string.h>

#include "common/rules.h"
#include "gather/gather.h"

enum { X = GATHER_X, INDICES = GATHER_INDICES, Y = GATHER_Y };

static const struct op_operand operands[] = {
    [X] = {.name = "x", .dtypes = RULES_MOVED, .dtype_of = OWN_DTYPE, .about = "[rows, columns]"},
    [INDICES] = {.name = "indices",
                 .dtypes = DTYPE_BIT(KOPS_I32),
                 .dtype_of = OWN_DTYPE,
                 .is_index = true,
                 .about = "1 or 2 axes, of rows of x from 0 on"},
    [Y] = {.name = "y",
           .role = OPERAND_OUTPUT,
           .dtypes = RULES_MOVED,
           .dtype_of = X,
           .about = "the indices' axes, then x's columns"},
};

static int check_inputs(const struct op_args *args, char why[WHY_BYTES])
{
	int rc = rules_rank(&args->views[X], "x", 2, 2, why);

	return rc < 0 ? rc : rules_rank(&args->views[INDICES], "indices", 1, 2, why);
}

/* Sets rank and shape. */
static void shape_y(const struct op_args *args, struct view *y)
{
	const struct view *x = &args->views[X], *indices = &args->views[INDICES];

	y->rank = indices->rank + 1;
	memcpy(y->shape, indices->shape, indices->rank * sizeof y->shape[0]);
	y->shape[indices->rank] = x->shape[1];
}

static int result(struct op_args *args, char why[WHY_BYTES])
{
	int rc = check_inputs(args, why);

	if (rc == 0)
		shape_y(args, &args->views[Y]);
	return rc;
}

static int check_y(const struct op_args *args, char why[WHY_BYTES])
{
	char tx[RULES_SHAPE_BYTES], ti[RULES_SHAPE_BYTES], ty[RULES_SHAPE_BYTES];
	const struct view *y = &args->views[Y];
	struct view want = {.rank = 0};

	shape_y(args, &want);
	if (y->rank == want.rank && memcmp(y->shape, want.shape, want.rank * sizeof want.shape[0]) == 0)
		return 0;
	return rules_refuse(
	    why, KOPS_E_SHAPE, "x is %s, indices %s and y %s; y has the indices' axes, then x's columns",
	    rules_shape(&args->views[X], tx), rules_shape(&args->views[INDICES], ti), rules_shape(y, ty));
}

static int check(struct op_args *args, char why[WHY_BYTES])
{
	struct view *x = &args->views[X], *indices = &args->views[INDICES], *y = &args->views[Y];
	int rc;

	if ((rc = check_inputs(args, why)) < 0 || (rc = check_y(args, why)) < 0 ||
	    (rc = rules_outputs(args, why)) < 0)
		return rc;
	rules_pad_rank(x, 2);
	rules_pad_rank(indices, 2);
	rules_pad_rank(y, 3);
	rules_fold((struct view *[]){indices, y}, 2, 2);
	return 0;
}

/* The shape of indices, then that of x: "64×32000×4096". */
static void shape(const struct op_args *args, struct op_shape *ret)
{
	const struct view *x = &args->views[X], *indices = &args->views[INDICES];

	if (x->rank != 2 || indices->rank < 1 || indices->rank > 2)
		return;
	rules_take_shape(indices, ret);
	ret->dtype = x->dtype;
	memcpy(ret->extents + ret->rank, x->shape, 2 * sizeof x->shape[0]);
	ret->rank += 2;
}

static void cost(const struct op_args *args, struct cost *ret)
{
	struct view taken = gather_taken(args);

	ret->flops = 0;
	ret->bytes = rules_bytes(&taken) + rules_bytes(&args->views[INDICES]) + rules_bytes(&args->views[Y]);
}

/* y0: index of the row's first element, relative to the view's first. */
static void reference_row(const struct op_args *args, uint64_t row, int64_t y0)
{
	const struct view *x = &args->views[X], *y = &args->views[Y];
	int64_t size = (int64_t)dtype_size(y->dtype);

	for (int64_t j = 0; j < (int64_t)y->shape[2]; j++) {
		char *to = (char *)y->data + (y0 + j * y->strides[2]) * size;

		if (row == x->shape[0])
			memset(to, 0, (size_t)size);
		else
			memcpy(to, (char *)x->data + ((int64_t)row * x->strides[0] + j * x->strides[1]) * size,
			       (size_t)size);
	}
}

static void reference(const struct op_args *args)
{
	const struct view *indices = &args->views[INDICES], *y = &args->views[Y];

	for (int64_t i = 0; i < (int64_t)indices->shape[0]; i++)
		for (int64_t j = 0; j < (int64_t)indices->shape[1]; j++)
			reference_row(args,
			              gather_row(indices->data,
			                         i * indices->strides[0] + j * indices->strides[1],
			                         args->views[X].shape[0]),
			              i * y->strides[0] + j * y->strides[1]);
}

/* Makes the form that check() leaves, with rows of whole 16-byte pieces. */
static bool sample(kops_dtype dtype, struct op_args *args)
{
	if (!op_takes(&op_gather, dtype))
		return false;
	*args = (struct op_args){.op = &op_gather};
	args->views[X] = (struct view){.dtype = dtype, .rank = 2, .shape = {211, 104}};
	args->views[INDICES] = (struct view){.dtype = KOPS_I32, .rank = 2, .shape = {1, 307}};
	args->views[Y] = (struct view){.dtype = dtype, .rank = 3, .shape = {1, 307, 104}};
	for (unsigned i = X; i <= Y; i++)
		view_make_dense(&args->views[i]);
	return true;
}

static double tolerance(const struct op_args *args)
{
	(void)args;
	return 0;
}

static void of_size(const uint64_t *extents, struct op_args *args)
{
	args->views[X].rank = 2;
	args->views[X].shape[0] = extents[1];
	args->views[X].shape[1] = extents[2];
	args->views[INDICES].rank = 1;
	args->views[INDICES].shape[0] = extents[0];
}

static const struct part_axis part_axes[] = {
    {{PART_NONE, 1, 1}, false}, {{PART_NONE, 0, 0}, false}, {{1, PART_NONE, 2}, false}};

const struct op op_gather = {
    .name = "gather",
    .title = "rows of a table by their indices",
    .about = "y[i, :] = x[indices[i], :], bit for bit",
    .notes = "An index that is negative, or not below the number of rows, gives a row of zeros.",
    .operands = operands,
    .n_operands = sizeof operands / sizeof operands[0],
    .part_axes = part_axes,
    .n_part_axes = sizeof part_axes / sizeof part_axes[0],
    .check = check,
    .result = result,
    .shape = shape,
    .cost = cost,
    .reference = reference,
    .sample = sample,
    .tolerance = tolerance,
    .size_form = "NxROWSxCOLUMNS",
    .of_size = of_size,
    .bench_shapes = "64x4096x1024,1024x4096x1024,1024x65536x4096,16384x65536x4096,65536x65536x1024,"
                    "1048576x65536x64,524288x524288x1024",
};
