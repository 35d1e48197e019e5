/* Tests the service manager's side: a datagram socket of the test stands for systemd. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "kops.h"
#include "notify.h"

static char dir[64];

static int make_dir(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/kops-test-notify-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	(void)state;
	return rmdir(dir);
}

/* Binds a socket; a name that starts with '@' is abstract. */
static int bind_socket(int type, const char *name)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	size_t len = strlen(name);
	int sock = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	assert_true(sock >= 0);
	memcpy(addr.sun_path, name, len);
	if (name[0] == '@')
		addr.sun_path[0] = '\0';
	assert_int_equal(
	    bind(sock, (struct sockaddr *)&addr, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)), 0);
	return sock;
}

/* ---- notify() --------------------------------------------------------------------------------- */

static void check_delivery(const char *name)
{
	static const char state[] = "READY=1\nSTATUS=2 devices";
	int manager = bind_socket(SOCK_DGRAM, name);
	char got[128];

	setenv("NOTIFY_SOCKET", name, 1);
	assert_int_equal(notify(state), 0);
	assert_int_equal(recv(manager, got, sizeof(got), MSG_DONTWAIT), sizeof(state) - 1);
	assert_memory_equal(got, state, sizeof(state) - 1);
	unsetenv("NOTIFY_SOCKET");
	close(manager);
}

static void test_notify_path(void **state)
{
	char path[96];

	(void)state;
	snprintf(path, sizeof(path), "%s/notify", dir);
	check_delivery(path);
	unlink(path);
}

static void test_notify_abstract(void **state)
{
	char name[96];

	(void)state;
	snprintf(name, sizeof(name), "@%s/notify", dir);
	check_delivery(name);
}

static void test_notify_without_manager(void **state)
{
	(void)state;
	unsetenv("NOTIFY_SOCKET");
	assert_int_equal(notify("READY=1"), 0);
	setenv("NOTIFY_SOCKET", "", 1);
	assert_int_equal(notify("READY=1"), 0);
	unsetenv("NOTIFY_SOCKET");
}

static void test_notify_failures(void **state)
{
	char long_path[200];
	const struct {
		const char *name;
		int error;
	} bad[] = {
	    {"relative", EAFNOSUPPORT}, {"vsock:2:1", EAFNOSUPPORT},     {"/", EAFNOSUPPORT},
	    {long_path, ENAMETOOLONG},  {"/nonexistent/notify", ENOENT},
	};

	(void)state;
	memset(long_path, '/', sizeof(long_path) - 1);
	long_path[sizeof(long_path) - 1] = '\0';
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		setenv("NOTIFY_SOCKET", bad[i].name, 1);
		assert_int_equal(notify("READY=1"), KOPS_E_SYSTEM);
		assert_int_equal(errno, bad[i].error);
	}
	unsetenv("NOTIFY_SOCKET");
}

static uint64_t monotonic_usec(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void test_reloading_carries_the_time(void **state)
{
	uint64_t before, after, sent;
	char name[96], got[128];
	int manager;
	ssize_t len;

	(void)state;
	snprintf(name, sizeof(name), "@%s/reloading", dir);
	manager = bind_socket(SOCK_DGRAM, name);
	setenv("NOTIFY_SOCKET", name, 1);
	before = monotonic_usec();
	assert_int_equal(notify_reloading(), 0);
	after = monotonic_usec();
	unsetenv("NOTIFY_SOCKET");

	len = recv(manager, got, sizeof(got) - 1, MSG_DONTWAIT);
	assert_true(len > 0);
	got[len] = '\0';
	assert_int_equal(sscanf(got, "RELOADING=1\nMONOTONIC_USEC=%" SCNu64, &sent), 1);
	assert_in_range(sent, before, after);
	close(manager);
}

/* ---- The watchdog ------------------------------------------------------------------------------ */

static void test_watchdog(void **state)
{
	static const struct {
		const char *usec;
		uint64_t expected_ms;
	} rows[] = {
	    {"10000000", 10000},
	    {"3999", 3},
	    {"1", 1},
	    {"0", 0},
	    {"", 0},
	    {"-5", 0},
	    {"10s", 0},
	    {"99999999999999999999999", 0},
	};
	char pid[32];

	(void)state;
	unsetenv("WATCHDOG_USEC");
	assert_int_equal(notify_watchdog_ms(), 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		setenv("WATCHDOG_USEC", rows[i].usec, 1);
		assert_int_equal(notify_watchdog_ms(), rows[i].expected_ms);
	}

	setenv("WATCHDOG_USEC", "10000000", 1);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	setenv("WATCHDOG_PID", pid, 1);
	assert_int_equal(notify_watchdog_ms(), 10000);
	snprintf(pid, sizeof(pid), "%d", (int)getppid());
	setenv("WATCHDOG_PID", pid, 1);
	assert_int_equal(notify_watchdog_ms(), 0);
	unsetenv("WATCHDOG_PID");
	unsetenv("WATCHDOG_USEC");
}

/* ---- Inherited sockets -------------------------------------------------------------------------- */

struct inheritance {
	int fd;           /* becomes descriptor 3 */
	const char *fds;  /* $LISTEN_FDS */
	bool for_another; /* $LISTEN_PID is another process's */
	bool without_pid; /* $LISTEN_PID is not set */
};

#define CHILD_ADOPTED  1 /* returned 3, non-blocking, close-on-exec */
#define CHILD_NONE     2
#define CHILD_REFUSED  3
#define CHILD_MISTAKEN 4

static bool variables_are_gone(void)
{
	return !getenv("LISTEN_PID") && !getenv("LISTEN_FDS") && !getenv("LISTEN_FDNAMES");
}

static int inherit_in_child(const struct inheritance *in)
{
	char pid[32];
	int rc;

	if (in->fd >= 0 && dup2(in->fd, 3) != 3)
		return CHILD_MISTAKEN;
	snprintf(pid, sizeof(pid), "%d", (int)(in->for_another ? getppid() : getpid()));
	if (!in->without_pid)
		setenv("LISTEN_PID", pid, 1);
	setenv("LISTEN_FDS", in->fds, 1);
	setenv("LISTEN_FDNAMES", "kopsd.socket", 1);

	rc = notify_inherited_socket();
	if (!variables_are_gone())
		return CHILD_MISTAKEN;
	if (rc == -1)
		return CHILD_NONE;
	if (rc == KOPS_E_INVALID)
		return CHILD_REFUSED;
	return rc == 3 && (fcntl(3, F_GETFL) & O_NONBLOCK) && (fcntl(3, F_GETFD) & FD_CLOEXEC) ? CHILD_ADOPTED
	                                                                                       : CHILD_MISTAKEN;
}

/* Runs in a child, so that descriptor 3 and the environment stay as they are here. */
static int inherit(const struct inheritance *in)
{
	int status;
	pid_t child = fork();

	assert_true(child >= 0);
	if (child == 0)
		_exit(inherit_in_child(in));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int listening(int type, const char *name)
{
	int sock = bind_socket(type, name);

	assert_int_equal(listen(sock, 1), 0);
	return sock;
}

static void test_inherits_a_listening_seqpacket_socket(void **state)
{
	char name[96];
	int sock;

	(void)state;
	snprintf(name, sizeof(name), "@%s/seqpacket", dir);
	sock = listening(SOCK_SEQPACKET, name);
	assert_int_equal(inherit(&(struct inheritance){.fd = sock, .fds = "1"}), CHILD_ADOPTED);
	assert_int_equal(inherit(&(struct inheritance){.fd = sock, .fds = "0"}), CHILD_NONE);
	assert_int_equal(inherit(&(struct inheritance){.fd = sock, .fds = "1", .for_another = true}),
	                 CHILD_NONE);
	assert_int_equal(inherit(&(struct inheritance){.fd = sock, .fds = "1", .without_pid = true}),
	                 CHILD_NONE);
	assert_int_equal(inherit(&(struct inheritance){.fd = sock, .fds = "2"}), CHILD_REFUSED);
	assert_int_equal(inherit(&(struct inheritance){.fd = sock, .fds = "one"}), CHILD_REFUSED);
	assert_int_equal(inherit(&(struct inheritance){.fd = sock, .fds = "-1"}), CHILD_REFUSED);
	close(sock);
}

static void test_refuses_other_descriptors(void **state)
{
	char stream_name[96], idle_name[96];
	int stream, idle, pair[2], null;

	(void)state;
	snprintf(stream_name, sizeof(stream_name), "@%s/stream", dir);
	snprintf(idle_name, sizeof(idle_name), "@%s/idle", dir);
	stream = listening(SOCK_STREAM, stream_name);
	idle = bind_socket(SOCK_SEQPACKET, idle_name); /* bound, but nobody listens */
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	null = open("/dev/null", O_RDWR | O_CLOEXEC);

	assert_int_equal(inherit(&(struct inheritance){.fd = stream, .fds = "1"}), CHILD_REFUSED);
	assert_int_equal(inherit(&(struct inheritance){.fd = idle, .fds = "1"}), CHILD_REFUSED);
	assert_int_equal(inherit(&(struct inheritance){.fd = pair[0], .fds = "1"}), CHILD_REFUSED);
	assert_int_equal(inherit(&(struct inheritance){.fd = null, .fds = "1"}), CHILD_REFUSED);
	close(null);
	close(pair[0]);
	close(pair[1]);
	close(idle);
	close(stream);
}

static void test_no_socket_passed(void **state)
{
	(void)state;
	assert_int_equal(notify_inherited_socket(), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_notify_path),
	    cmocka_unit_test(test_notify_abstract),
	    cmocka_unit_test(test_notify_without_manager),
	    cmocka_unit_test(test_notify_failures),
	    cmocka_unit_test(test_reloading_carries_the_time),
	    cmocka_unit_test(test_watchdog),
	    cmocka_unit_test(test_inherits_a_listening_seqpacket_socket),
	    cmocka_unit_test(test_refuses_other_descriptors),
	    cmocka_unit_test(test_no_socket_passed),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
