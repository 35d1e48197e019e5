/* transpose: swaps the last two axes. */
#include <inttypes.h>

#include "op/check.h"
#include "op/operation.h"
#include "why.h"

int check_transpose(const struct elements *x, const struct elements *y, struct check *ret_check)
{
	struct elements turned = *x;
	uint32_t last = x->rank - 1;

	turned.shape[last] = x->shape[last - 1];
	turned.shape[last - 1] = x->shape[last];
	turned.strides[last] = x->strides[last - 1];
	turned.strides[last - 1] = x->strides[last];
	return check_copy(&turned, y, ret_check);
}

static int transpose_shape(const struct step *step, uint32_t *ret_rank, uint64_t *ret_shape, char *why)
{
	const kops_view *x = &step->in[0];

	if (x->rank < 2)
		return why_invalid(why, "a transposition takes 2 to 4 dimensions, not %" PRIu32, x->rank);
	step_same_shape(step, ret_rank, ret_shape, why);
	ret_shape[x->rank - 2] = x->shape[x->rank - 1];
	ret_shape[x->rank - 1] = x->shape[x->rank - 2];
	return 0;
}

static int transpose_enqueue(kops_job *job, const struct step *s)
{
	return kops_job_transpose(job, s->in[0], s->out, s->kernel);
}

static int transpose_check(const struct step *step, struct check *ret_check)
{
	struct elements x = elements_of(&step->in[0]), y = elements_of(&step->out);

	return check_transpose(&x, &y, ret_check);
}

const struct operation operation_transpose = {
    .name = "transpose",
    .n_inputs = 1,
    .dtypes = STEP_DTYPES_ALL,
    .shape = transpose_shape,
    .enqueue = transpose_enqueue,
    .check = transpose_check,
};
