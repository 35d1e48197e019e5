/* ids.h: users and groups by name or number. Looking up a name may block, where the system asks a server. */
#ifndef KOPS_CLI_IDS_H
#define KOPS_CLI_IDS_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Finds the id of the user or group of this name; if the system has no such name, reads it as a decimal number,
 * below UINT32_MAX, which stands for no id. False: neither. Not thread-safe.
 */
bool id_find(bool is_group, const char *name, id_t *ret);

#endif
