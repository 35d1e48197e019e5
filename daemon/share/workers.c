#include "share/workers.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "common/threads.h"
#include "cpus.h"

#define BY_CPUS_MAX 4u
#define TURN_US     1000.0
/* The usual 8 MiB for each thread would take much of a limited address space. */
#define STACK_BYTES (256u << 10)

struct workers {
	uv_async_t async;
	pthread_t threads[WORKERS_MAX];
	unsigned n_threads, n_most; /* current; largest */

	pthread_mutex_t lock;
	pthread_cond_t work;
	struct list inbox, outbox; /* under lock */
	bool stopping;             /* under lock */

	/* loop thread only */
	struct sched sched;                /* of one device, number 0: all threads together */
	struct task *at_work[WORKERS_MAX]; /* tasks that threads or begin_task() have */
	unsigned working;
};

/* ---- Worker threads ---- */

static void work_a_turn(struct task *task)
{
	uint64_t end = clock_ns() + (uint64_t)(TURN_US * 1e3);

	do
		task->through = task->step(task);
	while (!task->through && !__atomic_load_n(&task->yields, __ATOMIC_RELAXED) && clock_ns() < end);
}

static void *worker(void *arg)
{
	struct workers *w = arg;

	pthread_mutex_lock(&w->lock);
	for (;;) {
		struct task *task = list_take(&w->inbox, struct task, link);

		if (task) {
			pthread_mutex_unlock(&w->lock);
			work_a_turn(task);
			pthread_mutex_lock(&w->lock);
			list_push_last(&w->outbox, &task->link);
			uv_async_send(&w->async);
		} else if (w->stopping) {
			break;
		} else {
			pthread_cond_wait(&w->work, &w->lock);
		}
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* Starts a thread. 0 or an errno. */
static int start_thread(struct workers *w)
{
	pthread_attr_t attributes;
	int rc = pthread_attr_init(&attributes);

	if (rc)
		return rc;
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	rc = threads_create(&w->threads[w->n_threads], &attributes, worker, w);
	pthread_attr_destroy(&attributes);
	if (rc == 0)
		w->n_threads++;
	return rc;
}

/* ---- The loop thread ---- */

static struct task *of_sched(struct sched_job *sched)
{
	return container_of(sched, struct task, sched);
}

static void hand_over(struct workers *w, struct task *task)
{
	pthread_mutex_lock(&w->lock);
	list_push_last(&w->inbox, &task->link);
	pthread_cond_signal(&w->work);
	pthread_mutex_unlock(&w->lock);
}

/* Asks tasks to stop if another user's task should run. */
static void ask_to_yield(struct workers *w)
{
	for (unsigned i = 0; i < w->working; i++) {
		struct task *task = w->at_work[i];

		if (sched_yields_after_us(&w->sched, &task->sched) < TURN_US)
			__atomic_store_n(&task->yields, true, __ATOMIC_RELAXED);
	}
}

static void begin_task(struct workers *w, struct task *task)
{
	w->at_work[w->working++] = task;
	task->waiting = task->yields = false;
	task->began_ns = clock_ns();
	if (task->begin)
		task->begin(task);
	else
		hand_over(w, task);
}

/* Returns true if a thread is idle, after it started one if needed. If that fails, the next task tries
 * again. */
static bool has_thread(struct workers *w)
{
	if (w->working == w->n_threads && w->n_threads < w->n_most)
		start_thread(w);
	return w->working < w->n_threads;
}

/* The handle keeps the loop from ending only while tasks are in flight. */
static void dispatch(struct workers *w)
{
	struct sched_job *next;

	while (w->sched.devices[0].waiting && has_thread(w) && (next = sched_next(&w->sched, 0, NULL)))
		begin_task(w, of_sched(next));
	ask_to_yield(w);
	if (workers_are_busy(w))
		uv_ref((uv_handle_t *)&w->async);
	else
		uv_unref((uv_handle_t *)&w->async);
}

static void queue_task(struct workers *w, struct task *task)
{
	task->waiting = true;
	sched_add(&w->sched, &task->flow->queue, &task->sched);
}

static void finish_turn(struct workers *w, struct task *task)
{
	unsigned i = 0;

	while (w->at_work[i] != task)
		i++;
	w->at_work[i] = w->at_work[--w->working];
	task->sched.took_us = clock_us(task->began_ns, clock_ns());
	sched_finish(&w->sched, &task->sched);
	if (task->through)
		task->cancelled = false;
	if (task->through || task->cancelled)
		task->done(task);
	else
		queue_task(w, task);
}

static struct task *take_finished(struct workers *w)
{
	struct task *task;

	pthread_mutex_lock(&w->lock);
	task = list_take(&w->outbox, struct task, link);
	pthread_mutex_unlock(&w->lock);
	return task;
}

static void on_async(uv_async_t *async)
{
	struct workers *w = async->data;
	struct task *task;

	while ((task = take_finished(w)))
		finish_turn(w, task);
	dispatch(w);
}

void workers_submit(struct workers *w, struct task_flow *flow, struct task *task)
{
	task->workers = w;
	task->flow = flow;
	flow->queue.flow = &flow->flow;
	task->sched = (struct sched_job){.priority = KOPS_NORMAL, .cost_us = TURN_US};
	task->cancelled = task->through = false;
	task->began_ns = 0;
	queue_task(w, task);
	dispatch(w);
}

void workers_cancel(struct task *task)
{
	task->cancelled = true;
	__atomic_store_n(&task->yields, true, __ATOMIC_RELAXED);
	if (!task->waiting)
		return;
	task->waiting = false;
	sched_remove(&task->workers->sched, &task->sched);
	task->done(task);
}

bool workers_withdraw(struct task *task)
{
	if (!task->waiting || task->began_ns)
		return false;
	task->waiting = false;
	sched_remove(&task->workers->sched, &task->sched);
	return true;
}

void workers_begun_done(struct task *task)
{
	struct workers *w = task->workers;

	task->through = true;
	finish_turn(w, task);
	dispatch(w);
}

bool workers_are_busy(const struct workers *w)
{
	return w->working || w->sched.devices[0].waiting;
}

const struct sched *workers_sched(const struct workers *w)
{
	return &w->sched;
}

/* ---- Start and end ---- */

unsigned workers_by_cpus(unsigned cpus_each)
{
	unsigned n = cpus_count() / cpus_each;

	return n < 1 ? 1 : n < BY_CPUS_MAX ? n : BY_CPUS_MAX;
}

static void on_closed(uv_handle_t *handle)
{
	struct workers *w = handle->data;

	pthread_cond_destroy(&w->work);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

void workers_stop(struct workers *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->stopping = true;
	pthread_cond_broadcast(&w->work);
	pthread_mutex_unlock(&w->lock);
	for (unsigned i = 0; i < w->n_threads; i++)
		pthread_join(w->threads[i], NULL);
	uv_close((uv_handle_t *)&w->async, on_closed);
}

int workers_start(uv_loop_t *loop, unsigned threads, unsigned most, struct workers **ret_workers,
                  char why[WHY_BYTES])
{
	struct workers *w = calloc(1, sizeof *w);
	int rc = w ? uv_async_init(loop, &w->async, on_async) : UV_ENOMEM;

	if (rc < 0) {
		snprintf(why, WHY_BYTES, "out of memory or descriptors for worker threads: %s",
		         uv_strerror(rc));
		free(w);
		return KOPS_E_NOMEM;
	}
	w->async.data = w;
	uv_unref((uv_handle_t *)&w->async);
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->work, NULL);
	w->n_most = most;
	while (w->n_threads < threads) {
		rc = start_thread(w);
		if (rc) {
			snprintf(why, WHY_BYTES,
			         "cannot start a worker thread: %s; raise the limits on processes (TasksMax, "
			         "ulimit -u) and address space (ulimit -v)",
			         strerror(rc));
			workers_stop(w);
			return KOPS_E_SYSTEM;
		}
	}
	*ret_workers = w;
	return 0;
}
