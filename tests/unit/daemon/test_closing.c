/*
 * Tests closing sockets that linger for a minute: alone, unread in a connection, and unread in a connection
 * that is unread in another.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "share/closing.h"

enum { MANY = 20, LINGER_S = 60 };
#define AT_MOST_US 5e6 /* a millisecond on an idle machine */

static struct accounts nobody;
static int peers[4 * MANY];
static unsigned n_peers;

/* Writes more than the peer takes, which reads nothing. */
static void fill(int fd)
{
	static char bytes[1 << 16];

	fcntl(fd, F_SETFL, O_NONBLOCK);
	while (send(fd, bytes, sizeof bytes, 0) > 0)
		;
}

static int lingering(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct linger linger = {.l_onoff = 1, .l_linger = LINGER_S};
	socklen_t len = sizeof address;
	int server = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(bind(server, (struct sockaddr *)&address, len), 0);
	assert_int_equal(listen(server, 1), 0);
	assert_int_equal(getsockname(server, (struct sockaddr *)&address, &len), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, len), 0);
	peers[n_peers] = accept(server, NULL, NULL);
	assert_true(peers[n_peers++] >= 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger), 0);
	close(server);
	fill(fd);
	return fd;
}

/* Sends a descriptor whose last copy is then in the connection. */
static void send_last(int connection, int fd)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr header;
	} control = {0};
	char byte = 0;
	struct iovec data = {&byte, 1};
	struct msghdr message = {.msg_iov = &data,
	                         .msg_iovlen = 1,
	                         .msg_control = control.bytes,
	                         .msg_controllen = sizeof control.bytes};

	control.header = (struct cmsghdr){
	    .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
	memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
	assert_int_equal(sendmsg(connection, &message, 0), 1);
	close(fd);
}

/* Makes a connection whose other end is gone, with n unread descriptors. */
static int connection_with(unsigned n, int (*make)(void))
{
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	for (unsigned i = 0; i < n; i++)
		send_last(pair[1], make());
	close(pair[1]);
	return pair[0];
}

static int connection_with_many(void)
{
	return connection_with(MANY, lingering);
}

static int connection_with_connections(void)
{
	return connection_with(2, connection_with_many);
}

static void check(int (*make)(void))
{
	int fd = make();
	uint64_t began = clock_ns();

	closing_add(&nobody, NULL, fd);
	assert_true(clock_us(began, clock_ns()) < AT_MOST_US);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	while (n_peers > 0)
		close(peers[--n_peers]);
}

static void test_alone(void **state)
{
	(void)state;
	check(lingering);
}

static void test_unread(void **state)
{
	(void)state;
	check(connection_with_many);
}

static void test_unread_deeper(void **state)
{
	(void)state;
	check(connection_with_connections);
}

/*
 * kopsd may have been started with blocked signals. This test is first, since a thread's first close makes its
 * timer.
 */
static void test_signals_are_blocked(void **state)
{
	sigset_t all, before;

	(void)state;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	check(lingering);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_signals_are_blocked),
	    cmocka_unit_test(test_alone),
	    cmocka_unit_test(test_unread),
	    cmocka_unit_test(test_unread_deeper),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
