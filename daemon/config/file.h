/* file.h: reads kopsd.conf, and the fragments beside it. */
#ifndef KOPS_CONFIG_FILE_H
#define KOPS_CONFIG_FILE_H

#include "config/config.h"

/* Reads a file's settings over those in config. KOPS_E_INVALID with a sentence in why. */
int config_read_file(struct config *config, const char *path, bool may_be_absent, char *why);
/* The same for the files in PATH.d; there may be none. */
int config_read_fragments(struct config *config, const char *path, char *why);

#endif
