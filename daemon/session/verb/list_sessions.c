/* verb/list_sessions.c: ListSessions: connected sessions and their jobs. */
#include "base/clock.h"
#include "job/spread.h"
#include "session/reply.h"
#include "session/verb/figures.h"
#include "session/verbs.h"

struct page {
	Kops__V1__Session sessions[FIGURES_PAGE], *pointers[FIGURES_PAGE];
	Kops__V1__Usage usages[FIGURES_PAGE];
	Kops__V1__RunningJob jobs[FIGURES_PAGE];
};

static void fill_job(const struct job *job, Kops__V1__RunningJob *ret)
{
	const struct run_op *first = &job->ops[0];

	*ret = (Kops__V1__RunningJob)KOPS__V1__RUNNING_JOB__INIT;
	ret->device = (char *)job_device(job)->device->name;
	ret->op = (char *)first->args.op->name;
	ret->kernel = (char *)(first->kernel ? first->kernel->name : "");
	ret->ops = job->run.n_ops;
	for (unsigned i = 0; i < job->run.n_ops; i++)
		ret->parts += job->ops[i].cut.n_parts ? job->ops[i].cut.n_parts : 1;
	ret->parts_done = __atomic_load_n(&job->run.parts_done, __ATOMIC_RELAXED);
	if (job->is_spread)
		spread_count_parts(job->spread, &ret->parts, &ret->parts_done);
	ret->running_us = clock_us(job->started_ns, clock_ns());
	ret->estimate_us = job->run.plan_us;
	reply_put_shape(&first->shape, &ret->dtype, &ret->n_shape, &ret->shape);
}

static void put_session(void *on, unsigned i, const struct request *r, const struct list_link *at)
{
	struct page *page = on;
	struct session *s = container_of(at, struct session, link);
	const struct usage_now *now = &s->usage.now;
	Kops__V1__Session *to = &page->sessions[i];

	*to = (Kops__V1__Session)KOPS__V1__SESSION__INIT;
	to->session = s->serial;
	to->uid = s->account->uid;
	to->pid = (uint32_t)s->pid;
	to->client = s->client;
	to->own = s == r->session;
	to->age_us = (clock_ns() - s->arrived_ns) / 1000;
	to->buffers = s->buffers.count;
	to->mapped_bytes = s->bytes[ACCOUNT_MAPPED];
	to->resident_bytes = s->bytes[ACCOUNT_RESIDENT];
	to->prepared = s->prepared.count;
	to->queued = s->jobs.count - now->running;
	to->running = now->running;
	if (now->oldest) {
		to->oldest = &page->jobs[i];
		fill_job(now->oldest, to->oldest);
	}
	to->usage = &page->usages[i];
	figures_of_usage(&s->usage, to->usage);
	page->pointers[i] = to;
}

static bool is_listed_session(const struct request *r, const struct list_link *at)
{
	const struct session *s = container_of(at, struct session, link);
	uint64_t before = r->msg->list_sessions->before;

	return (!before || s->serial < before) && figures_may_see(r->session, s->account->uid);
}

static uint64_t number_of_session(const struct list_link *at)
{
	return container_of(at, struct session, link)->serial;
}

static const struct figures_list list = {is_listed_session, number_of_session, put_session};

static int send_sessions(struct request *r)
{
	struct session *asking = r->session;
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__Sessions sessions = KOPS__V1__SESSIONS__INIT;
	struct page page;

	figures_begin(asking->engine);
	sessions.n_sessions = figures_fill(r, &list, &page, &sessions.next);
	figures_end(asking->engine);
	sessions.sessions = page.pointers;
	reply.id = r->id;
	reply.body_case = KOPS__V1__REPLY__BODY_SESSIONS;
	reply.sessions = &sessions;
	reply_send(asking, &reply, -1);
	return 0;
}

/* Finds the first session that is listed, where the page begins. */
static int find_sessions(struct request *r)
{
	if (figures_find(r, &list))
		return send_sessions(r);
	r->next = find_sessions;
	return 0;
}

int verb_list_sessions(struct request *r)
{
	struct sessions *all = r->session->all;

	list_walk_begin(&r->session->walk, &all->walks, &all->list);
	return find_sessions(r);
}
