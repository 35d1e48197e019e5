/* verb/list_buffers.c: ListBuffers: published buffers that the session may attach. */
#include <stdio.h>

#include "base/clock.h"
#include "job/memory/published.h"
#include "session/reply.h"
#include "session/verb/figures.h"
#include "session/verbs.h"

struct page {
	Kops__V1__PublishedBuffer buffers[FIGURES_PAGE], *pointers[FIGURES_PAGE];
	unsigned n;
};

static void add_buffer(struct page *page, const struct account *asking, const struct published *p)
{
	const struct buffer *b = p->buffer;
	Kops__V1__PublishedBuffer *to = &page->buffers[page->n];

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
	page->pointers[page->n++] = to;
}

static bool is_listed_buffer(const struct request *r, const struct list_link *at)
{
	const struct published *p = container_of(at, struct published, link);
	uint64_t before = r->msg->list_buffers->before;

	return (!before || p->number < before) && published_is_for(p, &r->peer);
}

/* Fills the page. Returns the number of the last one that it got to; 0: that was all. */
static uint64_t fill_buffers(struct page *page, const struct request *r)
{
	struct session *asking = r->session;
	struct published *p;
	unsigned looks = FIGURES_LOOKS;
	uint64_t last = 0;

	while ((p = list_walk_at(&asking->walk, struct published, link)) && page->n < FIGURES_PAGE &&
	       looks-- > 0) {
		if (is_listed_buffer(r, &p->link))
			add_buffer(page, asking->account, p);
		last = p->number;
		list_walk_on(&asking->walk);
	}
	return p ? last : 0;
}

static int send_buffers(struct request *r)
{
	struct session *asking = r->session;
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__PublishedBuffers buffers = KOPS__V1__PUBLISHED_BUFFERS__INIT;
	struct page page = {.n = 0};

	buffers.next = fill_buffers(&page, r);
	list_walk_end(&asking->walk);
	buffers.n_buffers = page.n;
	buffers.buffers = page.pointers;
	reply.id = r->id;
	reply.body_case = KOPS__V1__REPLY__BODY_PUBLISHED_BUFFERS;
	reply.published_buffers = &buffers;
	reply_send(asking, &reply, -1);
	return 0;
}

/* Finds the first buffer that is listed, where the page begins. */
static int find_buffers(struct request *r)
{
	int rc = 0;

	if (peer_read(r->session->fd, &r->peer) < 0) {
		list_walk_end(&r->session->walk);
		snprintf(r->why, sizeof r->why,
		         "kopsd cannot read the credentials of this connection; try again later");
		return KOPS_E_NOMEM;
	}
	if (figures_find(r, is_listed_buffer))
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
