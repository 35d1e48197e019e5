/* print.h: prints settings for people. */
#ifndef KOPS_CONFIG_PRINT_H
#define KOPS_CONFIG_PRINT_H

#include "config/config.h"

/* --help on stdout. */
void config_print_help(void);

/* --check-config on stdout: every setting as a line of kopsd.conf, with its origin as a comment. */
void config_print(const struct config *config);

/* Describes one setting for people, numbers with units ("30s", "64G"). The range of a TEXT is in bytes. */
struct config_description {
	char name[64]; /* "max-jobs" */
	char value[CONFIG_TEXT_BYTES], min[32], max[32];
	bool is_text, reloadable, is_limit; /* is_limit: sections of users and groups may change it */
	const char *help;
};

/* Describes setting index < CONFIG_SETTINGS with its default. */
void config_describe(unsigned index, struct config_description *ret);

#endif
