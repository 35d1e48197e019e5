/* file.h: kopsd.conf, and the fragments beside it. */
#ifndef KOPS_CONFIG_FILE_H
#define KOPS_CONFIG_FILE_H

#include "config/config.h"

/* Over what config holds. KOPS_E_INVALID with a sentence in why. */
int config_read_file(struct config *config, const char *path, bool may_be_absent, char *why);
/* The same of PATH.d; there may be none. */
int config_read_fragments(struct config *config, const char *path, char *why);

#endif
