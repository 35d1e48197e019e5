/* copies.h: jobs that copy a few floats within a buffer of their client. Include it after unit/served.h. */
#ifndef KOPS_TEST_COPIES_H
#define KOPS_TEST_COPIES_H

#include "base/clock.h"
#include "dispatch/jobs.h"

enum { COPIES_MAX = 20, COPIES_BUFFER = 1 };

/* A Submit of ops that each copy 16 floats within COPIES_BUFFER. */
struct copies {
	Kops__V1__Request request;
	Kops__V1__Submit submit;
	Kops__V1__Op ops[COPIES_MAX], *list[COPIES_MAX];
	Kops__V1__Copy copy;
	Kops__V1__View x, y;
	uint64_t shape;
};

static inline void copies_set_view(struct copies *m, Kops__V1__View *view, uint64_t offset)
{
	*view = (Kops__V1__View)KOPS__V1__VIEW__INIT;
	view->buffer = COPIES_BUFFER;
	view->offset = offset;
	view->dtype = KOPS__V1__DTYPE__F32;
	view->n_shape = 1;
	view->shape = &m->shape;
}

static inline void copies_set(struct copies *m, uint64_t id, unsigned n_ops)
{
	m->shape = 16;
	copies_set_view(m, &m->x, 0);
	copies_set_view(m, &m->y, 64);
	m->copy = (Kops__V1__Copy)KOPS__V1__COPY__INIT;
	m->copy.x = &m->x, m->copy.y = &m->y;
	for (unsigned i = 0; i < n_ops; i++) {
		m->ops[i] = (Kops__V1__Op)KOPS__V1__OP__INIT;
		m->ops[i].params_case = KOPS__V1__OP__PARAMS_COPY;
		m->ops[i].copy = &m->copy;
		m->list[i] = &m->ops[i];
	}
	m->submit = (Kops__V1__Submit)KOPS__V1__SUBMIT__INIT;
	m->submit.n_ops = n_ops;
	m->submit.ops = m->list;
	m->request = (Kops__V1__Request)KOPS__V1__REQUEST__INIT;
	m->request.id = id;
	m->request.body_case = KOPS__V1__REQUEST__BODY_SUBMIT;
	m->request.submit = &m->submit;
}

/* Opens a client with that buffer, in the device's memory. */
static inline struct client *copies_open(void)
{
	struct client *c = client_open();
	CLIENT_REQUEST(c, r, Alloc, alloc, ALLOC);

	r_body.buffer = COPIES_BUFFER;
	r_body.bytes = SERVED_PAGE;
	r_body.kind = KOPS__V1__BUFFER_KIND__RESIDENT;
	client_send(c, &r, -1);
	assert_int_equal(client_await(c)->status, 0);
	return c;
}

static inline struct buffer *copies_buffer(const struct client *c)
{
	return idmap_get(&c->session->buffers, COPIES_BUFFER);
}

/* Makes jobs on the buffer wait, as if it were being made. */
static inline void copies_hold(struct client *c)
{
	copies_buffer(c)->state = BUFFER_PENDING;
}

static inline void copies_let_go(struct client *c)
{
	copies_buffer(c)->state = BUFFER_READY;
	jobs_unblock(copies_buffer(c));
}

/* Gives the session a turn that begins now, with this request. */
static inline void copies_handle(struct client *c, const Kops__V1__Request *request)
{
	struct received received = {.fd = -1};
	char why[WHY_BYTES];

	kopsd->sessions.turns.began_ns = clock_ns();
	assert_int_equal(message_pack(&request->base, kopsd->sessions.desk->in, &received.bytes), 0);
	assert_int_equal(request_handle(c->session, &received, why), 0);
}

#endif
