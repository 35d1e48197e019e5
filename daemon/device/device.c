#include "device/device.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "device/canary.h"
#include "log.h"

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
/* While runs are out a sleep ends by itself, so that a fault which wakes nobody is seen. */
#define SLEEP_OUT_NS 20000000u
/*
 * After handing over a run that should take less than this, the loop thread looks for its end (and for
 * requests) without sleeping. Waking it through the eventfd costs more than the run itself. Not with fewer CPUs
 * than this: there it would take the client's place, and every message would go from one CPU to the other.
 */
#define LOOK_OUT_CPUS 4
#define SHORT_RUN_US  100.0
#define LOOK_OUT_NS   150000u
/*
 * The device thread, which spins around the planned end of a longer run, has the loop look out so long and this
 * share of the plan before, and as long as it spins itself.
 */
#define CALL_NS        60000u
#define CALL_SHARE     16
#define CANARY_LATE_NS 5000000000u

enum state { OPENING, READY, CLOSING };

struct work_list {
	struct device_work *head, **tail;
};

struct device {
	char name[16];
	const struct backend *backend;
	struct backend_device *dev;
	struct device_info info;
	char disabled_kernels[WHY_BYTES];
	unsigned index, threads;

	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake, opened;
	enum state state;             /* under lock */
	struct work_list inbox, done; /* under lock */
	bool has_inbox;               /* atomic: lets the thread look without the lock */
	bool sleeping;                /* under lock */
	bool looking;                 /* atomic, changed under lock: the loop thread looks at done by itself */
	bool has_done;                /* atomic: lets it look without the lock */
	uint64_t call_until_ns;       /* atomic: the loop thread shall look out until then; 0: it need not */
	uint64_t pause_at_ns;         /* atomic: see device_pause_at() */
	bool notified;                /* under lock: the backend says a run has finished */
	int open_status;              /* under lock until READY */
	char open_why[WHY_BYTES];

	/* device thread only */
	unsigned out;
	uint64_t due_ns;        /* when all that is out should be through, by plan */
	uint64_t next_ns;       /* when the next should be */
	bool next_is_known;     /* from the same run's times before */
	uint64_t spin_ns;       /* around next_ns */
	uint64_t call_ns;       /* before next_ns the loop is called */
	uint64_t called_for_ns; /* the next_ns for which the loop was called */

	/* loop thread only */
	uv_async_t async;
	uv_idle_t look_out;
	uint64_t look_until_ns;
	bool may_look_out;
	unsigned open_handles;
	unsigned runs_out, work_out;
	double planned_us;  /* of the runs out */
	uint64_t oldest_ns; /* when the device last got a run back, or its first run out */
	struct device_stats stats;
	struct canary *canary;
	struct device_work canary_work;
	bool canary_out, canary_right;
	uint64_t canary_sent_ns, canary_right_ns;
	void (*on_canary)(void *arg);
	void *on_canary_arg;
};

static void work_list_init(struct work_list *l)
{
	l->head = NULL;
	l->tail = &l->head;
}

static void work_list_push(struct work_list *l, struct device_work *w)
{
	w->next = NULL;
	*l->tail = w;
	l->tail = &w->next;
}

static void work_list_append(struct work_list *l, struct work_list *more)
{
	*l->tail = more->head;
	l->tail = more->tail;
}

static struct device_work *work_list_take_all(struct work_list *l)
{
	struct device_work *all = l->head;

	work_list_init(l);
	return all;
}

/* ---- The device thread ---- */

static void hand_back(struct device *d, struct work_list *done)
{
	bool looking;

	pthread_mutex_lock(&d->lock);
	work_list_append(&d->done, done);
	__atomic_store_n(&d->has_done, true, __ATOMIC_RELEASE);
	looking = d->looking;
	pthread_mutex_unlock(&d->lock);
	if (!looking)
		uv_async_send(&d->async);
}

/* By plan, until it comes back, through or paused. */
static double slice_plan_us(const struct run *run)
{
	double us = run->next_op == 0 && run->next_part == 0 ? run->plan_us : run_left_us(run);

	return us < PART_US ? us : PART_US;
}

static void expect_next(struct device *d, uint64_t now, uint64_t in_ns)
{
	d->next_ns = now + in_ns;
	d->spin_ns = SPIN_AROUND_NS + in_ns / 8;
	d->call_ns = CALL_NS + in_ns / CALL_SHARE;
}

static void expect_started(struct device *d, const struct run *run)
{
	uint64_t now = clock_ns(), plan_ns = (uint64_t)(slice_plan_us(run) * 1e3);

	if (d->out == 1 || d->due_ns < now)
		d->due_ns = now;
	d->due_ns += plan_ns;
	if (d->out == 1 || now + plan_ns < d->next_ns) {
		expect_next(d, now, plan_ns);
		d->next_is_known = run->repeats;
	}
}

/* Those that are left have equal shares, for all that is known. */
static void expect_left(struct device *d)
{
	uint64_t now = clock_ns();

	if (d->out)
		expect_next(d, now, d->due_ns > now ? (d->due_ns - now) / d->out : 0);
	d->next_is_known = false;
}

static void begin(struct device *d, struct device_work *w)
{
	if (w->execute)
		w->execute(w, d->backend, d->dev);
	if (!w->run) {
		struct work_list done;

		work_list_init(&done);
		work_list_push(&done, w);
		hand_back(d, &done);
		return;
	}
	d->out++;
	expect_started(d, w->run);
	w->run->pause_at_ns = &d->pause_at_ns;
	w->run->owner = w;
	d->backend->start(d->dev, w->run);
}

/* True if anything finished. */
static bool collect(struct device *d)
{
	struct work_list done;
	struct run *run;

	work_list_init(&done);
	while (d->out && (run = d->backend->poll(d->dev))) {
		d->out--;
		work_list_push(&done, run->owner);
	}
	if (!done.head)
		return false;
	hand_back(d, &done);
	expect_left(d);
	return true;
}

static void wake_up(void *arg)
{
	struct device *d = arg;

	pthread_mutex_lock(&d->lock);
	d->notified = true;
	pthread_cond_signal(&d->wake);
	pthread_mutex_unlock(&d->lock);
}

static struct timespec in_ns(uint64_t ns)
{
	uint64_t at = clock_ns() + ns;

	return (struct timespec){.tv_sec = (time_t)(at / 1000000000u), .tv_nsec = (long)(at % 1000000000u)};
}

/* How long to sleep for now, ns; 0: spin. */
static uint64_t nap_ns(const struct device *d, uint64_t idle_since)
{
	uint64_t now = clock_ns();

	if (!d->out)
		return now - idle_since < SPIN_NS ? 0 : UINT64_MAX;
	if (now + d->spin_ns < d->next_ns)
		return d->next_ns - d->spin_ns - now;
	return now < d->next_ns + d->spin_ns ? 0 : SLEEP_OUT_NS;
}

/*
 * Whether the backend has to wake us at the end of a run: not from a sleep that is over before. Its call would
 * keep the driver busy just when the next run is to be started.
 */
static bool may_end_in(const struct device *d, uint64_t ns)
{
	return !d->next_is_known || clock_ns() + ns >= d->next_ns;
}

/* Sleeps until there is new work, a run has finished, the time is over, or it is time to close. False: close.
 */
static bool take_nap(struct device *d, uint64_t ns)
{
	struct timespec until = in_ns(ns < SLEEP_OUT_NS ? ns : SLEEP_OUT_NS);
	bool open;
	int rc = 0;

	pthread_mutex_lock(&d->lock);
	d->notified = false;
	pthread_mutex_unlock(&d->lock);
	if (d->out && d->backend->notify && may_end_in(d, ns))
		d->backend->notify(d->dev, wake_up, d);

	pthread_mutex_lock(&d->lock);
	d->sleeping = true;
	while (!d->inbox.head && !d->notified && d->state != CLOSING && rc == 0)
		rc = d->out ? pthread_cond_timedwait(&d->wake, &d->lock, &until)
		            : pthread_cond_wait(&d->wake, &d->lock);
	d->sleeping = false;
	open = d->state != CLOSING || d->inbox.head || d->out;
	pthread_mutex_unlock(&d->lock);
	return open;
}

static struct device_work *take_inbox(struct device *d)
{
	struct device_work *all;

	if (!__atomic_load_n(&d->has_inbox, __ATOMIC_ACQUIRE))
		return NULL;
	pthread_mutex_lock(&d->lock);
	all = work_list_take_all(&d->inbox);
	__atomic_store_n(&d->has_inbox, false, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&d->lock);
	return all;
}

/* The end of what is out is near: the loop should be awake when it comes. */
static void call_loop(struct device *d)
{
	if (!d->may_look_out || d->called_for_ns == d->next_ns ||
	    __atomic_load_n(&d->looking, __ATOMIC_RELAXED) || clock_ns() + d->call_ns < d->next_ns)
		return;
	d->called_for_ns = d->next_ns;
	__atomic_store_n(&d->call_until_ns, d->next_ns + d->spin_ns, __ATOMIC_RELEASE);
	uv_async_send(&d->async);
}

static void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

static void serve(struct device *d)
{
	uint64_t idle_since = clock_ns(), nap;

	for (;;) {
		struct device_work *w = take_inbox(d), *next;
		bool busy = w != NULL;

		for (; w; w = next) {
			next = w->next;
			begin(d, w);
			if (!d->backend->notify) /* it is through already */
				collect(d);
		}
		busy |= collect(d);
		if (busy) {
			idle_since = clock_ns();
			continue;
		}
		nap = nap_ns(d, idle_since);
		if (d->out)
			call_loop(d);
		if (nap == 0)
			relax();
		else if (!take_nap(d, nap))
			return;
	}
}

static int open_and_test(struct device *d)
{
	int rc = d->backend->open(d->index, d->threads, &d->dev, d->open_why);

	if (rc < 0)
		return rc;
	d->backend->describe(d->dev, &d->info);
	rc = canary_self_test(d->backend, d->dev, d->disabled_kernels);
	if (rc > 0)
		return 0;
	snprintf(d->open_why, WHY_BYTES, "%s", rc < 0 ? d->disabled_kernels : "no kernel passed its self-test");
	if (rc == 0)
		d->backend->close(d->dev);
	d->dev = NULL;
	return KOPS_E_FAULT;
}

static void *device_thread(void *arg)
{
	struct device *d = arg;
	int rc;

	rc = open_and_test(d);
	pthread_mutex_lock(&d->lock);
	d->open_status = rc;
	d->state = READY;
	pthread_cond_signal(&d->opened);
	pthread_mutex_unlock(&d->lock);
	if (rc < 0)
		return NULL;
	serve(d);
	d->backend->close(d->dev);
	return NULL;
}

/* ---- The loop thread ---- */

static void finish_run(struct device *d, const struct device_work *work)
{
	d->planned_us = --d->runs_out ? d->planned_us - work->planned_us : 0;
	d->oldest_ns = clock_ns();
	d->stats.busy_us += work->run->slice_us;
}

static void take_done(struct device *d, bool looking)
{
	struct device_work *w, *next;

	pthread_mutex_lock(&d->lock);
	__atomic_store_n(&d->looking, looking, __ATOMIC_RELAXED);
	w = work_list_take_all(&d->done);
	__atomic_store_n(&d->has_done, false, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&d->lock);
	for (; w; w = next) {
		next = w->next;
		d->work_out--;
		if (w->run)
			finish_run(d, w);
		w->done(w);
	}
}

/* An active idle handle keeps libuv from sleeping: sockets are polled, and this runs, again and again. */
static void on_look_out(uv_idle_t *idle)
{
	struct device *d = idle->data;

	if (d->work_out && clock_ns() < d->look_until_ns) {
		if (__atomic_load_n(&d->has_done, __ATOMIC_ACQUIRE))
			take_done(d, true);
		return;
	}
	uv_idle_stop(idle);
	take_done(d, false);
}

static void look_out(struct device *d, uint64_t until_ns)
{
	d->look_until_ns = until_ns;
	uv_idle_start(&d->look_out, on_look_out);
}

static void on_async(uv_async_t *async)
{
	struct device *d = async->data;
	uint64_t until_ns = __atomic_exchange_n(&d->call_until_ns, 0, __ATOMIC_ACQ_REL);

	if (until_ns)
		look_out(d, until_ns);
	take_done(d, uv_is_active((uv_handle_t *)&d->look_out));
}

/* Both of its threads poll, so they try for a moment before they sleep. */
static void init_lock(pthread_mutex_t *lock)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
	pthread_mutex_init(lock, &attr);
	pthread_mutexattr_destroy(&attr);
}

static int start_thread(struct device *d)
{
	pthread_condattr_t attr;
	int rc;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	init_lock(&d->lock);
	pthread_cond_init(&d->wake, &attr);
	pthread_cond_init(&d->opened, &attr);
	pthread_condattr_destroy(&attr);
	rc = pthread_create(&d->thread, NULL, device_thread, d);
	if (rc) {
		snprintf(d->open_why, WHY_BYTES,
		         "cannot start a thread: %s; raise the limits on processes (TasksMax, ulimit -u) and "
		         "address space (ulimit -v)",
		         strerror(rc));
		return KOPS_E_SYSTEM;
	}
	pthread_mutex_lock(&d->lock);
	while (d->state == OPENING)
		pthread_cond_wait(&d->opened, &d->lock);
	rc = d->open_status;
	pthread_mutex_unlock(&d->lock);
	if (rc < 0)
		pthread_join(d->thread, NULL);
	return rc;
}

static void destroy(struct device *d)
{
	pthread_cond_destroy(&d->wake);
	pthread_cond_destroy(&d->opened);
	pthread_mutex_destroy(&d->lock);
	canary_free(d->canary);
	free(d);
}

static void on_handle_closed(uv_handle_t *handle)
{
	struct device *d = handle->data;

	if (--d->open_handles == 0)
		destroy(d);
}

static void close_handles(struct device *d)
{
	d->open_handles = 2;
	uv_close((uv_handle_t *)&d->async, on_handle_closed);
	uv_close((uv_handle_t *)&d->look_out, on_handle_closed);
}

static void canary_done(struct device_work *work)
{
	struct device *d = (struct device *)((char *)work - offsetof(struct device, canary_work));

	d->canary_out = false;
	d->canary_right = canary_is_right(d->canary);
	if (d->canary_right)
		d->canary_right_ns = clock_ns();
	else
		log_error("device %s failed its self-check: %s", d->name,
		          work->run->error[0] ? work->run->error : "its result differs from the reference");
	if (d->on_canary)
		d->on_canary(d->on_canary_arg);
}

void device_start_canary(struct device *d)
{
	struct run *run;

	if (d->canary_out)
		return;
	run = canary_prepare(d->canary, "");
	if (!run || d->backend->plan(d->dev, run) < 0) {
		d->canary_right = false;
		return;
	}
	d->canary_out = true;
	d->canary_sent_ns = clock_ns();
	d->canary_work = (struct device_work){.run = run, .done = canary_done};
	device_submit(d, &d->canary_work);
}

int device_open(uv_loop_t *loop, const char *name, const struct backend *backend, unsigned index,
                unsigned threads, struct device **ret_device, char why[WHY_BYTES])
{
	struct device *d = calloc(1, sizeof *d);
	int rc;

	if (!d) {
		snprintf(why, WHY_BYTES, "out of memory");
		return KOPS_E_NOMEM;
	}
	snprintf(d->name, sizeof d->name, "%s", name);
	d->backend = backend;
	d->index = index;
	d->threads = threads;
	d->async.data = d;
	work_list_init(&d->inbox);
	work_list_init(&d->done);
	d->canary = canary_new(op_by_name("gemm"), KOPS_F32);
	if (!d->canary || uv_async_init(loop, &d->async, on_async) < 0) {
		snprintf(why, WHY_BYTES, "out of memory");
		canary_free(d->canary);
		free(d);
		return KOPS_E_NOMEM;
	}
	uv_idle_init(loop, &d->look_out);
	d->may_look_out = uv_available_parallelism() >= LOOK_OUT_CPUS;
	d->look_out.data = d;
	rc = start_thread(d);
	if (rc < 0) {
		snprintf(why, WHY_BYTES, "%s", d->open_why);
		close_handles(d);
		return rc;
	}
	uv_unref((uv_handle_t *)&d->async);
	device_start_canary(d);
	*ret_device = d;
	return 0;
}

void device_close(struct device *d)
{
	if (!d)
		return;
	pthread_mutex_lock(&d->lock);
	d->state = CLOSING;
	pthread_cond_signal(&d->wake);
	pthread_mutex_unlock(&d->lock);
	pthread_join(d->thread, NULL);
	close_handles(d);
}

void device_pause_at(struct device *d, uint64_t ns)
{
	__atomic_store_n(&d->pause_at_ns, ns, __ATOMIC_RELAXED);
}

void device_submit(struct device *d, struct device_work *work)
{
	bool wake;

	d->work_out++;
	if (work->run && d->runs_out++ == 0)
		d->oldest_ns = clock_ns();
	if (work->run) {
		work->planned_us = slice_plan_us(work->run);
		d->planned_us += work->planned_us;
		device_pause_at(d, UINT64_MAX);
	}
	pthread_mutex_lock(&d->lock);
	work_list_push(&d->inbox, work);
	__atomic_store_n(&d->has_inbox, true, __ATOMIC_RELEASE);
	wake = d->sleeping;
	pthread_mutex_unlock(&d->lock);
	if (wake)
		pthread_cond_signal(&d->wake);
	if (d->may_look_out && work->run && work->run->plan_us < SHORT_RUN_US)
		look_out(d, clock_ns() + LOOK_OUT_NS);
}

/* With nothing in its inbox the device's thread leaves the backend alone. */
bool device_run_now(struct device *d, struct device_work *work)
{
	if (d->work_out || device_can_hang(d))
		return false;
	work->run->pause_at_ns = NULL;
	d->backend->start(d->dev, work->run);
	d->backend->poll(d->dev);
	d->oldest_ns = clock_ns();
	d->stats.busy_us += work->run->slice_us;
	work->done(work);
	return true;
}

int device_plan(const struct device *d, struct run *run)
{
	return d->backend->plan(d->dev, run);
}

unsigned device_rivals(const struct device *d, const struct op_args *args, struct rival ret[RIVALS_MAX])
{
	return d->backend->rivals ? d->backend->rivals(d->dev, args, ret) : 0;
}

const char *device_name(const struct device *d)
{
	return d->name;
}

const struct device_info *device_info(const struct device *d)
{
	return &d->info;
}

const char *device_disabled_kernels(const struct device *d)
{
	return d->disabled_kernels;
}

const struct backend *device_backend(const struct device *d)
{
	return d->backend;
}

const void *device_owner(const struct device *d)
{
	return d->dev;
}

unsigned device_runs_out(const struct device *d)
{
	return d->runs_out;
}

unsigned device_work_out(const struct device *d)
{
	return d->work_out;
}

bool device_has_room(const struct device *d)
{
	return d->planned_us < d->info.crowd_us || d->runs_out == 0 ||
	       (d->runs_out < d->info.depth && d->planned_us < d->info.depth_us);
}

struct device_stats *device_stats(struct device *d)
{
	return &d->stats;
}

uint64_t device_room_bytes(const struct device *d)
{
	return d->info.memory_bytes - d->stats.resident_bytes; /* those are admitted up to that, buffer.c */
}

bool device_can_hang(const struct device *d)
{
	return d->backend->notify != NULL;
}

bool device_is_hung(const struct device *d, uint64_t hang_ns)
{
	return device_can_hang(d) && d->runs_out && clock_ns() - d->oldest_ns > hang_ns;
}

bool device_is_healthy(const struct device *d, uint64_t hang_ns)
{
	bool others_out = d->runs_out > (d->canary_out ? 1u : 0u);

	if (others_out)
		return !device_is_hung(d, hang_ns);
	if (d->canary_out && clock_ns() - d->canary_sent_ns > CANARY_LATE_NS)
		return false;
	return d->canary_right;
}

uint64_t device_canary_age_ns(const struct device *d)
{
	return d->canary_right_ns ? clock_ns() - d->canary_right_ns : UINT64_MAX;
}

const char *device_fault(const struct device *d)
{
	const struct run *run = d->canary_work.run;

	return !d->canary_out && run && run->status == KOPS_E_FAULT ? run->error : NULL;
}

bool device_canary_is_out(const struct device *d)
{
	return d->canary_out;
}

void device_on_canary(struct device *d, void (*fn)(void *arg), void *arg)
{
	d->on_canary = fn;
	d->on_canary_arg = arg;
}
