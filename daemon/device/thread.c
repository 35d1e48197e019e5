/* thread.c: when a device's thread works, spins and sleeps. */
#include "device/thread.h"

#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "device/canary.h"
#include "spin.h"

/*
 * After its last work a device thread looks for more for this long before it sleeps. Waking a sleeper costs
 * 5 to 10 µs each way; a client that sends one job after the other comes back within this time.
 */
#define SPIN_NS 50000u
/*
 * With runs out on a GPU: sleep while the plan says that none is near its end, then spin around the next
 * planned end (by its share and this much more on either side), then sleep until the backend wakes us. Waking
 * up from sleep can cost 50 µs on a virtual machine, so it should not stand at the end of a run.
 */
#define SPIN_AROUND_NS 150000u
/*
 * For a run whose caller spins, neither thread sleeps so long before its planned end: a CPU that slept for some
 * milliseconds forgot the driver, and the next launch would take 10 µs longer.
 */
#define WATCHED_NS 8000000u
/* While runs are out a sleep ends by itself, so that a fault which wakes nobody is seen. */
#define SLEEP_OUT_NS 20000000u
/*
 * The device thread, which spins around the planned end of a longer run, has the loop look out so long and this
 * share of the plan before, and as long as it spins itself.
 */
#define CALL_NS    60000u
#define CALL_SHARE 16

/* ---- On the thread ---- */

static void hand_back(struct device_thread *t, struct work_list *done)
{
	bool looking;

	pthread_mutex_lock(&t->lock);
	work_list_append(&t->done, done);
	__atomic_store_n(&t->has_done, true, __ATOMIC_RELEASE);
	looking = t->looking;
	pthread_mutex_unlock(&t->lock);
	if (!looking)
		uv_async_send(t->async);
}

static void expect_next(struct device_thread *t, uint64_t now, uint64_t in_ns, bool watched)
{
	t->next_ns = now + in_ns;
	t->spin_ns = watched ? WATCHED_NS : SPIN_AROUND_NS + in_ns / 8;
	t->call_ns = watched ? WATCHED_NS : CALL_NS + in_ns / CALL_SHARE;
}

static void expect_started(struct device_thread *t, const struct device_work *work)
{
	uint64_t now = clock_ns(), plan_ns = (uint64_t)(work->planned_us * 1e3);

	if (t->out == 1 || t->due_ns < now)
		t->due_ns = now;
	t->due_ns += plan_ns;
	if (t->out == 1 || now + plan_ns < t->next_ns) {
		expect_next(t, now, plan_ns, work->run->watched && t->may_call_loop);
		t->next_is_known = work->run->repeats;
	}
}

/* Those that are left have equal shares, for all that is known. */
static void expect_left(struct device_thread *t)
{
	uint64_t now = clock_ns();

	if (t->out)
		expect_next(t, now, t->due_ns > now ? (t->due_ns - now) / t->out : 0, false);
	t->next_is_known = false;
}

static void begin(struct device_thread *t, struct device_work *w)
{
	if (w->execute)
		w->execute(w, t->backend, t->dev);
	if (!w->run) {
		struct work_list done;

		work_list_init(&done);
		work_list_push(&done, w);
		hand_back(t, &done);
		return;
	}
	t->out++;
	expect_started(t, w);
	w->run->pause_at_ns = &t->pause_at_ns;
	w->run->owner = w;
	t->backend->start(t->dev, w->run);
}

/* True if anything finished. */
static bool collect(struct device_thread *t)
{
	struct work_list done;
	struct run *run;

	work_list_init(&done);
	while (t->out && (run = t->backend->poll(t->dev))) {
		t->out--;
		work_list_push(&done, run->owner);
	}
	if (!done.head)
		return false;
	hand_back(t, &done);
	expect_left(t);
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

/* How long to sleep for now, ns; 0: spin. */
static uint64_t nap_ns(const struct device_thread *t, uint64_t idle_since)
{
	uint64_t now = clock_ns();

	if (!t->out)
		return now - idle_since < SPIN_NS ? 0 : UINT64_MAX;
	if (now + t->spin_ns < t->next_ns)
		return t->next_ns - t->spin_ns - now;
	return now < t->next_ns + t->spin_ns ? 0 : SLEEP_OUT_NS;
}

/*
 * Whether the backend has to wake us at the end of a run: not from a sleep that is over before. Its call would
 * keep the driver busy just when the next run is to be started.
 */
static bool may_end_in(const struct device_thread *t, uint64_t ns)
{
	return !t->next_is_known || clock_ns() + ns >= t->next_ns;
}

/* Sleeps until there is new work, a run has finished, the time is over, or it is time to close. False: close.
 */
static bool take_nap(struct device_thread *t, uint64_t ns)
{
	struct timespec until = in_ns(ns < SLEEP_OUT_NS ? ns : SLEEP_OUT_NS);
	bool open;
	int rc = 0;

	pthread_mutex_lock(&t->lock);
	t->notified = false;
	pthread_mutex_unlock(&t->lock);
	if (t->out && t->backend->notify && may_end_in(t, ns))
		t->backend->notify(t->dev, wake_up, t);

	pthread_mutex_lock(&t->lock);
	t->sleeping = true;
	while (!t->inbox.head && !t->notified && t->state != DEVICE_THREAD_CLOSING && rc == 0)
		rc = t->out ? pthread_cond_timedwait(&t->wake, &t->lock, &until)
		            : pthread_cond_wait(&t->wake, &t->lock);
	t->sleeping = false;
	open = t->state != DEVICE_THREAD_CLOSING || t->inbox.head || t->out;
	pthread_mutex_unlock(&t->lock);
	return open;
}

static struct device_work *take_inbox(struct device_thread *t)
{
	struct device_work *all;

	if (!__atomic_load_n(&t->has_inbox, __ATOMIC_ACQUIRE))
		return NULL;
	pthread_mutex_lock(&t->lock);
	all = work_list_take_all(&t->inbox);
	__atomic_store_n(&t->has_inbox, false, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&t->lock);
	return all;
}

/* The end of what is out is near: the loop should be awake when it comes. */
static void call_loop(struct device_thread *t)
{
	if (!t->may_call_loop || t->called_for_ns == t->next_ns ||
	    __atomic_load_n(&t->looking, __ATOMIC_RELAXED) || clock_ns() + t->call_ns < t->next_ns)
		return;
	t->called_for_ns = t->next_ns;
	__atomic_store_n(&t->call_until_ns, t->next_ns + t->spin_ns, __ATOMIC_RELEASE);
	uv_async_send(t->async);
}

static void serve(struct device_thread *t)
{
	uint64_t idle_since = clock_ns(), nap;
	struct spin spin = {0};

	for (;;) {
		struct device_work *w = take_inbox(t), *next;
		bool busy = w != NULL;

		for (; w; w = next) {
			next = w->next;
			begin(t, w);
			if (!t->backend->notify) /* it is through already */
				collect(t);
		}
		busy |= collect(t);
		if (busy) {
			idle_since = clock_ns();
			continue;
		}
		nap = nap_ns(t, idle_since);
		if (t->out)
			call_loop(t);
		if (nap == 0)
			spin_on(&spin, SPIN_LOOKS);
		else if (!take_nap(t, nap))
			return;
	}
}

static int open_and_test(struct device_thread *t)
{
	int rc = t->backend->open(t->index, t->threads, &t->dev, t->open_why);

	if (rc < 0)
		return rc;
	t->backend->describe(t->dev, &t->info);
	rc = canary_self_test(t->backend, t->dev, t->disabled_kernels);
	if (rc > 0)
		return 0;
	snprintf(t->open_why, WHY_BYTES, "%s", rc < 0 ? t->disabled_kernels : "no kernel passed its self-test");
	if (rc == 0)
		t->backend->close(t->dev);
	t->dev = NULL;
	return KOPS_E_FAULT;
}

static void *thread_main(void *arg)
{
	struct device_thread *t = arg;
	int rc;

	rc = open_and_test(t);
	pthread_mutex_lock(&t->lock);
	t->open_status = rc;
	t->state = DEVICE_THREAD_READY;
	pthread_cond_signal(&t->opened);
	pthread_mutex_unlock(&t->lock);
	if (rc < 0)
		return NULL;
	serve(t);
	t->backend->close(t->dev);
	return NULL;
}

/* ---- On the loop thread ---- */

/* Both of its threads poll, so they try for a moment before they sleep. */
static void init_lock(pthread_mutex_t *lock)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
	pthread_mutex_init(lock, &attr);
	pthread_mutexattr_destroy(&attr);
}

void device_thread_init(struct device_thread *t)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	init_lock(&t->lock);
	pthread_cond_init(&t->wake, &attr);
	pthread_cond_init(&t->opened, &attr);
	pthread_condattr_destroy(&attr);
	work_list_init(&t->inbox);
	work_list_init(&t->done);
}

void device_thread_destroy(struct device_thread *t)
{
	pthread_cond_destroy(&t->wake);
	pthread_cond_destroy(&t->opened);
	pthread_mutex_destroy(&t->lock);
}

int device_thread_start(struct device_thread *t, char why[WHY_BYTES])
{
	int rc = pthread_create(&t->thread, NULL, thread_main, t);

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

void device_thread_push(struct device_thread *t, struct device_work *work)
{
	bool wake;

	pthread_mutex_lock(&t->lock);
	work_list_push(&t->inbox, work);
	__atomic_store_n(&t->has_inbox, true, __ATOMIC_RELEASE);
	wake = t->sleeping;
	pthread_mutex_unlock(&t->lock);
	if (wake)
		pthread_cond_signal(&t->wake);
}

struct device_work *device_thread_take_done(struct device_thread *t, bool looking)
{
	struct device_work *done;

	pthread_mutex_lock(&t->lock);
	__atomic_store_n(&t->looking, looking, __ATOMIC_RELAXED);
	done = work_list_take_all(&t->done);
	__atomic_store_n(&t->has_done, false, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&t->lock);
	return done;
}
