/* buffer.h: memory that jobs use. */
#ifndef KOPS_CLIENT_BUFFER_H
#define KOPS_CLIENT_BUFFER_H

#include "libkops/base/state.h"

/*
 * Handles a reply to Import or Alloc. fds came with it; those that are taken are set to -1. Returns a phrase on
 * a protocol violation.
 */
const char *client_buffer_answered(kops *k, const Kops__V1__Reply *reply, int *fds, unsigned n_fds);

/* Starts to attach a published buffer. The daemon knows Attach. KOPS_E_INVALID, _NOMEM, _SYSTEM. */
int client_attach_start(kops *k, uint32_t uid, const char *name, kops_buffer **ret_buffer);

/* Asks for b again if it is attached and the daemon has not had it since a restart. */
int client_buffer_attach_missing(kops *k, kops_buffer *b);

/* Marks all buffers as not asked for on any connection (died: the daemon's death ended the last one). */
void client_buffer_forget_requests(kops *k, bool died);

/*
 * Gives other memory to the buffers of jobs in flight, if this process shares it with nobody. The connection
 * is lost but the daemon lives, so it may still write those jobs' outputs.
 */
void client_buffer_distrust(kops *k);

/* Fails buffers that were ASKED at CLIENT_DEATHS_MAX deaths in a row. */
void client_buffer_end_doomed(kops *k);

/* Asks the new connection for every buffer that is still needed. */
int client_buffer_restore(kops *k);

/* Drops buffers that were freed meanwhile, once the jobs that use them were sent. */
void client_buffer_drop_freed(kops *k);

/* Returns true if any buffer is ASKED and not freed. */
bool client_buffer_is_awaited(const kops *k);

/* Returns true if any buffer was asked for on this connection and is unanswered. */
bool client_buffer_is_in_flight(const kops *k);

/* Fails every buffer that is ASKED. */
void client_buffer_fail(kops *k, int status, const char *why);

/* Frees the struct, or its memory, once nothing needs it any more. */
void client_buffer_settle(kops_buffer *b);

/* Notes that a job that used the buffer has ended. */
void client_buffer_release(kops_buffer *b);

/* Unmaps, closes and frees the buffer in any state. */
void client_buffer_destroy(kops_buffer *b);

#endif
