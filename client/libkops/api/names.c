/* names.c: publishes buffers and attaches those of others. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libkops/base/base.h"
#include "libkops/job/buffer.h"
#include "libkops/job/published.h"
#include "libkops/session/await.h"
#include "libkops/wire/link.h"

/* ---- Publishing ---- */

static int check_options(kops *k, const kops_publish_options *options)
{
	static const kops_publish_options none;
	if (memcmp(options->reserved, none.reserved, sizeof none.reserved) != 0)
		return client_fail(
		    k, KOPS_E_INVALID,
		    "reserved members of the options must be 0; begin with kops_publish_options o "
		    "= {.size = sizeof o}");
	if (options->rank > KOPS_RANK_MAX)
		return client_fail(k, KOPS_E_SHAPE, "a published buffer has at most %d axes, got %u",
		                   KOPS_RANK_MAX, options->rank);
	return 0;
}

static int check_buffer(const kops_buffer *b)
{
	if (b->attached)
		return client_fail(b->k, KOPS_E_INVALID,
		                   "an attached buffer can be published by its publisher only");
	if (b->freed || b->state == BUFFER_FAILED)
		return client_fail(b->k, KOPS_E_INVALID, "the buffer was freed, or could not be made");
	if (b->published)
		return client_fail(b->k, KOPS_E_STATE, "the buffer is published already, as \"%.100s\"",
		                   b->published->name);
	return 0;
}

static int ask(kops *k, Kops__V1__Request *request)
{
	struct call call = {.verb = request->body_case, .request = request};
	return client_ask(k, &call, client_until_us(k));
}

int kops_publish(kops_buffer *b, const char *name, const kops_publish_options *given)
{
	Kops__V1__Publish publish;
	Kops__V1__Request request = KOPS__V1__REQUEST__INIT;
	kops_publish_options options = {0};
	kops *k = b->k;
	int status = client_may_wait(k);
	if (given)
		memcpy(&options, given, given->size < sizeof options ? given->size : sizeof options);
	if (status == 0)
		status = client_name_of_buffer(k, name);
	if (status == 0)
		status = check_options(k, &options);
	if (status == 0)
		status = check_buffer(b);
	if (status < 0)
		return status;
	struct publishing *how = calloc(1, sizeof *how + strlen(name) + 1);
	if (!how)
		return client_fail(k, KOPS_E_NOMEM, "out of memory for a name");
	how->options = options;
	strcpy(how->name, name);
	client_publish_fill(b, how, &publish);
	request.body_case = KOPS__V1__REQUEST__BODY_PUBLISH;
	request.publish = &publish;
	status = ask(k, &request);
	if (status == 0)
		b->published = how;
	else
		free(how);
	return status;
}

const char *kops_published(const kops_buffer *b)
{
	return b->published ? b->published->name : NULL;
}

static void forget_published(kops *k, const char *name)
{
	for (struct links *at = k->buffers.list.next; at != &k->buffers.list; at = at->next) {
		kops_buffer *b = LINKS_ENTRY(at, kops_buffer, node);
		if (b->published && strcmp(b->published->name, name) == 0)
			client_publish_forget(b);
	}
}

int kops_unpublish(kops *k, uint32_t uid, const char *name)
{
	Kops__V1__Unpublish unpublish = KOPS__V1__UNPUBLISH__INIT;
	Kops__V1__Request request = KOPS__V1__REQUEST__INIT;
	int status = client_may_wait(k);
	if (status == 0)
		status = client_name_of_buffer(k, name);
	if (status < 0)
		return status;
	unpublish.user = uid;
	unpublish.name = (char *)name;
	request.body_case = KOPS__V1__REQUEST__BODY_UNPUBLISH;
	request.unpublish = &unpublish;
	status = ask(k, &request);
	if (status == 0 && uid == geteuid())
		forget_published(k, name);
	return status;
}

/* ---- Attaching: kops_attach() is in blocking.c ---- */

kops_view kops_attached_view(kops_buffer *b)
{
	kops_view view = {.buffer = b};
	return b->attached && b->attached->rank > 0
	           ? kops_tensor(b, 0, b->attached->dtype, b->attached->rank, b->attached->shape)
	           : view;
}
