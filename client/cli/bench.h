/* bench.h: the two halves of `kops-client bench`. */
#ifndef KOPS_CLI_BENCH_H
#define KOPS_CLI_BENCH_H

#include "cli.h"
#include "operation.h"

/* `bench ipc`: round trips, small jobs, rates. An exit code. */
int bench_ipc(struct cli *cli);

/* `bench OP SHAPE`: one kernel and shape. An exit code. */
int bench_op(struct cli *cli, const struct operation *op, const char *shape);

/* Fills an array of this process with numbers from [-1, 1). */
void bench_fill(const kops_view *view, uint64_t seed);

#endif
