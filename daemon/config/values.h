/* values.h: reads, checks and writes values of settings. */
#ifndef KOPS_CONFIG_VALUES_H
#define KOPS_CONFIG_VALUES_H

#include "config/settings.h"

/* Writes "30s", "64G" or "256", in the largest unit that leaves no remainder. */
void config_format_number(enum kind kind, uint64_t value, char *ret, size_t size);
void config_format_default(const struct setting *setting, char ret[CONFIG_TEXT_BYTES]);

/*
 * Reads a number within the setting's limits. KOPS_E_INVALID with a sentence in why, which begins with origin:
 * "kopsd.conf:3", "KOPSD_MAX_JOBS", "--max-jobs".
 */
int config_read_number(const struct setting *setting, const char *text, const char *origin, uint64_t *ret,
                       char *why);
/* Reads a number or text into config, with its origin. */
int config_assign(struct config *config, const struct setting *setting, const char *text, const char *origin,
                  char *why);

void config_set_defaults(struct config *config);

#endif
