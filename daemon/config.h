/*
 * config.h: kopsd's settings. Flag beats environment beats file; an unknown key is an error with file:line.
 */
#ifndef KOPS_CONFIG_H
#define KOPS_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CONFIG_TEXT_BYTES  256
#define CONFIG_WHY_BYTES   512
#define CONFIG_OWNER_BYTES 64
#define CONFIG_FILE        "/etc/kopsd/kopsd.conf" /* then kopsd.conf.d/NAME.conf beside it, in order of name */

enum {
	CONFIG_SETTINGS = 0 /* how many there are */
#define X(name, type, value, min, max, reloadable, help) +1
#include "config.def"
#undef X
};

/* What one user may hold: the settings that sections of users and groups may change. */
struct user_limits {
#define X(name, type, value, min, max, reloadable, help)
#define U(name, type, value, min, max, reloadable, help) uint64_t name;
#include "config.def"
#undef X
};

enum { CONFIG_LIMITS = sizeof(struct user_limits) / sizeof(uint64_t), CONFIG_OWNERS_MAX = 64 };

/* A section [user NAME] or [group NAME]. */
struct config_owner {
	bool is_group;
	bool is_known; /* to the system: by its id. Else the section has no effect */
	id_t id;
	char name[CONFIG_OWNER_BYTES];
	char origin[CONFIG_TEXT_BYTES];
	struct {
		uint64_t value;
		char origin[CONFIG_TEXT_BYTES]; /* "": the section does not have it */
	} limits[CONFIG_LIMITS];                /* in the order of struct user_limits */
};

struct config {
#define CONFIG_MEMBER_TEXT(name)                         char name[CONFIG_TEXT_BYTES];
#define CONFIG_MEMBER_COUNT(name)                        uint64_t name;
#define CONFIG_MEMBER_BYTES(name)                        uint64_t name; /* bytes */
#define CONFIG_MEMBER_MSEC(name)                         uint64_t name; /* milliseconds */
#define X(name, type, value, min, max, reloadable, help) CONFIG_MEMBER_##type(name)
#include "config.def"
#undef X
	/* Where each came from, in the order of config.def: "default", "FILE:LINE", "KOPSD_NAME" or "--name".
	 */
	char origin[CONFIG_SETTINGS][CONFIG_TEXT_BYTES];
	unsigned n_owners;
	struct config_owner owners[CONFIG_OWNERS_MAX];
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

/*
 * Takes over into *live the reloadable settings of *fresh. True if others differ, which need a restart:
 * ret_names has them, as "devices, cpu-threads"; else it is empty.
 */
bool config_reload(struct config *live, const struct config *fresh, char ret_names[CONFIG_WHY_BYTES]);

/* --help on stdout. */
void config_print_help(void);

/* --check-config on stdout: every setting as a line of kopsd.conf, with its origin as a comment. */
void config_print(const struct config *config);

/* One setting for people; numbers with their units ("30s", "64G"). A TEXT's range counts bytes. */
struct config_description {
	char name[64]; /* "max-jobs" */
	char value[CONFIG_TEXT_BYTES], min[32], max[32];
	bool is_text, reloadable, is_limit; /* is_limit: sections of users and groups may change it */
	const char *help;
};

/* Describes setting index < CONFIG_SETTINGS with its default. */
void config_describe(unsigned index, struct config_description *ret);

#endif
