/* main.c: kopsd. Options, start, serve, stop. */
#include <cblas.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "config/load.h"
#include "config/print.h"
#include "core_dump.h"
#include "host_memory.h"
#include "kops_types.h"
#include "listen/decline.h"
#include "log.h"
#include "notify.h"
#include "server.h"
#include "share/receiver.h"
#include "standard_fds.h"

/* The settings or the command line must be changed first; restarting would not help. */
enum { EXIT_SETTINGS = 2 };
#define TOLD_CLIENTS      "kopsd cannot start: its configuration is invalid; see its log (journalctl -u kopsd)"
#define LARGE_BYTES       (128 << 10)
#define BLAS_THREAD_BYTES (160u << 20)
#define FDS_MIN           64u /* with fewer, server.c cannot divide them */
#define STACK_MIN         (512u << 10)
#define FDS_MAX           (1u << 20) /* the loop and the kernel have tables for all of them: 16 MiB */

/*
 * OpenBLAS chooses its kernels by CPU model when it is loaded. For models newer than itself it takes SSE3 ones
 * (Prescott), a fifth of the speed. Only its environment variable changes that, so this program executes itself
 * again with the variable set.
 */
static void use_all_of_cpu(char **argv)
{
#if defined(__x86_64__)
	char path[PATH_MAX];
	ssize_t len;
	const char *core = __builtin_cpu_supports("avx512vl") ? "SkylakeX"
	                   : __builtin_cpu_supports("avx2")   ? "Haswell"
	                                                      : NULL;

	if (!core || getenv("OPENBLAS_CORETYPE") || strcmp(openblas_get_corename(), "Prescott") != 0)
		return;
	len = readlink("/proc/self/exe", path, sizeof path - 1);
	if (len < 0)
		return;
	path[len] = '\0';
	setenv("OPENBLAS_CORETYPE", core, 1);
	execv(path, argv); /* if that fails, continue without */
#else
	(void)argv;
#endif
}

/* A thread of OpenBLAS maps 128 MiB when it starts, and waits forever if it cannot. */
static bool has_room_for_blas(void)
{
	char why[WHY_BYTES / 2];

	if (host_memory_try_map((uint64_t)openblas_get_num_threads() * BLAS_THREAD_BYTES, why, sizeof why) == 0)
		return true;
	log_error("out of memory for the threads of OpenBLAS: %s, or set OPENBLAS_NUM_THREADS=1", why);
	return false;
}

static bool has_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return true;
	limit.rlim_cur = limit.rlim_max < FDS_MAX ? limit.rlim_max : FDS_MAX;
	setrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_max >= FDS_MIN)
		return true;
	log_error("the limit of file descriptors is %llu, and kopsd needs at least %u; raise LimitNOFILE",
	          (unsigned long long)limit.rlim_max, FDS_MIN);
	return false;
}

/* Checks the stack limit, which other threads get too. */
static bool has_stack(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_STACK, &limit) < 0 || limit.rlim_cur >= STACK_MIN)
		return true;
	log_error(
	    "the limit of the stack is %llu bytes, and kopsd needs at least %u; raise LimitSTACK (ulimit -s)",
	    (unsigned long long)limit.rlim_cur, STACK_MIN);
	return false;
}

static void warn_of_short_files(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
		log_warning("the limit of file sizes is %llu bytes, so no SHARED buffer can be larger; raise "
		            "LimitFSIZE (ulimit -f)",
		            (unsigned long long)limit.rlim_cur);
}

static int serve(int argc, char **argv, struct server *server)
{
	char why[CONFIG_WHY_BYTES];
	int rc, code;

	signal(SIGPIPE, SIG_IGN);
	log_set_level((int)server->config.log_level);
	core_dump_include_matrices(server->config.dump_matrices);
	rc = server_start(server, argc, argv, why);
	if (rc < 0)
		log_error("%s", why);
	if (rc == KOPS_E_INVALID && !server->listener.owns_path)
		decline_waiting(server->listener.fd, TOLD_CLIENTS);
	code = rc == 0 ? server_run(server) : rc == KOPS_E_INVALID ? EXIT_SETTINGS : EXIT_FAILURE;
	server_close(server);
	return code;
}

int main(int argc, char **argv)
{
	static struct server server;
	enum config_action action;
	char why[CONFIG_WHY_BYTES];
	int rc;

	if (spawner_is_wanted(argv))
		spawner_main();
	standard_fds_open();
	/* Otherwise a log, a matrix or a file at the size limit would end the process without a message. */
	signal(SIGXFSZ, SIG_IGN);
	/* Large blocks are unmapped when freed. Otherwise each thread would keep as much as it ever had. */
	mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
	log_open();
	rc = config_load(argc, argv, &server.config, &action, why);
	if (rc < 0) {
		log_error("%s", why);
		if (rc != KOPS_E_INVALID)
			return EXIT_FAILURE;
		decline_waiting(notify_inherited_socket(), TOLD_CLIENTS);
		return EXIT_SETTINGS;
	}
	switch (action) {
	case CONFIG_HELP:
		config_print_help();
		return EXIT_SUCCESS;
	case CONFIG_SHOW_VERSION:
		printf("kopsd " KOPS_VERSION "\n");
		return EXIT_SUCCESS;
	case CONFIG_CHECK:
		config_print(&server.config);
		return EXIT_SUCCESS;
	case CONFIG_RUN:
		break;
	}
	use_all_of_cpu(argv);
	warn_of_short_files();
	if (!has_stack() || !has_room_for_blas() || !has_descriptors())
		_exit(EXIT_FAILURE); /* a thread of OpenBLAS may block exit() too */
	return serve(argc, argv, &server);
}
