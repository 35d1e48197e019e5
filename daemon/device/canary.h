/*
 * canary.h: small problems with known answers, for the self-test of every kernel at the start and for the
 * health check while kopsd runs.
 */
#ifndef KOPS_CANARY_H
#define KOPS_CANARY_H

#include "device/driver.h"

struct canary;

/* The problem that op->sample() gives for dtype, in memory of its own. NULL: op does not take dtype, or no
 * memory. */
struct canary *canary_new(const struct op *op, kops_dtype dtype);
void canary_free(struct canary *canary); /* NULL allowed; its run must not be in flight */

/* Fills the inputs, poisons the output and returns the run. kernel: a name, or "" for auto. */
struct run *canary_prepare(struct canary *canary, const char *kernel);

/* Call it when the run is back. Returns true if the run succeeded and all elements are right. */
bool canary_is_right(const struct canary *canary);

/*
 * Runs every kernel of every op on an opened device, on the device's thread, and disables those that fail.
 * Writes their names ("gemm/cublas,…") to failed. Returns how many kernels passed, or KOPS_E_FAULT with a
 * sentence in failed if the device itself broke.
 */
int canary_self_test(const struct driver *driver, struct device_state *dev, struct planner *planner,
                     char failed[WHY_BYTES]);

#endif
