/*
 * config.h: kopsd's settings. Flag beats environment beats file; an unknown key is an error with file:line.
 */
#ifndef KOPS_CONFIG_H
#define KOPS_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#define CONFIG_TEXT_BYTES 256
#define CONFIG_WHY_BYTES 512
#define CONFIG_FILE "/etc/kopsd/kopsd.conf" /* and kopsd.conf.d/NAME.conf beside it, in order of name */

struct config {
#define CONFIG_MEMBER_TEXT(name) char name[CONFIG_TEXT_BYTES];
#define CONFIG_MEMBER_COUNT(name) uint64_t name;
#define CONFIG_MEMBER_BYTES(name) uint64_t name; /* bytes */
#define CONFIG_MEMBER_MSEC(name) uint64_t name;  /* milliseconds */
#define X(name, type, value, min, max, reloadable, help) CONFIG_MEMBER_##type(name)
#include "config.def"
#undef X
};

/* What the command line asks besides settings. */
enum config_action { CONFIG_RUN, CONFIG_CHECK, CONFIG_HELP, CONFIG_SHOW_VERSION };

/*
 * Reads files, environment and flags into *ret (complete, defaults included). --config FILE names
 * another file, which must then exist. Files are re-read by calling it again with the same argv.
 * KOPS_E_INVALID with one sentence in why, naming file:line, variable or flag.
 */
int config_load(int argc, char **argv, struct config *ret, enum config_action *ret_action,
                char why[CONFIG_WHY_BYTES]);

/* Takes over into *live the reloadable settings of *fresh; true if another one differs (needs a restart). */
bool config_reload(struct config *live, const struct config *fresh);

/* --help on stdout. */
void config_print_help(void);

#endif
