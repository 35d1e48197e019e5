/* ring.h: runs prepared jobs through memory shared with the daemon. */
#ifndef KOPS_CLIENT_RING_H
#define KOPS_CLIENT_RING_H

#include "libkops/base/state.h"

/* Opens the ring, unless that was tried before, because a job was prepared. Does not block. */
void client_ring_want(kops *k);

/* Handles the reply to the OpenRing. Returns a phrase on a protocol violation. */
const char *client_ring_answered(kops *k, const Kops__V1__Reply *reply, const int *fds, unsigned n_fds);

/* Closes the ring together with the connection. */
void client_ring_close(kops *k);

/* Sends the run of a prepared job. Returns false if it must go by the socket. */
bool client_ring_put(kops *k, uint64_t prepared, uint64_t id);

/* Takes the next end out. Returns false if there is none; sets *ret_phrase on a protocol violation. */
bool client_ring_next(kops *k, struct ring_end *ret_end, const char **ret_phrase);

/* Asks the daemon to send a datagram for each end from now on. Returns false if there is an end already. */
bool client_ring_lets_sleep(const kops *k);

/* Must be called after sleeping. */
void client_ring_woke_up(kops *k);

#endif
