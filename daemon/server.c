#include "server.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/slice.h"
#include "config/load.h"
#include "core_dump.h"
#include "decode.h"
#include "device/devices.h"
#include "dispatch/jobs.h"
#include "host_memory.h"
#include "job/memory/published.h"
#include "log.h"
#include "notify.h"
#include "session/sessions.h"
#include "session/verbs.h"
#include "share/watch.h"

#define WARM_POOL_GPU_BYTES (512ull << 20)
#define HANG_CHECK_MS       1000
#define CLOSING_MAX         1024
#define RECEIVERS_HUNG_MAX  256
#define CLOSERS_NS          500000000u
#define CPUS_PER_ZEROER     2
#define CPUS_PER_CLOSER     4  /* a user may have one closer per this many CPUs */
#define EXIT_DEVICE_FAILED  70 /* EX_SOFTWARE: the supervisor starts a new process */

static struct server *of_engine(struct engine *engine)
{
	return container_of(engine, struct server, engine);
}

static void __attribute__((noreturn))
device_failed(struct engine *engine, const struct device *device, const char *why)
{
	struct server *s = of_engine(engine);

	/* Jobs are not answered: clients see the connection end and send their jobs to the next process. */
	log_error("device %s failed: %s; exiting so that a fresh process takes over", device->name, why);
	marks_note_crash(engine->marks);
	listener_unlink(&s->listener);
	_exit(EXIT_DEVICE_FAILED);
}

/* ---- Crashes ---- */

/*
 * Libraries abort if they lack something at their start; libuv, for example, if it finds no descriptors for its
 * pipe or cannot watch it. Until kopsd serves, an abort is a failed start, and not a crash.
 */
static void on_abort_at_start(int number)
{
	static const char line[] = "kopsd cannot start: a library called abort(), out of memory, threads, file "
	                           "descriptors or fs.epoll.max_user_watches; raise the limit that was reached";

	(void)number;
	log_error("%s", line);
	_exit(EXIT_FAILURE);
}

static struct marks *marks_of_process; /* for a signal handler */

/* Sanitizers have their own handlers, which report more. */
#ifdef KOPS_SANITIZE
static void watch_crashes(void)
{
	signal(SIGABRT, SIG_DFL);
}
#else
static void on_crash(int number)
{
	core_dump_exclude_libraries();
	marks_note_crash(marks_of_process);
	raise(number); /* its disposition is the default again: see below */
}

static void watch_crashes(void)
{
	static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP};
	struct sigaction action = {.sa_handler = on_crash, .sa_flags = SA_RESETHAND | SA_NODEFER};

	for (unsigned i = 0; i < sizeof signals / sizeof signals[0]; i++)
		sigaction(signals[i], &action, NULL);
}
#endif

/* ---- Progress of a drain ---- */

static void on_drain_check(uv_timer_t *timer)
{
	struct server *s = timer->data;

	if (sessions_are_quiet(&s->sessions))
		uv_stop(&s->loop);
}

/* Deferred to the loop, because callers are in the middle of ending jobs and sessions. */
static void progress(struct engine *engine)
{
	struct server *s = of_engine(engine);

	if (s->state == SERVER_DRAINING)
		timers_start(&s->drain_check, on_drain_check, 0, 0);
}

/* ---- Health ---- */

static void on_hang_check(uv_timer_t *timer)
{
	struct server *s = timer->data;
	bool out = false;

	for (unsigned i = 0; i < s->engine.n_devices; i++) {
		struct engine_device *d = &s->engine.devices[i];
		bool hung = device_is_hung(d->device, s->config.hang_timeout * 1000000);
		/* It must be hung twice: the first check after a SIGSTOP comes before runs that finished
		 * meanwhile. */
		if (hung && d->seen_hung)
			device_failed(&s->engine, d->device, "no job finished within hang-timeout");
		d->seen_hung = hung;
		out |= d->device->runs_out > 0;
	}
	if (!out)
		uv_timer_stop(timer);
}

static void watch_runs(struct engine *engine)
{
	struct server *s = of_engine(engine);

	if (engine->pinning && !uv_is_active((uv_handle_t *)&s->hang_timer))
		timers_start(&s->hang_timer, on_hang_check, HANG_CHECK_MS, HANG_CHECK_MS);
}

static void on_watchdog(uv_timer_t *timer)
{
	struct server *s = timer->data;

	if (!engine_sick_device(&s->engine))
		notify("WATCHDOG=1");
	for (unsigned i = 0; i < s->engine.n_devices; i++)
		device_start_canary(s->engine.devices[i].device);
	watch_runs(&s->engine);
}

static void become_ready(struct server *s)
{
	char status[128];

	s->state = SERVER_SERVING;
	watch_crashes();
	core_dump_exclude_libraries(); /* for signals without a handler */
	snprintf(status, sizeof status, "READY=1\nSTATUS=Serving with %u device%s", s->engine.n_devices,
	         s->engine.n_devices == 1 ? "" : "s");
	notify(status);
	log_notice("kopsd " KOPS_VERSION " ready: %u device%s, %s", s->engine.n_devices,
	           s->engine.n_devices == 1 ? "" : "s",
	           s->listener.owns_path ? s->config.socket : "inherited socket");
	listener_start(&s->listener);
	if (s->watchdog_ms)
		timers_start(&s->watchdog_timer, on_watchdog, 0, s->watchdog_ms / 3 + 1);
}

static void on_canary(void *arg)
{
	struct server *s = arg;

	for (unsigned i = 0; i < s->engine.n_devices; i++)
		if (device_fault(s->engine.devices[i].device))
			device_failed(&s->engine, s->engine.devices[i].device,
			              device_fault(s->engine.devices[i].device));
	sessions_canaries_back(&s->sessions);
	progress(&s->engine);
	if (s->state != SERVER_STARTING)
		return;
	for (unsigned i = 0; i < s->engine.n_devices; i++)
		if (s->engine.devices[i].device->canary_out)
			return;
	if (!engine_sick_device(&s->engine)) {
		become_ready(s);
		return;
	}
	s->exit_code = EXIT_DEVICE_FAILED;
	uv_stop(&s->loop);
}

/* ---- Memory ---- */

/* For host_memory_tell_refusals(). */
static void log_refusal(const char *details)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct log_limit limit;

	pthread_mutex_lock(&lock);
	if (log_may(&limit))
		log_notice("%s", details);
	pthread_mutex_unlock(&lock);
}

/*
 * Limits what is kept for clients beside buffers. Unread replies and the first prepared jobs are not checked:
 * they are part of the sixteenth that host_memory.h keeps free.
 */
static void limit_by_memory(struct engine *e)
{
	uint64_t total = host_memory_total();

	e->prepared_max = total / 8;
	e->prepared_growth.free_bytes = total / 64;
	e->accounts.unread_max = total / 64;
}

/* ---- Signals ---- */

static void on_drain_timeout(uv_timer_t *timer)
{
	struct server *s = timer->data;

	log_warning("jobs are still running after drain-timeout; their clients will send them again");
	uv_stop(&s->loop);
}

static void on_stop_signal(uv_signal_t *signal, int number)
{
	struct server *s = signal->data;

	(void)number;
	if (s->state == SERVER_DRAINING || s->state == SERVER_STOPPED)
		return;
	log_notice("stopping: finishing running jobs");
	notify("STOPPING=1\nSTATUS=Finishing running jobs");
	s->state = SERVER_DRAINING;
	s->sessions.stopping = true;
	listener_stop(&s->listener);
	jobs_shut_down(&s->engine);
	timers_start(&s->drain_timer, on_drain_timeout, s->config.drain_timeout, 0);
	progress(&s->engine);
}

static void log_unknown_owners(const struct config *config)
{
	for (unsigned i = 0; i < config->n_owners; i++) {
		const struct config_owner *owner = &config->owners[i];

		if (!owner->is_known)
			log_warning("%s: no %s is named \"%s\"; this section is ignored", owner->origin,
			            owner->is_group ? "group" : "user", owner->name);
	}
}

static void tell_reloaded(const struct server *s)
{
	if (s->state == SERVER_SERVING && !s->reload.is_wanted_again)
		notify("READY=1");
}

static void on_reloaded(struct sessions *sessions)
{
	log_notice("configuration reloaded");
	tell_reloaded(container_of(sessions, struct server, sessions));
}

static void apply_settings(struct server *s, const struct config *fresh)
{
	char names[CONFIG_WHY_BYTES];

	if (config_reload(&s->config, fresh, names))
		log_warning("changed settings take effect only after a restart (systemctl restart kopsd): %s",
		            names);
	log_set_level((int)s->config.log_level);
	log_unknown_owners(&s->config);
	sessions_reload(&s->sessions, on_reloaded);
	pool_set_cache(s->engine.pool, s->config.pool_cache);
	limit_by_memory(&s->engine);
	keeper_reload(&s->keeper);
}

static void on_settings(struct reload *reload, int rc)
{
	struct server *s = container_of(reload, struct server, reload);

	if (s->state != SERVER_SERVING)
		return;
	if (rc == 0) {
		apply_settings(s, &reload->fresh);
		return;
	}
	log_error("configuration not reloaded, the old one remains in effect: %s", reload->why);
	tell_reloaded(s);
}

static void on_reload_signal(uv_signal_t *signal, int number)
{
	struct server *s = signal->data;

	(void)number;
	if (s->state != SERVER_SERVING)
		return; /* READY=1 would be false */
	notify_reloading();
	reload_start(&s->reload);
}

/* Watches a signal. 0 or UV_*. */
static int watch_signal(struct server *s, uv_signal_t *handle, int number, uv_signal_cb fn)
{
	int rc = uv_signal_init(&s->loop, handle);

	handle->data = s;
	return rc < 0 ? rc : uv_signal_start(handle, fn, number);
}

/* ---- Start and end ---- */

/*
 * Divides mappings and descriptors. Each buffer is a mapping and a descriptor, and when these run out, the
 * allocator and other users' buffers fail too. So buffers get half of what the kernel allows. Of the
 * descriptors, sessions get a quarter and the pool's cache an eighth. The rest is for devices, ourselves and
 * descriptors under way (to be closed, or not read by clients yet). Returns what the pool may keep.
 */
static unsigned divide_descriptors(struct server *s)
{
	uint64_t mappings = host_memory_max_mappings(), most;
	struct rlimit limit = {.rlim_cur = 1024};

	getrlimit(RLIMIT_NOFILE, &limit);
	most = limit.rlim_cur < UINT_MAX ? limit.rlim_cur : UINT_MAX;
	s->engine.n_buffers_max = (unsigned)(mappings < most ? mappings / 2 : most / 2);
	s->sessions.max = (unsigned)(most / 4);
	s->engine.accounts.closing_max = (unsigned)(most / 32 < CLOSING_MAX ? most / 32 : CLOSING_MAX);
	s->engine.accounts.unread_fds_max = (unsigned)(most / 16);
	return (unsigned)(most / 8);
}

static int make_pool(struct server *s, unsigned segments_max, char why[CONFIG_WHY_BYTES])
{
	uint64_t warm = s->config.warm_pool ? s->config.warm_pool : s->engine.pinning ? WARM_POOL_GPU_BYTES : 0;

	s->engine.pool = pool_new(&s->timers.loop, &s->engine.accounts, s->engine.workers, s->engine.pinning,
	                          warm, s->config.pool_cache, segments_max);
	if (s->engine.pool)
		return 0;
	snprintf(why, CONFIG_WHY_BYTES, "out of memory");
	return KOPS_E_NOMEM;
}

/* ---- Marks of running jobs ---- */

/* Finds the folder that is not for users' sockets, among those that systemd made, in any order. Returns its
 * length. */
static int state_folder(const struct server *s, const char **ret)
{
	const char *folder = getenv("RUNTIME_DIRECTORY");
	size_t n;

	for (; folder && *folder; folder += n + (folder[n] == ':')) {
		n = strcspn(folder, ":");
		*ret = folder;
		if (n > 0 && !user_sockets_are_in(&s->listener.doors.files, folder, n))
			return (int)n;
	}
	return 0;
}

/* Opens the marks beside the socket, or where systemd says. Without marks kopsd serves anyway. */
static void open_marks(struct server *s)
{
	const char *folder = NULL, *name = strrchr(s->config.socket, '/');
	char path[PATH_MAX], why[WHY_BYTES];
	int n = state_folder(s, &folder);

	if (n > 0)
		snprintf(path, sizeof path, "%.*s/%s.running", n, folder, name ? name + 1 : s->config.socket);
	else
		snprintf(path, sizeof path, "%s.running", s->config.socket);
	s->engine.marks = marks_open(path, why);
	if (!s->engine.marks)
		log_notice("%s", why);
	marks_of_process = s->engine.marks;
}

/* Each receiver that hangs costs a descriptor. */
static int start_receivers(struct server *s, char why[CONFIG_WHY_BYTES])
{
	unsigned most = s->sessions.max / 16;
	char reason[WHY_BYTES];
	int rc = sessions_start_receivers(&s->sessions, most < RECEIVERS_HUNG_MAX ? most : RECEIVERS_HUNG_MAX,
	                                  reason);

	if (rc < 0)
		snprintf(why, CONFIG_WHY_BYTES, "%s", reason);
	return rc;
}

static int start_workers(struct server *s, char why[CONFIG_WHY_BYTES])
{
	char reason[WHY_BYTES];
	unsigned n = workers_by_cpus(CPUS_PER_ZEROER);
	int rc = workers_start(&s->loop, n, n, &s->engine.workers, reason);

	if (rc == 0)
		rc = workers_start(&s->loop, 1, WORKERS_MAX, &s->engine.accounts.closers, reason);
	if (rc < 0)
		snprintf(why, CONFIG_WHY_BYTES, "%s", reason);
	else
		s->engine.accounts.memory_sched = workers_sched(s->engine.workers);
	s->engine.accounts.closers_each = workers_by_cpus(CPUS_PER_CLOSER);
	return rc;
}

static int open_devices(struct server *s, char why[CONFIG_WHY_BYTES])
{
	_Static_assert(DEVICES_MAX == SCHED_DEVICES_MAX, "the scheduler has room for all devices");
	struct devices devices;
	int rc = devices_open(&s->loop, &s->config, &devices, why);

	s->engine.pinning = devices.pinning;
	s->engine.n_devices = devices.n;
	for (unsigned i = 0; i < devices.n; i++) {
		s->engine.devices[i].device = devices.list[i];
		devices.list[i]->turns = &s->sessions.turns;
	}
	return rc;
}

static void learned_something(struct engine *engine)
{
	keeper_note(&of_engine(engine)->keeper);
}

static void init_engine(struct server *s)
{
	struct engine *e = &s->engine;

	e->loop = &s->loop;
	e->timers = &s->timers.loop;
	e->config = &s->config;
	e->accounts.config = &s->config;
	e->accounts.sched = &e->sched;
	e->accounts.turns = &s->sessions.turns;
	accounts_init(&e->accounts);
	e->can_swap = host_memory_can_swap();
	limit_by_memory(e);
	e->progress = progress;
	e->watch_runs = watch_runs;
	e->learned_something = learned_something;
	e->device_failed = device_failed;
	e->buffer_settled = jobs_unblock;
	jobs_init(e);
}

static void init_sessions(struct server *s)
{
	s->sessions.engine = &s->engine;
	s->sessions.started_ns = clock_ns();
	s->sessions.sensors.engine = &s->engine;
	idmap_choose_key();
	pings_init(&s->sessions);
	stats_init(&s->sessions);
	sessions_init(&s->sessions);
}

static void init_timer(struct server *s, uv_timer_t *timer)
{
	uv_timer_init(&s->timers.loop, timer);
	timer->data = s;
}

static void init_handles(struct server *s)
{
	init_timer(s, &s->watchdog_timer);
	init_timer(s, &s->drain_timer);
	init_timer(s, &s->drain_check);
	init_timer(s, &s->hang_timer);
	init_timer(s, &s->keeper.timer);
	s->keeper.timer.data = &s->keeper;
}

static int watch_signals(struct server *s, char why[CONFIG_WHY_BYTES])
{
	int rc = watch_signal(s, &s->sigterm, SIGTERM, on_stop_signal);

	if (rc == 0)
		rc = watch_signal(s, &s->sigint, SIGINT, on_stop_signal);
	if (rc == 0)
		rc = watch_signal(s, &s->sighup, SIGHUP, on_reload_signal);
	if (rc == 0)
		return 0;
	snprintf(why, CONFIG_WHY_BYTES, "cannot watch signals: %s", uv_strerror(rc));
	return KOPS_E_SYSTEM;
}

static int make_loops(struct server *s, char why[CONFIG_WHY_BYTES])
{
	int rc = uv_loop_init(&s->loop);

	if (rc == 0) {
		rc = watch_make_room(&s->loop);
		if (rc == 0)
			rc = timers_init(&s->timers, &s->loop);
		if (rc == 0)
			return 0;
		uv_run(&s->loop, UV_RUN_NOWAIT);
		uv_loop_close(&s->loop);
	}
	snprintf(why, CONFIG_WHY_BYTES, "cannot create the event loop: %s", uv_strerror(rc));
	return KOPS_E_SYSTEM;
}

int server_start(struct server *s, int argc, char **argv, char why[CONFIG_WHY_BYTES])
{
	unsigned segments_max;
	int rc;

	signal(SIGABRT, on_abort_at_start);
	rc = decode_open(why);
	if (rc == 0)
		rc = make_loops(s, why);
	if (rc < 0)
		return rc;
	host_memory_tell_refusals(log_refusal);
	log_unknown_owners(&s->config);
	segments_max = divide_descriptors(s);
	init_engine(s);
	init_sessions(s);
	init_handles(s);
	reload_init(&s->reload, &s->loop, argc, argv, on_settings);
	rc = start_receivers(s, why);
	if (rc == 0)
		rc = listener_open(&s->listener, &s->sessions, s->config.socket, why);
	if (rc == 0)
		rc = watch_signals(s, why);
	if (rc == 0)
		rc = start_workers(s, why);
	if (rc == 0)
		rc = open_devices(s, why);
	if (rc < 0)
		return rc;
	open_marks(s);
	keeper_start(&s->keeper, &s->engine);
	rc = make_pool(s, segments_max, why);
	if (rc < 0)
		return rc;
	s->watchdog_ms = notify_watchdog_ms();
	for (unsigned i = 0; i < s->engine.n_devices; i++)
		device_on_canary(s->engine.devices[i].device, on_canary, s);
	watch_runs(&s->engine);
	return 0;
}

int server_run(struct server *s)
{
	slice_shorten();
	uv_run(&s->loop, UV_RUN_DEFAULT);
	s->state = SERVER_STOPPED;
	return s->exit_code;
}

/* Returns true if a device has a job; canaries do not count. */
static bool job_is_out(const struct server *s)
{
	for (unsigned i = 0; i < s->engine.n_devices; i++)
		if (device_jobs_out(s->engine.devices[i].device))
			return true;
	return false;
}

/* Returns true if other threads still hold work. */
static bool work_is_out(const struct server *s)
{
	for (unsigned i = 0; i < s->engine.n_devices; i++)
		if (s->engine.devices[i].device->work_out)
			return true;
	return s->engine.workers && workers_are_busy(s->engine.workers);
}

static void close_handle(uv_handle_t *handle, void *arg)
{
	(void)arg;
	if (!uv_is_closing(handle) && handle->type != UV_ASYNC)
		uv_close(handle, NULL);
}

static bool closers_are_busy(const struct server *s)
{
	return s->engine.accounts.closers && workers_are_busy(s->engine.accounts.closers);
}

/* Waits while everything that the loop's timers use still exists. Closing may take a while: see
 * closing_add(). */
static void await_threads(struct server *s)
{
	uint64_t until = clock_ns() + CLOSERS_NS;

	while (work_is_out(s) || (closers_are_busy(s) && clock_ns() < until)) {
		uv_run(&s->loop, UV_RUN_NOWAIT);
		accounts_finish_errands(&s->engine.accounts); /* including users that are held */
		usleep(100);
	}
}

void server_close(struct server *s)
{
	struct engine *e = &s->engine;

	if (!e->loop)
		return; /* not even the loop was started */
	sessions_close(&s->sessions);
	published_clear(e);
	marks_of_process = NULL;
	marks_close(e->marks); /* jobs that still run did not end kopsd */
	e->marks = NULL;
	if (job_is_out(s)) {
		keeper_stop(&s->keeper);
		_exit(s->exit_code); /* a job outlasted drain-timeout, and may use its memory */
	}
	await_threads(s);
	keeper_stop(&s->keeper);
	if (closers_are_busy(s)) {
		listener_close(&s->listener);
		_exit(s->exit_code);
	}
	for (unsigned i = 0; i < e->n_devices; i++)
		device_close(e->devices[i].device);
	pool_free(e->pool);
	accounts_finish_errands(&e->accounts);
	workers_stop(e->workers);
	workers_stop(e->accounts.closers);
	reload_stop(&s->reload);
	uv_walk(&s->loop, close_handle, NULL);
	uv_walk(&s->timers.loop, close_handle, NULL);
	uv_run(&s->loop, UV_RUN_DEFAULT);
	timers_close(&s->timers);
	uv_loop_close(&s->loop);
	accounts_clear(&e->accounts);
	listener_close(&s->listener);
}
