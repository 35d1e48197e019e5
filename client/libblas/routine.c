/* routine.c: the first call of each function, and the beginning and end of every call. */
#include "routine.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "guard.h"
#include "next/next.h"
#include "settings.h"
#include "side.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int64_t routine_now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- The first call ---- */

/* Ends the process, as the dynamic linker would if this library did not export the name. */
_Noreturn static void give_up(const struct routine *r)
{
	dprintf(2,
	        "kops-blas: found no other BLAS with %s for the calls that kopsd does not compute: install "
	        "libopenblas0 or libblas3\n",
	        r->name);
	abort();
}

/* Publishes the floor last: a thread that sees it sees `next`. With a report, every call takes the long way. */
static void publish(struct routine *r, void *next, bool wide)
{
	const struct settings *settings = settings_get();
	double floor = settings->verbose > 0 ? -INFINITY : wide ? INFINITY : settings->threshold;
	atomic_store_explicit(&r->next, next, memory_order_relaxed);
	atomic_store_explicit(&r->wide, wide, memory_order_relaxed);
	atomic_store_explicit(&r->floor, floor, memory_order_release);
	r->number = report_add(r->name);
	atomic_store_explicit(&r->state, 1, memory_order_release);
}

/* Searches before it locks: the loader's own lock may be held by a constructor that computes. */
static void prepare_alone(struct routine *r)
{
	bool wide;
	void *next = next_find(r->name, &wide);
	if (!next && r->instead)
		next_find(r->instead, &wide);
	else if (!next)
		give_up(r);
	pthread_mutex_lock(&lock);
	if (!r->state)
		publish(r, next, wide);
	pthread_mutex_unlock(&lock);
}

static void prepare(struct routine *r)
{
	struct guard guard;
	sigset_t signals;
	guard_begin(&guard);
	guard_block_signals(&signals);
	prepare_alone(r);
	guard_restore_signals(&signals);
	guard_end(&guard);
}

/* ---- Every call ---- */

void routine_begin(struct call *call, struct routine *r, bool is_part)
{
	*call = (struct call){.routine = r, .is_part = is_part, .outcome = OUTCOME_UNUSUAL, .error = errno};
	if (!atomic_load_explicit(&r->state, memory_order_acquire))
		prepare(r);
	call->started_ns = routine_now_ns();
}

/* Uses write(), not stdio: the program may be in the midst of stdio, or in a signal handler. */
static void print_call(const struct call *call, int64_t ns)
{
	dprintf(2, "kops-blas[%d]: %s%s %s: %s%s, %lld.%lld us\n", (int)getpid(),
	        call->is_part ? "  part: " : "", call->routine->name, call->what,
	        call->outcome == OUTCOME_KOPSD ? "" : "next BLAS, ", report_word(call->outcome),
	        (long long)(ns / 1000), (long long)(ns / 100 % 10));
}

void routine_end(struct call *call)
{
	struct guard guard;
	guard_begin(&guard);
	int64_t ns = routine_now_ns() - call->started_ns;
	if (call->side)
		side_note(call->side, call->outcome != OUTCOME_SLOWER, (double)ns / call->flops);
	if (!call->is_part)
		report_count(call->routine->number, call->outcome, (uint64_t)ns, call->copied_bytes,
		             call->used_bytes);
	if (settings_get()->verbose > 1)
		print_call(call, ns);
	guard_end(&guard);
	errno = call->error;
}

/* ---- fork() ---- */

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
	report_child();
	pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, in_child);
}
