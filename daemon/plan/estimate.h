/* estimate.h: how long the ops and the transfers of a run take, us. Overestimates when unsure: nothing stops a
 * part that runs. */
#ifndef KOPS_PLAN_ESTIMATE_H
#define KOPS_PLAN_ESTIMATE_H

#include "plan/planner.h"
#include "plan/stage.h"

/*
 * An op whose kernel is chosen: fills plan_us and cut. args: as its kernel will see them. Takes another kernel,
 * if that one cannot be cut finely and there is one that can. before: the op before it in the run; NULL: there
 * is none.
 */
void estimate_op(const struct planner *p, struct run_op *op, const struct op_args *args,
                 const struct op_args *before);

/* Of a run's copies on a device with memory of its own. */
double estimate_transfers(const struct planner *p, const struct stage *stage);

#endif
