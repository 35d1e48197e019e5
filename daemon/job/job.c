#include "job/job.h"

#include <inttypes.h>
#include <stdlib.h>

#include "log.h"

void job_refuse_move(const struct job *job, enum job_state to)
{
	log_error("job %" PRIu64 ": invalid state transition from %d to %d; this is a bug in kopsd", job->id,
	          job->state, to);
	__builtin_trap();
}

/* ---- Queues ---- */

static struct job_queue *queue_new(struct job_queues *queues, uint32_t id)
{
	struct job_queue *q = calloc(1, sizeof *q);

	if (!q || idmap_put(&queues->by_id, id, q) < 0) {
		free(q);
		return NULL;
	}
	q->queues = queues;
	q->id = id;
	return q;
}

/* Joins the queue of this id, which is made if there is none. */
static int join_queue(struct job *job, struct job_queues *queues, uint32_t id)
{
	struct job_queue *q = idmap_get(&queues->by_id, id);

	if (!q) {
		q = queue_new(queues, id);
		if (!q)
			return KOPS_E_NOMEM;
		q->sched.flow = &job->account->flow;
		q->sched.lane = job->engine->next_lane++;
	}
	if (q == queues->idle)
		queues->idle = NULL;
	q->jobs++;
	job->sched.queue = &q->sched;
	return 0;
}

static void forget_idle_queue(struct job_queues *queues)
{
	if (!queues->idle)
		return;
	idmap_remove(&queues->by_id, queues->idle->id);
	free(queues->idle);
	queues->idle = NULL;
}

/* Keeps the queue that its last job left: a client that sends one job at a time uses it again. */
static void leave_queue(struct job *job)
{
	struct job_queue *q = container_of(job->sched.queue, struct job_queue, sched);

	if (--q->jobs)
		return;
	if (!q->queues) {
		free(q);
		return;
	}
	forget_idle_queue(q->queues);
	q->queues->idle = q;
}

static void forget_queue(void *value, void *arg)
{
	struct job_queue *q = value;

	(void)arg;
	q->queues = NULL;
}

void job_queues_forget(struct job_queues *queues)
{
	forget_idle_queue(queues);
	idmap_each(&queues->by_id, forget_queue, NULL);
	idmap_clear(&queues->by_id);
}

/* ---- Jobs ---- */

struct job *job_new(struct engine *engine, struct account *account, struct job_queues *queues, uint32_t queue,
                    unsigned n_ops, size_t n_views)
{
	size_t ops_bytes = n_ops * sizeof(struct run_op);
	size_t bytes = sizeof(struct job) + ops_bytes + n_views * sizeof(struct buffer_use);
	struct job *job = calloc(1, bytes);

	if (!job)
		return NULL;
	job->bytes = bytes;
	job->engine = engine;
	job->account = account;
	if (join_queue(job, queues, queue) < 0) {
		free(job);
		return NULL;
	}
	account_ref(account);
	job->run.ops = job->ops;
	job->run.n_ops = n_ops;
	job->uses.list = (struct buffer_use *)((char *)job->ops + ops_bytes);
	return job;
}

void job_free(struct job *job)
{
	leave_queue(job);
	for (unsigned i = 0; i < job->uses.n; i++)
		buffer_unref(job->uses.list[i].buffer);
	if (job->spread)
		job->free_spread(job->spread);
	run_forget_plan(&job->run);
	account_unref(&job->engine->accounts, job->account);
	free(job);
}
