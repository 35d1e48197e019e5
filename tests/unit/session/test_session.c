/*
 * Tests one client: who may connect, in which order requests are served, and that everything is freed when the
 * client leaves.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ring_memory.h"
#include "unit/served.h"
#include "unit/session/copies.h"

static struct config settings;

static int setup(void **state)
{
	(void)state;
	settings = kopsd->config;
	return 0;
}

/* Checks that all have left. */
static int teardown(void **state)
{
	struct sessions *all = &kopsd->sessions;

	(void)state;
	kopsd->config = settings;
	all->stopping = false;
	served_until(list_is_empty(&all->list) && kopsd->engine.n_buffers == 0);
	assert_int_equal(kopsd->engine.accounts.sessions, 0);
	assert_int_equal(kopsd->engine.accounts.unread_bytes, 0);
	assert_int_equal(all->n_free_desks, SESSIONS_MIDWAY_MAX);
	return 0;
}

/* ---- Opening ---- */

static void a_session_opens_in_its_first_turn(void **state)
{
	struct client *c = client_arrive();

	(void)state;
	assert_int_equal(c->session->state, SESSION_ARRIVED);
	assert_int_equal(c->session->account->uid, getuid());
	assert_int_equal(c->session->pid, getpid());
	assert_int_equal(c->session->account->sessions, 1);
	assert_int_equal(kopsd->engine.accounts.sessions, 1);
	served_turn();
	assert_int_equal(c->session->state, SESSION_GREETING);
	assert_true(uv_is_active((uv_handle_t *)&c->session->hello_timer));
	assert_true(uv_is_active((uv_handle_t *)&c->session->poll));
	client_hello(c);
	assert_int_equal(client_await(c)->body_case, KOPS__V1__REPLY__BODY_WELCOME);
	assert_int_equal(c->session->state, SESSION_OPEN);
	assert_false(uv_is_active((uv_handle_t *)&c->session->hello_timer));
	client_leave(c);
}

static void serials_go_up(void **state)
{
	struct client *first = client_open(), *second = client_open();

	(void)state;
	assert_int_equal(second->session->serial, first->session->serial + 1);
	client_leave(first);
	client_leave(second);
}

/* The Hello comes in time for one of them. */
static void without_a_hello_it_ends(void **state)
{
	struct client *silent, *c;

	(void)state;
	kopsd->config.hello_timeout = 10;
	silent = client_arrive();
	c = client_arrive();
	client_hello(c);
	served_until(client_has_ended(silent));
	assert_int_equal(client_await(c)->status, 0);
	assert_int_equal(kopsd->engine.accounts.sessions, 1);
	client_free(silent);
	client_leave(c);
}

static void what_comes_before_hello_ends_it(void **state)
{
	struct client *c = client_arrive();
	CLIENT_REQUEST(c, r, Describe, describe, DESCRIBE);

	(void)state;
	client_send(c, &r, -1);
	served_until(client_has_ended(c));
	client_free(c);
}

/* ---- Who may connect ---- */

static void check_turned_away(int status, const char *why)
{
	struct client *c = client_arrive();
	const Kops__V1__Reply *reply = client_look(c, NULL);

	assert_null(c->session);
	assert_int_equal(reply->id, 0);
	assert_int_equal(reply->status, status);
	assert_string_equal(reply->message, why);
	served_until(client_has_ended(c));
	client_free(c);
}

static void there_are_so_many_sessions(void **state)
{
	struct client *c = client_open(), *last;

	(void)state;
	kopsd->config.max_sessions = 2;
	last = client_open();
	check_turned_away(KOPS_E_QUOTA, "kopsd has 2 sessions, and max-sessions is 2; try again later");
	client_leave(last);
	last = client_open();
	client_leave(last);
	client_leave(c);
}

static void a_user_has_so_many_sessions(void **state)
{
	struct client *c, *last;
	char why[WHY_BYTES];

	(void)state;
	kopsd->config.max_sessions_per_uid = 2;
	c = client_open();
	last = client_open();
	snprintf(why, sizeof why,
	         "uid %u has 2 sessions, and max-sessions-per-uid is 2; close one, or have the limit raised",
	         (unsigned)getuid());
	check_turned_away(KOPS_E_QUOTA, why);
	client_leave(last);
	client_leave(client_open());
	client_leave(c);
}

static void there_are_so_many_descriptors(void **state)
{
	unsigned before = kopsd->sessions.max;
	struct client *c = client_open();

	(void)state;
	kopsd->sessions.max = 1;
	check_turned_away(KOPS_E_QUOTA,
	                  "kopsd has 1 sessions, which use a quarter of its file descriptors; try "
	                  "again later, or have LimitNOFILE raised");
	kopsd->sessions.max = before;
	client_leave(c);
}

/* The client tries again by itself, and reaches the next kopsd. */
static void a_kopsd_that_stops_says_nothing(void **state)
{
	struct client *c;

	(void)state;
	kopsd->sessions.stopping = true;
	c = client_arrive();
	assert_null(c->session);
	served_until(client_has_ended(c));
	assert_null(client_look(c, NULL));
	client_free(c);
}

/* ---- Replies ---- */

/* Asks until the answers fill the socket. Returns how often. */
static unsigned ask_without_reading(struct client *c)
{
	uint64_t first = c->last_id;

	while (outbox_is_empty(&c->session->outbox)) {
		CLIENT_REQUEST(c, r, Describe, describe, DESCRIBE);
		client_send(c, &r, -1);
		served_turn();
	}
	return (unsigned)(c->last_id - first);
}

static void answers_wait_for_a_slow_reader(void **state)
{
	struct client *c = client_open();
	uint64_t first = c->last_id + 1;
	unsigned n = ask_without_reading(c);
	CLIENT_REQUEST(c, r, Describe, describe, DESCRIBE);

	(void)state;
	client_send(c, &r, -1); /* not read before the answers are */
	served_turn();
	assert_true(message_waits(c->session->fd));
	assert_true(c->session->account->unread_bytes > 0);
	for (uint64_t id = first; id <= first + n; id++)
		assert_int_equal(client_await(c)->id, id);
	assert_true(outbox_is_empty(&c->session->outbox));
	assert_int_equal(c->session->account->unread_bytes, 0);
	assert_int_equal(c->session->state, SESSION_OPEN);
	client_leave(c);
}

static void whoever_leaves_too_much_unread_is_ended(void **state)
{
	struct client *c = client_open();
	unsigned n = 0;

	(void)state;
	c->session->account->limits.max_unread_per_uid = 0;
	while (kopsd->engine.accounts.sessions == 1) {
		CLIENT_REQUEST(c, r, Describe, describe, DESCRIBE);
		client_send(c, &r, -1);
		served_turn();
		n++;
	}
	assert_true(n > 1);
	client_free(c);
}

/* ---- In order ---- */

/* Requests from before the client hung up count, since they may give memory back. */
static void what_came_before_the_end_counts(void **state)
{
	const struct device_stats *stats = &kopsd->engine.devices[0].device->stats;
	uint64_t before = stats->jobs_done + stats->jobs_failed;
	struct client *c = copies_open();
	struct copies m;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		copies_set(&m, ++c->last_id, 1);
		client_send(c, &m.request, -1);
	}
	client_leave(c);
	assert_int_equal(stats->jobs_done + stats->jobs_failed, before + 3);
}

static struct ring_memory *open_ring(struct client *c, uint32_t entries)
{
	CLIENT_REQUEST(c, r, OpenRing, open_ring, OPEN_RING);
	struct ring_memory *memory;
	int fd;

	r_body.entries = entries;
	client_send(c, &r, -1);
	served_until(message_waits(c->fd));
	assert_int_equal(client_look(c, &fd)->status, 0);
	memory = mmap(NULL, ring_bytes(entries), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	close(fd);
	return memory;
}

static void prepare(struct client *c, uint64_t number)
{
	struct copies m;

	copies_set(&m, ++c->last_id, 1);
	m.submit.prepare = number;
	client_send(c, &m.request, -1);
	assert_int_equal(client_await(c)->status, 0);
}

/* There are more runs than one turn takes. A Forget that is read too early makes the last one fail. */
static void runs_of_a_ring_come_before_what_was_sent_after_them(void **state)
{
	enum { RUNS = 32 };
	struct client *c = copies_open();
	struct ring_memory *memory;
	const Kops__V1__Reply *reply;
	uint64_t before;

	(void)state;
	for (uint64_t i = 0; i < RUNS; i++)
		prepare(c, 100 + i);
	before = kopsd->sessions.trace.n;
	memory = open_ring(c, RUNS);
	for (uint64_t i = 0; i < RUNS; i++)
		ring_runs(memory)[i] = (struct ring_run){.prepared = 100 + i, .id = 1000 + i};
	ring_publish(&memory->run_tail, RUNS, &memory->daemon_sleeps);
	CLIENT_REQUEST(c, r, Forget, forget, FORGET);
	r_body.prepared = 100 + RUNS - 1;
	client_send(c, &r, -1);
	do
		reply = client_await(c); /* a receipt with new sentences, or Woken */
	while (reply->id != r.id);
	assert_int_equal(reply->status, 0);
	served_until(c->session->jobs.count == 0);
	assert_int_equal(kopsd->sessions.trace.n, before + RUNS); /* none was refused */
	munmap(memory, ring_bytes(RUNS));
	client_leave(c);
}

/* ---- Ends ---- */

static void all_that_it_had_is_gone(void **state)
{
	struct client *c = copies_open();
	struct account *account = c->session->account;
	struct copies m;

	(void)state;
	prepare(c, 5);
	munmap(open_ring(c, 4), ring_bytes(4));
	copies_hold(c);
	copies_set(&m, ++c->last_id, 1);
	copies_handle(c, &m.request);
	assert_int_equal(account->jobs, 1);
	copies_buffer(c)->state = BUFFER_READY;
	account_ref(account);
	client_leave(c);
	assert_int_equal(account->prepared_bytes, 0);
	for (int kind = 0; kind < ACCOUNT_KINDS; kind++)
		assert_int_equal(account->bytes[kind], 0);
	account_unref(&kopsd->engine.accounts, account);
}

static void it_ends_once(void **state)
{
	struct client *c = client_open(), *other = client_open();

	(void)state;
	session_close(c->session, NULL);
	assert_int_equal(c->session->state, SESSION_CLOSING);
	session_close(c->session, NULL);
	assert_int_equal(kopsd->engine.accounts.sessions, 1);
	assert_int_equal(session_send(c->session, (const uint8_t *)"x", 1, -1), 0); /* nobody receives it */
	served_until(client_has_ended(c));
	client_free(c);
	client_leave(other);
}

/* A job of many ops is made step by step. */
static void it_ends_midway(void **state)
{
	struct client *c = copies_open();
	struct buffer *b = copies_buffer(c);
	char why[WHY_BYTES];
	struct copies m;

	(void)state;
	copies_set(&m, ++c->last_id, COPIES_MAX);
	copies_handle(c, &m.request);
	while (b->refs == 1)
		assert_int_equal(request_resume(c->session, why), 0);
	assert_non_null(c->session->midway);
	assert_int_equal(kopsd->sessions.n_free_desks, SESSIONS_MIDWAY_MAX - 1);
	assert_int_equal(b->refs, 2);
	session_close(c->session, NULL);
	assert_int_equal(kopsd->sessions.n_free_desks, SESSIONS_MIDWAY_MAX);
	assert_int_equal(b->refs, 1);
	served_until(client_has_ended(c));
	client_free(c);
}

static void it_is_quiet_when_nothing_is_out(void **state)
{
	struct client *c = copies_open();
	struct copies m;

	(void)state;
	assert_true(sessions_are_quiet(&kopsd->sessions));
	copies_hold(c);
	copies_set(&m, ++c->last_id, 1);
	copies_handle(c, &m.request);
	assert_false(sessions_are_quiet(&kopsd->sessions));
	copies_let_go(c);
	assert_int_equal(client_await(c)->status, 0);
	assert_true(sessions_are_quiet(&kopsd->sessions));
	copies_set(&m, ++c->last_id, COPIES_MAX);
	copies_handle(c, &m.request);
	assert_non_null(c->session->midway);
	assert_false(sessions_are_quiet(&kopsd->sessions));
	client_leave(c);
	c = client_open();
	CLIENT_REQUEST(c, r, Alloc, alloc, ALLOC);
	r_body.buffer = 1;
	r_body.bytes = SERVED_PAGE;
	r_body.kind = KOPS__V1__BUFFER_KIND__RESIDENT;
	copies_handle(c, &r);
	assert_false(sessions_are_quiet(&kopsd->sessions));
	assert_int_equal(client_await(c)->status, 0);
	assert_true(sessions_are_quiet(&kopsd->sessions));
	ask_without_reading(c);
	assert_false(sessions_are_quiet(&kopsd->sessions));
	client_leave(c);
}

/* ---- New settings ---- */

static unsigned n_reloaded;

static void reloaded(struct sessions *all)
{
	(void)all;
	n_reloaded++;
}

/* Sessions that come meanwhile count, and a round that is under way begins anew. */
static void users_have_the_new_limits(void **state)
{
	struct client *c = client_open(), *other;
	const struct account *account = c->session->account;

	(void)state;
	n_reloaded = 0;
	kopsd->config.max_jobs_per_uid = 77;
	sessions_reload(&kopsd->sessions, reloaded);
	kopsd->config.max_jobs_per_uid = 78;
	sessions_reload(&kopsd->sessions, reloaded);
	other = client_arrive();
	served_until(n_reloaded > 0);
	served_turn();
	assert_int_equal(n_reloaded, 1);
	assert_int_equal(account->limits.max_jobs_per_uid, 78);
	assert_null(kopsd->sessions.reload.step);
	client_leave(other);
	client_leave(c);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
SERVED_MAIN(TEST(a_session_opens_in_its_first_turn), TEST(serials_go_up), TEST(without_a_hello_it_ends),
            TEST(what_comes_before_hello_ends_it), TEST(there_are_so_many_sessions),
            TEST(a_user_has_so_many_sessions), TEST(there_are_so_many_descriptors),
            TEST(a_kopsd_that_stops_says_nothing), TEST(answers_wait_for_a_slow_reader),
            TEST(whoever_leaves_too_much_unread_is_ended), TEST(what_came_before_the_end_counts),
            TEST(runs_of_a_ring_come_before_what_was_sent_after_them), TEST(all_that_it_had_is_gone),
            TEST(it_ends_once), TEST(it_ends_midway), TEST(it_is_quiet_when_nothing_is_out),
            TEST(users_have_the_new_limits))
