/* op.h: `kops-bench OP` measures an op's kernels over shapes. */
#ifndef KOPS_BENCH_OP_H
#define KOPS_BENCH_OP_H

#include "bench.h"

/* shape: the argument, or NULL. Returns an exit code. */
int bench_op(struct cli *cli, const struct operation *op, const char *shape);

#endif
