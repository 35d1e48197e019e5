#include "common/threads.h"

#include <stdatomic.h>

#define WORKERS_MAX 1023

/* A job is open from threads_run() until its parts are handed out; workers join open jobs only. */
static struct {
	pthread_mutex_t user; /* held by the one threads_run() that uses the pool */
	pthread_mutex_t lock; /* guards all members below but next_part */
	pthread_cond_t work;  /* a job opened, or the pool is stopping */
	pthread_cond_t idle;  /* `inside` fell to 0 */
	unsigned limit;       /* set by threads_set() */
	unsigned n_workers;
	bool open, stopping;
	uint64_t job; /* counts jobs, so that no worker joins one twice */
	unsigned inside;
	void (*fn)(void *ctx, unsigned part);
	void *ctx;
	unsigned n_parts;
	atomic_uint next_part;
	pthread_t workers[WORKERS_MAX];
} pool = {
    .user = PTHREAD_MUTEX_INITIALIZER,
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .work = PTHREAD_COND_INITIALIZER,
    .idle = PTHREAD_COND_INITIALIZER,
    .limit = 1,
};

static _Thread_local bool is_alone;

static void run_parts(void (*fn)(void *ctx, unsigned part), void *ctx, unsigned n_parts)
{
	unsigned part;

	while ((part = atomic_fetch_add_explicit(&pool.next_part, 1, memory_order_relaxed)) < n_parts)
		fn(ctx, part);
}

static void *worker(void *unused)
{
	uint64_t seen = 0;

	(void)unused;
	pthread_mutex_lock(&pool.lock);
	while (!pool.stopping) {
		if (!pool.open || pool.job == seen) {
			pthread_cond_wait(&pool.work, &pool.lock);
			continue;
		}
		seen = pool.job;
		pool.inside++;
		void (*fn)(void *, unsigned) = pool.fn;
		void *ctx = pool.ctx;
		unsigned n_parts = pool.n_parts;
		pthread_mutex_unlock(&pool.lock);
		run_parts(fn, ctx, n_parts);
		pthread_mutex_lock(&pool.lock);
		if (--pool.inside == 0)
			pthread_cond_signal(&pool.idle);
	}
	pthread_mutex_unlock(&pool.lock);
	return NULL;
}

/* Needs pool.user. Fewer workers than wanted, even none, make a slower pool and are no error. */
static void start_workers(void)
{
	while (pool.n_workers + 1 < pool.limit && pool.n_workers < WORKERS_MAX &&
	       threads_create(&pool.workers[pool.n_workers], NULL, worker, NULL) == 0)
		pool.n_workers++;
}

/* Needs pool.user. */
static void stop_workers(void)
{
	pthread_mutex_lock(&pool.lock);
	pool.stopping = true;
	pthread_cond_broadcast(&pool.work);
	pthread_mutex_unlock(&pool.lock);
	for (unsigned i = 0; i < pool.n_workers; i++)
		pthread_join(pool.workers[i], NULL);
	pool.n_workers = 0;
	pool.stopping = false;
}

void threads_stop(void)
{
	pthread_mutex_lock(&pool.user);
	stop_workers();
	pthread_mutex_unlock(&pool.user);
}

void threads_set(unsigned n)
{
	pthread_mutex_lock(&pool.user);
	stop_workers();
	pool.limit = n ? n : 1;
	pthread_mutex_unlock(&pool.user);
}

void threads_forget(void)
{
	pool.user = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	pool.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	pool.work = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
	pool.idle = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
	pool.n_workers = pool.inside = 0;
	pool.open = pool.stopping = false;
}

bool threads_set_alone(bool alone)
{
	bool before = is_alone;

	is_alone = alone;
	return before;
}

unsigned threads_count(void)
{
	return pool.limit;
}

unsigned threads_parts(uint64_t work, uint64_t grain)
{
	uint64_t parts = work / grain, most = 4 * (uint64_t)pool.limit;

	if (pool.limit == 1 || parts < 2)
		return 1;
	return (unsigned)(parts < most ? parts : most);
}

void threads_run(unsigned n_parts, void (*fn)(void *ctx, unsigned part), void *ctx)
{
	if (n_parts < 2 || is_alone || pthread_mutex_trylock(&pool.user) != 0) {
		for (unsigned part = 0; part < n_parts; part++)
			fn(ctx, part);
		return;
	}
	start_workers();
	pthread_mutex_lock(&pool.lock);
	pool.fn = fn;
	pool.ctx = ctx;
	pool.n_parts = n_parts;
	atomic_store_explicit(&pool.next_part, 0, memory_order_relaxed);
	pool.job++;
	pool.open = true;
	pthread_cond_broadcast(&pool.work);
	pthread_mutex_unlock(&pool.lock);
	run_parts(fn, ctx, n_parts);
	pthread_mutex_lock(&pool.lock);
	pool.open = false;
	while (pool.inside > 0)
		pthread_cond_wait(&pool.idle, &pool.lock);
	pthread_mutex_unlock(&pool.lock);
	pthread_mutex_unlock(&pool.user);
}
