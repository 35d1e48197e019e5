/* choose.h: which kernel runs an op of a plan. */
#ifndef KOPS_PLAN_CHOOSE_H
#define KOPS_PLAN_CHOOSE_H

#include "plan/planner.h"

/*
 * args: the op's as its kernel will see them. By its name where it is pinned, else by what jobs of the shape
 * showed, else by what saves a copy or a launch, else by estimates. KOPS_E_UNSUPPORTED with a sentence in
 * op->why.
 */
int choose_kernel(const struct planner *p, struct run_op *op, const struct op_args *args);

/* Leaves of n rivals those that share a launch with ops like them, if they are to be preferred; else all.
 * Returns how many there are. */
unsigned choose_company(const struct kernel_list *list, const struct op_args *args,
                        struct rival rivals[RIVALS_MAX], unsigned n);

#endif
