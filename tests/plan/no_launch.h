/*
 * no_launch.h: launch functions for programs that only plan. Each aborts, unless a source of the emulation
 * defines it. Include it before the tables of kernels.
 */
#ifndef KOPS_NO_LAUNCH_H
#define KOPS_NO_LAUNCH_H

#include <stdlib.h>

#include "kernel.h"

__attribute__((unused)) static int launches_nothing(const struct op_args *args, const struct launch *launch)
{
	(void)args;
	(void)launch;
	abort();
}

__attribute__((unused)) static int launches_nothing_together(const struct op_args *const *args, unsigned n,
                                                             const struct launch *launch)
{
	(void)args;
	(void)n;
	(void)launch;
	abort();
}

#define CUDA_LAUNCH(name)                                                                                      \
	__attribute__((weak, alias("launches_nothing"))) int name(const struct op_args *args,                  \
	                                                          const struct launch *launch)
#define CUDA_TOGETHER(name)                                                                                    \
	__attribute__((weak, alias("launches_nothing_together"))) int name(                                    \
	    const struct op_args *const *args, unsigned n, const struct launch *launch)

#endif
