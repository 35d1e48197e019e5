/*
 * plan.h: plans the ops of a run on one device: their kernels, parts, copies of operands and time. It is the
 * same for every kind of device. A driver (device/driver.h) provides kernels and facts (planner.h), and decides
 * nothing.
 *
 *     plan.c       ops and runs
 *     choose.c     kernels
 *     estimate.c   time
 *     stage.c      copies of operands, for a device with memory of its own (layout.c)
 *     fit.c        parts that fit a device which the operands do not (window.c)
 *     mover.c      moves them while a run is in flight; for drivers, not for plans
 */
#ifndef KOPS_PLAN_PLAN_H
#define KOPS_PLAN_PLAN_H

#include "plan/planner.h"

/*
 * Plans ops [first, end) of the run: chooses kernels and fills in the planned members. Pure, except for
 * run->planned. A plan begins with first == 0; later calls continue it, so a caller can plan in steps. With the
 * last op it fills the run's device_bytes and plan_us. KOPS_E_UNSUPPORTED, KOPS_E_DEVICE (RESIDENT memory of
 * another device), KOPS_E_NOMEM (more than the device or the host has, even in parts) with a sentence in
 * run->error.
 */
int plan_ops(const struct planner *p, struct run *run, unsigned first, unsigned end);
/* Plans all ops at once. */
int plan_run(const struct planner *p, struct run *run);
/*
 * Plans a run as another one was planned, whose ops differ from its ops in addresses only, on a device of the
 * same kind. Takes a small part of plan_run()'s time. KOPS_E_NOMEM (host memory) with a sentence in run->error.
 */
int plan_run_like(const struct planner *p, struct run *run, const struct run *like);

/* Appends how an op is streamed, if it is, to the reason for its kernel. */
void plan_note_parts(const struct op_cut *cut, char why[WHY_BYTES]);

/* Returns the kernels worth trying in jobs of such an op; see kernel_rivals(). Pure. */
unsigned plan_rivals(const struct planner *p, const struct op_args *args, struct rival ret[RIVALS_MAX]);

/* Disables kernel i of an op. Call it before the first plan that others see. */
void plan_disable(struct planner *p, const struct op *op, unsigned kernel);

/* Returns the op as its kernel will see it: with the strides of copies on the device. Addresses stay unset. */
void plan_args(const struct planner *p, const struct op_args *args, struct op_args *ret);

#endif
