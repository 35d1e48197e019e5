/* verb/list_sessions.c: ListSessions: who is connected, and what their jobs do. */
#include "base/clock.h"
#include "job/job.h"
#include "session/figures.h"
#include "session/reply.h"
#include "session/verbs.h"

struct page {
	Kops__V1__Session sessions[FIGURES_PAGE], *pointers[FIGURES_PAGE];
	Kops__V1__Usage usages[FIGURES_PAGE];
	Kops__V1__RunningJob jobs[FIGURES_PAGE];
	unsigned n;
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
	ret->running_us = clock_us(job->started_ns, clock_ns());
	ret->estimate_us = job->run.plan_us;
	reply_put_shape(&first->shape, &ret->dtype, &ret->n_shape, &ret->shape);
}

static void add_session(struct page *page, const struct session *asking, struct session *s)
{
	const struct usage_now *now = &s->usage.now;
	Kops__V1__Session *to = &page->sessions[page->n];

	*to = (Kops__V1__Session)KOPS__V1__SESSION__INIT;
	to->session = s->serial;
	to->uid = s->account->uid;
	to->pid = (uint32_t)s->pid;
	to->client = s->client;
	to->own = s == asking;
	to->age_us = (clock_ns() - s->arrived_ns) / 1000;
	to->buffers = s->buffers.count;
	to->mapped_bytes = s->bytes[ACCOUNT_MAPPED];
	to->resident_bytes = s->bytes[ACCOUNT_RESIDENT];
	to->prepared = s->prepared.count;
	to->queued = s->jobs.count - now->running;
	to->running = now->running;
	if (now->oldest) {
		to->oldest = &page->jobs[page->n];
		fill_job(now->oldest, to->oldest);
	}
	to->usage = &page->usages[page->n];
	figures_of_usage(&s->usage, to->usage);
	page->pointers[page->n++] = to;
}

int verb_list_sessions(struct request *r)
{
	struct session *asking = r->session, *s;
	uint64_t before = r->msg->list_sessions->before;
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__Sessions sessions = KOPS__V1__SESSIONS__INIT;
	struct page page = {.n = 0};

	figures_begin(asking->engine);
	list_for_each (s, &asking->all->list, link) {
		if ((before && s->serial >= before) || !figures_may_see(asking, s->account->uid))
			continue;
		if (page.n == FIGURES_PAGE) {
			sessions.next = page.sessions[page.n - 1].session;
			break;
		}
		add_session(&page, asking, s);
	}
	figures_end(asking->engine);
	sessions.n_sessions = page.n;
	sessions.sessions = page.pointers;
	reply.id = r->id;
	reply.body_case = KOPS__V1__REPLY__BODY_SESSIONS;
	reply.sessions = &sessions;
	reply_send(asking, &reply, -1);
	return 0;
}
