#include "pairwise/pairwise.h"

#include "common/half.h"
#include "common/rules.h"

enum { A, B, Y };

#define OPERANDS(dtypes_)                                                                                      \
	{                                                                                                      \
		[A] = {.name = "a",                                                                            \
		       .dtypes = dtypes_,                                                                      \
		       .about = "1 to 4 axes; extents of 1, and missing leading ones, are repeated to y's"},   \
		[B] = {.name = "b", .dtypes = dtypes_, .about = "as a"},                                       \
		[Y] = {.name = "y",                                                                            \
		       .role = OPERAND_OUTPUT,                                                                 \
		       .dtypes = dtypes_,                                                                      \
		       .in_place = 1u << A | 1u << B,                                                          \
		       .about = "1 to 4 axes"},                                                                \
	}

const struct op_operand pairwise_operands[PAIRWISE_OPERANDS] = OPERANDS(RULES_FLOATS);
const struct op_operand pairwise_summed[PAIRWISE_OPERANDS] = OPERANDS(RULES_FLOATS | RULES_COMPLEX);

/* Takes y's shape, since inputs may be smaller. */
void pairwise_shape(const struct op_args *args, struct op_shape *ret)
{
	rules_take_shape(op_output_const(args), ret);
}

static int check_ranks(const struct op_args *args, unsigned last, char why[WHY_BYTES])
{
	int rc;

	for (unsigned i = A; i <= last; i++)
		if ((rc = rules_rank(&args->views[i], pairwise_operands[i].name, 1,
		                     rules_axes_max(&args->views[i]), why)) < 0)
			return rc;
	return 0;
}

int pairwise_result(struct op_args *args, char why[WHY_BYTES])
{
	int rc = check_ranks(args, B, why);

	if (rc < 0)
		return rc;
	return rules_broadcast(&args->views[A], "a", &args->views[B], "b", &args->views[Y], why);
}

int pairwise_check(struct op_args *args, char why[WHY_BYTES])
{
	struct view *a = &args->views[A], *b = &args->views[B], *y = &args->views[Y];
	int rc;

	if ((rc = check_ranks(args, Y, why)) < 0 || (rc = rules_spread(a, "a", y, "y", 4, why)) < 0 ||
	    (rc = rules_spread(b, "b", y, "y", 4, why)) < 0)
		return rc;
	rules_pad_rank(y, 4);
	if ((rc = rules_outputs(args, why)) < 0)
		return rc;
	struct view *const all[] = {a, b, y};
	rules_order(all, 3);
	rules_fold(all, 3, 4);
	if (dtype_kind(y->dtype) != DTYPE_COMPLEX)
		return 0;
	if ((rc = rules_take_parts(all, 3, 3, why)) == 0)
		rules_fold(all, 3, 4);
	return rc;
}

void pairwise_cost(const struct op_args *args, struct cost *ret)
{
	ret->flops = (double)view_elements(&args->views[Y]);
	ret->bytes = rules_bytes(&args->views[A]) + rules_bytes(&args->views[B]) + rules_bytes(&args->views[Y]);
}

void pairwise_reference(const struct op_args *args, double (*of)(double, double))
{
	const struct view *a = &args->views[A], *b = &args->views[B], *y = &args->views[Y];
	const int64_t *sa = a->strides, *sb = b->strides, *sy = y->strides;

	for (int64_t i = 0; i < (int64_t)y->shape[0]; i++)
		for (int64_t j = 0; j < (int64_t)y->shape[1]; j++)
			for (int64_t k = 0; k < (int64_t)y->shape[2]; k++)
				for (int64_t l = 0; l < (int64_t)y->shape[3]; l++)
					half_store(
					    y->data, y->dtype, i * sy[0] + j * sy[1] + k * sy[2] + l * sy[3],
					    of(half_load(a->data, a->dtype,
					                 i * sa[0] + j * sa[1] + k * sa[2] + l * sa[3]),
					       half_load(b->data, b->dtype,
					                 i * sb[0] + j * sb[1] + k * sb[2] + l * sb[3])));
}

/* Makes a matrix and a row, in the form that pairwise_check() leaves. */
bool pairwise_sample(const struct op *op, kops_dtype dtype, struct op_args *args)
{
	if (!op_takes(op, dtype) || dtype_kind(dtype) == DTYPE_COMPLEX)
		return false;
	*args = (struct op_args){.op = op};
	for (unsigned i = A; i <= Y; i++) {
		args->views[i] = (struct view){.dtype = dtype, .rank = 4, .shape = {1, 1, 19, 1029}};
		view_make_dense(&args->views[i]);
	}
	args->views[B].strides[2] = 0;
	return true;
}

double pairwise_tolerance(const struct op_args *args)
{
	(void)args;
	return 0;
}

const struct part_axis pairwise_part_axes[PAIRWISE_PART_AXES] = {
    {{0, 0, 0}, false}, {{1, 1, 1}, false}, {{2, 2, 2}, false}, {{3, 3, 3}, false}};
