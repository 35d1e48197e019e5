/* transfer.h: moves the bytes of files, with a line of progress on stderr where they are many and it is a
 * terminal. */
#ifndef KOPS_CLI_FILES_TRANSFER_H
#define KOPS_CLI_FILES_TRANSFER_H

#include <stdint.h>

/*
 * Opens a file to read at any offset. "-" is standard input, and *path then says so; that and pipes are read to
 * their end. A descriptor, or KOPS_E_INVALID with a sentence in why (CLI_WHY_BYTES).
 */
int transfer_open(const char **path, char *why);

/* Reads up to `bytes` from offset on; how many. Fewer: the file ends, or errno is not 0. */
uint64_t transfer_read(int fd, const char *path, void *data, uint64_t bytes, uint64_t offset);

/* Writes all bytes. 0 or -1 with errno. */
int transfer_write(int fd, const char *path, const void *data, uint64_t bytes);

#endif
