#include "server.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "backend_cpu.h"
#include "clock.h"
#include "job.h"
#include "log.h"
#include "notify.h"
#include "request.h"
#include "session.h"

#define MODULE_FILE         "kops-cuda.so"
#define WARM_POOL_GPU_BYTES (512ull << 20)
#define ACCEPT_BATCH        16
#define HANG_CHECK_MS       1000
#define EXIT_DEVICE_FAILED  70 /* EX_SOFTWARE: the supervisor starts a new process */

/* ---- Devices ---- */

/*
 * The module lies beside the binary in a build tree and in one fixed directory when installed. Nothing else is
 * searched: who can write there can replace kopsd itself.
 */
static void *open_module(char why[WHY_BYTES])
{
	char path[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", path, sizeof path - sizeof MODULE_FILE - 1);
	char *slash;
	void *module;

	path[len > 0 ? len : 0] = '\0';
	slash = strrchr(path, '/');
	if (slash)
		strcpy(slash + 1, MODULE_FILE);
	if (!slash || access(path, R_OK) < 0)
		snprintf(path, sizeof path, "%s", KOPS_MODULE_DIR "/" MODULE_FILE);
	if (access(path, R_OK) < 0) {
		snprintf(why, WHY_BYTES, "%.200s is not installed", path);
		return NULL;
	}
	module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!module)
		snprintf(why, WHY_BYTES, "%s", dlerror());
	return module;
}

/* The GPU backend and how many devices it has; NULL with a sentence in why. Never unloaded: CUDA does not like
 * it. */
static const struct backend *load_gpu(unsigned *ret_count, char why[WHY_BYTES])
{
	void *module = open_module(why);
	const struct backend *(*entry)(void);
	const struct backend *gpu;

	if (!module)
		return NULL;
	*(void **)&entry = dlsym(module, BACKEND_ENTRY);
	gpu = entry ? entry() : NULL;
	if (!gpu || gpu->abi != BACKEND_ABI) {
		snprintf(why, WHY_BYTES,
		         MODULE_FILE " belongs to another version of kopsd; install matching packages");
		return NULL;
	}
	*ret_count = gpu->count(why);
	return *ret_count ? gpu : NULL;
}

static int add_device(struct server *s, const struct backend *backend, unsigned index,
                      char why[CONFIG_WHY_BYTES])
{
	char name[16], reason[WHY_BYTES];
	struct device *d;
	int rc;

	if (backend == &backend_cpu)
		snprintf(name, sizeof name, "cpu");
	else
		snprintf(name, sizeof name, "gpu%u", index);
	if (server_device(s, name, NULL))
		return 0;
	if (s->n_devices == SCHED_DEVICES_MAX) {
		snprintf(why, CONFIG_WHY_BYTES, "more than %d devices", SCHED_DEVICES_MAX);
		return KOPS_E_INVALID;
	}
	rc = device_open(&s->loop, name, backend, index, (unsigned)s->config.cpu_threads, &d, reason);
	if (rc < 0) {
		snprintf(why, CONFIG_WHY_BYTES, "cannot open device %s: %s", name, reason);
		return rc;
	}
	s->devices[s->n_devices++] = d;
	log_info("device %s: %s", name, device_info(d)->description);
	if (*device_disabled_rows(d))
		log_error("device %s: disabled after a failed self-test: %s", name, device_disabled_rows(d));
	return 0;
}

/* "auto": what works. A GPU that does not open is left out, and the CPU always serves. */
static int add_all(struct server *s, unsigned n_gpus, char why[CONFIG_WHY_BYTES])
{
	for (unsigned i = 0; i < n_gpus && s->n_devices < SCHED_DEVICES_MAX - 1; i++)
		if (add_device(s, s->gpu, i, why) < 0)
			log_error("going on without it: %s", why);
	return add_device(s, &backend_cpu, 0, why);
}

/* One word of the devices setting. */
static int add_named(struct server *s, const char *word, unsigned n_gpus, const char *no_gpu,
                     char why[CONFIG_WHY_BYTES])
{
	unsigned index;
	char rest;
	int rc = 0;

	if (strcmp(word, "cpu") == 0)
		return add_device(s, &backend_cpu, 0, why);
	if (strcmp(word, "auto") == 0)
		return add_all(s, n_gpus, why);
	if (strcmp(word, "gpu") == 0) {
		if (n_gpus == 0) {
			snprintf(why, CONFIG_WHY_BYTES, "devices asks for a GPU, but %s", no_gpu);
			return KOPS_E_DEVICE;
		}
		for (index = 0; index < n_gpus && rc == 0; index++)
			rc = add_device(s, s->gpu, index, why);
		return rc;
	}
	if (sscanf(word, "gpu%u%c", &index, &rest) != 1) {
		snprintf(why, CONFIG_WHY_BYTES, "devices: \"%.32s\" is none of auto, cpu, gpu, gpu0, gpu1, …",
		         word);
		return KOPS_E_INVALID;
	}
	if (index >= n_gpus) {
		snprintf(why, CONFIG_WHY_BYTES, "devices asks for %s, but %s", word,
		         n_gpus ? "there are fewer GPUs (counting from gpu0)" : no_gpu);
		return KOPS_E_DEVICE;
	}
	return add_device(s, s->gpu, index, why);
}

static int open_devices(struct server *s, char why[CONFIG_WHY_BYTES])
{
	char list[CONFIG_TEXT_BYTES], no_gpu[WHY_BYTES] = "", *save = NULL;
	unsigned n_gpus = 0;
	int rc = 0;

	snprintf(list, sizeof list, "%s", s->config.devices);
	if (strcmp(list, "cpu") != 0) {
		s->gpu = load_gpu(&n_gpus, no_gpu);
		if (!s->gpu)
			log_notice("no GPU: %s", no_gpu);
	}
	for (char *word = strtok_r(list, ", ", &save); word && rc == 0; word = strtok_r(NULL, ", ", &save))
		rc = add_named(s, word, n_gpus, no_gpu, why);
	if (rc == 0 && s->n_devices == 0) {
		snprintf(why, CONFIG_WHY_BYTES, "devices names no device");
		rc = KOPS_E_INVALID;
	}
	return rc;
}

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
	if (s->owns_socket)
		unlink(s->config.socket);
	_exit(EXIT_DEVICE_FAILED);
}

/* ---- The socket ---- */

static int socket_why(char why[CONFIG_WHY_BYTES], const char *path, const char *what)
{
	snprintf(why, CONFIG_WHY_BYTES, "cannot listen at %s: %s: %s", path, what, strerror(errno));
	return KOPS_E_SYSTEM;
}

/* A path left behind by a dead daemon is removed; one that answers is not. */
static int clear_path(const struct sockaddr_un *address, char why[CONFIG_WHY_BYTES])
{
	struct stat st;
	int probe, alive;

	if (lstat(address->sun_path, &st) < 0)
		return 0;
	if (!S_ISSOCK(st.st_mode)) {
		snprintf(why, CONFIG_WHY_BYTES, "cannot listen at %s: something that is no socket is there",
		         address->sun_path);
		return KOPS_E_INVALID;
	}
	probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	alive = probe >= 0 && connect(probe, (const struct sockaddr *)address, sizeof *address) == 0;
	if (probe >= 0)
		close(probe);
	if (alive) {
		snprintf(why, CONFIG_WHY_BYTES,
		         "another kopsd is listening at %s; stop it or choose another --socket",
		         address->sun_path);
		return KOPS_E_EXISTS;
	}
	unlink(address->sun_path);
	return 0;
}

static int bind_path(struct server *s, char why[CONFIG_WHY_BYTES])
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	mode_t mask;
	int rc;

	snprintf(address.sun_path, sizeof address.sun_path, "%.107s", s->config.socket);
	rc = clear_path(&address, why);
	if (rc < 0)
		return rc;
	s->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s->listen_fd < 0)
		return socket_why(why, address.sun_path, "socket");
	mask = umask(0117); /* 0660, as kopsd.socket makes it */
	rc = bind(s->listen_fd, (struct sockaddr *)&address, sizeof address);
	umask(mask);
	if (rc < 0)
		return socket_why(why, address.sun_path, "bind");
	s->owns_socket = true;
	if (listen(s->listen_fd, SOMAXCONN) < 0)
		return socket_why(why, address.sun_path, "listen");
	return 0;
}

static int open_socket(struct server *s, char why[CONFIG_WHY_BYTES])
{
	int fd = notify_inherited_socket();

	if (fd == KOPS_E_INVALID) {
		snprintf(why, CONFIG_WHY_BYTES,
		         "the inherited socket is not one listening SOCK_SEQPACKET socket; check kopsd.socket");
		return KOPS_E_INVALID;
	}
	if (fd >= 0) {
		s->listen_fd = fd;
		return 0;
	}
	return bind_path(s, why);
}

static int open_reserve(void)
{
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* Out of descriptors: the reserve one lets us take the connection and close it, else it would wake us for ever.
 */
static void shed(struct server *s)
{
	int fd;

	if (log_may(&s->refusals))
		log_warning("out of file descriptors: a connection was refused; raise LimitNOFILE");
	if (s->reserve_fd >= 0)
		close(s->reserve_fd);
	fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0)
		close(fd);
	s->reserve_fd = open_reserve();
}

/* libuv cannot receive memfds over uv_pipe_t, and has no SOCK_SEQPACKET: uv_poll_t and our own recvmsg() it is.
 */
static void on_connection(uv_poll_t *poll, int status, int events)
{
	struct server *s = poll->data;

	(void)events;
	for (int i = 0; i < ACCEPT_BATCH && status == 0; i++) {
		int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd >= 0)
			session_open(s, fd);
		else if (errno == EMFILE || errno == ENFILE)
			shed(s);
		else if (errno != EINTR && errno != ECONNABORTED)
			return;
	}
}

/* ---- Health ---- */

static bool all_healthy(const struct server *s)
{
	for (unsigned i = 0; i < s->n_devices; i++)
		if (!device_is_healthy(s->devices[i], s->config.hang_timeout * 1000000))
			return false;
	return true;
}

static void on_watchdog(uv_timer_t *timer)
{
	struct server *s = timer->data;

	if (all_healthy(s))
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
	uv_poll_start(&s->listener, UV_READABLE, on_connection);
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
	if (all_healthy(s)) {
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
	uv_poll_stop(&s->listener);
	if (s->owns_socket)
		unlink(s->config.socket);
	s->owns_socket = false;
	jobs_shut_down(s);
	uv_timer_start(&s->drain_timer, on_drain_timeout, s->config.drain_timeout, 0);
	server_progress(s);
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

/*
 * Each buffer is a mapping, and without mappings the allocator and other users' buffers fail too: half of what
 * the kernel allows is for buffers, the rest for the pool's cache, devices and ourselves.
 */
static unsigned count_mappings_for_buffers(void)
{
	unsigned long max = 65530; /* the kernel's default */
	FILE *file = fopen("/proc/sys/vm/max_map_count", "re");

	if (file && fscanf(file, "%lu", &max) != 1)
		max = 65530;
	if (file)
		fclose(file);
	return max / 2 < UINT_MAX ? (unsigned)(max / 2) : UINT_MAX;
}

static int make_pool(struct server *s, char why[CONFIG_WHY_BYTES])
{
	uint64_t warm = s->config.warm_pool ? s->config.warm_pool : s->gpu ? WARM_POOL_GPU_BYTES : 0;

	s->pool = pool_new(&s->loop, s->gpu, warm, s->config.pool_cache);
	if (s->pool)
		return 0;
	snprintf(why, CONFIG_WHY_BYTES, "out of memory");
	return KOPS_E_NOMEM;
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
	s->listen_fd = -1;
	s->started_ns = clock_ns();
	raise_fd_limit();
	s->reserve_fd = open_reserve();
	s->n_buffers_max = count_mappings_for_buffers();
	uv_loop_init(&s->loop);
	init_timer(s, &s->deadline_timer);
	init_timer(s, &s->watchdog_timer);
	init_timer(s, &s->drain_timer);
	init_timer(s, &s->drain_check);
	init_timer(s, &s->hang_timer);
	watch_signal(s, &s->sigterm, SIGTERM, on_stop_signal);
	watch_signal(s, &s->sigint, SIGINT, on_stop_signal);
	watch_signal(s, &s->sighup, SIGHUP, on_reload_signal);

	rc = open_socket(s, why);
	if (rc < 0)
		return rc;
	rc = uv_poll_init(&s->loop, &s->listener, s->listen_fd);
	if (rc < 0) {
		snprintf(why, CONFIG_WHY_BYTES, "cannot watch the listening socket: %s", uv_strerror(rc));
		return KOPS_E_SYSTEM;
	}
	s->listener.data = s;
	rc = open_devices(s, why);
	if (rc < 0)
		return rc;
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
	return s->workers_busy || (s->pool && pool_is_busy(s->pool));
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
	if (job_is_out(s))
		_exit(s->exit_code); /* it outlasted drain-timeout: its memory must stay until we are gone */
	while (work_is_out(s))
		uv_run(&s->loop, UV_RUN_ONCE);
	for (unsigned i = 0; i < s->n_devices; i++)
		device_close(s->devices[i]);
	pool_free(s->pool);
	uv_walk(&s->loop, close_handle, NULL);
	uv_run(&s->loop, UV_RUN_DEFAULT);
	uv_loop_close(&s->loop);
	accounts_clear(&s->accounts);
	if (s->listen_fd >= 0)
		close(s->listen_fd);
	if (s->owns_socket)
		unlink(s->config.socket);
	if (s->reserve_fd >= 0)
		close(s->reserve_fd);
}
