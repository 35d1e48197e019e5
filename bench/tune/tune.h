/* tune.h: `kops-bench tune`: measures kernels through the daemon and writes the tuning table. */
#ifndef KOPS_BENCH_TUNE_TUNE_H
#define KOPS_BENCH_TUNE_TUNE_H

#include "cli.h"
#include "op/operation.h"

/* ops: n_ops of those that have a grid (grid.h). An exit code. */
int tune(struct cli *cli, const struct operation *const *ops, size_t n_ops);

#endif
