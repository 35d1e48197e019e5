/* ring.h: runs of prepared jobs by memory shared with the daemon. */
#ifndef KOPS_CLIENT_RING_H
#define KOPS_CLIENT_RING_H

#include "libkops/base/state.h"

/* A job was prepared: opens the ring if that was not tried yet. Does not block. */
void client_ring_want(kops *k);

/* The reply to that. Returns a phrase on a protocol violation. */
const char *client_ring_answered(kops *k, const Kops__V1__Reply *reply, const int *fds, unsigned n_fds);

/* Goes with the connection. */
void client_ring_close(kops *k);

/* Sends the run of a prepared job. Returns false if it has to go by the socket. */
bool client_ring_put(kops *k, uint64_t prepared, uint64_t id);

/* Takes out the next end. Returns false if there is none; *ret_phrase is set on a protocol violation. */
bool client_ring_next(kops *k, struct ring_end *ret_end, const char **ret_phrase);

/* From now on the daemon sends a datagram for each end. Returns false if there is an end already. */
bool client_ring_lets_sleep(const kops *k);

/* To be called after sleeping. */
void client_ring_woke_up(kops *k);

#endif
