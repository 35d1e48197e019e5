/*
 * canary.h: small problems with known answers, for the self-test of every kernel at start and for
 * the health check while running.
 */
#ifndef KOPS_CANARY_H
#define KOPS_CANARY_H

#include "plan/backend.h"

struct canary;

/* The problem op->sample() gives for dtype, on memory of its own. NULL: op does not take dtype, or no memory.
 */
struct canary *canary_new(const struct op *op, kops_dtype dtype);
void canary_free(struct canary *canary); /* NULL allowed; not while its run is out */

/* Fills the inputs, poisons the output and returns the run, with kernel pinned by name or "" for auto. */
struct run *canary_prepare(struct canary *canary, const char *kernel);

/* After the run came back: true when it succeeded with the right elements, all of them. */
bool canary_is_right(const struct canary *canary);

/*
 * Runs every kernel of every op on an opened device, on the device's own thread, and disables those that
 * fail for all plans. Writes their names ("gemm/cublas,…") to failed. Returns how many kernels passed, or
 * KOPS_E_FAULT when the device itself broke (sentence in failed).
 */
int canary_self_test(const struct backend *backend, struct backend_device *dev, struct planner *planner,
                     char failed[WHY_BYTES]);

#endif
