/* copy: moves bytes and changes none. */
#include "op/operation.h"

static int enqueue(kops_job *job, const struct step *s)
{
	return kops_job_copy(job, s->in[0], s->out, s->set.kernel);
}

static int check(const struct step *step, const struct elements *in, const struct elements *y,
                 struct check *ret_check)
{
	(void)step;
	return check_same(&in[0], y, ret_check);
}

const struct operation operation_copy = {
    .name = "copy",
    .n_inputs = 1,
    .dtypes = STEP_DTYPES_ALL,
    .shape = step_same_shape,
    .enqueue = enqueue,
    .check = check,
};
