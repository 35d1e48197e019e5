/* Tests the peer's identity: its groups are those that it had when it connected. */
#include <grp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/peer.h"
#include "kops_types.h"

#define FIRST_GROUP 2000

static void test_the_process_that_connected(void **state)
{
	struct peer peer;
	int pair[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	assert_int_equal(peer_read(pair[0], &peer), 0);
	assert_int_equal(peer.uid, geteuid());
	assert_int_equal(peer.pid, getpid());
	assert_int_equal(peer.n_groups, 1 + getgroups(0, NULL));
	assert_int_equal(peer.groups[0], getegid());
	peer_free(&peer);
	close(pair[0]);
	close(pair[1]);
}

static void test_no_socket(void **state)
{
	struct peer peer = {.pid = 7};

	(void)state;
	assert_int_equal(peer_read(STDERR_FILENO, &peer), KOPS_E_SYSTEM);
	assert_int_equal(peer.pid, 7);
}

static bool has_groups(int fd, size_t n)
{
	struct peer peer;
	bool right;

	if (peer_read(fd, &peer) < 0)
		return false;
	right = peer.n_groups == 1 + n;
	for (size_t i = 0; right && i < n; i++)
		right = peer.groups[1 + i] == FIRST_GROUP + i;
	peer_free(&peer);
	return right;
}

/* Runs in a child, which can change its groups. It gives them up after it connected. */
static bool connects_with_groups(size_t n)
{
	gid_t groups[100];
	int pair[2];

	for (size_t i = 0; i < n; i++)
		groups[i] = FIRST_GROUP + (gid_t)i;
	if (setgroups(n, groups) < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) < 0)
		return false;
	return setgroups(0, NULL) == 0 && has_groups(pair[0], n);
}

static void check_in_child(size_t n)
{
	int status = -1;
	pid_t child = fork();

	if (child == 0)
		_exit(connects_with_groups(n) ? 0 : 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void test_few_and_many_groups(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip();
	check_in_child(0);
	check_in_child(1);
	check_in_child(100);
}

static void named(const char *own, const char *expected)
{
	char name[PEER_NAME_BYTES];

	assert_int_equal(prctl(PR_SET_NAME, own), 0);
	peer_read_name(getpid(), name);
	assert_string_equal(name, expected);
}

/* Whatever a process calls itself, a list has one line of text for it. */
static void test_names_of_processes(void **state)
{
	char name[PEER_NAME_BYTES] = "before";

	(void)state;
	named("trainer", "trainer");
	named("fifteen letters", "fifteen letters");
	named("", "");
	named("caf\xc3\xa9", "caf\xc3\xa9");
	named("a\x1b[2J\nb", "a?[2J?b");
	named("\xff\xfe"
	      "cut\xc3",
	      "??cut?");
	named("a\xe2\x80\xae"
	      "b",
	      "a?b");
	peer_read_name(0, name);
	assert_string_equal(name, "");
	peer_read_name(-1, name);
	assert_string_equal(name, "");
	peer_read_name(0x7fffffff, name);
	assert_string_equal(name, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_the_process_that_connected),
	    cmocka_unit_test(test_no_socket),
	    cmocka_unit_test(test_few_and_many_groups),
	    cmocka_unit_test(test_names_of_processes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
