#include "job/job.h"

#include <inttypes.h>
#include <stdlib.h>

#include "log.h"

bool job_may_move(enum job_state from, enum job_state to)
{
	static const bool allowed[JOB_CANCELLED + 1][JOB_CANCELLED + 1] = {
	    [JOB_NEW] = {[JOB_QUEUED] = true, [JOB_READY] = true},
	    [JOB_READY] = {[JOB_QUEUED] = true},
	    [JOB_DONE] = {[JOB_READY] = true},
	    [JOB_FAILED] = {[JOB_READY] = true},
	    [JOB_CANCELLED] = {[JOB_READY] = true},
	    [JOB_QUEUED] = {[JOB_RUNNING] = true, [JOB_FAILED] = true, [JOB_CANCELLED] = true},
	    [JOB_RUNNING] = {[JOB_PAUSED] = true, [JOB_DONE] = true, [JOB_FAILED] = true},
	    [JOB_PAUSED] = {[JOB_RUNNING] = true, [JOB_CANCELLED] = true},
	};
	return allowed[from][to];
}

void job_move(struct job *job, enum job_state to)
{
	if (!job_may_move(job->state, to)) {
		log_error("job %" PRIu64 ": move %d to %d is not allowed; this is a bug in kopsd", job->id,
		          job->state, to);
		__builtin_trap();
	}
	job->state = to;
}

struct job *job_new(struct engine *engine, struct account *account, unsigned n_ops)
{
	size_t ops_bytes = n_ops * sizeof(struct run_op);
	size_t bytes = sizeof(struct job) + ops_bytes + n_ops * OP_VIEWS_MAX * sizeof(struct job_buffer);
	struct job *job = calloc(1, bytes);

	if (!job)
		return NULL;
	job->bytes = bytes;
	job->engine = engine;
	job->account = account;
	account_ref(account);
	job->run.ops = job->ops;
	job->run.n_ops = n_ops;
	job->buffers = (struct job_buffer *)((char *)job->ops + ops_bytes);
	return job;
}

void job_free(struct job *job)
{
	for (unsigned i = 0; i < job->n_buffers; i++)
		buffer_unref(job->buffers[i].buffer);
	run_forget_plan(&job->run);
	account_unref(&job->engine->accounts, job->account);
	free(job);
}

struct job_buffer *job_use(struct job *job, struct buffer *buffer)
{
	struct job_buffer *use;

	for (unsigned i = 0; i < job->n_buffers; i++)
		if (job->buffers[i].buffer == buffer)
			return &job->buffers[i];
	use = &job->buffers[job->n_buffers++];
	use->buffer = buffer;
	buffer_ref(buffer);
	buffer_plan_pages(buffer);
	return use;
}

/* ---- Queues ---- */

static struct job_queue *queue_get(struct job *job, struct idmap *queues, uint32_t id)
{
	struct job_queue *q = idmap_get(queues, id);

	if (q)
		return q;
	q = calloc(1, sizeof *q);
	if (!q || idmap_put(queues, id, q) < 0) {
		free(q);
		return NULL;
	}
	q->queues = queues;
	q->id = id;
	q->sched.flow = &job->account->flow;
	q->sched.lane = job->engine->next_lane++;
	return q;
}

int job_join_queue(struct job *job, struct idmap *queues, uint32_t id)
{
	struct job_queue *q = queue_get(job, queues, id);

	if (!q)
		return KOPS_E_NOMEM;
	q->jobs++;
	job->sched.queue = &q->sched;
	return 0;
}

void job_leave_queue(struct job *job)
{
	struct job_queue *q =
	    (struct job_queue *)((char *)job->sched.queue - offsetof(struct job_queue, sched));

	if (--q->jobs)
		return;
	if (q->queues)
		idmap_remove(q->queues, q->id);
	free(q);
}

static void forget(void *value, void *arg)
{
	struct job_queue *q = value;

	(void)arg;
	q->queues = NULL;
}

void job_queues_forget(struct idmap *queues)
{
	idmap_each(queues, forget, NULL);
	idmap_clear(queues);
}
