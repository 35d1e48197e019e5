#include "session/verb/buffers.h"

#include <inttypes.h>
#include <stdio.h>

/* Checks counts: as many buffers must be left for others as a user has. */
static int check_counts(struct request *r)
{
	const struct session *session = r->session;
	const struct engine *e = session->engine;
	const struct config *c = e->config;

	if (session->buffers.count + session->n_dropped >= c->max_buffers)
		snprintf(r->why, sizeof r->why,
		         "this session has %" PRIu64 " buffers, the limit; drop some, or raise max-buffers",
		         c->max_buffers);
	else if (session->account->buffers >= session->account->limits.max_buffers_per_uid)
		snprintf(r->why, sizeof r->why,
		         "you have %u buffers, the limit of a user; drop some, or raise max-buffers-per-uid",
		         session->account->buffers);
	else if (e->n_buffers + session->account->buffers >= e->n_buffers_max)
		snprintf(r->why, sizeof r->why,
		         "too few mappings or descriptors for another buffer (you have %u, all users %u); drop "
		         "some, or raise vm.max_map_count and LimitNOFILE",
		         session->account->buffers, e->n_buffers);
	else
		return 0;
	return KOPS_E_QUOTA;
}

int buffers_may_add(struct request *r, uint64_t id, uint64_t bytes)
{
	const struct session *session = r->session;

	if (id == 0 || bytes == 0) {
		snprintf(r->why, sizeof r->why, "the id and the size of a buffer must not be 0");
		return KOPS_E_INVALID;
	}
	if (idmap_get(&session->buffers, id)) {
		snprintf(r->why, sizeof r->why,
		         "buffer %" PRIu64 " exists already; drop it first or choose another id", id);
		return KOPS_E_EXISTS;
	}
	return check_counts(r);
}

static uint64_t *bytes_with(struct session *session, const struct buffer *buffer)
{
	return &session->bytes[buffer->device ? ACCOUNT_RESIDENT : ACCOUNT_MAPPED];
}

/* A check takes 1 to 3 µs. */
#define LOOKS_IN_A_STEP 8u

/* If there can be no further steps, this step is the last. */
static bool may_go_on(const struct request *r)
{
	return r->looks > 0 && r->session->all->n_free_desks > 0;
}

bool buffers_look_for_room(struct request *r, uint64_t bytes)
{
	struct session *s = r->session;

	for (unsigned n = 0; r->looks > 0 && s->account->kept.n > 0; n++) {
		if (account_has_room(&s->engine->accounts, s->account, ACCOUNT_MAPPED, bytes))
			return false;
		if (n == LOOKS_IN_A_STEP)
			return may_go_on(r);
		r->looks--;
		pool_look(s->engine->pool, s->account);
	}
	return false;
}

int buffers_add(struct request *r, uint64_t id, struct buffer *buffer)
{
	int rc = idmap_put(&r->session->buffers, id, buffer);

	if (rc < 0) {
		buffer_unref(buffer);
		return rc;
	}
	buffer->id = id;
	*bytes_with(r->session, buffer) += buffer->charged_bytes;
	return 0;
}

struct buffer *buffers_take(struct session *session, uint64_t id)
{
	struct buffer *buffer = idmap_remove(&session->buffers, id);

	if (buffer)
		*bytes_with(session, buffer) -= buffer->charged_bytes;
	return buffer;
}

void buffers_remove(struct session *session, struct buffer *buffer)
{
	if (idmap_get(&session->buffers, buffer->id) != buffer)
		return; /* dropped meanwhile */
	buffer_unref(buffers_take(session, buffer->id));
}
