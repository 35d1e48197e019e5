/* Tests message.c: datagrams with descriptors, between the ends of a socket pair. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "kops.h"
#include "message.h"

#define BYTES(s) (const uint8_t *)(s), sizeof(s) - 1

static int count_fds(void)
{
	int n = 0;
	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static int send_error; /* errno of the next send(), which replaces the system's */

ssize_t send(int fd, const void *data, size_t bytes, int flags)
{
	int error = send_error;

	send_error = 0;
	errno = error;
	return error ? -1 : sendto(fd, data, bytes, flags, NULL, 0);
}

static int recv_error; /* of the next recv() */

ssize_t recv(int fd, void *data, size_t bytes, int flags)
{
	int error = recv_error;

	recv_error = 0;
	errno = error;
	return error ? -1 : recvfrom(fd, data, bytes, flags, NULL, NULL);
}

struct pair {
	int a, b;
};

static int pair_open(void **state)
{
	static struct pair pair;
	int fds[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return -1;
	pair = (struct pair){fds[0], fds[1]};
	*state = &pair;
	return 0;
}

static int pair_close(void **state)
{
	struct pair *pair = *state;
	close(pair->a);
	if (pair->b >= 0)
		close(pair->b);
	return 0;
}

static void test_send_and_receive(void **state)
{
	struct pair *pair = *state;
	uint8_t data[MESSAGE_BYTES_MAX];
	int before = count_fds(), sent[MESSAGE_FDS_MAX], got[MESSAGE_FDS_ROOM];
	unsigned n_got = 9;
	size_t len = 9;

	assert_int_equal(message_recv(pair->b, data, &len, got, &n_got), KOPS_E_BUSY);
	for (unsigned n = 0; n <= MESSAGE_FDS_MAX; n++) {
		for (unsigned i = 0; i < n; i++)
			sent[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
		assert_int_equal(message_send(pair->a, BYTES("hello"), sent, n), 0);
		assert_int_equal(message_recv(pair->b, data, &len, got, &n_got), 0);
		assert_int_equal(len, 5);
		assert_memory_equal(data, "hello", 5);
		assert_int_equal(n_got, n);
		for (unsigned i = 0; i < n; i++) {
			assert_int_equal(fcntl(got[i], F_GETFD), FD_CLOEXEC);
			close(got[i]);
			close(sent[i]);
		}
	}
	assert_int_equal(count_fds(), before);
}

static void send_raw(int sock, size_t len, unsigned n_fds)
{
	static uint8_t data[MESSAGE_BYTES_MAX + 1];
	union {
		struct cmsghdr align;
		unsigned char bytes[CMSG_SPACE(sizeof(int) * 253)];
	} control = {0};
	struct iovec iov = {data, len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	int fds[253];
	for (unsigned i = 0; i < n_fds; i++)
		fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (n_fds > 0) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * n_fds);
	}
	assert_int_equal(sendmsg(sock, &msg, 0), (ssize_t)len);
	for (unsigned i = 0; i < n_fds; i++)
		close(fds[i]);
}

static void close_all(const int *fds, unsigned n)
{
	while (n > 0)
		close(fds[--n]);
}

static void test_floods_are_refused(void **state)
{
	struct pair *pair = *state;
	uint8_t data[MESSAGE_BYTES_MAX];
	int before = count_fds(), fds[MESSAGE_FDS_ROOM];
	unsigned n_fds = 9;
	size_t len = 9;
	static const unsigned floods[] = {5, 6, 16, 253};

	for (size_t i = 0; i < sizeof floods / sizeof floods[0]; i++) {
		send_raw(pair->a, 3, floods[i]);
		assert_int_equal(message_recv(pair->b, data, &len, fds, &n_fds), KOPS_E_PROTOCOL);
		assert_int_equal(n_fds, floods[i]);
		close_all(fds, n_fds);
		assert_int_equal(count_fds(), before);
	}
	send_raw(pair->a, MESSAGE_BYTES_MAX + 1, 2);
	assert_int_equal(message_recv(pair->b, data, &len, fds, &n_fds), KOPS_E_PROTOCOL);
	assert_int_equal(n_fds, 2);
	close_all(fds, n_fds);
	assert_int_equal(count_fds(), before);
	assert_int_equal(len, 9);

	send_raw(pair->a, MESSAGE_BYTES_MAX, 0);
	assert_int_equal(message_recv(pair->b, data, &len, fds, &n_fds), 0);
	assert_int_equal(len, MESSAGE_BYTES_MAX);
}

static void test_waiting_takes_no_descriptors(void **state)
{
	struct pair *pair = *state;
	uint8_t data[MESSAGE_BYTES_MAX];
	const struct timeval limit = {.tv_usec = 10000};
	int before = count_fds(), null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	size_t len = 9;
	assert_int_equal(message_send(pair->a, BYTES("hello"), &null, 1), 0);
	close(null);
	assert_int_equal(message_recv_wait(pair->b, data, &len), 0);
	assert_int_equal(len, 5);
	assert_memory_equal(data, "hello", 5);
	assert_int_equal(count_fds(), before);
	send_raw(pair->a, MESSAGE_BYTES_MAX + 1, 0);
	assert_int_equal(message_recv_wait(pair->b, data, &len), KOPS_E_PROTOCOL);
	assert_int_equal(setsockopt(pair->b, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
	assert_int_equal(message_recv_wait(pair->b, data, &len), KOPS_E_BUSY);
	close(pair->a);
	pair->a = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(message_recv_wait(pair->b, data, &len), KOPS_E_CONNECT);
	assert_int_equal(len, 5);
}

/* A datagram with descriptors stays in the socket, and no descriptor enters this process. */
static void test_bytes_alone(void **state)
{
	struct pair *pair = *state;
	uint8_t data[MESSAGE_BYTES_MAX];
	int before, null = open("/dev/null", O_RDONLY | O_CLOEXEC), got[MESSAGE_FDS_ROOM];
	unsigned n_got;
	size_t len = 9;
	assert_int_equal(message_recv_bytes(pair->b, data, &len), KOPS_E_BUSY);
	assert_int_equal(message_send(pair->a, BYTES("hello"), NULL, 0), 0);
	assert_int_equal(message_send(pair->a, BYTES("with"), &null, 1), 0);
	close(null);
	before = count_fds();
	assert_int_equal(message_recv_bytes(pair->b, data, &len), 0);
	assert_int_equal(len, 5);
	assert_memory_equal(data, "hello", 5);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(message_recv_bytes(pair->b, data, &len), KOPS_E_FD);
	assert_int_equal(count_fds(), before);
	assert_int_equal(message_recv(pair->b, data, &len, got, &n_got), 0);
	assert_int_equal(n_got, 1);
	close_all(got, n_got);
	send_raw(pair->a, MESSAGE_BYTES_MAX + 1, 0);
	assert_int_equal(message_recv_bytes(pair->b, data, &len), KOPS_E_PROTOCOL);
	message_recv(pair->b, data, &len, got, &n_got);
	close(pair->a);
	pair->a = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(message_recv_bytes(pair->b, data, &len), KOPS_E_CONNECT);
}

static void test_empty_datagram_ends_the_connection(void **state)
{
	struct pair *pair = *state;
	uint8_t data[MESSAGE_BYTES_MAX];
	int before = count_fds(), fds[MESSAGE_FDS_ROOM];
	unsigned n_fds;
	size_t len;
	send_raw(pair->a, 0, 3);
	assert_int_equal(message_recv(pair->b, data, &len, fds, &n_fds), KOPS_E_CONNECT);
	assert_int_equal(n_fds, 3);
	close_all(fds, n_fds);
	assert_int_equal(count_fds(), before);
}

static void test_peer_gone(void **state)
{
	struct pair *pair = *state;
	uint8_t data[MESSAGE_BYTES_MAX];
	int fds[MESSAGE_FDS_ROOM];
	unsigned n_fds;
	size_t len;
	close(pair->b);
	pair->b = -1;
	assert_int_equal(message_send(pair->a, BYTES("x"), NULL, 0), KOPS_E_CONNECT);
	assert_int_equal(message_recv(pair->a, data, &len, fds, &n_fds), KOPS_E_CONNECT);
}

static void test_full_socket_is_busy(void **state)
{
	struct pair *pair = *state;
	static uint8_t data[MESSAGE_BYTES_MAX];
	int status = 0;
	for (unsigned i = 0; i < 10000 && status == 0; i++)
		status = message_send(pair->a, data, sizeof data, NULL, 0);
	assert_int_equal(status, KOPS_E_BUSY);
	assert_int_equal(message_send(-1, data, 1, NULL, 0), KOPS_E_SYSTEM);
	assert_int_equal(errno, EBADF);
}

/* A lack of memory is worth another try; a lasting failure is not. */
static void test_no_memory_just_now_is_busy(void **state)
{
	struct pair *pair = *state;

	send_error = ENOBUFS;
	assert_int_equal(message_send(pair->a, BYTES("hello"), NULL, 0), KOPS_E_BUSY);
	send_error = ENOMEM;
	assert_int_equal(message_send(pair->a, BYTES("hello"), NULL, 0), KOPS_E_BUSY);
	send_error = EIO;
	assert_int_equal(message_send(pair->a, BYTES("hello"), NULL, 0), KOPS_E_SYSTEM);
	assert_int_equal(message_send(pair->a, BYTES("hello"), NULL, 0), 0);
}

/* Else it would be handled twice. */
static void test_what_cannot_be_taken_stays(void **state)
{
	struct pair *pair = *state;
	uint8_t data[MESSAGE_BYTES_MAX];
	size_t len = 9;

	assert_int_equal(message_send(pair->a, BYTES("hello"), NULL, 0), 0);
	recv_error = ENOMEM;
	assert_int_equal(message_recv_bytes(pair->b, data, &len), KOPS_E_BUSY);
	recv_error = EIO;
	assert_int_equal(message_recv_bytes(pair->b, data, &len), KOPS_E_SYSTEM);
	assert_int_equal(len, 9);
	recv_error = EINTR;
	assert_int_equal(message_recv_bytes(pair->b, data, &len), 0);
	assert_int_equal(len, 5);
	assert_int_equal(message_recv_bytes(pair->b, data, &len), KOPS_E_BUSY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_send_and_receive, pair_open, pair_close),
	    cmocka_unit_test_setup_teardown(test_floods_are_refused, pair_open, pair_close),
	    cmocka_unit_test_setup_teardown(test_waiting_takes_no_descriptors, pair_open, pair_close),
	    cmocka_unit_test_setup_teardown(test_bytes_alone, pair_open, pair_close),
	    cmocka_unit_test_setup_teardown(test_empty_datagram_ends_the_connection, pair_open, pair_close),
	    cmocka_unit_test_setup_teardown(test_peer_gone, pair_open, pair_close),
	    cmocka_unit_test_setup_teardown(test_full_socket_is_busy, pair_open, pair_close),
	    cmocka_unit_test_setup_teardown(test_no_memory_just_now_is_busy, pair_open, pair_close),
	    cmocka_unit_test_setup_teardown(test_what_cannot_be_taken_stays, pair_open, pair_close),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
