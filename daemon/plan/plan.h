/*
 * plan.h: how the ops of a run are computed on one device: by which kernels, in which parts, with which
 * copies of their operands, and how long that takes. The same for every kind of device; a driver
 * (plan/backend.h) brings its kernels and facts (planner.h), and decides nothing.
 *
 *     plan.c       ops and runs
 *     choose.c     kernels
 *     estimate.c   time
 *     stage.c      operands in host memory, for a device that has its own (layout.c)
 */
#ifndef KOPS_PLAN_PLAN_H
#define KOPS_PLAN_PLAN_H

#include "plan/planner.h"

/*
 * Pure but for what it keeps in run->planned. Chooses kernels for ops [first, end) and fills in what plans
 * decide of them. A plan begins with first == 0 and goes on from where it was, as far as the caller has time
 * for; with the last op it fills run's device_bytes and plan_us. KOPS_E_UNSUPPORTED, KOPS_E_DEVICE (RESIDENT
 * memory of another device), KOPS_E_NOMEM (more than the device or the host has) with a sentence in run->error.
 */
int plan_ops(const struct planner *p, struct run *run, unsigned first, unsigned end);
/* All of it. */
int plan_run(const struct planner *p, struct run *run);

/* The kernels that jobs of such an op are worth trying with; see kernel_rivals(). Pure. */
unsigned plan_rivals(const struct planner *p, const struct op_args *args, struct rival ret[RIVALS_MAX]);

/* Before the first plan that others see: kernel i of op is out of order. */
void plan_disable(struct planner *p, const struct op *op, unsigned kernel);

/* The op as its kernel will see it: with the strides of copies on the device; addresses stay open. */
void plan_args(const struct planner *p, const struct op_args *args, struct op_args *ret);

#endif
