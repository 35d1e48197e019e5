/* reference.c: the row of every op that runs its oracle. */
#include "cpu.h"
#include "threads.h"

bool cpu_reference_supports(const struct op_args *args, const char **ret_why_not)
{
	(void)args;
	(void)ret_why_not;
	return true;
}

/* Of one thread's rates 1.2 (add) to 33 times (softmax f16), gemm 6 to 20; far strides more. */
double cpu_reference_slowdown(const struct op_args *args)
{
	(void)args;
	return 32.0 * threads_count();
}

int cpu_reference_launch(const struct op_args *args, const struct launch *launch)
{
	(void)launch;
	args->op->reference(args);
	return 0;
}
