#include "session/ending.h"

#include <inttypes.h>
#include <stdlib.h>

#include "dispatch/dispatch.h"
#include "dispatch/withdraw.h"
#include "job/memory/published.h"
#include "job/prepared.h"
#include "log.h"
#include "session/request.h"

/* ---- What it had ---- */

static void leave_connection(struct session *s)
{
	unread_leave(&s->all->unreads, s->outbox.unread, s->account, s->fd);
	s->fd = -1;
}

static bool drop_reply(struct session *s)
{
	if (s->fd < 0)
		return false;
	if (!outbox_is_empty(&s->outbox))
		outbox_drop(&s->outbox);
	else
		leave_connection(s);
	return true;
}

static bool drop_question(struct session *s)
{
	return questions_drop(&s->pings) || questions_drop(&s->stats);
}

/* Forgets a dropped buffer, whose Drop is not answered. */
static bool forget_drop(struct session *s)
{
	struct buffer *b = list_take(&s->dropped, struct buffer, dropped);

	if (!b)
		return false;
	b->gone = NULL;
	b->drop_session = NULL;
	return true;
}

/* Forgets a pending buffer, whose Alloc is not answered either. */
static bool forget_alloc(struct session *s)
{
	struct buffer *b = list_take(&s->pending, struct buffer, pending);

	if (!b)
		return false;
	buffer_forget_session(b);
	return true;
}

/* The buffers stay while others have them attached. */
static bool withdraw_name(struct session *s)
{
	struct published *p = list_first(&s->published, struct published, owned);

	if (p)
		published_remove(p);
	return p;
}

static bool forget_prepared(struct session *s)
{
	struct prepared *p = idmap_take_next(&s->prepared);

	if (p)
		prepared_free(p);
	return p || s->prepared.count;
}

/* Others may have waited for what the job held. */
static bool drop_job(struct session *s)
{
	struct job *job = idmap_take_next(&s->jobs);

	if (!job)
		return s->jobs.count;
	job_orphan(job);
	jobs_dispatch(s->engine);
	return true;
}

static bool drop_buffer(struct session *s)
{
	struct buffer *b = idmap_take_next(&s->buffers);

	if (b)
		buffer_unref(b);
	return b || s->buffers.count;
}

/* ---- The end ---- */

static void session_free(struct session *s)
{
	account_unref(&s->engine->accounts, s->account);
	free(s);
}

static void release_handle(struct session *s)
{
	if (--s->open_handles == 0)
		session_free(s);
}

static void on_handle_closed(uv_handle_t *handle)
{
	release_handle(handle->data);
}

static void ended(struct session *s)
{
	struct engine *e = s->engine;

	job_queues_forget(&s->queues);
	idmap_clear(&s->jobs);
	idmap_clear(&s->prepared);
	idmap_clear(&s->buffers);
	session_close_ring(s);
	pool_look_soon(e->pool, s->account);
	e->progress(e);
	release_handle(s);
}

/* ended() comes last: jobs that end meanwhile are looked up in the maps, and use the ring. */
static bool free_next(struct errand *errand)
{
	struct session *s = container_of(errand, struct session, ending);

	if (drop_reply(s) || drop_question(s) || forget_drop(s) || forget_alloc(s) || withdraw_name(s) ||
	    forget_prepared(s) || drop_job(s) || drop_buffer(s))
		return true;
	ended(s);
	return false;
}

static void unlist(struct session *s)
{
	list_walks_pass(&s->all->walks, &s->link);
	list_remove(&s->link);
}

void session_close(struct session *s, const char *why)
{
	if (s->state == SESSION_CLOSING)
		return;
	if (why && log_may(&s->all->ends))
		log_notice("session %" PRIu64 " (uid %u pid %d) ended: %s", s->serial,
		           (unsigned)s->account->uid, (int)s->pid, why);
	s->state = SESSION_CLOSING;
	turns_leave(&s->waiter);
	unlist(s);
	if (s->midway)
		request_abandon(s);
	list_walk_end(&s->walk);
	receivers_forget(&s->all->receivers, &s->receiving);
	questions_leave(&s->pings);
	questions_leave(&s->stats);
	s->account->sessions--;
	s->engine->accounts.sessions--;
	if (s->outbox.unread || !outbox_is_empty(&s->outbox))
		session_shut_down(s); /* the descriptor stays open for now */
	switch (s->open_handles++) {
	case 2:
		uv_close((uv_handle_t *)&s->poll, on_handle_closed);
		/* fall through */
	case 1:
		uv_close((uv_handle_t *)&s->hello_timer, on_handle_closed);
	}
	if (outbox_is_empty(&s->outbox)) /* nobody polls it any more */
		leave_connection(s);
	errands_add(&s->account->errands, &s->ending, free_next);
	s->engine->progress(s->engine);
}
