#include "session/verb/figures.h"

#include "job/job.h"
#include "session/verbs.h"

enum { OTHERS_FOR_ROOT, OTHERS_FOR_COLLEAGUES, OTHERS_FOR_ALL }; /* see-others */

bool figures_may_see(const struct session *s, uid_t uid)
{
	uint64_t others = s->engine->config->see_others;

	return s->account->uid == uid || s->account->uid == 0 || others == OTHERS_FOR_ALL ||
	       (others == OTHERS_FOR_COLLEAGUES && s->is_colleague);
}

bool figures_find(const struct request *r, const struct figures_list *list)
{
	struct list_walk *walk = &r->session->walk;

	for (unsigned n = 0; n < FIGURES_LOOKS; n++) {
		if (!walk->at || list->is_listed(r, walk->at))
			return true;
		list_walk_on(walk);
	}
	return false;
}

unsigned figures_fill(const struct request *r, const struct figures_list *list, void *page, uint64_t *ret_next)
{
	struct list_walk *walk = &r->session->walk;
	unsigned n = 0;
	uint64_t last = 0;

	for (unsigned looks = 0; walk->at && n < FIGURES_PAGE && looks < FIGURES_LOOKS; looks++) {
		if (list->is_listed(r, walk->at))
			list->put(page, n++, r, walk->at);
		last = list->number(walk->at);
		list_walk_on(walk);
	}
	*ret_next = walk->at ? last : 0;
	list_walk_end(walk);
	return n;
}

/* ---- What runs now ---- */

/* A device runs the job that it was given first. */
static void count(struct usage *usage, const struct job *job)
{
	const struct engine_device *d = job_device(job);

	usage->now.running++;
	if (!usage->now.oldest || job->started_ns < usage->now.oldest->started_ns)
		usage->now.oldest = job;
	if (d->out.first == &job->out)
		usage->now.live_us += device_live_us(d->device);
}

static void clear_now(struct usage *usage, const struct job *job)
{
	(void)job;
	usage->now = (struct usage_now){0};
}

static void visit(void (*fn)(struct usage *usage, const struct job *job), const struct job *job)
{
	fn(&job->account->usage, job);
	if (job->usage)
		fn(job->usage, job);
}

static void each_started(const struct engine *e, void (*fn)(struct usage *usage, const struct job *job))
{
	for (unsigned i = 0; i < e->n_devices; i++) {
		const struct job *job;

		list_for_each (job, &e->devices[i].out, out)
			visit(fn, job);
		list_for_each (job, &e->devices[i].paused, paused)
			visit(fn, job);
	}
}

void figures_begin(const struct engine *e)
{
	each_started(e, count);
}

void figures_end(const struct engine *e)
{
	each_started(e, clear_now);
}

/* ---- Usage ---- */

void figures_of_usage(struct usage *usage, Kops__V1__Usage *ret)
{
	*ret = (Kops__V1__Usage)KOPS__V1__USAGE__INIT;
	ret->jobs_done = usage->jobs_done;
	ret->jobs_failed = usage->jobs_failed;
	ret->flops = usage->cost.flops;
	ret->bytes = usage->cost.bytes;
	ret->queue_us = usage->queue_us;
	ret->total_us = usage->total_us;
	ret->device_us = usage_device_us(usage);
	ret->p50_us = latency_quantile_us(&usage->latency, 0.5);
	ret->p99_us = latency_quantile_us(&usage->latency, 0.99);
}
