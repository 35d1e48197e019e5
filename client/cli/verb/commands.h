/* commands.h: the verbs of kops-client: those of the ops (op/), and those of this folder and client/top/. */
#ifndef KOPS_CLI_VERB_COMMANDS_H
#define KOPS_CLI_VERB_COMMANDS_H

#include "cli.h"

extern const struct command command_run, command_ping, command_devices, command_ops, command_stats,
    command_sessions, command_top, command_trace, command_random, command_tune, command_version, command_load,
    command_buffers, command_unload;

/* run() of verbs that ask kopsd and print by the command's text() or json(). Their options. */
int query_run(struct cli *cli, char **argv);
extern const struct option_row query_options[];

struct program;
const struct program *commands_program(void);

#endif
