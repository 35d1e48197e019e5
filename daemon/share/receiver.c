#include "share/receiver.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "kops_types.h"
#include "message.h"
#include "standard_fds.h"

#define SPAWNER_NAME  "kopsd-receiver"
#define CONTROL_FD    3 /* the spawner's socket to kopsd */
#define INTERRUPTS_US 1000

/* ---- Receivers ---- */

/* The signal only interrupts a call. */
static void on_alarm(int number)
{
	(void)number;
}

/* Sockets may linger (SO_LINGER) unless a signal comes. The timer repeats it, because the first may come before
 * the wait. */
static void interrupt_waits(bool on)
{
	struct itimerval every = {{0, on ? INTERRUPTS_US : 0}, {0, on ? INTERRUPTS_US : 0}};

	setitimer(ITIMER_REAL, &every, NULL);
}

static ssize_t send_all(int channel, const struct msghdr *msg)
{
	ssize_t n;

	do
		n = sendmsg(channel, msg, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		_exit(0); /* kopsd is gone */
	return n;
}

static void report(int channel, struct receive_report *report, uint8_t *data, int fd)
{
	union {
		struct cmsghdr header;
		unsigned char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.header = {CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS}};
	struct iovec iov[] = {{report, sizeof *report}, {data, report->bytes}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};

	memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
	if (fd >= 0) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = sizeof control.bytes;
	}
	send_all(channel, &msg);
}

static void report_closed(int channel)
{
	char byte = 0;
	struct iovec iov = {&byte, 1};

	send_all(channel, &(struct msghdr){.msg_iov = &iov, .msg_iovlen = 1});
}

/* Without a control buffer the kernel installs no descriptors, and releases them all before this returns. */
static int receive_bytes(int sock, uint8_t *data, size_t *ret_len)
{
	ssize_t n;

	do
		n = recv(sock, data, MESSAGE_BYTES_MAX, MSG_DONTWAIT | MSG_TRUNC);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n < 0 && errno == EAGAIN ? KOPS_E_BUSY : KOPS_E_CONNECT;
	if (n > MESSAGE_BYTES_MAX)
		return KOPS_E_PROTOCOL;
	*ret_len = (size_t)n;
	return 0;
}

/*
 * Only shared memory has seals, and closing it only frees it. Other file systems are not called. 0 or an errno.
 */
static int why_no_memfd(int fd)
{
	return fcntl(fd, F_GET_SEALS) < 0 ? errno : 0;
}

/* Closes the connection before anything else, because this process may hang in a later close. */
static void carry_out(int channel, int sock, const struct receive_order *order)
{
	static uint8_t data[MESSAGE_BYTES_MAX];
	struct receive_report r = {.dropped = order->drops};
	int fds[MESSAGE_FDS_ROOM];
	unsigned n_fds = 0;
	size_t len = 0;
	bool passes;

	r.status = order->drops ? receive_bytes(sock, data, &len) : message_recv(sock, data, &len, fds, &n_fds);
	r.lost = r.status == KOPS_E_NOMEM;
	if (r.lost)
		r.status = 0;
	if (r.status == 0 && len > order->bytes_max)
		r.status = KOPS_E_PROTOCOL;
	r.bytes = r.status == 0 ? (uint32_t)len : 0;
	r.n_fds = order->drops ? 1 : n_fds;
	passes = r.status == 0 && n_fds == 1 && !r.lost;
	r.error = passes ? why_no_memfd(fds[0]) : 0;
	passes = passes && r.error == 0;
	r.closes = n_fds > 0 && !passes;
	close(sock);
	report(channel, &r, data, passes ? fds[0] : -1);
	while (n_fds > 0)
		close(fds[--n_fds]);
	if (r.closes)
		report_closed(channel);
}

/* Blocks until a socket arrives. Returns the bytes; 0: the other side is gone. */
static ssize_t receive_socket(int from, void *data, size_t bytes, int *ret_sock)
{
	union {
		struct cmsghdr header;
		unsigned char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = {data, bytes};
	struct msghdr msg = {.msg_iov = &iov,
	                     .msg_iovlen = 1,
	                     .msg_control = control.bytes,
	                     .msg_controllen = sizeof control.bytes};
	const struct cmsghdr *c;
	ssize_t n;

	do
		n = recvmsg(from, &msg, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
	*ret_sock = -1;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		memcpy(ret_sock, CMSG_DATA(c), sizeof *ret_sock);
	return n;
}

static void __attribute__((noreturn)) receiver_main(int channel)
{
	struct sigaction interrupt = {.sa_handler = on_alarm};
	struct receive_order order;
	sigset_t signals;
	int sock;

	sigemptyset(&signals);
	sigaddset(&signals, SIGALRM);
	sigprocmask(SIG_UNBLOCK, &signals, NULL); /* the parent of kopsd may have blocked it */
	sigaction(SIGALRM, &interrupt, NULL);
	while (receive_socket(channel, &order, sizeof order, &sock) == sizeof order) {
		if (sock < 0)
			break;
		interrupt_waits(true);
		carry_out(channel, sock, &order);
		interrupt_waits(false);
	}
	_exit(0);
}

/* ---- The spawner ---- */

/* Ends this process when its parent ends, or now if the parent has ended. */
static void end_with(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
}

static void make_receiver(int channel)
{
	pid_t spawner = getpid();

	if (fork() != 0)
		return; /* if it failed, kopsd sees the channel end */
	end_with(spawner);
	close(CONTROL_FD);
	receiver_main(channel);
}

bool spawner_is_wanted(char **argv)
{
	return argv[0] && strcmp(argv[0], SPAWNER_NAME) == 0;
}

void spawner_main(void)
{
	char byte;
	int channel;

	/* It ends when kopsd does, which may be a while after these signals. */
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_IGN); /* nobody waits for receivers */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, SPAWNER_NAME);
	closefrom(CONTROL_FD + 1);
	for (int fd = STDIN_FILENO; fd < CONTROL_FD; fd++)
		close(fd); /* so that a receiver that hangs does not keep kopsd's output open */
	standard_fds_open();
	while (receive_socket(CONTROL_FD, &byte, 1, &channel) == 1) {
		if (channel < 0)
			continue;
		make_receiver(channel);
		close(channel);
	}
	_exit(0);
}

/* OpenBLAS starts its threads when it is loaded, and each maps much memory; none is needed here. NULL: out of
 * memory. */
static char **make_environment(void)
{
	static char one_thread[] = "OPENBLAS_NUM_THREADS=1";
	size_t n = 0, to = 0;
	char **made;

	while (environ[n])
		n++;
	made = malloc((n + 2) * sizeof *made);
	if (!made)
		return NULL;
	for (size_t i = 0; i < n; i++)
		if (strncmp(environ[i], one_thread, sizeof "OPENBLAS_NUM_THREADS") != 0)
			made[to++] = environ[i];
	made[to++] = one_thread;
	made[to] = NULL;
	return made;
}

/* A new program rather than a fork: it has neither kopsd's memory nor its descriptors. */
static int spawn(int control, pid_t *ret_pid)
{
	char name[] = SPAWNER_NAME, *argv[] = {name, NULL}, **environment = make_environment();
	posix_spawn_file_actions_t actions;
	int rc = ENOMEM;

	if (!environment)
		return rc;
	rc = posix_spawn_file_actions_init(&actions);
	if (rc == 0) {
		rc = posix_spawn_file_actions_adddup2(&actions, control, CONTROL_FD);
		if (rc == 0)
			rc = posix_spawn(ret_pid, "/proc/self/exe", &actions, NULL, argv, environment);
		posix_spawn_file_actions_destroy(&actions);
	}
	free(environment);
	return rc;
}

int spawner_start(int *ret_socket, int *ret_pid)
{
	int ends[2], rc;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return errno;
	rc = spawn(ends[1], &pid);
	close(ends[1]);
	if (rc != 0) {
		close(ends[0]);
		return rc;
	}
	*ret_socket = ends[0];
	*ret_pid = pid;
	return 0;
}
