/* commands.h: the rows that the verb files export; command.c lists them. */
#ifndef KOPS_CLI_COMMANDS_H
#define KOPS_CLI_COMMANDS_H

#include "cli.h"

extern const struct command command_sgemm, command_gemm, command_softmax, command_transpose, command_add,
    command_run, command_ping, command_devices, command_ops, command_stats, command_bench, command_tune,
    command_version;

#endif
