/* choose.h: chooses the kernel of each op of a plan. */
#ifndef KOPS_PLAN_CHOOSE_H
#define KOPS_PLAN_CHOOSE_H

#include "plan/planner.h"

/*
 * Chooses a kernel. args: the op's args as the kernel will see them. may_stream: operands in host memory get
 * copies on the device in any case. The first of these decides: the kernel named by the op, what jobs of the
 * shape showed, what saves a copy or a launch, estimates. If that kernel would first have to find out how to
 * compute the shape, one that is sooner through this time (op->sharing_first, op->first_launch).
 * KOPS_E_UNSUPPORTED with a sentence in op->why.
 */
int choose_kernel(const struct planner *p, struct run_op *op, const struct op_args *args, bool may_stream);

/* Keeps only those of n rivals that can share a launch with equal ops, if they are preferred; else all. Returns
 * how many are left. */
unsigned choose_company(const struct kernel_list *list, const struct op_args *args,
                        struct rival rivals[RIVALS_MAX], unsigned n);

#endif
