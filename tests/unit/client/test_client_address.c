/* Tests which socket a handle connects to, if its options name none. */
#include "fake_daemon.h"

/* The daemon that $KOPS_SOCKET names, and the user's own one. */
struct daemons {
	void *named, *own;
};

static int setup(void **state)
{
	static struct daemons daemons;
	const struct fake *own;
	if (fake_setup(&daemons.named) < 0 || fake_setup(&daemons.own) < 0)
		return -1;
	own = daemons.own;
	*state = &daemons;
	return setenv("XDG_RUNTIME_DIR", own->folder, 1);
}

static int teardown(void **state)
{
	struct daemons *daemons = *state;
	int own = fake_teardown(&daemons->own), named = fake_teardown(&daemons->named);
	return own < 0 || named < 0 ? -1 : 0;
}

/* Returns true if a client has connected since the last call. */
static bool was_called(const struct fake *f)
{
	struct pollfd p = {.fd = f->listener, .events = POLLIN};
	if (poll(&p, 1, 0) != 1)
		return false;
	close(accept(f->listener, NULL, NULL));
	return true;
}

static void calls(const struct daemons *daemons, const kops_options *options, const struct fake *expected)
{
	char why[512] = "";
	kops *k = NULL;
	if (kops_open_start(&k, options, why, sizeof why) < 0)
		fail_msg("kops_open_start: %s", why);
	kops_close(k);
	assert_int_equal(was_called(daemons->named), daemons->named == expected);
	assert_int_equal(was_called(daemons->own), daemons->own == expected);
}

static const kops_options without = {.size = sizeof without}, empty = {.size = sizeof empty, .socket = ""};

static void without_a_socket_the_environment_names_it(void **state)
{
	const struct daemons *daemons = *state;
	const struct fake *named = daemons->named;
	assert_int_equal(setenv("KOPS_SOCKET", named->path, 1), 0);
	calls(daemons, NULL, named);
	calls(daemons, &without, named);
	calls(daemons, &empty, named);
}

static void otherwise_it_is_the_own_one(void **state)
{
	const struct daemons *daemons = *state;
	assert_int_equal(unsetenv("KOPS_SOCKET"), 0);
	calls(daemons, NULL, daemons->own);
	calls(daemons, &without, daemons->own);
	calls(daemons, &empty, daemons->own);
	assert_int_equal(setenv("KOPS_SOCKET", "", 1), 0);
	calls(daemons, NULL, daemons->own);
	calls(daemons, &without, daemons->own);
	calls(daemons, &empty, daemons->own);
}

static void the_options_come_first(void **state)
{
	const struct daemons *daemons = *state;
	const struct fake *named = daemons->named, *own = daemons->own;
	kops_options options = {.size = sizeof options, .socket = own->path};
	assert_int_equal(setenv("KOPS_SOCKET", named->path, 1), 0);
	calls(daemons, &options, own);
	options.socket = named->path;
	assert_int_equal(unsetenv("KOPS_SOCKET"), 0);
	calls(daemons, &options, named);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(without_a_socket_the_environment_names_it, setup, teardown),
	    cmocka_unit_test_setup_teardown(otherwise_it_is_the_own_one, setup, teardown),
	    cmocka_unit_test_setup_teardown(the_options_come_first, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
