/* commands.h: the verbs of kops-client, each in the file of its name; commands.c lists them. */
#ifndef KOPS_CLI_VERB_COMMANDS_H
#define KOPS_CLI_VERB_COMMANDS_H

#include "cli.h"

extern const struct command command_sgemm, command_gemm, command_softmax, command_transpose, command_add,
    command_run, command_ping, command_devices, command_ops, command_stats, command_version;

/* In the order of `kops-client -h`; ends with NULL. */
extern const struct command *const commands_all[];

#endif
