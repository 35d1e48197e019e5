/*
 * load.h: reads settings from files, environment and flags. A flag overrides the environment, which overrides
 * files. An unknown key is an error with file:line.
 */
#ifndef KOPS_CONFIG_LOAD_H
#define KOPS_CONFIG_LOAD_H

#include "config/config.h"

/* What the command line asks for besides settings. */
enum config_action { CONFIG_RUN, CONFIG_CHECK, CONFIG_HELP, CONFIG_SHOW_VERSION };

/*
 * Reads files, environment and flags into *ret (complete, defaults included). --config FILE names
 * another file, which must then exist. Files are re-read by calling it again with the same argv.
 * KOPS_E_INVALID with one sentence in why, naming file:line, variable or flag; KOPS_E_NOMEM.
 */
int config_load(int argc, char **argv, struct config *ret, enum config_action *ret_action,
                char why[CONFIG_WHY_BYTES]);

/*
 * Copies the reloadable settings of *fresh to *live. Returns true if other settings differ, which need a
 * restart; ret_names then lists them, as "devices, cpu-threads". Else it is empty.
 */
bool config_reload(struct config *live, const struct config *fresh, char ret_names[CONFIG_WHY_BYTES]);

#endif
