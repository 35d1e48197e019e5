/* fd.h: descriptors that libkops keeps, and how it knows that a number is still its own. */
#ifndef KOPS_CLIENT_FD_H
#define KOPS_CLIENT_FD_H

#include "libkops/base/state.h"

/*
 * Keeps the number, or a duplicate of it above the standard ones. On failure returns -1 with errno;
 * client_fd_keep() has then closed the number.
 */
int client_fd_keep(struct descriptor *ret, int number);
int client_fd_duplicate(struct descriptor *ret, int number);

/* Moves a number that is not kept above the standard ones. Returns the new number, or -1 with errno. */
int client_fd_raise(int number);

/* Returns true if the number still is the file that was kept. */
bool client_fd_is_ours(const struct descriptor *d);

/* Closes the descriptor, unless the number is another file by now. *d is none afterwards. */
void client_fd_close(struct descriptor *d);

#endif
