/* Tests published buffers: what is sent for them, what a daemon may answer, and what a restart leaves. */
#include "fake_daemon.h"

static void greet(struct fake *f)
{
	f->names = true;
	fake_greet(f);
}

static void answer_attach(struct fake *f, uint64_t id, uint64_t bytes, int fd)
{
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__Attached attached = KOPS__V1__ATTACHED__INIT;
	uint64_t shape[] = {2, 3};
	attached.bytes = bytes;
	if (fd < 0) {
		attached.kind = KOPS__V1__BUFFER_KIND__RESIDENT;
		attached.device = (char *)"gpu0";
	}
	attached.dtype = KOPS__V1__DTYPE__F32;
	attached.n_shape = 2, attached.shape = shape;
	reply.id = id, reply.body_case = KOPS__V1__REPLY__BODY_ATTACHED, reply.attached = &attached;
	fake_send(f, &reply, fd);
	if (fd >= 0)
		close(fd);
}

static Kops__V1__Attach *expect_attach(struct fake *f, uint64_t *ret_id)
{
	Kops__V1__Request *r = fake_expect(f, FAKE_VERB(ATTACH));
	FAKE_CHECK(f, r->attach->user == 77 && strcmp(r->attach->name, "m/w") == 0);
	*ret_id = r->id;
	return r->attach;
}

static void script_old(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(PING))->id, 0, ""); /* nothing else was sent before */
	fake_expect_end(f);
}

static void test_an_old_daemon_is_not_asked(void **state)
{
	struct fake *f = *state;
	kops_buffer *attached = NULL;
	kops_list *list = NULL;
	fake_start(f, script_old);
	kops *k = fake_open(f);
	kops_buffer *b = fake_alloc(k, 64, KOPS_SHARED);
	assert_int_equal(kops_publish(b, "a", NULL), KOPS_E_UNSUPPORTED);
	assert_null(kops_published(b));
	assert_int_equal(kops_attach(k, 77, "m/w", &attached), KOPS_E_UNSUPPORTED);
	assert_int_equal(kops_unpublish(k, 77, "m/w"), KOPS_E_UNSUPPORTED);
	assert_int_equal(kops_list_buffers(k, &list), KOPS_E_UNSUPPORTED);
	assert_non_null(strstr(kops_error(k), "too old for published buffers"));
	assert_null(attached);
	assert_null(list);
	assert_int_equal(kops_ping(k), 0);
	kops_close(k);
	fake_stop(f);
}

static void script_publish(struct fake *f)
{
	greet(f);
	uint64_t buffer = fake_lend(f);
	Kops__V1__Request *r = fake_expect(f, FAKE_VERB(PUBLISH));
	const Kops__V1__Publish *p = r->publish;
	FAKE_CHECK(f, p->buffer == buffer && strcmp(p->name, "m/w") == 0 && p->keep && p->group == 9);
	FAKE_CHECK(f, p->access == KOPS__V1__ACCESS__GROUP && p->dtype == KOPS__V1__DTYPE__F16);
	FAKE_CHECK(f, p->n_shape == 2 && p->shape[0] == 4 && p->shape[1] == 8);
	fake_answer(f, r->id, 0, "");
	r = fake_expect(f, FAKE_VERB(UNPUBLISH));
	FAKE_CHECK(f, r->unpublish->user == geteuid() && strcmp(r->unpublish->name, "m/w") == 0);
	fake_answer(f, r->id, 0, "");
	r = fake_expect(f, FAKE_VERB(PUBLISH));
	FAKE_CHECK(f, r->publish->n_shape == 0 && r->publish->dtype == 0);
	fake_answer(f, r->id, KOPS_E_EXISTS, "taken");
	fake_expect(f, FAKE_VERB(DROP));
	fake_expect_end(f);
}

static void test_publish(void **state)
{
	struct fake *f = *state;
	kops_publish_options options = {.size = sizeof options,
	                                .access = KOPS_GROUP,
	                                .group = 9,
	                                .keep = true,
	                                .dtype = KOPS_F16,
	                                .rank = 2,
	                                .shape = {4, 8}};
	fake_start(f, script_publish);
	kops *k = fake_open(f);
	kops_buffer *b = fake_alloc(k, 64, KOPS_SHARED);
	assert_int_equal(kops_publish(b, "m/w", &options), 0);
	assert_string_equal(kops_published(b), "m/w");
	assert_int_equal(kops_attached_view(b).rank, 0);
	assert_int_equal(kops_unpublish(k, geteuid(), "m/w"), 0);
	assert_null(kops_published(b));
	options.rank = 0;
	assert_int_equal(kops_publish(b, "m/w", &options), KOPS_E_EXISTS);
	assert_string_equal(kops_error(k), "taken");
	assert_null(kops_published(b));
	kops_free(b);
	kops_close(k);
	fake_stop(f);
}

static void script_attach(struct fake *f)
{
	uint64_t id;
	greet(f);
	FAKE_CHECK(f, expect_attach(f, &id)->bytes == 0);
	answer_attach(f, id, 24, fake_memfd(4096));
	fake_expect(f, FAKE_VERB(DROP));
	expect_attach(f, &id);
	answer_attach(f, id, 24, -1);
	fake_expect(f, FAKE_VERB(DROP));
	fake_expect_end(f);
}

static void test_attach(void **state)
{
	struct fake *f = *state;
	kops_buffer *b;
	fake_start(f, script_attach);
	kops *k = fake_open(f);
	for (int resident = 0; resident < 2; resident++) {
		assert_int_equal(kops_attach(k, 77, "m/w", &b), 0);
		assert_int_equal(kops_size(b), 24);
		assert_int_equal(kops_data(b) == NULL, resident);
		assert_string_equal(kops_buffer_device(b), resident ? "gpu0" : "");
		kops_view v = kops_attached_view(b);
		assert_ptr_equal(v.buffer, b);
		assert_int_equal(v.dtype, KOPS_F32);
		assert_int_equal(v.rank, 2);
		assert_int_equal(v.shape[0] * 10 + v.shape[1], 23);
		assert_null(kops_published(b));
		kops_free(b);
	}
	kops_close(k);
	fake_stop(f);
}

static void script_nonsense(struct fake *f)
{
	uint64_t id;
	for (unsigned i = 0; i < 4; i++) {
		greet(f);
		if (i > 0) /* only a Welcome tells whether the daemon knows Attach */
			fake_answer(f, fake_expect(f, FAKE_VERB(PING))->id, 0, "");
		expect_attach(f, &id);
		if (i == 0)
			answer_attach(f, id, 0, fake_memfd(4096)); /* of no bytes */
		else if (i == 1)
			answer_attach(f, id, 4097, fake_memfd(4096)); /* of a smaller file */
		else if (i == 2)
			answer_attach(f, id, UINT64_MAX, -1);
		else
			fake_answer(f, id, 0, ""); /* no answer to Attach */
		fake_expect_end(f);
	}
}

static void test_nonsense(void **state)
{
	struct fake *f = *state;
	kops_buffer *b = NULL;
	fake_start(f, script_nonsense);
	kops *k = fake_open(f);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(kops_attach(k, 77, "m/w", &b), KOPS_E_PROTOCOL);
	assert_null(b);
	kops_close(k);
	fake_stop(f);
}

/* A daemon restarts: what is SHARED is published again, and what was attached is asked for with its size. */
static void script_restart(struct fake *f)
{
	uint64_t id;
	greet(f);
	fake_lend(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(PUBLISH))->id, 0, "");
	expect_attach(f, &id);
	answer_attach(f, id, 24, -1);
	fake_hang_up(f);
	greet(f);
	fake_answer(f, fake_expect(f, FAKE_VERB(IMPORT))->id, 0, "");
	Kops__V1__Request *r = fake_expect(f, FAKE_VERB(PUBLISH));
	FAKE_CHECK(f, strcmp(r->publish->name, "mine") == 0);
	fake_answer(f, r->id, 0, "");
	FAKE_CHECK(f, expect_attach(f, &id)->bytes == 24);
	fake_answer(f, id, KOPS_E_NOT_FOUND, "no such name");
	fake_answer(f, fake_expect(f, FAKE_VERB(PING))->id, 0, "");
	for (unsigned i = 0; i < 2; i++) { /* each job asks once more */
		expect_attach(f, &id);
		if (i == 0)
			fake_answer(f, id, KOPS_E_NOT_FOUND, "no such name");
		else
			answer_attach(f, id, 24, -1);
		r = fake_expect(f, FAKE_VERB(SUBMIT));
		if (i == 0)
			fake_answer(f, r->id, KOPS_E_NOT_FOUND, "there is no buffer 2");
		else
			fake_receipt(f, r->id);
	}
	fake_receipt(f, fake_expect(f, FAKE_VERB(SUBMIT))->id); /* and then none */
	fake_hang_up(f);
}

static void test_restart(void **state)
{
	struct fake *f = *state;
	kops_buffer *mine, *b;
	fake_start(f, script_restart);
	kops *k = fake_open(f);
	mine = fake_alloc(k, 64, KOPS_SHARED);
	assert_int_equal(kops_publish(mine, "mine", NULL), 0);
	assert_int_equal(kops_attach(k, 77, "m/w", &b), 0);
	assert_int_equal(kops_ping(k), 0);
	assert_string_equal(kops_published(mine), "mine");
	kops_view from = kops_matrix(b, 0, KOPS_F32, 2, 3, 0), to = kops_matrix(mine, 0, KOPS_F32, 2, 3, 0);
	assert_int_equal(kops_copy(k, from, to), KOPS_E_LOST);
	assert_non_null(strstr(kops_error(k), "no such name"));
	assert_int_equal(kops_copy(k, from, to), 0);
	assert_int_equal(kops_copy(k, from, to), 0);
	kops_close(k);
	fake_stop(f);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_setup, fake_teardown)
	const struct CMUnitTest tests[] = {
	    TEST(test_an_old_daemon_is_not_asked),
	    TEST(test_publish),
	    TEST(test_attach),
	    TEST(test_nonsense),
	    TEST(test_restart),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
