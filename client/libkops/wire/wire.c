/* wire.c: datagrams out and in. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libkops/base/base.h"
#include "libkops/base/fd.h"
#include "libkops/wire/link.h"
#include "libkops/wire/wire.h"

struct packet {
	struct packet *next;
	kops_job *job;
	const struct descriptor *fd;
	size_t len;
	uint8_t data[];
};

uint64_t client_new_id(kops *k, enum client_kind kind)
{
	return ++k->wire.sequence << CLIENT_KIND_BITS | kind;
}

/* ---- Out ---- */

static void note_sent(kops_job *job)
{
	if (job)
		job->sent = true;
}

/* Does not send a descriptor whose number is another file by now: the daemon then refuses the request. */
static int send_with(const kops *k, const uint8_t *data, size_t len, const struct descriptor *fd)
{
	bool has_fd = fd && client_fd_is_ours(fd);
	return message_send(k->link.sock.number, data, len, has_fd ? &fd->number : NULL, has_fd);
}

static int keep(kops *k, const uint8_t *data, size_t len, const struct descriptor *fd, kops_job *job)
{
	struct packet *packet = malloc(sizeof *packet + len);
	if (!packet)
		return client_fail(k, KOPS_E_NOMEM, "out of memory for a request of %zu bytes", len);
	packet->next = NULL;
	packet->job = job;
	packet->len = len;
	packet->fd = fd;
	memcpy(packet->data, data, len);
	*k->wire.outbox_end = packet;
	k->wire.outbox_end = &packet->next;
	return 0;
}

static void outbox_pop(kops *k)
{
	struct packet *packet = k->wire.outbox;
	k->wire.outbox = packet->next;
	if (!k->wire.outbox)
		k->wire.outbox_end = &k->wire.outbox;
	free(packet);
}

void client_outbox_clear(kops *k)
{
	while (k->wire.outbox)
		outbox_pop(k);
}

int client_send(kops *k, const uint8_t *data, size_t len, const struct descriptor *fd, kops_job *job)
{
	if (k->link.state == LINK_BROKEN || !client_link_has_socket(k))
		return 0; /* the link broke; everything goes out on the next connection */
	int status = k->wire.outbox ? KOPS_E_BUSY : send_with(k, data, len, fd);
	switch (status) {
	case 0:
		note_sent(job);
		return 0;
	case KOPS_E_BUSY:
		return keep(k, data, len, fd, job);
	case KOPS_E_CONNECT:
		client_link_broken(k);
		return 0;
	default:
		return client_fail(k, KOPS_E_SYSTEM, "cannot send to kopsd: %s", strerror(errno));
	}
}

int client_send_request(kops *k, const Kops__V1__Request *request, const struct descriptor *fd)
{
	size_t len = 0;
	int status = message_pack(&request->base, k->wire.data, &len);
	if (status < 0)
		return client_fail(k, status, "a request exceeds the limit of %d bytes", MESSAGE_BYTES_MAX);
	return client_send(k, k->wire.data, len, fd, NULL);
}

int client_send_silent(kops *k, Kops__V1__Request *request)
{
	if (k->link.state != LINK_UP && k->link.state != LINK_GREETING)
		return 0;
	request->id = client_new_id(k, CLIENT_SILENT);
	return client_send_request(k, request, NULL);
}

bool client_wire_flush(kops *k)
{
	bool moved = false;
	while (k->wire.outbox && k->link.state != LINK_BROKEN && client_link_has_socket(k)) {
		struct packet *packet = k->wire.outbox;
		int status = send_with(k, packet->data, packet->len, packet->fd);
		if (status == KOPS_E_BUSY)
			break;
		moved = true;
		if (status < 0) {
			client_link_broken(k);
			break;
		}
		note_sent(packet->job);
		outbox_pop(k);
	}
	return moved;
}

/* ---- In ---- */

int client_wire_receive(kops *k, bool block, size_t *ret_len, int *fds, unsigned *ret_n_fds)
{
	if (block)
		k->link.sock_is_known = false;
	int status = block ? message_recv_wait(k->link.sock.number, k->wire.data, ret_len)
	                   : message_recv(k->link.sock.number, k->wire.data, ret_len, fds, ret_n_fds);
	for (unsigned i = 0; i < *ret_n_fds; i++) {
		fds[i] = client_fd_raise(fds[i]);
		if (fds[i] < 0)
			status = KOPS_E_NOMEM;
	}
	while (status < 0 && *ret_n_fds > 0)
		if (fds[--*ret_n_fds] >= 0)
			close(fds[*ret_n_fds]);
	return status;
}
