/*
 * transfer.h: reads and writes the bytes of files. What takes longer than half a second shows on a terminal how
 * far it is.
 */
#ifndef KOPS_CLI_FILES_TRANSFER_H
#define KOPS_CLI_FILES_TRANSFER_H

#include <stdint.h>

/*
 * Opens a file to read at any offset. "-" is standard input; *path then says so. Pipes are read to their end.
 * Returns a descriptor, or KOPS_E_INVALID with a sentence in why (CLI_WHY_BYTES).
 */
int transfer_open(const char **path, char *why);

/* Reads up to `bytes` from an offset and returns how many. If fewer, the file ends or errno is not 0. */
uint64_t transfer_read(int fd, const char *path, void *data, uint64_t bytes, uint64_t offset);

/* The same on the calling thread alone, and without showing anything. */
uint64_t transfer_read_piece(int fd, char *to, uint64_t bytes, uint64_t offset);

/* Writes all bytes. Returns 0, or -1 with errno. path: for what is shown; NULL: show nothing. */
int transfer_write(int fd, const char *path, const void *data, uint64_t bytes);

#endif
