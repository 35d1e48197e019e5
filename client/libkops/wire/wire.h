/* wire.h: datagrams out and in. */
#ifndef KOPS_CLIENT_WIRE_H
#define KOPS_CLIENT_WIRE_H

#include "libkops/base/state.h"

/* What a request id is for; the id's low bits. */
enum client_kind { CLIENT_JOB, CLIENT_BUFFER, CLIENT_CALL, CLIENT_SILENT };
#define CLIENT_KIND_BITS 2

uint64_t client_new_id(kops *k, enum client_kind kind);

/*
 * Sends a datagram, or keeps a copy until the socket takes it. fd may be NULL; *fd must not move until the
 * request is answered. job may be NULL; its `sent` is set once the datagram is in flight. If the peer is gone
 * the link becomes BROKEN, which is no failure here. KOPS_E_NOMEM, KOPS_E_SYSTEM.
 */
int client_send(kops *k, const uint8_t *data, size_t len, const struct descriptor *fd, kops_job *job);

/* Packs into wire.data and sends. */
int client_send_request(kops *k, const Kops__V1__Request *request, const struct descriptor *fd);

/* Sends a request whose answer does not matter, such as Drop or Cancel. Does nothing without a connection.
 * Returns what client_send() does; most callers can do without the request too. */
int client_send_silent(kops *k, Kops__V1__Request *request);

void client_outbox_clear(kops *k);

/* Sends the datagrams of the outbox. Returns false if the socket took nothing. */
bool client_wire_flush(kops *k);

/*
 * Reads one datagram into wire.data. With `block` it sleeps until one comes, at most for CLIENT_BLOCK_US, and
 * takes no descriptors. Descriptors belong to the caller. Returns what message_recv() does, or KOPS_E_NOMEM if
 * it read the datagram but had no room for the descriptors.
 */
int client_wire_receive(kops *k, bool block, size_t *ret_len, int *fds, unsigned *ret_n_fds);

#endif
