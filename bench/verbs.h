/* verbs.h: the benchmarks that kops-bench has, and the program that is the list of them. */
#ifndef KOPS_BENCH_VERBS_H
#define KOPS_BENCH_VERBS_H

#include "cli.h"
#include "op/operation.h"

struct program;
const struct program *bench_program(void);

extern const struct command command_ipc, command_path;

/* verb_op.c: the kernels of one op. Once for each. */
const struct command *bench_command(const struct operation *op);

#endif
