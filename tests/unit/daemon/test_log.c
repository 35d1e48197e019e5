/* Tests the log: what reaches stderr, read back through a pipe. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "log.h"

#define PIPE_BYTES (1 << 20)

static int saved_stderr, reader;

/* Makes stderr a pipe, which passes for the journal's. */
static int capture(void **state)
{
	char stream[64];
	struct stat st;
	int ends[2];

	(void)state;
	if (pipe2(ends, O_CLOEXEC) < 0 || fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES) < 0)
		return -1;
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	saved_stderr = dup(STDERR_FILENO);
	reader = ends[0];
	if (dup2(ends[1], STDERR_FILENO) < 0)
		return -1;
	close(ends[1]);
	if (fstat(STDERR_FILENO, &st) < 0)
		return -1;
	snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev,
	         (unsigned long long)st.st_ino);
	setenv("JOURNAL_STREAM", stream, 1);
	log_open();
	log_set_level(LOG_LEVEL_INFO);
	return 0;
}

static int release(void **state)
{
	(void)state;
	dup2(saved_stderr, STDERR_FILENO);
	close(saved_stderr);
	close(reader);
	return 0;
}

/* Returns everything logged since the last call; "" for nothing. */
static const char *logged(void)
{
	static char text[PIPE_BYTES + 1];
	size_t len = 0;
	ssize_t n;

	while ((n = read(reader, text + len, sizeof(text) - 1 - len)) > 0)
		len += (size_t)n;
	text[len] = '\0';
	return text;
}

static void test_prefix_is_the_level(void **state)
{
	(void)state;
	log_error("a %d", 1);
	log_warning("b");
	log_notice("c");
	log_info("d");
	assert_string_equal(logged(), "<3>a 1\n<4>b\n<5>c\n<6>d\n");
}

static void log_all_levels(void)
{
	log_open();
	log_set_level(LOG_LEVEL_DEBUG);
	log_error("a");
	log_warning("b");
	log_notice("c");
	log_info("d");
	log_debug("e");
}

/* Without a journal, or if stderr is not the stream that systemd connected to it, levels are words. */
static void test_other_places_get_words(void **state)
{
	static const char *const others[] = {"1:1", "nonsense", "", NULL};
	static const char words[] = "error: a\nwarning: b\nnotice: c\ninfo: d\ndebug: e\n";

	(void)state;
	for (unsigned i = 0; others[i]; i++) {
		setenv("JOURNAL_STREAM", others[i], 1);
		log_all_levels();
		assert_string_equal(logged(), words);
	}
	unsetenv("JOURNAL_STREAM");
	log_all_levels();
	assert_string_equal(logged(), words);
}

static void test_level_filters(void **state)
{
	(void)state;
	log_debug("hidden");
	assert_string_equal(logged(), "");
	log_set_level(LOG_LEVEL_DEBUG);
	log_debug("shown");
	assert_string_equal(logged(), "<7>shown\n");
	log_set_level(LOG_LEVEL_ERROR);
	log_warning("hidden");
	log_error("shown");
	assert_string_equal(logged(), "<3>shown\n");
}

static void test_one_event_is_one_line(void **state)
{
	(void)state;
	log_info("client \"%s\"", "x\n<3>forged\033[2J\x7f\r\xc2\x9b");
	assert_string_equal(logged(), "<6>client \"x?<3>forged?[2J???\"\n");
	log_info("grüße"); /* UTF-8 passes */
	assert_string_equal(logged(), "<6>grüße\n");
}

static void test_long_lines_are_cut(void **state)
{
	char text[3000];
	const char *line;
	size_t len;

	(void)state;
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	log_info("%s", text);
	line = logged();
	len = strlen(line);
	assert_int_equal(len, 1024);
	assert_string_equal(line + len - 6, "x ...\n");
	assert_ptr_equal(strchr(line, '\n'), line + len - 1);

	text[1020] = '\0'; /* with "<6>" and '
' the longest that fits */
	log_info("%s", text);
	line = logged();
	assert_int_equal(strlen(line), 1024);
	assert_string_equal(line + 1020, "xxx\n");
}

static void test_errno_is_kept(void **state)
{
	(void)state;
	errno = ENOENT;
	log_info("%m");
	assert_int_equal(errno, ENOENT);
	assert_string_equal(logged(), "<6>No such file or directory\n");

	/* … and kept if stderr is gone. */
	close(STDERR_FILENO);
	errno = ENOENT;
	log_info("lost");
	assert_int_equal(errno, ENOENT);
}

#define THREADS 4
#define LINES   500

static void *log_many(void *arg)
{
	for (int i = 0; i < LINES; i++)
		log_info("%s", (const char *)arg);
	return NULL;
}

static void test_threads_do_not_mix_lines(void **state)
{
	static const char *const texts[THREADS] = {"aaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbb",
	                                           "cccccccccccccccccccc", "dddddddddddddddddddd"};
	unsigned count[THREADS] = {0};
	pthread_t threads[THREADS];
	const char *line;

	(void)state;
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, log_many, (void *)texts[i]), 0);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);

	for (line = logged(); *line; line += 24) {
		unsigned which = (unsigned)(line[3] - 'a');

		assert_in_range(which, 0, THREADS - 1);
		assert_memory_equal(line, "<6>", 3);
		assert_memory_equal(line + 3, texts[which], 20);
		assert_int_equal(line[23], '\n');
		count[which]++;
	}
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(count[i], LINES);
}

/* A burst passes in a second, then nothing; the next line that passes says how many did not. */
static void test_a_client_cannot_flood(void **state)
{
	struct log_limit limit = {0};
	unsigned allowed = 0;

	(void)state;
	for (int i = 0; i < 1000; i++)
		allowed += log_may(&limit);
	assert_in_range(allowed, LOG_BURST, 2 * LOG_BURST); /* twice, if the second ends meanwhile */
	limit.second--;
	limit.dropped = 7;
	logged();
	assert_true(log_may(&limit));
	assert_string_equal(logged(), "<5>7 lines like the next were left out\n");
}

/* ---- A reader that stalls ---- */

/* Fills stderr's pipe. That must not block the log, or the test would never end. */
static unsigned log_until_full(void)
{
	unsigned lines = 0;

	for (; lines < 40000; lines++)
		log_info("%04000u", lines);
	return lines;
}

static unsigned count_lines(const char *text)
{
	unsigned n = 0;

	for (; (text = strchr(text, '\n')); text++)
		n++;
	return n;
}

static void check_stalls(void)
{
	unsigned sent = log_until_full(), written = count_lines(logged()), lost = 0;

	assert_in_range(written, 1, sent - 1);
	log_info("it goes on");
	assert_int_equal(sscanf(logged(), "warning: %u lines lost", &lost), 1);
	assert_int_equal(written + lost, sent);
	log_info("and on");
	assert_string_equal(logged(), "info: and on\n");
}

static void test_a_stalled_pipe_holds_up_nobody(void **state)
{
	(void)state;
	setenv("JOURNAL_STREAM", "1:1", 1);
	log_open();
	check_stalls();
	assert_int_equal(fcntl(STDERR_FILENO, F_GETFL) & O_NONBLOCK, 0); /* others' writes block as before */
}

/* A pipe may belong to another user. Here it cannot be opened for lack of descriptors. */
static void test_a_stalled_pipe_that_cannot_be_opened(void **state)
{
	struct rlimit limit, none;

	(void)state;
	setenv("JOURNAL_STREAM", "1:1", 1);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = limit;
	none.rlim_cur = 3;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	log_open();
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	check_stalls();
}

static void test_a_stalled_socket_holds_up_nobody(void **state)
{
	int ends[2];

	(void)state;
	setenv("JOURNAL_STREAM", "1:1", 1);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	assert_int_equal(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
	close(ends[1]);
	close(reader);
	reader = ends[0];
	fcntl(reader, F_SETFL, O_NONBLOCK);
	log_open();
	check_stalls();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, capture, release)
	    TEST(test_prefix_is_the_level),
	    TEST(test_other_places_get_words),
	    TEST(test_level_filters),
	    TEST(test_one_event_is_one_line),
	    TEST(test_long_lines_are_cut),
	    TEST(test_errno_is_kept),
	    TEST(test_threads_do_not_mix_lines),
	    TEST(test_a_client_cannot_flood),
	    TEST(test_a_stalled_pipe_holds_up_nobody),
	    TEST(test_a_stalled_pipe_that_cannot_be_opened),
	    TEST(test_a_stalled_socket_holds_up_nobody),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
