/*
 * config.h: kopsd's settings. load.h reads them.
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
	CONFIG_SETTINGS = 0 /* the number of settings */
#define X(name, type, value, min, max, reloadable, help) +1
#include "config/config.def"
#undef X
};

/* What one user may hold: the settings that sections of users and groups may change. */
struct user_limits {
#define X(name, type, value, min, max, reloadable, help)
#define U(name, type, value, min, max, reloadable, help) uint64_t name;
#include "config/config.def"
#undef X
};

enum { CONFIG_LIMITS = sizeof(struct user_limits) / sizeof(uint64_t), CONFIG_OWNERS_MAX = 64 };

/* A section [user NAME] or [group NAME]. */
struct config_owner {
	bool is_group;
	bool is_known; /* the system has this user or group. Otherwise the section has no effect */
	id_t id;
	char name[CONFIG_OWNER_BYTES];
	char origin[CONFIG_TEXT_BYTES];
	struct {
		uint64_t value;
		char origin[CONFIG_TEXT_BYTES]; /* "": not set in the section */
	} limits[CONFIG_LIMITS];                /* in the order of struct user_limits */
};

struct config {
#define CONFIG_MEMBER_TEXT(name)                         char name[CONFIG_TEXT_BYTES];
#define CONFIG_MEMBER_COUNT(name)                        uint64_t name;
#define CONFIG_MEMBER_BYTES(name)                        uint64_t name; /* bytes */
#define CONFIG_MEMBER_MSEC(name)                         uint64_t name; /* milliseconds */
#define X(name, type, value, min, max, reloadable, help) CONFIG_MEMBER_##type(name)
#include "config/config.def"
#undef X
	/* Where each value came from, in the order of config.def: "default", "FILE:LINE", "KOPSD_NAME" or
	 * "--name". */
	char origin[CONFIG_SETTINGS][CONFIG_TEXT_BYTES];
	unsigned n_owners;
	struct config_owner owners[CONFIG_OWNERS_MAX];
};

#endif
