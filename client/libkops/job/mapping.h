/* mapping.h: the memory of SHARED buffers in this process. */
#ifndef KOPS_CLIENT_MAPPING_H
#define KOPS_CLIENT_MAPPING_H

#include "libkops/base/state.h"

/*
 * Maps with MADV_DONTFORK: children of fork() do not get this memory, whose jobs are the parent's. They keep
 * that of attached buffers, which nobody writes. MAP_FAILED with errno.
 */
void *client_map(const kops_buffer *b, int fd, int protection, int flags);

/* Maps fd as the buffer's memory; over the present memory, if there is any. -1 with errno, and nothing changed.
 */
int client_map_over(kops_buffer *b, int fd, int protection);

/* Does nothing in a child of fork(), where something else may lie at the address by now. */
void client_unmap(kops_buffer *b);

#endif
