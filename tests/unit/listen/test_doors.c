/*
 * Tests doors: connections are accepted in turns, and users that got in have doors of their own, which others
 * cannot fill. Failures of accept4(), lack of descriptors and floods are survived. Uses real sockets and a
 * simulated clock.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "listen/doors.h"
#include "unit/daemon/loop.h"
#include "unit/daemon/simulated_clock.h"
#include "user_socket.h"

enum {
	ALICE = 1001,
	FEW = 3,         /* users that may have doors */
	PER_DOOR = 16,   /* sessions for each of these */
	FLOOD = 4096,    /* connections per second */
	SHORT_QUEUE = 4, /* the queue's length during a flood, and at users' doors */
	SECOND_MS = 1000,
	RETRY_MS = 100,
	KEPT_MS = 60000, /* how long an unused user's door stays */
};

/* ---- Replacements of the system's calls, and of sessions.c's ---- */

static int accept_error; /* 0: connections can be accepted */
static unsigned accept_errors, endless, accepts;

/* endless: number of connections to accept beyond the real ones. */
int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
	int (*real)(int, struct sockaddr *, socklen_t *, int) = dlsym(RTLD_NEXT, "accept4");

	accepts++;
	if (accept_errors > 0) {
		accept_errors--;
		errno = accept_error;
		return -1;
	}
	if (endless == 0)
		return real(fd, address, length, flags);
	endless--;
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static int backlog, backlog_fd;

int listen(int fd, int n)
{
	int (*real)(int, int) = dlsym(RTLD_NEXT, "listen");

	backlog = n;
	backlog_fd = fd;
	return real(fd, n);
}

static struct account *comes; /* the user of the next connection; NULL: it is refused */
static unsigned arrived, turned_away;

struct account *session_arrive(struct sessions *all, int fd)
{
	(void)all;
	close(fd);
	arrived++;
	return comes;
}

void sessions_turn_away(struct sessions *all, int fd, const char *why)
{
	(void)all;
	(void)fd;
	assert_non_null(strstr(why, "LimitNOFILE"));
	turned_away++;
}

/* ---- The fixture ---- */

struct fixture {
	char folder[32], path[64];
	uv_loop_t loop, timers;
	struct config config;
	struct engine engine;
	struct sessions sessions;
	struct doors doors;
	int fd;
	struct account *users[FEW + 2];
};

/* The test has no waiters of sessions. */
static void unwatch(struct turns_waiter *waiter)
{
	(void)waiter;
}

static int listening_socket(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
	return fd;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);
	struct engine *e = &f->engine;
	char why[WHY_BYTES];

	accept_errors = endless = accepts = arrived = turned_away = 0;
	snprintf(f->folder, sizeof f->folder, "/tmp/kops-doors-XXXXXX");
	assert_non_null(mkdtemp(f->folder));
	snprintf(f->path, sizeof f->path, "%s/kopsd.sock", f->folder);
	uv_loop_init(&f->loop);
	uv_loop_init(&f->timers);
	e->loop = &f->loop;
	e->timers = &f->timers;
	e->accounts = (struct accounts){
	    .config = &f->config, .sched = &e->sched, .turns = &f->sessions.turns, .closing_max = 1000};
	turns_init(&f->sessions.turns, &f->loop, NULL, unwatch);
	accounts_init(&e->accounts);
	f->sessions.engine = e;
	f->sessions.max = FEW * PER_DOOR;
	for (uid_t i = 0; i < FEW + 2; i++)
		f->users[i] = accounts_get(&e->accounts, ALICE + i);
	comes = NULL;
	doors_init(&f->doors, &f->sessions);
	f->fd = listening_socket(f->path);
	assert_int_equal(doors_open(&f->doors, f->fd, why), 0);
	assert_int_equal(backlog, SOMAXCONN);
	doors_start(&f->doors);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	doors_stop(&f->doors);
	doors_close(&f->doors);
	uv_run(&f->loop, UV_RUN_NOWAIT); /* closes users' doors */
	close_loop(&f->loop);
	close_loop(&f->timers);
	for (int i = 0; i < FEW + 2; i++) {
		assert_int_equal(f->users[i]->refs, 1); /* no door has a reference */
		account_unref(&f->engine.accounts, f->users[i]);
	}
	accounts_clear(&f->engine.accounts);
	close(f->fd);
	unlink(f->path);
	assert_int_equal(rmdir(f->folder), 0); /* the users' sockets are gone */
	free(f);
	return 0;
}

/* Runs until nothing waits for its turn. */
static void run(struct fixture *f)
{
	do
		uv_run(&f->loop, UV_RUN_NOWAIT);
	while (turns_are_wanted(&f->sessions.turns));
	uv_run(&f->loop, UV_RUN_NOWAIT);
}

static void pass_ms(struct fixture *f, unsigned ms)
{
	simulated_ns += ms * 1000000ull;
	uv_run(&f->timers, UV_RUN_NOWAIT);
	run(f);
}

/* Returns 0, or errno. */
static int come_by(struct fixture *f, const struct sockaddr_un *address, struct account *account)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int rc = connect(fd, (const struct sockaddr *)address, sizeof *address) < 0 ? errno : 0;

	comes = account;
	run(f);
	close(fd);
	return rc;
}

static int come(struct fixture *f, struct account *account)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	memcpy(address.sun_path, f->path, sizeof f->path);
	return come_by(f, &address, account);
}

static int come_by_own(struct fixture *f, struct account *account)
{
	struct sockaddr_un address;

	assert_true(user_socket_address(f->path, account->uid, &address));
	return come_by(f, &address, account);
}

static bool has_door(struct fixture *f, const struct account *account)
{
	struct sockaddr_un address;
	struct stat st;

	assert_true(user_socket_address(f->path, account->uid, &address));
	return lstat(address.sun_path, &st) == 0;
}

/* Skips the test if the file system has no access control lists. */
static void need_users_doors(const struct fixture *f)
{
	if (f->doors.files.folder_fd < 0)
		skip();
}

/* ---- Everybody's door ---- */

static void a_turn_is_a_connection(void **state)
{
	struct fixture *f = *state;
	struct turns_waiter *waiter = &f->doors.main.waiter;

	endless = 3;
	for (unsigned n = 1; n <= 3; n++) {
		assert_true(waiter->take(waiter));
		assert_int_equal(arrived, n);
	}
	assert_false(waiter->take(waiter));
	assert_int_equal(arrived, 3);
	assert_int_equal(come(f, NULL), 0); /* it is watched again */
	assert_int_equal(arrived, 4);
}

static void the_refused_get_no_door(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 5; i++)
		assert_int_equal(come(f, NULL), 0);
	assert_int_equal(arrived, 5);
	assert_int_equal(f->doors.n_users, 0);
}

/* ---- Users' doors ---- */

static void who_got_in_has_a_door(void **state)
{
	struct fixture *f = *state;

	need_users_doors(f);
	assert_int_equal(come_by_own(f, f->users[0]), ENOENT);
	assert_int_equal(come(f, f->users[0]), 0);
	assert_true(has_door(f, f->users[0]));
	assert_int_equal(backlog, SHORT_QUEUE);
	assert_int_not_equal(backlog_fd, f->fd);
	assert_int_equal(come(f, f->users[0]), 0);
	assert_int_equal(f->doors.n_users, 1);
	assert_int_equal(come_by_own(f, f->users[0]), 0);
	assert_int_equal(arrived, 3);
	assert_ptr_equal(f->doors.users[0].waiter.user, &f->users[0]->turns); /* in the user's own turns */
}

/* Except for a door that nobody used for a minute. */
static void those_of_others_stay(void **state)
{
	struct fixture *f = *state;

	need_users_doors(f);
	for (int i = 0; i < FEW; i++)
		assert_int_equal(come(f, f->users[i]), 0);
	assert_int_equal(come(f, f->users[FEW]), 0);
	assert_int_equal(f->doors.n_users, FEW);
	assert_false(has_door(f, f->users[FEW]));
	pass_ms(f, KEPT_MS);
	assert_int_equal(come_by_own(f, f->users[0]), 0);
	assert_int_equal(come(f, f->users[FEW]), 0);
	assert_int_equal(come(f, f->users[FEW + 1]), 0);
	assert_int_equal(f->doors.n_users, FEW);
	assert_true(has_door(f, f->users[0]));
	assert_true(has_door(f, f->users[FEW]));
	assert_true(has_door(f, f->users[FEW + 1]));
	assert_int_equal(come_by_own(f, f->users[FEW + 1]), 0);
}

/* Access to everybody's socket has changed, so all connect there again. */
static void they_go_where_rights_change(void **state)
{
	struct fixture *f = *state;
	unsigned before;

	need_users_doors(f);
	assert_int_equal(come(f, f->users[0]), 0);
	assert_int_equal(come(f, f->users[1]), 0);
	assert_int_equal(chmod(f->path, 0700), 0);
	before = arrived;
	assert_int_equal(come_by_own(f, f->users[0]), 0);
	assert_int_equal(arrived, before);
	pass_ms(f, 0);
	assert_int_equal(f->doors.n_users, 0);
	assert_false(has_door(f, f->users[1]));
	assert_int_equal(come(f, f->users[1]), 0);
	assert_int_equal(come_by_own(f, f->users[1]), 0);
	assert_int_equal(arrived, before + 2);
}

static void they_end_with_everybodys(void **state)
{
	struct fixture *f = *state;

	need_users_doors(f);
	assert_int_equal(come(f, f->users[0]), 0);
	doors_stop(&f->doors);
	run(f);
	assert_false(has_door(f, f->users[0]));
	assert_int_equal(f->users[0]->refs, 1);
	assert_int_equal(come(f, f->users[0]), 0);
	assert_int_equal(arrived, 1); /* a successor, which inherits the socket, accepts the other */
}

/* ---- Failures ---- */

/* It is not retried without a pause. */
static void what_cannot_be_accepted_is_tried_again(void **state)
{
	struct fixture *f = *state;

	accept_error = ENETDOWN;
	accept_errors = 2;
	assert_int_equal(come(f, NULL), 0);
	run(f);
	assert_int_equal(accepts, 1);
	pass_ms(f, RETRY_MS - 1);
	assert_int_equal(accepts, 1);
	pass_ms(f, 1);
	assert_int_equal(accepts, 2);
	assert_int_equal(arrived, 0);
	pass_ms(f, RETRY_MS);
	assert_int_equal(arrived, 1);
}

/* Each is told so, by the descriptor that is kept for this. */
static void without_descriptors_connections_are_refused(void **state)
{
	struct fixture *f = *state;

	assert_true(f->doors.reserve_fd >= 0);
	accept_error = EMFILE;
	for (unsigned n = 1; n <= 3; n++) {
		accept_errors = 1;
		assert_int_equal(come(f, NULL), 0);
		assert_int_equal(turned_away, n);
		assert_true(f->doors.reserve_fd >= 0);
	}
	assert_int_equal(arrived, 0);
	assert_int_equal(come(f, NULL), 0);
	assert_int_equal(arrived, 1);
}

/* If the reserve is not available either, connections wait. */
static void without_the_reserve_they_wait(void **state)
{
	struct fixture *f = *state;

	accept_error = ENFILE;
	accept_errors = 2;
	assert_int_equal(come(f, NULL), 0);
	assert_int_equal(accepts, 2);
	assert_int_equal(turned_away, 0);
	pass_ms(f, RETRY_MS);
	assert_int_equal(arrived, 1);
}

/* ---- Floods ---- */

static void take(struct fixture *f, unsigned n)
{
	for (endless = n; endless > 0;)
		f->doors.main.waiter.take(&f->doors.main.waiter);
}

static void in_a_flood_the_queue_is_short(void **state)
{
	struct fixture *f = *state;

	take(f, FLOOD - 1);
	assert_int_equal(backlog, SOMAXCONN);
	pass_ms(f, SECOND_MS + 1);
	take(f, FLOOD - 1); /* in the next second */
	assert_int_equal(backlog, SOMAXCONN);
	take(f, 1);
	assert_int_equal(backlog, SHORT_QUEUE);
	assert_int_equal(backlog_fd, f->fd);
	take(f, FLOOD);
	pass_ms(f, SECOND_MS);
	assert_int_equal(backlog, SHORT_QUEUE);
	take(f, FLOOD - 1);
	pass_ms(f, SECOND_MS);
	assert_int_equal(backlog, SOMAXCONN);
}

static void a_flood_is_not_left_to_a_successor(void **state)
{
	struct fixture *f = *state;

	take(f, FLOOD);
	assert_int_equal(backlog, SHORT_QUEUE);
	doors_stop(&f->doors);
	assert_int_equal(backlog, SOMAXCONN);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(a_turn_is_a_connection),
	    TEST(the_refused_get_no_door),
	    TEST(who_got_in_has_a_door),
	    TEST(those_of_others_stay),
	    TEST(they_go_where_rights_change),
	    TEST(they_end_with_everybodys),
	    TEST(what_cannot_be_accepted_is_tried_again),
	    TEST(without_descriptors_connections_are_refused),
	    TEST(without_the_reserve_they_wait),
	    TEST(in_a_flood_the_queue_is_short),
	    TEST(a_flood_is_not_left_to_a_successor),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
