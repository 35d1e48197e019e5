/* Tests that kopsd learns why the process that starts receivers of descriptors cannot be started. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "share/receiver.h"
#include "share/receivers.h"
#include "unit/daemon/loop.h"

enum { PID = 4711 };

static int spawn_result;

/* Replaces the system's, and starts nothing. */
int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *attributes, char *const argv[], char *const environment[])
{
	assert_string_equal(path, "/proc/self/exe");
	assert_non_null(actions);
	assert_null(attributes);
	assert_true(spawner_is_wanted((char **)argv));
	assert_non_null(environment);
	if (spawn_result == 0)
		*pid = PID;
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

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(it_tells_the_process_and_its_socket),
	    cmocka_unit_test(it_tells_why_the_system_starts_no_process),
	    cmocka_unit_test(there_are_no_receivers_then),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
