/* thread.c: decides when a device's thread works, spins and sleeps. */
#include "device/thread.h"

#include <malloc.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>

#include "affinity.h"
#include "base/clock.h"
#include "base/slice.h"
#include "base/spin.h"
#include "common/threads.h"
#include "device/canary.h"

/*
 * How long a device thread looks for more work before it sleeps. Waking a sleeper costs 5 to 10 µs each way; a
 * client that sends one job after the other returns within this time.
 */
#define SPIN_NS 50000u
/* ---- On the thread ---- */

/* Tells the loop that work is done. */
static void tell_loop(struct device_thread *t)
{
	if (!__atomic_load_n(&t->looking, __ATOMIC_SEQ_CST))
		eventfd_write(t->wake_fd, 1);
}

static uint64_t plan_ns(const struct device_work *work)
{
	return (uint64_t)(work->planned_us * 1e3);
}

static void begin_work(struct device_thread *t, struct device_work *w)
{
	if (w->execute)
		w->execute(w, t->driver, t->dev);
	if (!w->run) {
		if (work_stack_push(&t->done, w))
			tell_loop(t);
		return;
	}
	forecast_started(&t->forecast, clock_ns(), plan_ns(w), run_ends_as_before(w->run),
	                 w->run->watched && t->may_call_loop);
	w->run->pause_at_ns = &t->pause_at_ns;
	w->run->owner = w;
	t->driver->start(t->dev, w->run);
}

/* Returns true if anything finished. All finished work goes back together, so that the loop answers many with
 * fewer wake-ups. */
static bool collect_finished(struct device_thread *t)
{
	struct device_work *newest = NULL, *oldest = NULL;
	struct run *run;

	while (t->forecast.out && (run = t->driver->poll(t->dev))) {
		struct device_work *w = run->owner;

		forecast_ended(&t->forecast, plan_ns(w));
		w->next = newest;
		newest = w;
		oldest = oldest ? oldest : w;
	}
	if (!newest)
		return false;
	if (work_stack_push_all(&t->done, newest, oldest))
		tell_loop(t);
	forecast_left(&t->forecast, clock_ns());
	return true;
}

static void wake_up(void *arg)
{
	struct device_thread *t = arg;

	pthread_mutex_lock(&t->lock);
	t->notified = true;
	pthread_cond_signal(&t->wake);
	pthread_mutex_unlock(&t->lock);
}

static struct timespec in_ns(uint64_t ns)
{
	uint64_t at = clock_ns() + ns;

	return (struct timespec){.tv_sec = (time_t)(at / 1000000000u), .tv_nsec = (long)(at % 1000000000u)};
}

/* Returns how long to sleep, in ns; 0: spin. */
static uint64_t nap_ns(const struct device_thread *t, uint64_t idle_since)
{
	uint64_t now = clock_ns();

	if (t->forecast.out)
		return forecast_nap_ns(&t->forecast, now);
	return now - idle_since < SPIN_NS ? 0 : UINT64_MAX;
}

/* Sleeps until there is new work, a run has finished, the time is over, or the thread must close. Returns false
 * to close. */
static bool take_nap(struct device_thread *t, uint64_t ns)
{
	struct timespec until = in_ns(ns < SLEEP_OUT_NS ? ns : SLEEP_OUT_NS);
	bool open;
	int rc = 0;

	if (t->forecast.out && t->driver->notify && forecast_may_end_in(&t->forecast, clock_ns(), ns))
		t->driver->notify(t->dev, wake_up, t);

	pthread_mutex_lock(&t->lock);
	__atomic_store_n(&t->sleeping, true, __ATOMIC_SEQ_CST);
	while (work_stack_is_empty(&t->inbox) && !t->notified && t->state != DEVICE_THREAD_CLOSING && rc == 0)
		rc = t->forecast.out ? pthread_cond_timedwait(&t->wake, &t->lock, &until)
		                     : pthread_cond_wait(&t->wake, &t->lock);
	__atomic_store_n(&t->sleeping, false, __ATOMIC_RELAXED);
	t->notified = false; /* what it told of is found by the next poll() */
	open = t->state != DEVICE_THREAD_CLOSING || !work_stack_is_empty(&t->inbox) || t->forecast.out;
	pthread_mutex_unlock(&t->lock);
	return open;
}

/* Wakes the loop shortly before a run ends. */
static void call_loop(struct device_thread *t)
{
	uint64_t until_ns;

	if (!t->may_call_loop || __atomic_load_n(&t->looking, __ATOMIC_RELAXED))
		return;
	until_ns = forecast_call_until_ns(&t->forecast, clock_ns());
	if (!until_ns)
		return;
	__atomic_store_n(&t->call_until_ns, until_ns, __ATOMIC_RELEASE);
	eventfd_write(t->wake_fd, 1);
}

/*
 * If no CPU is idle, Linux may leave the loop's thread and this one together on one CPU, and clients wait for
 * each while the other runs.
 */
static void keep_off_the_loop(const struct device_thread *t)
{
	int cpu = sched_getcpu();

	if (__atomic_load_n(&t->looking, __ATOMIC_RELAXED) &&
	    cpu == __atomic_load_n(&t->loop_cpu, __ATOMIC_RELAXED))
		affinity_leave(cpu);
}

static void serve_device(struct device_thread *t)
{
	uint64_t idle_since = clock_ns(), nap;
	struct spin spin = {0};

	for (;;) {
		struct device_work *w = work_stack_take_all(&t->inbox), *next;
		bool busy = w != NULL;

		for (; w; w = next) {
			next = w->next;
			if (next && next->run)
				__builtin_prefetch(next->run); /* the loop wrote it */
			begin_work(t, w);
			if (!t->driver->notify) /* it has ended already */
				collect_finished(t);
		}
		busy |= collect_finished(t);
		if (busy) {
			idle_since = clock_ns();
			continue;
		}
		nap = nap_ns(t, idle_since);
		if (t->forecast.out)
			call_loop(t);
		if (nap > 0) {
			if (!take_nap(t, nap))
				return;
		} else if (spin_on(&spin, SPIN_LOOKS)) {
			keep_off_the_loop(t);
		}
	}
}

static uint64_t opened; /* devices, by all threads */

static int open_and_test(struct device_thread *t)
{
	int rc;

	if (t->beside) {
		slice_shorten(); /* the long run has a thread on each CPU */
		return t->driver->open_beside(t->beside->dev, &t->dev, t->open_why);
	}
	rc = t->driver->open(t->index, &t->limits, &t->dev, t->open_why);

	if (rc < 0)
		return rc;
	driver_planner(t->driver, t->dev, &t->planner);
	t->planner.id = __atomic_add_fetch(&opened, 1, __ATOMIC_RELAXED);
	rc = canary_self_test(t->driver, t->dev, &t->planner, t->disabled_kernels);
	malloc_trim(0); /* what the tests had stays with this thread's heap, up to a megabyte */
	if (rc > 0)
		return 0;
	snprintf(t->open_why, WHY_BYTES, "%s", rc < 0 ? t->disabled_kernels : "no kernel passed its self-test");
	if (rc == 0)
		t->driver->close(t->dev);
	t->dev = NULL;
	return KOPS_E_FAULT;
}

static void *thread_main(void *arg)
{
	struct device_thread *t = arg;
	int rc;

	prctl(PR_SET_TIMERSLACK, 1ul, 0ul, 0ul, 0ul); /* in ns; otherwise Linux ends its sleeps 50 us late */
	rc = open_and_test(t);
	pthread_mutex_lock(&t->lock);
	t->open_status = rc;
	t->state = DEVICE_THREAD_READY;
	pthread_cond_signal(&t->opened);
	pthread_mutex_unlock(&t->lock);
	if (rc < 0)
		return NULL;
	serve_device(t);
	t->driver->close(t->dev);
	return NULL;
}

/* ---- On the loop thread ---- */

void device_thread_init(struct device_thread *t)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->wake, &attr);
	pthread_cond_init(&t->opened, &attr);
	pthread_condattr_destroy(&attr);
	t->loop_cpu = -1;
	t->pause_at_ns = UINT64_MAX;
}

void device_thread_destroy(struct device_thread *t)
{
	pthread_cond_destroy(&t->wake);
	pthread_cond_destroy(&t->opened);
	pthread_mutex_destroy(&t->lock);
}

int device_thread_start(struct device_thread *t, char why[WHY_BYTES])
{
	int rc = threads_create(&t->thread, NULL, thread_main, t);

	if (rc) {
		snprintf(why, WHY_BYTES,
		         "cannot start a thread: %s; raise the limits on processes (TasksMax, ulimit -u) and "
		         "address space (ulimit -v)",
		         strerror(rc));
		return KOPS_E_SYSTEM;
	}
	pthread_mutex_lock(&t->lock);
	while (t->state == DEVICE_THREAD_OPENING)
		pthread_cond_wait(&t->opened, &t->lock);
	rc = t->open_status;
	pthread_mutex_unlock(&t->lock);
	if (rc < 0) {
		pthread_join(t->thread, NULL);
		snprintf(why, WHY_BYTES, "%s", t->open_why);
	}
	return rc;
}

void device_thread_stop(struct device_thread *t)
{
	pthread_mutex_lock(&t->lock);
	t->state = DEVICE_THREAD_CLOSING;
	pthread_cond_signal(&t->wake);
	pthread_mutex_unlock(&t->lock);
	pthread_join(t->thread, NULL);
}

void device_thread_push(struct device_thread *t, struct device_work *work, bool looking)
{
	if (looking && !__atomic_load_n(&t->looking, __ATOMIC_RELAXED))
		__atomic_store_n(&t->looking, true, __ATOMIC_RELAXED);
	work_stack_push(&t->inbox, work);
	if (!__atomic_load_n(&t->sleeping, __ATOMIC_SEQ_CST))
		return;
	pthread_mutex_lock(&t->lock); /* so that the thread either waits, or sees the work */
	pthread_cond_signal(&t->wake);
	pthread_mutex_unlock(&t->lock);
}

struct device_work *device_thread_take_done(struct device_thread *t, bool looking)
{
	__atomic_store_n(&t->loop_cpu, sched_getcpu(), __ATOMIC_RELAXED);
	__atomic_store_n(&t->looking, looking, __ATOMIC_SEQ_CST);
	return work_stack_take_all(&t->done);
}
