/* routine.c: the first call of each function, and the count of all others. */
#include "routine.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "next/next.h"
#include "settings.h"
#include "side.h"

static const char *const words[OUTCOMES] = {
    [OUTCOME_KOPSD] = "kopsd",
    [OUTCOME_SMALL] = "small",
    [OUTCOME_UNUSUAL] = "invalid or empty",
    [OUTCOME_WIDE] = "64-bit integers",
    [OUTCOME_SLOWER] = "faster there",
    [OUTCOME_NO_GPU] = "kopsd has no GPU",
    [OUTCOME_AWAY] = "kopsd away",
    [OUTCOME_TAKEN] = "handles taken",
    [OUTCOME_FAILED] = "job failed",
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct routine *called;

int64_t routine_now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- The first call ---- */

/* As the dynamic linker would, had this library not promised the name. */
_Noreturn static void give_up(const struct routine *r)
{
	dprintf(2,
	        "kops-blas: no library of this process has %s, which is to compute what kopsd does not: "
	        "install libopenblas0 or libblas3\n",
	        r->name);
	abort();
}

/* The floor is published last: who sees it sees `next`. With a report every call takes the long way. */
static void publish(struct routine *r, void *next, bool wide)
{
	const struct settings *settings = settings_get();
	double floor = settings->verbose > 0 ? -INFINITY : wide ? INFINITY : settings->threshold;
	atomic_store_explicit(&r->next, next, memory_order_relaxed);
	atomic_store_explicit(&r->wide, wide, memory_order_relaxed);
	atomic_store_explicit(&r->floor, floor, memory_order_release);
	r->later = called;
	called = r;
	atomic_store_explicit(&r->state, 1, memory_order_release);
}

/* Looks before it locks: the loader has a lock of its own, which a constructor that computes may hold. */
static void prepare(struct routine *r)
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

/* ---- Every call ---- */

void routine_begin(struct call *call, struct routine *r)
{
	*call = (struct call){.routine = r, .outcome = OUTCOME_UNUSUAL, .error = errno};
	if (!atomic_load_explicit(&r->state, memory_order_acquire))
		prepare(r);
	call->started_ns = routine_now_ns();
}

/* A write, not stdio: the program may be using that, and may be in a signal handler. */
static void print_call(const struct call *call, int64_t ns)
{
	dprintf(2, "kops-blas[%d]: %s %s: %s%s, %.1f us\n", (int)getpid(), call->routine->name, call->what,
	        call->outcome == OUTCOME_KOPSD ? "" : "next BLAS, ", words[call->outcome], (double)ns / 1e3);
}

void routine_end(struct call *call)
{
	struct routine *r = call->routine;
	int64_t ns = routine_now_ns() - call->started_ns;
	if (call->side)
		side_note(call->side, call->outcome != OUTCOME_SLOWER, (double)ns / call->flops);
	atomic_fetch_add_explicit(&r->calls[call->outcome], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&r->ns[call->outcome], (uint64_t)ns, memory_order_relaxed);
	if (settings_get()->verbose > 1)
		print_call(call, ns);
	errno = call->error;
}

/* ---- The report ---- */

static void append(char *line, size_t size, size_t *used, const char *text, uint64_t number, const char *after)
{
	int n = snprintf(line + *used, size - *used, "%s%llu %s", text, (unsigned long long)number, after);
	if (n > 0 && (size_t)n < size - *used)
		*used += (size_t)n;
}

static void print_routine(const struct routine *r)
{
	char line[512];
	uint64_t calls = 0, ns = 0;
	size_t used = 0;
	const char *mark = ": ";
	for (int i = 1; i < OUTCOMES; i++) {
		calls += r->calls[i];
		ns += r->ns[i];
	}
	line[0] = 0;
	for (int i = 1; i < OUTCOMES; i++) {
		if (r->calls[i] == 0)
			continue;
		append(line, sizeof line, &used, mark, r->calls[i], words[i]);
		mark = ", ";
	}
	dprintf(2, "kops-blas[%d]: %s: %llu calls by kopsd in %.3f ms; %llu by the next BLAS in %.3f ms%s\n",
	        (int)getpid(), r->name, (unsigned long long)r->calls[OUTCOME_KOPSD],
	        (double)r->ns[OUTCOME_KOPSD] / 1e6, (unsigned long long)calls, (double)ns / 1e6, line);
}

__attribute__((destructor)) static void report(void)
{
	if (called && settings_get()->verbose > 0)
		for (const struct routine *r = called; r; r = r->later)
			print_routine(r);
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

/* The child's report counts the child's calls. */
static void in_child(void)
{
	for (struct routine *r = called; r; r = r->later)
		for (int i = 0; i < OUTCOMES; i++)
			r->calls[i] = r->ns[i] = 0;
	pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, in_child);
}
