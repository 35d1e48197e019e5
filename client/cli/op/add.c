/* add: element by element; an extent of 1 is repeated. */
#include <math.h>

#include "op/check.h"
#include "op/operation.h"
#include "show.h"
#include "why.h"

static void want_sum(const struct check_by_row *op, uint64_t row, double *want, double *bound, double *scratch)
{
	uint64_t n = elements_columns(op->y);
	double u = element_roundoff(op->y->dtype), tiny = check_tiny_error(op->y->dtype);

	elements_row(op->a, row, 0, n, want);
	elements_row(op->b, row, 0, n, scratch);
	for (uint64_t j = 0; j < n; j++) {
		want[j] += scratch[j];
		bound[j] = u * fabs(want[j]) + tiny;
	}
}

/* An operand with the shape of y: extents of 1 and missing ones get stride 0. */
static struct elements repeated(const struct elements *e, const struct elements *y)
{
	struct elements wide = *y;

	wide.data = e->data;
	wide.dtype = e->dtype;
	for (uint32_t d = 0; d < y->rank; d++) {
		uint32_t missing = y->rank - e->rank;
		bool repeats = d < missing || e->shape[d - missing] == 1;
		wide.strides[d] = repeats ? 0 : e->strides[d - missing];
	}
	return wide;
}

int check_add(const struct elements *a, const struct elements *b, const struct elements *y,
              struct check *ret_check)
{
	struct elements wide_a = repeated(a, y), wide_b = repeated(b, y);
	struct check_by_row op = {.a = &wide_a, .b = &wide_b, .y = y, .want = want_sum};

	return check_by_row(&op, ret_check);
}

static int add_shape(const struct step *step, uint32_t *ret_rank, uint64_t *ret_shape, char *why)
{
	const kops_view *a = &step->in[0], *b = &step->in[1];
	uint32_t rank = a->rank > b->rank ? a->rank : b->rank;

	for (uint32_t d = 0; d < rank; d++) {
		uint64_t of_a = step_extent(a, d), of_b = step_extent(b, d);
		if (of_a != of_b && of_a != 1 && of_b != 1)
			return why_invalid(
			    why, "shapes do not fit together: %s and %s; extents must be equal or 1",
			    show_shape(a->rank, a->shape).text, show_shape(b->rank, b->shape).text);
		ret_shape[rank - 1 - d] = of_a == 1 ? of_b : of_a;
	}
	*ret_rank = rank;
	return 0;
}

static int add_enqueue(kops_job *job, const struct step *s)
{
	return kops_job_add(job, s->in[0], s->in[1], s->out, s->kernel);
}

static int add_check(const struct step *step, struct check *ret_check)
{
	struct elements a = elements_of(&step->in[0]), b = elements_of(&step->in[1]),
	                y = elements_of(&step->out);

	return check_add(&a, &b, &y, ret_check);
}

const struct operation operation_add = {
    .name = "add",
    .n_inputs = 2,
    .dtypes = STEP_DTYPES_TO_F32,
    .shape = add_shape,
    .enqueue = add_enqueue,
    .check = add_check,
};
