/* estimate.h: how long the ops and transfers of a run take, in us. Overestimates when unsure, because nothing
 * stops a part that runs. */
#ifndef KOPS_PLAN_ESTIMATE_H
#define KOPS_PLAN_ESTIMATE_H

#include "plan/planner.h"
#include "plan/stage.h"

/*
 * Fills plan_us and cut of an op whose kernel is chosen. args: as its kernel will see them. Takes another
 * kernel, if that one cannot be cut finely and another can. before: the previous op of the run; NULL: none.
 */
void estimate_op(const struct planner *p, struct run_op *op, const struct op_args *args,
                 const struct op_args *before);

/*
 * Returns whether a run of this op alone may be worth streaming (stage.h), on a device with memory of its own:
 * its operands in host memory are pinned, and too large to be used where they are. args: as its client sent it.
 */
bool estimate_may_stream(const struct planner *p, const struct op_args *args);

/*
 * Cuts such an op, which estimate_op() has filled in, into parts that grow, if it is through sooner when their
 * operands are moved while others are computed. plan_us then includes the transfers. Returns the time with them
 * in any case.
 */
#define STREAM_GAIN 0.95 /* of the time of the simpler way, if that is to be left */
double estimate_stream(const struct planner *p, struct run_op *op, const struct op_args *args);

/*
 * The time of an op in parts whose operands have windows (window.h), transfers included, and how long its
 * longest part keeps others from the device. args: as its client sent it.
 */
double estimate_windows(const struct planner *p, const struct kernel *kernel, const struct op_args *args,
                        const struct op_cut *cut, double *ret_longest_us);

/* The time of a run's copies, on a device with memory of its own. */
double estimate_transfers(const struct planner *p, const struct stage *stage);

#endif
