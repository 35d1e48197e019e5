/* settings.h: the table of settings, from config.def. */
#ifndef KOPS_CONFIG_SETTINGS_H
#define KOPS_CONFIG_SETTINGS_H

#include "config/config.h"

enum kind { KIND_TEXT, KIND_COUNT, KIND_BYTES, KIND_MSEC };

struct setting {
	const char *name; /* as the struct member: max_jobs */
	enum kind kind;
	size_t offset;
	uint64_t number;  /* default, */
	const char *text; /* or of KIND_TEXT */
	uint64_t min, max;
	bool reloadable;
	int limit; /* its index in struct user_limits, or NO_LIMIT */
	const char *help;
};

#define NO_LIMIT (-1)

extern const struct setting config_settings[CONFIG_SETTINGS];

/* The setting's value in config: CONFIG_TEXT_BYTES, or a number. */
char *config_text(struct config *config, const struct setting *setting);
uint64_t *config_number(struct config *config, const struct setting *setting);

#endif
