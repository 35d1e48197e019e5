/* tune.h: `kops-client tune`: measures kernels through the daemon and writes the tuning table. */
#ifndef KOPS_CLI_TUNE_H
#define KOPS_CLI_TUNE_H

#include "cli.h"
#include "operation.h"

/* ops: n_ops of those that have a grid (tune_grid.h). An exit code. */
int tune(struct cli *cli, const struct operation *const *ops, size_t n_ops);

#endif
