/*
 * op.h: the verbs of ops, which run one op on files. Raw files get dtype and shape from options and each other.
 */
#ifndef KOPS_CLI_VERB_OP_H
#define KOPS_CLI_VERB_OP_H

#include "cli.h"
#include "op/operation.h"

/* Returns the command. Its options are those of the files, the op's settings and those of every job. */
const struct command *verb_op_command(const struct operation *op, const struct verb *verb);

/* Runs the op on files, under cli->flags. Returns an exit code. */
int verb_op_run(struct cli *cli, const struct operation *op, char **files);

#endif
