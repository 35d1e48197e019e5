/* verbs.h: the benchmarks that kops-bench has; main.c lists them. */
#ifndef KOPS_BENCH_VERBS_H
#define KOPS_BENCH_VERBS_H

#include "cli.h"

extern const struct command command_ipc, command_tune;

/* verb_op.c: the kernels of one op. */
extern const struct command command_bench_gemm, command_bench_softmax, command_bench_transpose,
    command_bench_add, command_bench_copy, command_bench_fma;

#endif
