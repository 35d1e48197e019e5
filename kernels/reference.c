/* reference.c: the row of every op that runs its oracle. */
#include "cpu.h"

bool cpu_reference_supports(const struct op_args *args, const char **ret_why_not)
{
	(void)args;
	(void)ret_why_not;
	return true;
}

int cpu_reference_launch(const struct op_args *args, const struct launch *launch)
{
	(void)launch;
	args->op->reference(args);
	return 0;
}
