/* published.c: published and attached buffers: their requests, mappings and restarts. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "libkops/base/base.h"
#include "libkops/job/mapping.h"
#include "libkops/job/published.h"
#include "libkops/wire/wire.h"

/* ---- Attached ---- */

int client_attach_send(kops_buffer *b)
{
	Kops__V1__Attach attach = KOPS__V1__ATTACH__INIT;
	Kops__V1__Request request = KOPS__V1__REQUEST__INIT;
	attach.buffer = b->id;
	attach.user = b->attached->uid;
	attach.name = b->attached->name;
	attach.bytes = b->bytes;
	request.id = b->request;
	request.body_case = KOPS__V1__REQUEST__BODY_ATTACH;
	request.attach = &attach;
	return client_send_request(b->k, &request, NULL);
}

static const char *map_attached(kops_buffer *b, const int *fds, unsigned n_fds, int *ret_status)
{
	struct stat st;
	if (n_fds != 1 && b->k->wire.fds_lost) {
		*ret_status = client_fail(b->k, KOPS_E_SYSTEM, "%s", CLIENT_NO_FDS);
		return NULL;
	}
	if (n_fds != 1)
		return "an attached buffer without its descriptor";
	if (fstat(fds[0], &st) < 0 || st.st_size < 0 || (uint64_t)st.st_size < b->bytes)
		return "an attached buffer smaller than told";
	if (client_map_over(b, fds[0], PROT_READ) < 0)
		*ret_status = client_fail(b->k, errno == ENOMEM ? KOPS_E_NOMEM : KOPS_E_SYSTEM,
		                          "cannot map an attached buffer of %llu bytes: %s",
		                          (unsigned long long)b->bytes, strerror(errno));
	return NULL;
}

const char *client_attach_take(kops_buffer *b, const Kops__V1__Attached *attached, int *fds, unsigned n_fds,
                               int *ret_status)
{
	bool is_another = b->bytes && attached->bytes != b->bytes;
	if (attached->bytes == 0 || attached->bytes > PTRDIFF_MAX || is_another ||
	    attached->n_shape > KOPS_RANK_MAX)
		return "an attached buffer of another size";
	b->bytes = attached->bytes;
	snprintf(b->device, sizeof b->device, "%s", attached->device);
	b->attached->dtype = (kops_dtype)attached->dtype;
	b->attached->rank = (uint32_t)attached->n_shape;
	if (attached->n_shape)
		memcpy(b->attached->shape, attached->shape, attached->n_shape * sizeof b->attached->shape[0]);
	if (attached->kind == KOPS__V1__BUFFER_KIND__RESIDENT)
		b->flags |= KOPS_RESIDENT;
	if (b->freed || (b->flags & KOPS_RESIDENT))
		return NULL;
	return map_attached(b, fds, n_fds, ret_status);
}

/* ---- Published ---- */

void client_publish_fill(const kops_buffer *b, const struct publishing *how, Kops__V1__Publish *ret)
{
	kops__v1__publish__init(ret);
	ret->buffer = b->id;
	ret->name = (char *)how->name;
	ret->access = (Kops__V1__Access)how->options.access;
	ret->group = how->options.group;
	ret->keep = how->options.keep;
	ret->dtype = how->options.rank ? (Kops__V1__DType)how->options.dtype : KOPS__V1__DTYPE__DTYPE_NONE;
	ret->n_shape = how->options.rank;
	ret->shape = (uint64_t *)how->options.shape;
}

int client_publish_again(kops_buffer *b)
{
	Kops__V1__Publish publish;
	Kops__V1__Request request = KOPS__V1__REQUEST__INIT;
	if (b->published && (b->flags & KOPS_RESIDENT))
		client_publish_forget(b);
	if (!b->published)
		return 0;
	client_publish_fill(b, b->published, &publish);
	request.id = b->publish_request = client_new_id(b->k, CLIENT_SILENT);
	request.body_case = KOPS__V1__REQUEST__BODY_PUBLISH;
	request.publish = &publish;
	b->k->buffers.publishes++;
	return client_send_request(b->k, &request, NULL);
}

bool client_publish_answered(kops *k, const Kops__V1__Reply *reply)
{
	if (k->buffers.publishes == 0)
		return false;
	for (struct links *at = k->buffers.list.next; at != &k->buffers.list; at = at->next) {
		kops_buffer *b = LINKS_ENTRY(at, kops_buffer, node);
		if (b->publish_request != reply->id)
			continue;
		b->publish_request = 0;
		k->buffers.publishes--;
		/* A kept name outlived the connection, if only that was lost. */
		bool stays = reply->status == 0 || reply->status == KOPS_E_SHUTDOWN ||
		             (reply->status == KOPS_E_EXISTS && b->published && b->published->options.keep);
		if (!stays)
			client_publish_forget(b);
		return true;
	}
	return false;
}

void client_publish_forget(kops_buffer *b)
{
	free(b->published);
	b->published = NULL;
}
