/* fit.h: cuts ops so that windows of their operands (window.h) fit the device. */
#ifndef KOPS_PLAN_FIT_H
#define KOPS_PLAN_FIT_H

#include "plan/planner.h"

/*
 * Plans an op, which was planned as a whole, with windows that take at most so many bytes of the
 * device, workspace included. Sets its kernel, cut and plan_us. Returns false if there is no such cut; the op
 * is as it was.
 */
bool fit_op(const struct planner *p, struct run_op *op, uint64_t bytes);

#endif
