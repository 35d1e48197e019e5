/* verb/trace.c: Trace: lists the latest jobs that were answered. */
#include "base/clock.h"
#include "session/reply.h"
#include "session/verb/figures.h"
#include "session/verbs.h"

struct page {
	Kops__V1__TracedJob jobs[FIGURES_PAGE], *pointers[FIGURES_PAGE];
	unsigned n;
};

static void add_job(struct page *page, uint64_t number, const struct trace_entry *e)
{
	Kops__V1__TracedJob *job = &page->jobs[page->n];

	*job = (Kops__V1__TracedJob)KOPS__V1__TRACED_JOB__INIT;
	job->number = number;
	job->session = e->session;
	job->job = e->job;
	job->uid = e->uid;
	job->pid = (uint32_t)e->pid;
	job->status = e->status;
	job->age_us = (clock_ns() - e->ended_ns) / 1000;
	job->device = (char *)e->device;
	job->op = (char *)e->op;
	job->kernel = (char *)e->kernel;
	job->ops = e->n_ops;
	job->flops = e->cost.flops;
	job->bytes = e->cost.bytes;
	job->queue_us = e->queue_us;
	job->upload_us = e->upload_us;
	job->compute_us = e->compute_us;
	job->download_us = e->download_us;
	job->total_us = e->total_us;
	job->prepared = e->prepared;
	job->graph = e->graph;
	job->ring = e->by_ring;
	reply_put_shape(&e->shape, &job->dtype, &job->n_shape, &job->shape);
	job->ended_ns = e->ended_ns;
	page->pointers[page->n++] = job;
}

int verb_trace(struct request *r)
{
	struct session *session = r->session;
	const struct trace *trace = &session->all->trace;
	uint64_t before = r->msg->trace->before, number;
	const struct trace_entry *e;
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__TracedJobs jobs = KOPS__V1__TRACED_JOBS__INIT;
	struct page page = {.n = 0};

	number = before && before <= trace->n ? before - 1 : trace->n;
	for (; (e = trace_at(trace, number)); number--) {
		if (!figures_may_see(session, e->uid))
			continue;
		if (page.n == FIGURES_PAGE) {
			jobs.next = page.jobs[page.n - 1].number;
			break;
		}
		add_job(&page, number, e);
	}
	jobs.n_jobs = page.n;
	jobs.jobs = page.pointers;
	reply.id = r->id;
	reply.body_case = KOPS__V1__REPLY__BODY_TRACED_JOBS;
	reply.traced_jobs = &jobs;
	reply_send(session, &reply, -1);
	return 0;
}
