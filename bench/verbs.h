/* verbs.h: the benchmarks of kops-bench, and the program that lists them. */
#ifndef KOPS_BENCH_VERBS_H
#define KOPS_BENCH_VERBS_H

#include "cli.h"
#include "op/operation.h"

struct program;
const struct program *bench_program(void);

extern const struct command command_beside, command_ipc, command_path;

/* Returns the command for an op's kernels (verb_op.c). Call it once for each op. */
const struct command *bench_command(const struct operation *op);

#endif
