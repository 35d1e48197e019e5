/* run_kernel.h: runs a kernel of the CPU on an op as a client sends it. */
#ifndef KOPS_TEST_RUN_KERNEL_H
#define KOPS_TEST_RUN_KERNEL_H

#include <stdlib.h>

#include "kernel.h"

static void run_kernel(const struct kernel *kernel, struct op_args args)
{
	struct launch launch = {0};
	char why[WHY_BYTES];

	assert_int_equal(op_check(&args, why), 0);
	launch.workspace_bytes = kernel->workspace ? kernel->workspace(&args) : 0;
	launch.workspace = aligned_alloc(256, (launch.workspace_bytes + 256) / 256 * 256);
	assert_non_null(launch.workspace);
	assert_int_equal(kernel->launch(&args, &launch), 0);
	free(launch.workspace);
}

#endif
