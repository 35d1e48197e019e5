/* op.h: the verbs of ops: a job of one op on files; raw ones get dtype and shape from options and each other.
 */
#ifndef KOPS_CLI_VERB_OP_H
#define KOPS_CLI_VERB_OP_H

#include "cli.h"
#include "op/operation.h"

/* The command: its options are those of the files, the op's settings and those of every job. */
const struct command *verb_op_command(const struct operation *op, const struct verb *verb);

/* Runs the op on files, under cli->flags. An exit code. */
int verb_op_run(struct cli *cli, const struct operation *op, char **files);

extern const struct verb verb_sgemm; /* gemm for f32; op/gemm.c */

#endif
