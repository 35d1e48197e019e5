/* verb/list_buffers.c: ListBuffers: published buffers that the session may attach. */
#include "base/clock.h"
#include "job/memory/published.h"
#include "session/reply.h"
#include "session/verb/figures.h"
#include "session/verbs.h"

struct page {
	Kops__V1__PublishedBuffer buffers[FIGURES_PAGE], *pointers[FIGURES_PAGE];
};

static void put_buffer(void *on, unsigned i, const struct request *r, const struct list_link *at)
{
	struct page *page = on;
	const struct published *p = container_of(at, struct published, link);
	const struct buffer *b = p->buffer;
	const struct account *asking = r->session->account;
	Kops__V1__PublishedBuffer *to = &page->buffers[i];

	*to = (Kops__V1__PublishedBuffer)KOPS__V1__PUBLISHED_BUFFER__INIT;
	to->number = p->number;
	to->user = b->account->uid;
	to->name = (char *)p->name;
	to->bytes = b->memory.bytes;
	if (b->device) {
		to->kind = KOPS__V1__BUFFER_KIND__RESIDENT;
		to->device = (char *)b->device->name;
	}
	reply_put_shape(&p->shape, &to->dtype, &to->n_shape, &to->shape);
	to->access = (Kops__V1__Access)p->access;
	to->group = p->group;
	to->keep = !p->pid;
	to->age_us = (clock_ns() - p->since_ns) / 1000;
	if (asking->uid == 0 || asking == b->account) {
		to->attached = b->n_attached;
		to->pid = (uint32_t)p->pid;
	}
	page->pointers[i] = to;
}

static bool is_listed_buffer(const struct request *r, const struct list_link *at)
{
	const struct published *p = container_of(at, struct published, link);
	uint64_t before = r->msg->list_buffers->before;

	return (!before || p->number < before) && published_is_for(p, &r->peer);
}

static uint64_t number_of_buffer(const struct list_link *at)
{
	return container_of(at, struct published, link)->number;
}

static const struct figures_list list = {is_listed_buffer, number_of_buffer, put_buffer};

static int send_buffers(struct request *r)
{
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__PublishedBuffers buffers = KOPS__V1__PUBLISHED_BUFFERS__INIT;
	struct page page;

	buffers.n_buffers = figures_fill(r, &list, &page, &buffers.next);
	buffers.buffers = page.pointers;
	reply.id = r->id;
	reply.body_case = KOPS__V1__REPLY__BODY_PUBLISHED_BUFFERS;
	reply.published_buffers = &buffers;
	reply_send(r->session, &reply, -1);
	return 0;
}

/* Finds the first buffer that is listed, where the page begins. */
static int find_buffers(struct request *r)
{
	int rc = session_read_peer(r->session, &r->peer, r->why);

	if (rc < 0) {
		list_walk_end(&r->session->walk);
		return rc;
	}
	if (figures_find(r, &list))
		rc = send_buffers(r);
	else
		r->next = find_buffers;
	peer_free(&r->peer);
	return rc;
}

int verb_list_buffers(struct request *r)
{
	struct published_all *all = &r->session->engine->published;

	list_walk_begin(&r->session->walk, &all->walks, &all->list);
	return find_buffers(r);
}
