/* test_outbox.c: replies that wait, and what they cost: session/outbox.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "session/outbox.h"
#include "unit/daemon/loop.h"

#define MOST_BYTES (1u << 20)

struct fixture {
	uv_loop_t loop;
	struct turns turns;
	struct config config;
	struct sched sched;
	struct accounts accounts;
	struct unread unread;
	struct outbox box;
};

static void unwatch(struct turns_waiter *waiter)
{
	(void)waiter;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);

	uv_loop_init(&f->loop);
	turns_init(&f->turns, &f->loop, NULL, unwatch);
	f->accounts = (struct accounts){.config = &f->config, .sched = &f->sched, .turns = &f->turns};
	accounts_init(&f->accounts);
	f->box = (struct outbox){
	    .accounts = &f->accounts, .account = accounts_get(&f->accounts, 1), .unread = &f->unread};
	f->accounts.unread_max = f->box.account->limits.max_unread_per_uid = MOST_BYTES;
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	accounts_finish_errands(&f->accounts);
	account_unref(&f->accounts, f->box.account);
	accounts_clear(&f->accounts);
	close_loop(&f->loop);
	free(f);
	return 0;
}

static void what_waits_is_charged_until_it_is_dropped(void **state)
{
	struct fixture *f = *state;
	const uint8_t reply[100] = {0};

	assert_int_equal(outbox_keep(&f->box, reply, sizeof reply, -1), 0);
	assert_false(outbox_is_empty(&f->box));
	assert_true(f->box.account->unread_bytes > sizeof reply);
	outbox_drop(&f->box);
	assert_true(outbox_is_empty(&f->box));
	assert_int_equal(f->box.account->unread_bytes, 0);
}

static void too_much_is_refused(void **state)
{
	struct fixture *f = *state;
	uint8_t *reply = calloc(1, MOST_BYTES);

	assert_int_equal(outbox_keep(&f->box, reply, MOST_BYTES, -1), KOPS_E_NOMEM);
	assert_true(outbox_is_empty(&f->box));
	assert_int_equal(f->box.account->unread_bytes, 0);
	free(reply);
}

static void a_descriptor_that_cannot_be_kept_is_a_matter_of_quotas(void **state)
{
	struct fixture *f = *state;
	struct rlimit before, none;
	const uint8_t reply[100] = {0};
	int fd = dup(STDERR_FILENO), rc;

	assert_true(fd >= 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = before;
	none.rlim_cur = (rlim_t)fd + 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	rc = outbox_keep(&f->box, reply, sizeof reply, fd);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(rc, KOPS_E_QUOTA);
	assert_true(outbox_is_empty(&f->box));
	assert_int_equal(f->box.account->unread_bytes, 0);
	assert_int_equal(f->unread.kept, 0);

	assert_int_equal(outbox_keep(&f->box, reply, sizeof reply, fd), 0);
	assert_int_equal(f->unread.kept, 1);
	outbox_drop(&f->box);
	assert_int_equal(f->unread.kept, 0);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(what_waits_is_charged_until_it_is_dropped, setup, teardown),
	    cmocka_unit_test_setup_teardown(too_much_is_refused, setup, teardown),
	    cmocka_unit_test_setup_teardown(a_descriptor_that_cannot_be_kept_is_a_matter_of_quotas, setup,
	                                    teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
