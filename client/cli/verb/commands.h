/* commands.h: the verbs of kops-client: those of the ops (op/) and those in this folder. */
#ifndef KOPS_CLI_VERB_COMMANDS_H
#define KOPS_CLI_VERB_COMMANDS_H

#include "cli.h"

extern const struct command command_run, command_ping, command_devices, command_ops, command_stats,
    command_tune, command_version;

/* In the order of `kops-client -h`; ends with NULL. */
const struct command *const *commands_all(void);

#endif
