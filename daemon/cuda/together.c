/* together.c: one launch for several small ops of a run. */
#include "cuda/together.h"

#include "cuda/lane.h"
#include "plan/mover.h"

/* Neither touches what the other writes. */
static bool are_independent(const struct op_args *a, const struct op_args *b)
{
	for (unsigned v = 0; v < a->op->n_operands; v++)
		if (op_writes(a, &b->views[v]) || op_writes(b, &a->views[v]))
			return false;
	return true;
}

unsigned cuda_together_size(const struct run *run)
{
	const struct run_op *first = &run->ops[run->next_op];
	unsigned most = run->n_ops - run->next_op, n = 1;

	for (most = most < first->together ? most : first->together; n < most; n++) {
		const struct run_op *op = &first[n];

		if (op->kernel != first->kernel || !op_args_alike(&op->args, &first->args))
			return n;
		for (unsigned i = 0; i < n; i++)
			if (!are_independent(&first[i].args, &op->args))
				return n;
	}
	return n;
}

int cuda_together_launch(struct lane *lane, struct out *out, unsigned n)
{
	struct run *run = out->run;
	const struct kernel *kernel = run->ops[run->next_op].kernel;
	const struct op_args *pointers[TOGETHER_MAX] = {NULL};
	struct op_args args[TOGETHER_MAX];
	struct launch launch = cuda_lane_launch(lane, out);
	unsigned first = run->next_op, alike = 0;
	int rc;

	for (; alike < n; alike++) {
		rc = stage_begin_part(out->stage, first + alike, 0, &args[alike]);
		if (rc < 0)
			return rc;
		if (!op_args_alike(&args[alike], &args[0]))
			break;
		pointers[alike] = &args[alike];
	}
	rc = alike > 1 ? kernel->launch_together(pointers, alike, &launch) : kernel->launch(&args[0], &launch);
	if (rc < 0)
		return cuda_not_started(run, first, rc);
	for (unsigned i = 0; i < alike && rc == 0; i++)
		rc = stage_end_part(out->stage, first + i, 0);
	run->next_op += alike;
	return rc;
}
