/* Tests what kopsd does if the process that starts receivers of descriptors cannot start, or has exited. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "share/receiver.h"
#include "share/receivers.h"
#include "unit/daemon/loop.h"

enum { PID = 4711 };

static int spawn_result;
static pid_t exited[4];
static unsigned n_exited;
static bool exits;

/* Returns a process that has ended, and of which the system still knows. */
static pid_t exited_child(void)
{
	siginfo_t info;
	pid_t child = fork();

	if (child == 0)
		_exit(0);
	assert_true(child > 0 && n_exited < 4);
	assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
	return exited[n_exited++] = child;
}

/* Replaces the system's, and starts nothing that lasts. */
int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *attributes, char *const argv[], char *const environment[])
{
	assert_string_equal(path, "/proc/self/exe");
	assert_non_null(actions);
	assert_null(attributes);
	assert_true(spawner_is_wanted((char **)argv));
	assert_non_null(environment);
	if (spawn_result == 0)
		*pid = exits ? exited_child() : PID;
	return spawn_result;
}

static int count_open(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void it_tells_the_process_and_its_socket(void **state)
{
	int sock = -1, pid = -1;

	(void)state;
	spawn_result = 0;
	assert_int_equal(spawner_start(&sock, &pid), 0);
	assert_int_equal(pid, PID);
	assert_true(fcntl(sock, F_GETFD) & FD_CLOEXEC);
	close(sock);
}

static void it_tells_why_the_system_starts_no_process(void **state)
{
	int before = count_open(), sock = -1, pid = -1;

	(void)state;
	spawn_result = EAGAIN;
	assert_int_equal(spawner_start(&sock, &pid), EAGAIN);
	assert_int_equal(sock, -1);
	assert_int_equal(pid, -1);
	assert_int_equal(count_open(), before);
}

/* kopsd does not start without it, and says what to do. */
static void there_are_no_receivers_then(void **state)
{
	static const struct {
		int error;
		const char *advice;
	} rows[] = {{ENOENT, "make /proc visible to kopsd"}, {EAGAIN, "raise the limits on processes"}};
	struct accounts accounts = {0};
	struct receivers all;
	char why[WHY_BYTES];
	uv_loop_t loop;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		uv_loop_init(&loop);
		spawn_result = rows[i].error;
		assert_int_equal(receivers_start(&all, &loop, &loop, &accounts, 1, NULL, why), KOPS_E_SYSTEM);
		assert_non_null(strstr(why, strerror(rows[i].error)));
		assert_non_null(strstr(why, rows[i].advice));
		receivers_stop(&all);
		close_loop(&loop);
	}
}

/* It is started once more, and what is left of the first one goes. */
static void one_that_has_exited_is_replaced(void **state)
{
	struct accounts accounts = {0};
	struct receivers all;
	char why[WHY_BYTES];
	uv_loop_t loop;
	int before;

	(void)state;
	uv_loop_init(&loop);
	before = count_open();
	spawn_result = 0;
	exits = true;
	assert_int_equal(receivers_start(&all, &loop, &loop, &accounts, 1, NULL, why), KOPS_E_SYSTEM);
	exits = false;
	receivers_stop(&all);
	assert_int_equal(count_open(), before);
	assert_int_equal(n_exited, 2);
	assert_int_equal(waitpid(exited[0], NULL, WNOHANG), -1);
	assert_int_equal(waitpid(exited[1], NULL, WNOHANG), exited[1]);
	close_loop(&loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(it_tells_the_process_and_its_socket),
	    cmocka_unit_test(it_tells_why_the_system_starts_no_process),
	    cmocka_unit_test(there_are_no_receivers_then),
	    cmocka_unit_test(one_that_has_exited_is_replaced),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
