/* buffer.h: memory that jobs use. */
#ifndef KOPS_CLIENT_BUFFER_H
#define KOPS_CLIENT_BUFFER_H

#include "libkops/base/state.h"

/*
 * A reply to Import or Alloc. fds came with it; the ones taken are set to -1. Returns a phrase on a protocol
 * violation.
 */
const char *client_buffer_answered(kops *k, const Kops__V1__Reply *reply, int *fds, unsigned n_fds);

/* The connection is gone, by the daemon's death or not: nothing was asked. */
void client_buffer_forget_requests(kops *k, bool died);

/*
 * The connection is lost, though the daemon lives. It may still write outputs of the jobs that are out. The
 * buffers that these use get other memory, if nobody else here shares it.
 */
void client_buffer_distrust(kops *k);

/* Fails buffers that were ASKED at CLIENT_DEATHS_MAX deaths in a row. */
void client_buffer_end_doomed(kops *k);

/* Gives every buffer that is still needed to the new connection. */
int client_buffer_restore(kops *k);

/* Drops buffers that were freed meanwhile; after the jobs that use them were sent. */
void client_buffer_drop_freed(kops *k);

/* Returns true if any buffer is ASKED and not freed. */
bool client_buffer_is_awaited(const kops *k);

/* Returns true if any such buffer was asked for on this connection. */
bool client_buffer_is_in_flight(const kops *k);

/* Fails every buffer that is ASKED. */
void client_buffer_fail(kops *k, int status, const char *why);

/* Frees the struct, or its memory, once nothing needs it any more. */
void client_buffer_settle(kops_buffer *b);

/* A job that uses it has ended. */
void client_buffer_release(kops_buffer *b);

/* Unmaps, closes and frees it, whatever its state. */
void client_buffer_destroy(kops_buffer *b);

#endif
