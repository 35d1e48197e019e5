/* ending.c: frees a session's objects step by step. A client may have left thousands of buffers and jobs. */
#include "dispatch/dispatch.h"
#include "dispatch/withdraw.h"
#include "job/buffer.h"
#include "job/prepared.h"
#include "session/session.h"

static struct session *of_errand(struct errand *errand)
{
	return container_of(errand, struct session, ending);
}

static bool drop_reply(struct session *s)
{
	if (s->fd < 0)
		return false;
	if (!outbox_is_empty(&s->outbox))
		outbox_drop(&s->outbox);
	else
		session_leave_connection(s);
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

/* The order matters: jobs that end meanwhile are looked up in the maps, and use the ring. */
static bool step(struct errand *errand)
{
	struct session *s = of_errand(errand);

	if (drop_reply(s) || drop_question(s) || forget_drop(s) || forget_alloc(s) || forget_prepared(s) ||
	    drop_job(s) || drop_buffer(s))
		return true;
	session_ended(s);
	return false;
}

void session_end(struct session *s)
{
	errands_add(&s->account->errands, &s->ending, step);
}
