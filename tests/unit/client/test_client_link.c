/* Tests libkops against a scripted daemon: connecting, calls, protocol violations. */
#include "fake_daemon.h"

#include <sys/stat.h>

#include "base/clock.h"

/* ---- Opening ---- */

static void test_open_says_what_is_wrong(void **state)
{
	struct fake *f = *state;
	char why[512], expected[256], long_path[200];
	kops *k = (kops *)1;

	close(f->listener);
	f->listener = -1;
	assert_int_equal(fake_try_open(f, 5000, &k, why), KOPS_E_CONNECT);
	snprintf(expected, sizeof expected,
	         "cannot reach kopsd at %s: connection refused; is kopsd running? (systemctl status "
	         "kopsd.socket)",
	         f->path);
	assert_string_equal(why, expected);
	unlink(f->path);
	assert_int_equal(fake_try_open(f, 5000, &k, why), KOPS_E_CONNECT);
	snprintf(expected, sizeof expected,
	         "cannot reach kopsd at %s: no such file; is kopsd running? (systemctl status kopsd.socket)",
	         f->path);
	assert_string_equal(why, expected);
	assert_ptr_equal(k, (kops *)1);

	memset(long_path, 'x', sizeof long_path - 1);
	long_path[0] = '/';
	long_path[sizeof long_path - 1] = 0;
	kops_options options = {.size = sizeof options, .socket = long_path};
	assert_int_equal(kops_open(&k, &options, why, sizeof why), KOPS_E_CONNECT);
	assert_non_null(strstr(why, "199 bytes, the limit is 107"));
	assert_int_equal(kops_open(&k, &options, NULL, 0), KOPS_E_CONNECT);
}

static void test_open_permission_denied(void **state)
{
	struct fake *f = *state;
	char why[512];
	kops *k;
	if (geteuid() == 0 && seteuid(65534) < 0)
		skip();
	chmod(f->path, 0);
	int status = fake_try_open(f, 5000, &k, why);
	if (getuid() == 0)
		assert_int_equal(seteuid(0), 0);
	assert_int_equal(status, KOPS_E_CONNECT);
	assert_non_null(strstr(why, ": permission denied"));
}

/* Opens and closes, while the script plays the daemon. */
static void open_by(struct fake *f, void (*script)(struct fake *))
{
	fake_start(f, script);
	kops_close(fake_open(f));
	fake_stop(f);
}

static void script_hello(struct fake *f)
{
	fake_accept(f);
	Kops__V1__Request *r = fake_expect(f, FAKE_VERB(HELLO));
	FAKE_CHECK(f, r->hello->version_min == 1 && r->hello->version_max == 1);
	FAKE_CHECK(f, strcmp(r->hello->client, "test") == 0);
	fake_welcome(f, r->id, 1);
	fake_expect_end(f);
}

static void test_hello(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_hello);
	kops *k = fake_open(f);
	assert_string_equal(kops_error(k), "");
	assert_int_equal(kops_timeout(k), -1);
	assert_int_equal(kops_events(k), POLLIN);
	kops_close(k);
	kops_close(NULL);
	fake_stop(f);
}

static void script_no_name(struct fake *f)
{
	fake_accept(f);
	Kops__V1__Request *r = fake_expect(f, FAKE_VERB(HELLO));
	FAKE_CHECK(f, strcmp(r->hello->client, program_invocation_short_name) == 0);
	fake_welcome(f, r->id, 1);
	fake_expect_end(f);
}

static void test_a_handle_without_a_name_has_its_programs(void **state)
{
	struct fake *f = *state;
	kops_options options = {.size = sizeof options, .socket = f->path};
	kops *k = NULL;
	fake_start(f, script_no_name);
	assert_int_equal(kops_open(&k, &options, NULL, 0), 0);
	kops_close(k);
	fake_stop(f);
}

static void script_odd_name(struct fake *f)
{
	fake_accept(f);
	Kops__V1__Request *r = fake_expect(f, FAKE_VERB(HELLO));
	FAKE_CHECK(f, strlen(r->hello->client) == 64);
	FAKE_CHECK(f, strncmp(r->hello->client, "a?b?cccc", 8) == 0);
	fake_welcome(f, r->id, 1);
	fake_expect_end(f);
}

/* The daemon ends a session over bad text, so names must be made harmless. */
static void test_name_is_made_harmless(void **state)
{
	struct fake *f = *state;
	char name[100] = "a\xff"
	                 "b\n";
	kops *k;
	memset(name + 4, 'c', 95);
	fake_start(f, script_odd_name);
	kops_options options = {.size = sizeof options, .socket = f->path, .name = name};
	assert_int_equal(kops_open(&k, &options, NULL, 0), 0);
	kops_close(k);
	fake_stop(f);
}

static void script_refuse_version(struct fake *f)
{
	fake_accept(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(HELLO))->id, KOPS_E_VERSION, "kopsd speaks version 7 only");
	fake_expect_end(f);
}

static void test_version_refused(void **state)
{
	struct fake *f = *state;
	char why[512];
	kops *k;
	fake_start(f, script_refuse_version);
	assert_int_equal(fake_try_open(f, 5000, &k, why), KOPS_E_VERSION);
	assert_string_equal(why, "kopsd refused the connection: kopsd speaks version 7 only");
	fake_stop(f);
}

static void script_other_version(struct fake *f)
{
	fake_accept(f);
	fake_welcome(f, fake_expect(f, FAKE_VERB(HELLO))->id, 2);
	fake_expect_end(f);
}

static void test_unknown_version_chosen(void **state)
{
	struct fake *f = *state;
	char why[512];
	kops *k;
	fake_start(f, script_other_version);
	assert_int_equal(fake_try_open(f, 5000, &k, why), KOPS_E_VERSION);
	assert_string_equal(why, "kopsd chose protocol version 2, this libkops supports 1");
	fake_stop(f);
}

static void script_silent(struct fake *f)
{
	fake_accept(f);
	fake_expect(f, FAKE_VERB(HELLO));
	fake_expect_end(f);
}

static void test_hello_without_answer_times_out(void **state)
{
	struct fake *f = *state;
	char why[512];
	kops *k;
	uint64_t start = clock_ns();
	fake_start(f, script_silent);
	assert_int_equal(fake_try_open(f, 60, &k, why), KOPS_E_TIMEOUT);
	double took_us = clock_us(start, clock_ns());
	assert_true(took_us >= 60e3);
	assert_non_null(strstr(why, "did not answer within 60 ms"));
	fake_stop(f);
}

static void script_busy_then_welcome(struct fake *f)
{
	fake_accept(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(HELLO))->id, KOPS_E_BUSY, "too many sessions");
	fake_expect_end(f);
	fake_accept(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(HELLO))->id, KOPS_E_SHUTDOWN, "stopping");
	fake_expect_end(f);
	fake_accept(f);
	fake_expect(f, FAKE_VERB(HELLO));
	fake_hang_up(f);
	fake_greet(f);
	fake_expect_end(f);
}

static void test_open_tries_again_while_the_daemon_is_busy(void **state)
{
	struct fake *f = *state;
	open_by(f, script_busy_then_welcome);
}

#define LIMIT "uid 1 has 2 sessions, and max-sessions-per-uid is 2"

/* Refuses and closes before it reads anything, as kopsd does. */
static void refuse_place(struct fake *f)
{
	fake_accept(f);
	fake_answer(f, 0, KOPS_E_QUOTA, LIMIT);
	fake_hang_up(f);
}

static void script_no_place(struct fake *f)
{
	for (int i = 0; i < 10; i++)
		refuse_place(f);
}

static void test_open_says_that_there_is_no_place(void **state)
{
	struct fake *f = *state;
	char why[512];
	kops *k;
	uint64_t start = clock_ns();
	fake_start(f, script_no_place);
	assert_int_equal(fake_try_open(f, 30000, &k, why), KOPS_E_QUOTA);
	assert_string_equal(why, "kopsd refused the connection: " LIMIT);
	assert_true(clock_us(start, clock_ns()) < 10e6);
	fake_stop(f);
}

static void script_place_after_a_while(struct fake *f)
{
	refuse_place(f);
	fake_greet(f);
	fake_expect(f, FAKE_VERB(PING));
	fake_hang_up(f);
	for (int i = 0; i < 11; i++)
		refuse_place(f);
	fake_greet(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(PING))->id, 0, "");
	fake_expect_end(f);
}

static void test_waits_for_a_place(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_place_after_a_while);
	kops *k = fake_open(f);
	assert_int_equal(kops_ping(k), 0); /* an existing handle waits longer */
	kops_close(k);
	fake_stop(f);
}

static void script_two_connections(struct fake *f)
{
	for (int i = 0; i < 2; i++) {
		fake_greet(f);
		fake_answer(f, fake_expect(f, FAKE_VERB(PING))->id, 0, "");
		fake_hang_up(f);
	}
}

/* A relative path begins at the folder in which the program opened the handle. */
static void relative_path(struct fake *f, const char *socket)
{
	kops_options options = {.size = sizeof options, .socket = socket, .timeout_ms = FAKE_PATIENCE_MS};
	char before[4096], why[512] = "";
	kops *k = NULL;
	assert_non_null(getcwd(before, sizeof before));
	assert_int_equal(chdir(f->folder), 0);
	fake_start(f, script_two_connections);
	assert_int_equal(kops_open(&k, &options, why, sizeof why), 0);
	assert_int_equal(kops_ping(k), 0);
	assert_int_equal(chdir("/"), 0);
	assert_int_equal(kops_ping(k), 0); /* by another connection */
	kops_close(k);
	assert_int_equal(chdir(before), 0);
	fake_stop(f);
}

static void test_relative_path(void **state)
{
	relative_path(*state, "kopsd.sock");
}

static void test_relative_path_in_the_environment(void **state)
{
	assert_int_equal(setenv("KOPS_SOCKET", "./kopsd.sock", 1), 0);
	relative_path(*state, NULL);
	unsetenv("KOPS_SOCKET");
}

static void test_relative_path_to_nowhere(void **state)
{
	struct fake *f = *state;
	kops_options options = {.size = sizeof options, .socket = "kopsd.sock"};
	char before[4096], folder[128], why[512] = "";
	kops *k = NULL;
	snprintf(folder, sizeof folder, "%s/gone", f->folder);
	assert_non_null(getcwd(before, sizeof before));
	assert_int_equal(mkdir(folder, 0700), 0);
	assert_int_equal(chdir(folder), 0);
	assert_int_equal(rmdir(folder), 0);
	assert_int_equal(kops_open(&k, &options, why, sizeof why), KOPS_E_CONNECT);
	assert_non_null(strstr(why, "is relative to a directory that cannot be found"));
	assert_non_null(strstr(why, "kopsd.sock; give an absolute path"));
	assert_int_equal(chdir(before), 0);
}

static void script_dies_after_welcome(struct fake *f)
{
	fake_accept(f);
	uint64_t hello = fake_expect(f, FAKE_VERB(HELLO))->id;
	fake_reach(f, 1);
	FAKE_CHECK(f, fake_wait(f, 2));
	fake_welcome(f, hello, 1);
	fake_hang_up(f); /* with an unread request, so that the client sees a reset before the Welcome */
	fake_reach(f, 3);
	fake_greet(f);
	fake_lend(f);
	fake_expect_end(f);
}

static void test_welcome_of_a_dead_daemon(void **state)
{
	struct fake *f = *state;
	kops_buffer *b;
	kops *k = fake_open_start(f, FAKE_PATIENCE_MS);
	fake_start(f, script_dies_after_welcome);
	assert_true(fake_wait(f, 1));
	assert_int_equal(kops_alloc_start(k, 4096, KOPS_SHARED, NULL, NULL, NULL, &b), 0);
	fake_reach(f, 2);
	assert_true(fake_wait(f, 3));
	assert_int_equal(kops_buffer_wait(b, FAKE_PATIENCE_MS), 0);
	kops_close(k);
	fake_stop(f);
}

/* Fills the queue, and returns the one connection in it. */
static int fill_queue(struct fake *f)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int first = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	strcpy(address.sun_path, f->path);
	assert_int_equal(listen(f->listener, 0), 0);
	assert_int_equal(connect(first, (struct sockaddr *)&address, sizeof address), 0);
	return first;
}

static unsigned tries_in(const char *sentence)
{
	const char *tried = strstr(sentence, "tried ");
	unsigned tries = 0;

	assert_true(tried && sscanf(tried, "tried %u times", &tries) == 1);
	return tries;
}

/* Blocked connects are accepted in order; connects that are retried are not. */
static void test_open_waits_where_the_queue_is_full(void **state)
{
	struct fake *f = *state;
	int first = fill_queue(f);
	char why[512];
	kops *k;

	assert_int_equal(fake_try_open(f, 300, &k, why), KOPS_E_CONNECT);
	assert_in_range(tries_in(why), 1, 5);
	close(first);
}

static void script_room_after_the_first(struct fake *f)
{
	usleep(20000); /* lets the other wait first */
	fake_accept(f);
	fake_hang_up(f);
	fake_greet(f);
	fake_expect_end(f);
}

static void test_open_has_the_place_that_it_waited_for(void **state)
{
	struct fake *f = *state;
	int first = fill_queue(f);

	open_by(f, script_room_after_the_first);
	close(first);
}

/* If others keep the queue full, a client that asks less often never gets in. */
static void test_event_loops_keep_asking_where_the_queue_is_full(void **state)
{
	struct fake *f = *state;
	int first = fill_queue(f), status;
	kops *k = fake_open_start(f, 300);
	kops_buffer *b;

	assert_int_equal(kops_alloc_start(k, 4096, KOPS_SHARED, NULL, NULL, NULL, &b), 0);
	while ((status = kops_process(k)) >= 0)
		poll(NULL, 0, kops_timeout(k));
	assert_int_equal(status, KOPS_E_CONNECT);
	assert_true(tries_in(kops_error(k)) >= 15);
	kops_close(k);
	close(first);
}

/* ---- The user's own socket ---- */

static struct sockaddr_un own_address(const struct fake *f)
{
	struct sockaddr_un own = {.sun_family = AF_UNIX};

	snprintf(own.sun_path, sizeof own.sun_path, "%s.users/%u", f->path, (unsigned)geteuid());
	return own;
}

/* Lets scripts accept at the user's own socket. Returns the shared socket's listener. */
static int listen_at_own(struct fake *f)
{
	struct sockaddr_un own = own_address(f);
	char folder[sizeof f->path + 8];
	int everybodys = f->listener;

	snprintf(folder, sizeof folder, "%s.users", f->path);
	assert_int_equal(mkdir(folder, 0700), 0);
	f->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(f->listener, (struct sockaddr *)&own, sizeof own), 0);
	assert_int_equal(listen(f->listener, 4), 0);
	return everybodys;
}

static void remove_own(struct fake *f)
{
	struct sockaddr_un own = own_address(f);

	unlink(own.sun_path);
	*strrchr(own.sun_path, '/') = '\0';
	assert_int_equal(rmdir(own.sun_path), 0);
}

static void test_open_prefers_its_own_socket(void **state)
{
	struct fake *f = *state;
	int everybodys = listen_at_own(f), own = f->listener;
	struct pollfd unused = {.fd = everybodys, .events = POLLIN};

	open_by(f, script_hello);
	assert_int_equal(poll(&unused, 1, 0), 0);
	f->listener = everybodys;
	close(own);
	remove_own(f);
}

/* The user's own queue is not filled by others. */
static void test_open_needs_no_place_in_everybodys_queue(void **state)
{
	struct fake *f = *state;
	int first = fill_queue(f), everybodys = listen_at_own(f), own = f->listener;

	open_by(f, script_hello);
	f->listener = everybodys;
	close(first);
	close(own);
	remove_own(f);
}

/* A daemon that ended left the socket behind. */
static void test_open_where_its_own_socket_is_dead(void **state)
{
	struct fake *f = *state;
	int everybodys = listen_at_own(f);

	close(f->listener);
	f->listener = everybodys;
	open_by(f, script_hello);
	remove_own(f);
}

/* Anybody could have created the socket. */
static void test_open_distrusts_a_folder_of_everybody(void **state)
{
	struct fake *f = *state;
	int everybodys = listen_at_own(f), own = f->listener;
	struct pollfd unused = {.fd = own, .events = POLLIN};

	f->listener = everybodys;
	assert_int_equal(chmod(f->folder, 0777), 0);
	open_by(f, script_hello);
	assert_int_equal(poll(&unused, 1, 0), 0);
	close(own);
	remove_own(f);
}

/* ---- Calls ---- */

static void script_pings(struct fake *f)
{
	fake_greet(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(PING))->id, 0, "");
	fake_answer(f, fake_expect(f, FAKE_VERB(PING))->id, KOPS_E_FAULT, "gpu0 answers wrongly");
	fake_expect(f, FAKE_VERB(PING));
	fake_hang_up(f);
	fake_greet(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(PING))->id, 0, "");
	uint64_t late = fake_expect(f, FAKE_VERB(PING))->id;
	Kops__V1__Request *r = fake_expect(f, FAKE_VERB(PING));
	fake_answer(f, late, KOPS_E_FAULT, "too late");
	fake_answer(f, r->id, 0, "");
	fake_expect_end(f);
}

static void test_ping(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_pings);
	kops *k = fake_open(f);
	assert_int_equal(kops_ping(k), 0);
	assert_int_equal(kops_ping(k), KOPS_E_FAULT);
	assert_string_equal(kops_error(k), "gpu0 answers wrongly");
	assert_int_equal(kops_ping(k), 0); /* across a restart */
	fake_set_timeout(k, 50);
	assert_int_equal(kops_ping(k), KOPS_E_TIMEOUT);
	assert_string_equal(kops_error(k), "kopsd did not answer within 0.05 s; check that it is running "
	                                   "(systemctl status kopsd), or allow a longer timeout");
	fake_set_timeout(k, FAKE_PATIENCE_MS);
	assert_int_equal(kops_ping(k), 0); /* the late answer must not be taken for this call's */
	kops_close(k);
	fake_stop(f);
}

static void script_query(struct fake *f)
{
	fake_greet(f);
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__Device device = KOPS__V1__DEVICE__INIT, *devices[] = {&device};
	Kops__V1__Kernel kernel = KOPS__V1__KERNEL__INIT, *kernels[] = {&kernel};
	Kops__V1__Description description = KOPS__V1__DESCRIPTION__INIT;
	Kops__V1__DeviceStats one = KOPS__V1__DEVICE_STATS__INIT, other = one, *all[] = {&other, &one};
	Kops__V1__Statistics statistics = KOPS__V1__STATISTICS__INIT;
	device.name = "cpu", device.description = "2 cores", device.memory_bytes = 1 << 20;
	kernel.op = "gemm", kernel.name = "openblas", kernel.device = "cpu", kernel.idea = "library",
	kernel.dtypes = "f32";
	description.n_devices = description.n_kernels = 1;
	description.devices = devices, description.kernels = kernels;
	one.name = "cpu", one.jobs_done = 5, other.name = "gpu0", other.jobs_done = 9;
	statistics.sessions = 3, statistics.n_devices = 2, statistics.devices = all;
	reply.id = fake_expect(f, FAKE_VERB(DESCRIBE))->id;
	reply.body_case = KOPS__V1__REPLY__BODY_DESCRIPTION, reply.description = &description;
	fake_send(f, &reply, -1);
	reply.id = fake_expect(f, FAKE_VERB(STATS))->id;
	reply.body_case = KOPS__V1__REPLY__BODY_STATISTICS, reply.statistics = &statistics;
	fake_send(f, &reply, -1);
	fake_answer(f, fake_expect(f, FAKE_VERB(DESCRIBE))->id, 0, "");
	fake_expect_end(f);
}

static void test_query(void **state)
{
	struct fake *f = *state;
	kops_info *info = NULL;
	fake_start(f, script_query);
	kops *k = fake_open(f);
	assert_int_equal(kops_query(k, &info), 0);
	assert_string_equal(info->daemon, "kopsd fake");
	assert_int_equal(info->sessions, 3);
	assert_int_equal(info->n_devices, 1);
	assert_string_equal(kops_info_device(info, 0)->description, "2 cores");
	assert_int_equal(kops_info_device(info, 0)->jobs_done, 5);
	assert_int_equal(info->n_kernels, 1);
	assert_string_equal(kops_info_kernel(info, 0)->name, "openblas");
	assert_string_equal(kops_info_kernel(info, 0)->dtypes, "f32");
	kops_info_free(info);
	assert_int_equal(kops_query(k, &info), KOPS_E_PROTOCOL); /* no body */
	kops_close(k);
	fake_stop(f);
}

/* ---- Violations ---- */

static void (*violate)(struct fake *f, uint64_t id);

static void script_violation(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	violate(f, fake_expect(f, FAKE_VERB(SUBMIT))->id);
	fake_expect_end(f);
	fake_greet(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(IMPORT))->id, 0, "");
	fake_answer(f, fake_expect(f, FAKE_VERB(PING))->id, 0, "");
	fake_expect_end(f);
}

static void garbage(struct fake *f, uint64_t id)
{
	(void)id;
	message_send(f->sock, (const uint8_t *)"\xff\xff\xff", 3, NULL, 0);
}

static void unknown_id(struct fake *f, uint64_t id)
{
	fake_receipt(f, id + 4);
}

static void id_of_nothing_out(struct fake *f, uint64_t id)
{
	(void)id;
	fake_receipt(f, 4);
}

static void zero_id(struct fake *f, uint64_t id)
{
	(void)id;
	fake_answer(f, 0, 0, "to whom?");
}

static void notice(struct fake *f, uint64_t id)
{
	(void)id;
	fake_answer(f, 0, KOPS_E_PROTOCOL, "a field given twice");
}

static void positive_status(struct fake *f, uint64_t id)
{
	fake_answer(f, id, 5, "");
}

static void no_receipt(struct fake *f, uint64_t id)
{
	fake_answer(f, id, 0, "");
}

static void oversized(struct fake *f, uint64_t id)
{
	static uint8_t data[MESSAGE_BYTES_MAX + 1];
	(void)id;
	send(f->sock, data, sizeof data, MSG_NOSIGNAL);
}

static void test_violations_end_the_connection(void **state)
{
	static const struct {
		void (*violate)(struct fake *, uint64_t);
		const char *phrase;
	} rows[] = {
	    {garbage, "truncated message"},
	    {unknown_id, "a reply to an unknown request"},
	    {id_of_nothing_out, "an unexpected reply about a job"},
	    {zero_id, "a reply to an unknown request"},
	    {notice, "a field given twice"},
	    {positive_status, "a positive status"},
	    {no_receipt, "a reply to a job without a receipt"},
	    {oversized, "a reply over the size limit"},
	};
	struct fake *f = *state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		violate = rows[i].violate;
		fake_start(f, script_violation);
		kops *k = fake_open(f);
		kops_buffer *a = fake_alloc(k, 64, KOPS_SHARED);
		kops_job *job = fake_transpose(k, fake_matrix(a, 0), fake_matrix(a, 32));
		int status = kops_run(job);
		if (status != KOPS_E_PROTOCOL || !strstr(kops_error(k), rows[i].phrase))
			fail_msg("row %zu: %d, %s", i, status, kops_error(k));
		assert_int_equal(kops_ping(k), 0); /* the handle still works */
		kops_close(k);
		fake_stop(f);
	}
}

static void script_surplus_descriptors(struct fake *f)
{
	fake_greet(f);
	Kops__V1__Request *r = fake_expect(f, FAKE_VERB(PING));
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	reply.id = r->id;
	fake_send(f, &reply, f->listener);
	fake_expect_end(f);
}

static void test_surplus_descriptors_are_closed(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_surplus_descriptors);
	kops *k = fake_open(f);
	assert_int_equal(kops_ping(k), 0);
	kops_close(k);
	fake_stop(f); /* the teardown counts descriptors */
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_setup, fake_teardown)
	const struct CMUnitTest tests[] = {
	    TEST(test_open_says_what_is_wrong),
	    TEST(test_open_permission_denied),
	    TEST(test_hello),
	    TEST(test_a_handle_without_a_name_has_its_programs),
	    TEST(test_name_is_made_harmless),
	    TEST(test_version_refused),
	    TEST(test_unknown_version_chosen),
	    TEST(test_hello_without_answer_times_out),
	    TEST(test_open_tries_again_while_the_daemon_is_busy),
	    TEST(test_open_says_that_there_is_no_place),
	    TEST(test_waits_for_a_place),
	    TEST(test_relative_path),
	    TEST(test_relative_path_in_the_environment),
	    TEST(test_relative_path_to_nowhere),
	    TEST(test_welcome_of_a_dead_daemon),
	    TEST(test_open_waits_where_the_queue_is_full),
	    TEST(test_open_has_the_place_that_it_waited_for),
	    TEST(test_event_loops_keep_asking_where_the_queue_is_full),
	    TEST(test_open_prefers_its_own_socket),
	    TEST(test_open_needs_no_place_in_everybodys_queue),
	    TEST(test_open_where_its_own_socket_is_dead),
	    TEST(test_open_distrusts_a_folder_of_everybody),
	    TEST(test_ping),
	    TEST(test_query),
	    TEST(test_violations_end_the_connection),
	    TEST(test_surplus_descriptors_are_closed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
