/* names.h: spells and finds names of settings, and writes sentences about them. */
#ifndef KOPS_CONFIG_NAMES_H
#define KOPS_CONFIG_NAMES_H

#include "config/settings.h"

#define CONFIG_NAME_BYTES      64
#define CONFIG_FLAG_PREFIX     "--"
#define CONFIG_VARIABLE_PREFIX "KOPSD_"

/* How files, environment and flags spell a setting's name: max-jobs, KOPSD_MAX_JOBS, --max-jobs. */
enum config_source { SOURCE_FILE, SOURCE_ENVIRONMENT, SOURCE_FLAG };

void config_spell(enum config_source source, const char *name, char ret[CONFIG_NAME_BYTES]);
/* NULL: no setting is spelled so. */
const struct setting *config_find(enum config_source source, const char *spelled);

/* Writes a sentence to why (CONFIG_WHY_BYTES), and returns KOPS_E_INVALID. */
int config_fail(char *why, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same, about a name that no setting has. where: "FILE:LINE: " or "". */
int config_fail_unknown(char *why, const char *where, enum config_source source, const char *spelled);

#endif
