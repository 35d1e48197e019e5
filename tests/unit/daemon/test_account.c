/* Tests limits, exactly and one beyond, refunds, and which users are remembered. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "share/closing.h"

struct fixture {
	struct config config;
	struct sched sched;
	struct turns turns;
	struct accounts all;
};

static struct fixture fixture(void)
{
	return (struct fixture){.config = {.max_mapped_per_uid = 100,
	                                   .max_mapped = 150,
	                                   .max_pinned_per_uid = 10,
	                                   .max_pinned = 15,
	                                   .max_resident_per_uid = 1000}};
}

static void set_up(struct fixture *f)
{
	f->all.config = &f->config;
	f->all.sched = &f->sched;
	f->all.turns = &f->turns;
}

static void test_one_account_per_uid(void **state)
{
	struct fixture f = fixture();
	struct account *a, *b;

	(void)state;
	set_up(&f);
	a = accounts_get(&f.all, 1000);
	b = accounts_get(&f.all, 1001);
	assert_ptr_not_equal(a, b);
	assert_ptr_equal(accounts_get(&f.all, 1000), a);
	account_unref(&f.all, a);
	account_ref(b);
	account_unref(&f.all, b);
	assert_ptr_equal(accounts_get(&f.all, 1001), b);
	account_unref(&f.all, b);
	account_unref(&f.all, b);
	account_unref(&f.all, a);
	accounts_clear(&f.all);
	assert_true(list_is_empty(&f.all.all));
}

static void test_user_limits(void **state)
{
	static const uint64_t limits[ACCOUNT_KINDS] = {100, 10, 1000};

	(void)state;
	for (int k = 0; k < ACCOUNT_KINDS; k++) {
		enum account_kind kind = (enum account_kind)k;
		struct fixture f = fixture();
		struct account *a;
		char why[WHY_BYTES] = "";

		set_up(&f);
		a = accounts_get(&f.all, 1);
		assert_int_equal(account_charge(&f.all, a, kind, limits[k] + 1, why), KOPS_E_QUOTA);
		assert_non_null(strstr(why, "you use 0 of"));
		assert_non_null(strstr(why, "-per-uid"));
		assert_int_equal(a->bytes[k], 0);
		assert_int_equal(account_charge(&f.all, a, kind, limits[k], NULL), 0);
		assert_int_equal(account_charge(&f.all, a, kind, 1, NULL), KOPS_E_QUOTA);
		assert_int_equal(account_charge(&f.all, a, kind, UINT64_MAX, NULL), KOPS_E_QUOTA);
		assert_int_equal(account_charge(&f.all, a, kind, 0, NULL), 0);
		account_refund(&f.all, a, kind, 1);
		assert_int_equal(account_charge(&f.all, a, kind, 2, NULL), KOPS_E_QUOTA);
		assert_int_equal(account_charge(&f.all, a, kind, 1, NULL), 0);
		account_refund(&f.all, a, kind, limits[k]);
		assert_int_equal(f.all.bytes[k], 0);
		account_unref(&f.all, a);
		accounts_clear(&f.all);
	}
}

static void test_limit_of_all(void **state)
{
	struct fixture f = fixture();
	struct account *a, *b;
	char why[WHY_BYTES] = "";

	(void)state;
	set_up(&f);
	a = accounts_get(&f.all, 1);
	b = accounts_get(&f.all, 2);
	assert_int_equal(account_charge(&f.all, a, ACCOUNT_MAPPED, 100, NULL), 0);
	assert_int_equal(account_charge(&f.all, b, ACCOUNT_MAPPED, 51, why), KOPS_E_QUOTA);
	assert_non_null(strstr(why, "all users use 100 of 150"));
	assert_non_null(strstr(why, "raise max-mapped in"));
	assert_int_equal(account_charge(&f.all, b, ACCOUNT_MAPPED, 50, NULL), 0);
	/* Each kind has its own limit. */
	assert_int_equal(account_charge(&f.all, b, ACCOUNT_PINNED, 10, NULL), 0);
	assert_int_equal(account_charge(&f.all, a, ACCOUNT_PINNED, 6, NULL), KOPS_E_QUOTA);
	assert_int_equal(account_charge(&f.all, a, ACCOUNT_PINNED, 5, NULL), 0);
	account_unref(&f.all, a);
	account_unref(&f.all, b);
	accounts_clear(&f.all);
}

/* A reload may lower a limit below what is held. */
static void test_over_a_lowered_limit(void **state)
{
	struct fixture f = fixture();
	struct account *a;

	(void)state;
	set_up(&f);
	a = accounts_get(&f.all, 1);
	assert_int_equal(account_charge(&f.all, a, ACCOUNT_MAPPED, 100, NULL), 0);
	f.config.max_mapped_per_uid = 50;
	accounts_begin_limits(&f.all);
	assert_int_equal(a->limits.max_mapped_per_uid, 100); /* until the new limits are known */
	accounts_take_limits(&f.all);
	assert_int_equal(account_charge(&f.all, a, ACCOUNT_MAPPED, 1, NULL), KOPS_E_QUOTA);
	account_refund(&f.all, a, ACCOUNT_MAPPED, 60);
	assert_int_equal(account_charge(&f.all, a, ACCOUNT_MAPPED, 10, NULL), 0);
	assert_int_equal(account_charge(&f.all, a, ACCOUNT_MAPPED, 1, NULL), KOPS_E_QUOTA);
	account_unref(&f.all, a);
	accounts_clear(&f.all);
}

/* ---- Sections of users and groups ---- */

#define ALICE 1000
#define LAB   2000
#define CLASS 2001

static struct config_owner *add_owner(struct config *config, bool is_group, id_t id)
{
	struct config_owner *owner = &config->owners[config->n_owners++];

	owner->is_group = is_group;
	owner->is_known = true;
	owner->id = id;
	return owner;
}

static void add(struct config *config, bool is_group, id_t id, uint64_t max_mapped)
{
	struct config_owner *owner = add_owner(config, is_group, id);
	size_t i = offsetof(struct user_limits, max_mapped_per_uid) / sizeof(uint64_t);

	owner->limits[i].value = max_mapped;
	strcpy(owner->limits[i].origin, "here");
}

/* Returns what the only session of a process in these groups may map. */
static uint64_t mapped(struct fixture *f, uid_t uid, const gid_t *groups, size_t n)
{
	struct account *a = accounts_get(&f->all, uid);
	uint64_t max;

	a->limits = account_limits_beside(&f->all, a, groups, n);
	max = a->limits.max_mapped_per_uid;
	assert_int_equal(a->limits.max_pinned_per_uid, 10);
	account_unref(&f->all, a);
	return max;
}

static void test_users_over_groups_over_everybody(void **state)
{
	static const gid_t both[] = {CLASS, LAB}, one[] = {3000, CLASS}, other[] = {ALICE};
	struct fixture f = fixture();

	(void)state;
	set_up(&f);
	assert_int_equal(mapped(&f, ALICE, both, 2), 100);
	add(&f.config, true, CLASS, 30); /* a group may have less than everybody */
	add(&f.config, true, LAB, 300);
	assert_int_equal(mapped(&f, ALICE, both, 2), 300);
	assert_int_equal(mapped(&f, ALICE, one, 2), 30);
	assert_int_equal(mapped(&f, ALICE, other, 1), 100); /* her uid is no gid */
	assert_int_equal(mapped(&f, ALICE, NULL, 0), 100);
	add_owner(&f.config, false, ALICE); /* this section does not set it */
	assert_int_equal(mapped(&f, ALICE, both, 2), 300);
	add(&f.config, false, ALICE, 70);
	assert_int_equal(mapped(&f, ALICE, both, 2), 70);
	assert_int_equal(mapped(&f, ALICE + 1, both, 2), 300);
	f.config.owners[3].is_known = false;
	assert_int_equal(mapped(&f, ALICE, both, 2), 300);
	accounts_clear(&f.all);
}

/* The first session's limits replace the old ones, and later sessions' widen them; also after a reload. */
static void test_limits_of_sessions(void **state)
{
	static const gid_t narrow[] = {CLASS}, wide[] = {LAB};
	struct fixture f = fixture();
	struct account *a;

	(void)state;
	set_up(&f);
	add(&f.config, true, CLASS, 30);
	add(&f.config, true, LAB, 300);
	a = accounts_get(&f.all, 1);
	assert_int_equal(a->limits.max_mapped_per_uid, 100);
	a->limits = account_limits_beside(&f.all, a, narrow, 1);
	assert_int_equal(a->limits.max_mapped_per_uid, 30);
	a->sessions = 1;
	a->limits = account_limits_beside(&f.all, a, wide, 1);
	a->limits = account_limits_beside(&f.all, a, narrow, 1);
	assert_int_equal(a->limits.max_mapped_per_uid, 300);

	accounts_begin_limits(&f.all);
	account_note_session(&f.all, a, narrow, 1);
	assert_int_equal(a->limits.max_mapped_per_uid, 300);
	accounts_take_limits(&f.all);
	assert_int_equal(a->limits.max_mapped_per_uid, 30);
	accounts_begin_limits(&f.all);
	account_note_session(&f.all, a, wide, 1);
	account_note_session(&f.all, a, narrow, 1);
	accounts_take_limits(&f.all);
	assert_int_equal(a->limits.max_mapped_per_uid, 300);
	a->sessions = 0;
	accounts_begin_limits(&f.all);
	accounts_take_limits(&f.all);
	assert_int_equal(a->limits.max_mapped_per_uid, 100);
	account_unref(&f.all, a);
	accounts_clear(&f.all);
}

/* ---- Descriptors ---- */

/* Many descriptors are closed one after the other, and the account lives until the last one is closed. */
static void test_descriptors_are_closed(void **state)
{
	struct fixture f = fixture();
	uv_loop_t loop;
	struct account *a;
	char why[WHY_BYTES], byte;
	int ends[2];

	(void)state;
	set_up(&f);
	uv_loop_init(&loop);
	assert_int_equal(workers_start(&loop, 1, 1, &f.all.closers, why), 0);
	for (unsigned n = 1; n < 200; n += 66) {
		a = accounts_get(&f.all, 1);
		assert_int_equal(pipe(ends), 0);
		for (unsigned i = 1; i < n; i++)
			closing_add(&f.all, a, dup(ends[1]));
		closing_add(&f.all, a, ends[1]);
		account_unref(&f.all, a);
		while (f.all.closing)
			uv_run(&loop, UV_RUN_ONCE);
		assert_int_equal(read(ends[0], &byte, 1), 0); /* no writing end is left */
		close(ends[0]);
	}
	workers_stop(f.all.closers);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
	accounts_clear(&f.all);
}

static void close_some(struct accounts *all, struct account *a, unsigned n)
{
	while (n-- > 0)
		closing_add(all, a, dup(STDOUT_FILENO));
}

/* A user with more to close than is allowed is held. If no user may have any, the door is held too. */
static void test_users_with_much_to_close_are_held(void **state)
{
	struct fixture f = fixture();
	struct turns_user door = {0};
	struct account *a, *b;
	uv_loop_t loop;
	char why[WHY_BYTES];

	(void)state;
	set_up(&f);
	uv_loop_init(&loop);
	turns_init(&f.turns, &loop, NULL, NULL);
	assert_int_equal(workers_start(&loop, 1, 1, &f.all.closers, why), 0);
	f.all.closing_max = 12;
	f.all.door = &door;
	a = accounts_get(&f.all, 1);
	b = accounts_get(&f.all, 2);
	close_some(&f.all, a, 6);
	assert_false(a->turns.held);
	close_some(&f.all, a, 1);
	assert_true(a->turns.held);
	close_some(&f.all, b, 2);
	assert_false(b->turns.held);
	close_some(&f.all, b, 1);
	assert_true(b->turns.held);
	assert_false(door.held);
	close_some(&f.all, a, 2);
	assert_true(door.held);
	while (f.all.closing)
		uv_run(&loop, UV_RUN_ONCE);
	assert_false(a->turns.held || b->turns.held || door.held);
	account_unref(&f.all, a);
	account_unref(&f.all, b);
	workers_stop(f.all.closers);
	uv_close((uv_handle_t *)&f.turns.check, NULL);
	uv_close((uv_handle_t *)&f.turns.idle, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
	accounts_clear(&f.all);
}

static void come_and_go(struct accounts *all, uid_t uid)
{
	account_unref(all, accounts_get(all, uid));
}

static bool is_there(const struct accounts *all, uid_t uid)
{
	const struct account *a;

	list_for_each (a, &all->all, link)
		if (a->uid == uid)
			return true;
	return false;
}

static void test_the_last_users_are_remembered(void **state)
{
	struct fixture f = fixture();
	const struct account *a;
	unsigned n = 0;

	(void)state;
	set_up(&f);
	for (uid_t uid = 0; uid <= ACCOUNTS_IDLE_MAX; uid++)
		come_and_go(&f.all, 1000 + uid * 7 % 257);
	list_for_each (a, &f.all.all, link) {
		assert_true(!list_next(a, link) || a->uid > list_next(a, link)->uid);
		n++;
	}
	assert_int_equal(n, ACCOUNTS_IDLE_MAX);
	assert_false(is_there(&f.all, 1000));
	come_and_go(&f.all, 1007); /* now another account was left first */
	come_and_go(&f.all, 1);
	assert_true(is_there(&f.all, 1007));
	assert_false(is_there(&f.all, 1014));
	accounts_clear(&f.all);
}

static void test_who_had_more_is_remembered(void **state)
{
	struct fixture f = fixture();
	struct account *a;

	(void)state;
	set_up(&f);
	a = accounts_get(&f.all, 1);
	a->flow.devices[3].party.vtime = 5.0;
	account_unref(&f.all, a);
	for (uid_t uid = 0; uid <= ACCOUNTS_IDLE_MAX; uid++)
		come_and_go(&f.all, 1000 + uid);
	assert_ptr_equal(accounts_get(&f.all, 1), a);
	assert_true(a->flow.devices[3].party.vtime == 5.0);
	account_unref(&f.all, a);
	f.sched.devices[3].fair.clock = 5.0;
	for (uid_t uid = 0; uid <= ACCOUNTS_IDLE_MAX; uid++)
		come_and_go(&f.all, 1000 + uid);
	assert_false(is_there(&f.all, 1));
	accounts_clear(&f.all);
	assert_true(list_is_empty(&f.all.all));
}

static void test_unread_replies(void **state)
{
	struct fixture f = fixture();
	struct account *a, *b;

	(void)state;
	set_up(&f);
	f.config.max_unread_per_uid = 80;
	f.all.unread_max = 100;
	a = accounts_get(&f.all, 1);
	b = accounts_get(&f.all, 2);
	assert_false(account_leave_unread(&f.all, a, 81));
	assert_true(account_leave_unread(&f.all, a, 80));
	assert_false(account_leave_unread(&f.all, a, 1));
	/* If all have too much, the user who has least must not go. */
	assert_true(account_leave_unread(&f.all, b, 50));
	assert_false(account_leave_unread(&f.all, b, 1));
	account_was_read(&f.all, a, 80);
	assert_true(account_leave_unread(&f.all, b, 30));
	assert_true(account_leave_unread(&f.all, a, 50));
	assert_false(account_leave_unread(&f.all, a, 1));
	account_was_read(&f.all, a, 50);
	account_was_read(&f.all, b, 80);
	assert_int_equal(a->unread_bytes + b->unread_bytes + f.all.unread_bytes, 0);
	account_unref(&f.all, a);
	account_unref(&f.all, b);
	accounts_clear(&f.all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_one_account_per_uid),
	    cmocka_unit_test(test_user_limits),
	    cmocka_unit_test(test_limit_of_all),
	    cmocka_unit_test(test_over_a_lowered_limit),
	    cmocka_unit_test(test_users_over_groups_over_everybody),
	    cmocka_unit_test(test_limits_of_sessions),
	    cmocka_unit_test(test_descriptors_are_closed),
	    cmocka_unit_test(test_users_with_much_to_close_are_held),
	    cmocka_unit_test(test_the_last_users_are_remembered),
	    cmocka_unit_test(test_who_had_more_is_remembered),
	    cmocka_unit_test(test_unread_replies),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
