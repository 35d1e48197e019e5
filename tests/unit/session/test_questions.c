/* Tests Pings and Stats that wait for an answer: each is answered once, and few in one turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "session/questions.h"
#include "unit/daemon/loop.h"

enum { SESSIONS = 300, EACH = 3 };

/* The tests use only its address. */
struct session {
	struct questions questions;
	unsigned answered;
};

struct fixture {
	uv_loop_t loop;
	struct turns turns;
	struct config config;
	struct engine engine;
	struct askers askers;
	struct account *user;
	struct session sessions[SESSIONS];
};

static bool is_out;
static unsigned n_answered, n_progress;

static bool askers_are_out(const struct askers *askers)
{
	(void)askers;
	return is_out;
}

/* The oldest question of a session comes first. */
static void answer(struct session *session, uint64_t id)
{
	assert_int_equal(id, session->answered);
	session->answered++;
	n_answered++;
}

static void progress(struct engine *engine)
{
	(void)engine;
	n_progress++;
}

/* The test's waiters have no sockets. */
static void unwatch(struct turns_waiter *waiter)
{
	(void)waiter;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);
	struct engine *e = &f->engine;

	n_answered = n_progress = 0;
	is_out = true;
	uv_loop_init(&f->loop);
	turns_init(&f->turns, &f->loop, NULL, unwatch);
	e->accounts = (struct accounts){.config = &f->config, .sched = &e->sched, .turns = &f->turns};
	e->progress = progress;
	accounts_init(&e->accounts);
	f->user = accounts_get(&e->accounts, 1);
	f->askers = (struct askers){.engine = e, .is_out = askers_are_out, .answer = answer};
	for (int i = 0; i < SESSIONS; i++)
		f->sessions[i].questions =
		    (struct questions){.askers = &f->askers, .session = &f->sessions[i], .account = f->user};
	*state = f;
	return f->user ? 0 : -1;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < SESSIONS; i++) {
		questions_leave(&f->sessions[i].questions);
		while (questions_drop(&f->sessions[i].questions))
			;
	}
	accounts_finish_errands(&f->engine.accounts);
	account_unref(&f->engine.accounts, f->user);
	accounts_clear(&f->engine.accounts);
	close_loop(&f->loop);
	free(f);
	return 0;
}

static void ask(struct fixture *f)
{
	for (uint64_t n = 0; n < EACH; n++)
		for (int i = 0; i < SESSIONS; i++)
			assert_int_equal(questions_add(&f->sessions[i].questions, n), 0);
}

static bool take_turn(struct fixture *f, struct errands *errands)
{
	f->turns.began_ns = UINT64_MAX / 2; /* so that turns do not end by time */
	return errands->waiter.take(&errands->waiter);
}

static void a_turn_answers_few(void **state)
{
	struct fixture *f = *state;
	struct errands *kopsd = &f->engine.accounts.errands, *user = &f->user->errands;

	ask(f);
	is_out = false;
	questions_answer(&f->askers);
	assert_int_equal(n_answered, 0);
	while (take_turn(f, kopsd))
		assert_int_equal(n_answered, 0);
	for (unsigned before = 0; before < SESSIONS * EACH; before = n_answered) {
		take_turn(f, user);
		assert_in_range(n_answered - before, 1, ERRANDS_STEPS);
	}
	assert_int_equal(n_answered, SESSIONS * EACH);
	assert_int_equal(n_progress, SESSIONS);
}

/* A canary that began before does not count. */
static void what_is_found_out_anew_is_waited_for(void **state)
{
	struct fixture *f = *state;
	unsigned before;

	ask(f);
	is_out = false;
	questions_answer(&f->askers);
	while (take_turn(f, &f->engine.accounts.errands))
		;
	take_turn(f, &f->user->errands);
	before = n_answered;
	is_out = true;
	accounts_finish_errands(&f->engine.accounts);
	assert_int_equal(n_answered, before);
	questions_answer(&f->askers); /* too early */
	accounts_finish_errands(&f->engine.accounts);
	assert_int_equal(n_answered, before);
	is_out = false;
	questions_answer(&f->askers);
	accounts_finish_errands(&f->engine.accounts);
	assert_int_equal(n_answered, SESSIONS * EACH);
}

static void sessions_that_end_get_no_answer(void **state)
{
	struct fixture *f = *state;

	ask(f);
	questions_leave(&f->sessions[0].questions); /* while it waits */
	is_out = false;
	questions_answer(&f->askers);
	while (take_turn(f, &f->engine.accounts.errands))
		;
	questions_leave(&f->sessions[1].questions); /* while its turn is due */
	accounts_finish_errands(&f->engine.accounts);
	assert_int_equal(n_answered, (SESSIONS - 2) * EACH);
	assert_int_equal(f->sessions[0].answered, 0);
	assert_int_equal(f->sessions[1].answered, 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(a_turn_answers_few),
	    TEST(what_is_found_out_anew_is_waited_for),
	    TEST(sessions_that_end_get_no_answer),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
