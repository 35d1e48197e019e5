#include "server.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "clock.h"
#include "device/devices.h"
#include "device/tuning_file.h"
#include "job/job.h"
#include "log.h"
#include "notify.h"
#include "session/listener.h"
#include "session/request.h"
#include "session/session.h"

#define WARM_POOL_GPU_BYTES (512ull << 20)
#define HANG_CHECK_MS       1000
#define EXIT_DEVICE_FAILED  70 /* EX_SOFTWARE: the supervisor starts a new process */

struct device *server_device(const struct server *s, const char *name, unsigned *ret_index)
{
	for (unsigned i = 0; i < s->n_devices; i++)
		if (!*name || strcmp(device_name(s->devices[i]), name) == 0) {
			if (ret_index)
				*ret_index = i;
			return s->devices[i];
		}
	return NULL;
}

void server_device_failed(struct server *s, const struct device *device, const char *why)
{
	/* No answers: clients see the connection end and send their jobs to the next process. */
	log_error("device %s failed: %s; exiting so that a fresh process takes over", device_name(device), why);
	marks_note_crash(s->marks);
	if (s->owns_socket)
		unlink(s->config.socket);
	_exit(EXIT_DEVICE_FAILED);
}

/* ---- Health ---- */

const struct device *server_sick_device(const struct server *s)
{
	for (unsigned i = 0; i < s->n_devices; i++)
		if (!device_is_healthy(s->devices[i], s->config.hang_timeout * 1000000))
			return s->devices[i];
	return NULL;
}

static void on_watchdog(uv_timer_t *timer)
{
	struct server *s = timer->data;

	if (!server_sick_device(s))
		notify("WATCHDOG=1");
	for (unsigned i = 0; i < s->n_devices; i++)
		device_start_canary(s->devices[i]);
	server_watch_runs(s);
}

static void on_hang_check(uv_timer_t *timer)
{
	struct server *s = timer->data;
	bool out = false, hung = false;

	for (unsigned i = 0; i < s->n_devices; i++) {
		struct device *d = s->devices[i];
		hung |= device_is_hung(d, s->config.hang_timeout * 1000000);
		/* Seen twice: the first look after a SIGSTOP comes before the runs that have finished
		 * meanwhile. */
		if (hung && s->seen_hung)
			server_device_failed(s, d, "no job came back within hang-timeout");
		out |= device_runs_out(d) > 0;
	}
	s->seen_hung = hung;
	if (!out)
		uv_timer_stop(timer);
}

void server_watch_runs(struct server *s)
{
	if (s->gpu && !uv_is_active((uv_handle_t *)&s->hang_timer))
		uv_timer_start(&s->hang_timer, on_hang_check, HANG_CHECK_MS, HANG_CHECK_MS);
}

static void become_ready(struct server *s)
{
	char status[128];

	s->state = SERVER_SERVING;
	snprintf(status, sizeof status, "READY=1\nSTATUS=Serving with %u device%s", s->n_devices,
	         s->n_devices == 1 ? "" : "s");
	notify(status);
	log_notice("kopsd " KOPS_VERSION " ready: %u device%s, %s", s->n_devices, s->n_devices == 1 ? "" : "s",
	           s->owns_socket ? s->config.socket : "inherited socket");
	listener_start(s);
	if (s->watchdog_ms)
		uv_timer_start(&s->watchdog_timer, on_watchdog, 0, s->watchdog_ms / 3 + 1);
}

static void on_canary(void *arg)
{
	struct server *s = arg;

	for (unsigned i = 0; i < s->n_devices; i++)
		if (device_fault(s->devices[i]))
			server_device_failed(s, s->devices[i], device_fault(s->devices[i]));
	request_canaries_back(s);
	server_progress(s);
	if (s->state != SERVER_STARTING)
		return;
	for (unsigned i = 0; i < s->n_devices; i++)
		if (device_canary_is_out(s->devices[i]))
			return;
	if (!server_sick_device(s)) {
		become_ready(s);
		return;
	}
	s->exit_code = EXIT_DEVICE_FAILED;
	uv_stop(&s->loop);
}

/* ---- Signals and draining ---- */

static bool is_quiet(const struct server *s)
{
	if (s->pings)
		return false;
	for (const struct session *session = s->sessions; session; session = session->next)
		if (!session_is_quiet(session))
			return false;
	return true;
}

static void on_drain_check(uv_timer_t *timer)
{
	struct server *s = timer->data;

	if (is_quiet(s))
		uv_stop(&s->loop);
}

/* Deferred to the loop: callers are in the midst of ending jobs and sessions. */
void server_progress(struct server *s)
{
	if (s->state == SERVER_DRAINING)
		uv_timer_start(&s->drain_check, on_drain_check, 0, 0);
}

static void on_drain_timeout(uv_timer_t *timer)
{
	struct server *s = timer->data;

	log_warning("jobs still ran after drain-timeout; their clients will send them again");
	uv_stop(&s->loop);
}

static void on_stop_signal(uv_signal_t *signal, int number)
{
	struct server *s = signal->data;

	(void)number;
	if (s->state == SERVER_DRAINING || s->state == SERVER_STOPPED)
		return;
	log_notice("stopping: finishing the jobs that run");
	notify("STOPPING=1\nSTATUS=Finishing running jobs");
	s->state = SERVER_DRAINING;
	listener_stop(s);
	jobs_shut_down(s);
	uv_timer_start(&s->drain_timer, on_drain_timeout, s->config.drain_timeout, 0);
	server_progress(s);
}

/* What auto goes by besides estimates. Without memory for autotune it is left out. */
static void load_measurements(struct server *s)
{
	tuning_file_load(s);
	for (unsigned i = 0; i < s->n_devices; i++) {
		const struct backend *backend = device_backend(s->devices[i]);

		autotune_free(s->autotune[i]);
		s->autotune[i] = NULL;
		if (s->config.autotune && backend->rivals)
			s->autotune[i] = autotune_new(
			    &(struct autotune_owner){backend->kernels, device_rivals, s->devices[i]});
	}
}

static void on_reload_signal(uv_signal_t *signal, int number)
{
	struct server *s = signal->data;
	struct config fresh;
	enum config_action action;
	char why[CONFIG_WHY_BYTES];

	(void)number;
	if (s->state != SERVER_SERVING)
		return; /* READY=1 would not be true */
	notify_reloading();
	if (config_load(s->argc, s->argv, &fresh, &action, why) < 0) {
		log_error("configuration not reloaded, the old one stays: %s", why);
	} else {
		if (config_reload(&s->config, &fresh))
			log_warning("some changed settings need a restart");
		log_set_level((int)s->config.log_level);
		pool_set_cache(s->pool, s->config.pool_cache);
		load_measurements(s);
		log_notice("configuration reloaded");
	}
	notify("READY=1");
}

static void watch_signal(struct server *s, uv_signal_t *handle, int number, uv_signal_cb fn)
{
	uv_signal_init(&s->loop, handle);
	handle->data = s;
	uv_signal_start(handle, fn, number);
}

static void init_timer(struct server *s, uv_timer_t *timer)
{
	uv_timer_init(&s->loop, timer);
	timer->data = s;
}

/* ---- Start and end ---- */

static void raise_fd_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/* What the kernel allows a process to map. */
static uint64_t read_max_mappings(void)
{
	unsigned long max = 65530; /* the kernel's default */
	FILE *file = fopen("/proc/sys/vm/max_map_count", "re");

	if (file && fscanf(file, "%lu", &max) != 1)
		max = 65530;
	if (file)
		fclose(file);
	return max;
}

/*
 * Each buffer is a mapping and a descriptor, and without them the allocator and other users' buffers fail too:
 * half of what the kernel allows is for buffers, a quarter of the descriptors for sessions, an eighth for the
 * pool's cache, the rest for descriptors under way, devices and ourselves.
 */
static void divide_descriptors(struct server *s)
{
	uint64_t mappings = read_max_mappings(), most;
	struct rlimit limit = {.rlim_cur = 1024};

	getrlimit(RLIMIT_NOFILE, &limit);
	most = limit.rlim_cur < UINT_MAX ? limit.rlim_cur : UINT_MAX;
	s->n_buffers_max = (unsigned)(mappings < most ? mappings / 2 : most / 2);
	s->n_sessions_max = (unsigned)(most / 4);
	s->pool_segments_max = (unsigned)(most / 8);
}

static int make_pool(struct server *s, char why[CONFIG_WHY_BYTES])
{
	uint64_t warm = s->config.warm_pool ? s->config.warm_pool : s->gpu ? WARM_POOL_GPU_BYTES : 0;

	s->pool = pool_new(&s->loop, s->workers, s->gpu, warm, s->config.pool_cache, s->pool_segments_max);
	if (s->pool)
		return 0;
	snprintf(why, CONFIG_WHY_BYTES, "out of memory");
	return KOPS_E_NOMEM;
}

/* ---- What jobs are at work ---- */

static struct marks *marks_of_process; /* for a signal handler */

/* Sanitizers have handlers of their own, which tell more. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static void watch_crashes(void)
{
}
#else
static void on_crash(int number)
{
	marks_note_crash(marks_of_process);
	raise(number); /* its disposition is the default one again: see below */
}

static void watch_crashes(void)
{
	static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP};
	struct sigaction action = {.sa_handler = on_crash, .sa_flags = SA_RESETHAND | SA_NODEFER};

	for (unsigned i = 0; i < sizeof signals / sizeof signals[0]; i++)
		sigaction(signals[i], &action, NULL);
}
#endif

/* Stops by itself when nothing is out: an idle daemon wakes up for nothing. */
static void on_lasting(uv_timer_t *timer)
{
	struct server *s = timer->data;

	if (!jobs_mark_lasting(s))
		uv_timer_stop(timer);
}

void server_watch_marks(struct server *s)
{
	if (s->marks && !uv_is_active((uv_handle_t *)&s->lasting_timer))
		uv_timer_start(&s->lasting_timer, on_lasting, MARKS_LASTING_MS, MARKS_LASTING_MS);
}

/* Beside the socket, or where systemd says. Without them we serve all the same. */
static void open_marks(struct server *s)
{
	const char *folder = getenv("RUNTIME_DIRECTORY"), *name = strrchr(s->config.socket, '/');
	char path[PATH_MAX], why[WHY_BYTES];

	if (folder && *folder)
		snprintf(path, sizeof path, "%s/%s.running", folder, name ? name + 1 : s->config.socket);
	else
		snprintf(path, sizeof path, "%s.running", s->config.socket);
	s->marks = marks_open(path, why);
	if (!s->marks)
		log_notice("%s", why);
	marks_of_process = s->marks;
	watch_crashes();
}

static int start_workers(struct server *s, char why[CONFIG_WHY_BYTES])
{
	char reason[WHY_BYTES];
	int rc = workers_start(&s->loop, &s->workers, reason);

	if (rc < 0)
		snprintf(why, CONFIG_WHY_BYTES, "%s", reason);
	else
		s->accounts.memory_sched = workers_sched(s->workers);
	return rc;
}

int server_start(struct server *s, int argc, char **argv, const struct config *config,
                 char why[CONFIG_WHY_BYTES])
{
	int rc;

	memset(s, 0, offsetof(struct server, arena));
	s->config = *config;
	s->argc = argc;
	s->argv = argv;
	s->accounts.config = &s->config;
	s->accounts.sched = &s->sched;
	s->accounts.turns = &s->turns;
	s->listen_fd = s->lock_fd = -1;
	s->started_ns = clock_ns();
	raise_fd_limit();
	s->reserve_fd = -1;
	divide_descriptors(s);
	uv_loop_init(&s->loop);
	turns_init(&s->turns, &s->loop, &s->accounts, session_take_turn);
	init_timer(s, &s->deadline_timer);
	init_timer(s, &s->watchdog_timer);
	init_timer(s, &s->drain_timer);
	init_timer(s, &s->drain_check);
	init_timer(s, &s->hang_timer);
	init_timer(s, &s->lasting_timer);
	watch_signal(s, &s->sigterm, SIGTERM, on_stop_signal);
	watch_signal(s, &s->sigint, SIGINT, on_stop_signal);
	watch_signal(s, &s->sighup, SIGHUP, on_reload_signal);

	rc = listener_open(s, why);
	if (rc < 0)
		return rc;
	rc = start_workers(s, why);
	if (rc < 0)
		return rc;
	rc = devices_open(s, why);
	if (rc < 0)
		return rc;
	open_marks(s);
	load_measurements(s);
	rc = make_pool(s, why);
	if (rc < 0)
		return rc;
	s->watchdog_ms = notify_watchdog_ms();
	for (unsigned i = 0; i < s->n_devices; i++)
		device_on_canary(s->devices[i], on_canary, s);
	server_watch_runs(s);
	return 0;
}

int server_run(struct server *s)
{
	uv_run(&s->loop, UV_RUN_DEFAULT);
	s->state = SERVER_STOPPED;
	return s->exit_code;
}

/* A job is in a device's hands; canaries aside. */
static bool job_is_out(const struct server *s)
{
	for (unsigned i = 0; i < s->n_devices; i++)
		if (device_runs_out(s->devices[i]) > (device_canary_is_out(s->devices[i]) ? 1u : 0u))
			return true;
	return false;
}

/* Work that other threads still hold. */
static bool work_is_out(const struct server *s)
{
	for (unsigned i = 0; i < s->n_devices; i++)
		if (device_work_out(s->devices[i]))
			return true;
	return s->workers && workers_are_busy(s->workers);
}

static void close_handle(uv_handle_t *handle, void *arg)
{
	(void)arg;
	if (!uv_is_closing(handle) && handle->type != UV_ASYNC)
		uv_close(handle, NULL);
}

void server_close(struct server *s)
{
	struct session *session, *next;

	for (session = s->sessions; session; session = next) {
		next = session->next;
		session_close(session, NULL);
	}
	marks_of_process = NULL;
	marks_close(s->marks); /* what still runs did not end us */
	s->marks = NULL;
	if (job_is_out(s))
		_exit(s->exit_code); /* it outlasted drain-timeout: its memory must stay until we are gone */
	while (work_is_out(s))
		uv_run(&s->loop, UV_RUN_ONCE);
	for (unsigned i = 0; i < s->n_devices; i++) {
		autotune_free(s->autotune[i]);
		device_close(s->devices[i]);
	}
	pool_free(s->pool);
	workers_stop(s->workers);
	tuning_file_unload(s);
	uv_walk(&s->loop, close_handle, NULL);
	uv_run(&s->loop, UV_RUN_DEFAULT);
	uv_loop_close(&s->loop);
	accounts_clear(&s->accounts);
	listener_close(s);
}
