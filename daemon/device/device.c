#include "device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "cpus.h"
#include "device/canary.h"
#include "device/thread.h"
#include "log.h"
#include "plan/plan.h"
#include "share/turns.h"

/*
 * After handing over a run that should take less than SHORT_RUN_US, the loop thread polls for its end and for
 * requests. Waking it through the eventfd costs more than the run itself. With fewer than LOOK_OUT_CPUS CPUs it
 * does not poll, because that would take the client's CPU and move every message between CPUs.
 */
#define LOOK_OUT_CPUS  4
#define SHORT_RUN_US   100.0
#define LOOK_OUT_NS    150000u
#define CANARY_LATE_NS 5000000000u
#define TELL_NS        10000u

/* ---- Work ---- */

/* A run is back from the device that it kept busy. */
static void note_busy(struct device *d, const struct run *run, uint64_t now)
{
	d->stats.busy_us += run->slice_us;
	load_note(&d->stats.load, (uint64_t)(run->slice_us * 1e3), now);
}

static void finish_run(struct device *d, const struct device_work *work, uint64_t now)
{
	if (work->beside) {
		d->beside_out--;
		note_busy(d, work->run, now);
		return;
	}
	d->planned_us = --d->runs_out ? d->planned_us - work->planned_us : 0;
	d->oldest_ns = now;
	if (work != &d->canary_work)
		note_busy(d, work->run, now);
}

static void on_look_out(uv_idle_t *idle);

/*
 * Calls done() of finished work. If users share the loop, it stops after TELL_NS, and the rest waits until
 * requests were read. For a user alone it does not stop, since that would only wake clients for part of what
 * they wait for.
 */
static void finish_some(struct device *d)
{
	uint64_t began = clock_ns(), now = began;
	bool shares = d->turns && turns_are_shared(d->turns, began);
	struct device_work *w;

	while ((w = d->back) && now - began < TELL_NS) {
		d->back = w->next;
		if (d->back && d->back->run)
			__builtin_prefetch(&d->back->run->status); /* the device's thread wrote it */
		d->work_out--;
		if (w->run)
			finish_run(d, w, now);
		w->done(w);
		if (shares)
			now = clock_ns();
	}
	if (d->back)
		uv_idle_start(&d->look_out, on_look_out);
}

/* The short runs first: their clients wait for little else. */
static struct device_work *take_from_threads(struct device *d, bool looking)
{
	struct device_work *back = d->beside_out ? device_thread_take_done(&d->beside, false) : NULL,
	                   **end = &back;

	while (*end)
		end = &(*end)->next;
	*end = device_thread_take_done(&d->thread, looking);
	return back;
}

static void take_done(struct device *d, bool looking)
{
	if (!d->back)
		d->back = take_from_threads(d, looking);
	if (d->back)
		finish_some(d);
}

bool device_look(struct device *d)
{
	if (d->back || !device_looks_out(d) || !device_thread_has_done(&d->thread))
		return false;
	take_done(d, true);
	return true;
}

/* Polls. An active idle handle keeps libuv from sleeping, so sockets are polled and this runs repeatedly. */
static void on_look_out(uv_idle_t *idle)
{
	struct device *d = idle->data;
	uint64_t now = clock_ns();

	if (d->back) {
		finish_some(d);
		return;
	}
	if (d->looks_anew)
		d->look_until_ns = now + LOOK_OUT_NS;
	d->looks_anew = false;
	if (d->work_out && now < d->look_until_ns) {
		if (!device_look(d))
			spin_on(&d->spin, SPIN_ROUNDS);
		return;
	}
	uv_idle_stop(idle);
	take_done(d, false);
}

static void on_woken(uv_poll_t *woken, int status, int events)
{
	struct device *d = woken->data;
	uint64_t until_ns;
	eventfd_t count;

	(void)status;
	(void)events;
	eventfd_read(d->thread.wake_fd, &count);
	until_ns = device_thread_take_call(&d->thread);
	if (until_ns) {
		d->look_until_ns = until_ns;
		uv_idle_start(&d->look_out, on_look_out);
	}
	take_done(d, device_looks_out(d));
}

static void free_device(struct device *d)
{
	device_thread_destroy(&d->thread);
	device_thread_destroy(&d->beside);
	close(d->thread.wake_fd);
	canary_free(d->canary);
	free(d);
}

static void on_handle_closed(uv_handle_t *handle)
{
	struct device *d = handle->data;

	if (--d->open_handles == 0)
		free_device(d);
}

static void close_handles(struct device *d)
{
	d->open_handles = 2;
	uv_close((uv_handle_t *)&d->woken, on_handle_closed);
	uv_close((uv_handle_t *)&d->look_out, on_handle_closed);
}

static void canary_done(struct device_work *work)
{
	struct device *d = container_of(work, struct device, canary_work);

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

/* A canary that cannot be planned, perhaps out of host memory, shows no fault of the device. */
static int send_canary(struct device *d, char why[WHY_BYTES])
{
	struct run *run = canary_prepare(d->canary, "");
	int rc = plan_run(d->planner, run);

	if (rc < 0) {
		run->status = rc;
		snprintf(why, WHY_BYTES, "%s", run->error);
		return rc;
	}
	d->canary_out = true;
	d->canary_sent_ns = clock_ns();
	d->canary_work = (struct device_work){.run = run, .done = canary_done};
	device_submit(d, &d->canary_work);
	return 0;
}

void device_start_canary(struct device *d)
{
	char why[WHY_BYTES];

	if (d->canary_out || send_canary(d, why) == 0)
		return;
	d->canary_right = false;
	log_error("device %s had no self-check: %s", d->name, why);
}

/* Opens the device's handles and makes its canary. */
static int open_handles(struct device *d, uv_loop_t *loop)
{
	d->canary = canary_new(op_by_name("gemm"), KOPS_F32);
	d->thread.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (!d->canary || d->thread.wake_fd < 0 || uv_poll_init(loop, &d->woken, d->thread.wake_fd) < 0) {
		canary_free(d->canary);
		if (d->thread.wake_fd >= 0)
			close(d->thread.wake_fd);
		return KOPS_E_NOMEM;
	}
	uv_poll_start(&d->woken, UV_READABLE, on_woken);
	uv_idle_init(loop, &d->look_out);
	d->woken.data = d->look_out.data = d;
	return 0;
}

static void init_threads(struct device *d, unsigned index, const struct driver_limits *limits)
{
	struct device_thread *t = &d->thread;

	device_thread_init(t);
	t->driver = d->driver;
	t->index = index;
	t->limits = *limits;
	t->may_call_loop = d->may_look_out;
	device_thread_init(&d->beside);
	d->beside.driver = d->driver;
	d->beside.beside = t;
	d->beside.wake_fd = t->wake_fd;
}

/* On failure no thread is left. */
static int start_threads(struct device *d, char why[WHY_BYTES])
{
	int rc = device_thread_start(&d->thread, why);

	if (rc < 0 || !d->driver->open_beside)
		return rc;
	rc = device_thread_start(&d->beside, why);
	if (rc < 0)
		device_thread_stop(&d->thread);
	return rc;
}

/* calloc() would not align it. */
static struct device *new_device(void)
{
	struct device *d = aligned_alloc(_Alignof(struct device), sizeof *d);

	if (d)
		memset(d, 0, sizeof *d);
	return d;
}

int device_open(uv_loop_t *loop, const char *name, const struct driver *driver, unsigned index,
                const struct driver_limits *limits, struct device **ret_device, char why[WHY_BYTES])
{
	struct device *d = new_device();
	int rc;

	if (!d || open_handles(d, loop) < 0) {
		snprintf(why, WHY_BYTES, "out of memory or descriptors");
		free(d);
		return KOPS_E_NOMEM;
	}
	snprintf(d->name, sizeof d->name, "%s", name);
	d->may_look_out = cpus_count() >= LOOK_OUT_CPUS;
	d->driver = driver;
	d->planner = &d->thread.planner;
	d->info = &d->planner->info;
	d->disabled_kernels = d->thread.disabled_kernels;
	init_threads(d, index, limits);
	rc = start_threads(d, why);
	if (rc < 0) {
		close_handles(d);
		return rc;
	}
	d->dev = d->thread.dev;
	uv_unref((uv_handle_t *)&d->woken);
	rc = send_canary(d, why);
	if (rc < 0) {
		device_close(d);
		return rc;
	}
	*ret_device = d;
	return 0;
}

void device_close(struct device *d)
{
	if (!d)
		return;
	if (d->driver->open_beside)
		device_thread_stop(&d->beside);
	device_thread_stop(&d->thread);
	close_handles(d);
}

/* The planned time until the run comes back, ended or paused. */
static double slice_plan_us(const struct run *run)
{
	double us = run->next_op == 0 && run->next_part == 0 ? run->plan_us : run_left_us(run);

	return us < PART_US ? us : PART_US;
}

void device_pause_at(struct device *d, uint64_t ns)
{
	__atomic_store_n(&d->thread.pause_at_ns, ns, __ATOMIC_RELAXED);
}

/* The loop does not poll for its end: it would take one of the CPUs that the long run uses. */
static void submit_beside(struct device *d, struct device_work *work)
{
	d->work_out++;
	d->beside_out++;
	work->planned_us = work->run->plan_us;
	device_thread_push(&d->beside, work, false);
}

void device_submit(struct device *d, struct device_work *work)
{
	bool looks = d->may_look_out && work->run && work->run->plan_us < SHORT_RUN_US;

	if (work->beside) {
		submit_beside(d, work);
		return;
	}
	d->work_out++;
	if (work->run && d->runs_out++ == 0)
		d->oldest_ns = clock_ns();
	if (work->run) {
		work->planned_us = slice_plan_us(work->run);
		d->planned_us += work->planned_us;
		device_pause_at(d, UINT64_MAX);
	}
	device_thread_push(&d->thread, work, looks);
	if (looks) {
		d->looks_anew = true;
		uv_idle_start(&d->look_out, on_look_out);
	}
}

/* A device's thread does not use the driver while its inbox is empty. */
bool device_run_now(struct device *d, struct device_work *work)
{
	struct device_state *dev = work->beside ? d->beside.dev : d->dev;
	bool busy = work->beside ? d->beside_out > 0 : d->work_out > 0;
	uint64_t now;

	if (busy || device_can_hang(d))
		return false;
	work->run->pause_at_ns = NULL;
	d->driver->start(dev, work->run);
	d->driver->poll(dev);
	now = clock_ns();
	if (!work->beside)
		d->oldest_ns = now;
	note_busy(d, work->run, now);
	work->done(work);
	return true;
}

static bool computes_apart(const struct run *run)
{
	for (unsigned i = 0; i < run->n_ops; i++) {
		const struct kernel *kernel = run->ops[i].kernel;

		if (kernel->exclusive && kernel->exclusive(&run->ops[i].args))
			return false;
	}
	return true;
}

bool device_has_room_beside(const struct device *d, const struct run *run)
{
	return d->driver->open_beside && d->planned_us >= d->info->depth_us && d->beside_out < d->info->depth &&
	       run->plan_us <= d->info->beside_us && computes_apart(run);
}

unsigned device_jobs_out(const struct device *d)
{
	return d->runs_out - (d->canary_out ? 1u : 0u);
}

double device_live_us(const struct device *d)
{
	return device_jobs_out(d) ? clock_us(d->oldest_ns, clock_ns()) : 0;
}

double device_busy_us(struct device *d)
{
	double us = d->stats.busy_us + device_live_us(d);

	if (d->told_busy_us < us)
		d->told_busy_us = us;
	return d->told_busy_us;
}

double device_load(const struct device *d)
{
	return load_share(&d->stats.load, (uint64_t)(device_live_us(d) * 1e3), clock_ns());
}

bool device_is_hung(const struct device *d, uint64_t hang_ns)
{
	return device_can_hang(d) && d->runs_out && clock_ns() - d->oldest_ns > hang_ns;
}

bool device_is_healthy(const struct device *d, uint64_t hang_ns)
{
	bool others_out = device_jobs_out(d) > 0;

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

void device_on_canary(struct device *d, void (*fn)(void *arg), void *arg)
{
	d->on_canary = fn;
	d->on_canary_arg = arg;
}
