/* Tests libkops against a scripted daemon: buffers, lent and imported. */
#include <sys/resource.h>

#include "fake_daemon.h"
#include "libkops/api/python.h"

static void script_alloc(struct fake *f)
{
	fake_greet(f);
	FAKE_CHECK(f, fake_lend(f) == 1);
	Kops__V1__Request *r = fake_expect(f, FAKE_VERB(ALLOC));
	FAKE_CHECK(f, r->alloc->kind == KOPS__V1__BUFFER_KIND__RESIDENT && r->alloc->bytes == 4096);
	FAKE_CHECK(f, strcmp(r->alloc->device, "gpu1") == 0 && !r->alloc->lost);
	fake_lent(f, r->id, -1, "gpu1");
	fake_answer(f, fake_expect(f, FAKE_VERB(ALLOC))->id, KOPS_E_NOMEM, "64 GiB asked, 3 GiB free");
	FAKE_CHECK(f, fake_expect(f, FAKE_VERB(DROP))->drop->buffer == 2);
	FAKE_CHECK(f, fake_expect(f, FAKE_VERB(DROP))->drop->buffer == 1);
	fake_expect_end(f);
}

static void test_alloc(void **state)
{
	struct fake *f = *state;
	kops_buffer *shared, *resident, *none = NULL;
	fake_start(f, script_alloc);
	kops *k = fake_open(f);
	assert_int_equal(kops_alloc(k, 100, KOPS_SHARED, NULL, &shared), 0);
	assert_int_equal(kops_size(shared), 100);
	assert_int_equal(((unsigned char *)kops_data(shared))[99], 0);
	strcpy(kops_data(shared), "both sides");
	assert_int_equal(kops_alloc(k, 4096, KOPS_RESIDENT, "gpu1", &resident), 0);
	assert_null(kops_data(resident));
	assert_int_equal(kops_alloc(k, 1ull << 36, KOPS_SHARED, NULL, &none), KOPS_E_NOMEM);
	assert_string_equal(kops_error(k), "64 GiB asked, 3 GiB free");
	assert_null(none);
	assert_int_equal(kops_alloc(k, 0, KOPS_SHARED, NULL, &none), KOPS_E_INVALID);
	assert_int_equal(kops_alloc(k, 8, KOPS_READ_ONLY, NULL, &none), KOPS_E_INVALID);
	assert_int_equal(kops_alloc(k, 8, KOPS_SHARED, "cpu", &none), KOPS_E_INVALID);
	assert_int_equal(kops_alloc(k, 8, KOPS_RESIDENT, "gpu\n", &none), KOPS_E_INVALID);
	kops_free(resident);
	kops_free(shared);
	kops_close(k);
	fake_stop(f);
	char text[16];
	assert_int_equal(pread(f->memfd, text, 11, 0), 11);
	assert_string_equal(text, "both sides");
}

static void (*lend_badly)(struct fake *f, const Kops__V1__Request *r);

static void script_bad_lend(struct fake *f)
{
	fake_greet(f);
	lend_badly(f, fake_expect(f, FAKE_VERB(ALLOC)));
	fake_expect_end(f);
}

static void lend_nothing(struct fake *f, const Kops__V1__Request *r)
{
	fake_lent(f, r->id, -1, "");
}

static void lend_less(struct fake *f, const Kops__V1__Request *r)
{
	f->memfd = fake_memfd(r->alloc->bytes - 1);
	fake_lent(f, r->id, f->memfd, "");
}

static void lend_without_body(struct fake *f, const Kops__V1__Request *r)
{
	fake_answer(f, r->id, 0, "");
}

/* A mapping beyond the file would be a SIGBUS in the user's program. */
static void test_bad_lends_are_refused(void **state)
{
	static const struct {
		void (*lend)(struct fake *, const Kops__V1__Request *);
		const char *phrase;
	} rows[] = {
	    {lend_nothing, "a buffer without its descriptor"},
	    {lend_without_body, "a reply to Alloc without Lent"},
	    {lend_less, "a buffer smaller than requested"},
	};
	struct fake *f = *state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		kops_buffer *b = NULL;
		lend_badly = rows[i].lend;
		fake_start(f, script_bad_lend);
		kops *k = fake_open(f);
		assert_int_equal(kops_alloc(k, 100, KOPS_SHARED, NULL, &b), KOPS_E_PROTOCOL);
		assert_non_null(strstr(kops_error(k), rows[i].phrase));
		assert_null(b);
		kops_close(k);
		fake_stop(f);
	}
}

static void script_late_lend(struct fake *f)
{
	fake_greet(f);
	Kops__V1__Request *r = fake_expect(f, FAKE_VERB(ALLOC));
	uint64_t id = r->id, buffer = r->alloc->buffer, bytes = r->alloc->bytes;
	FAKE_CHECK(f, fake_wait(f, 1));
	f->memfd = fake_memfd(bytes);
	fake_lent(f, id, f->memfd, "");
	fake_reach(f, 2);
	id = fake_expect(f, FAKE_VERB(PING))->id;
	FAKE_CHECK(f, fake_expect(f, FAKE_VERB(DROP))->drop->buffer == buffer);
	fake_answer(f, id, 0, "");
	fake_expect_end(f);
}

/* A buffer that comes after its caller has gone is given back. */
static void test_late_lend_is_given_back(void **state)
{
	struct fake *f = *state;
	kops_buffer *b = NULL;
	fake_start(f, script_late_lend);
	kops *k = fake_open(f);
	fake_set_timeout(k, 50);
	assert_int_equal(kops_alloc(k, 100, KOPS_SHARED, NULL, &b), KOPS_E_TIMEOUT);
	fake_set_timeout(k, FAKE_PATIENCE_MS);
	fake_reach(f, 1);
	assert_true(fake_wait(f, 2));
	assert_int_equal(kops_ping(k), 0);
	kops_close(k);
	fake_stop(f);
}

static void script_lend_twice(struct fake *f)
{
	fake_greet(f);
	Kops__V1__Request *r = fake_expect(f, FAKE_VERB(ALLOC));
	uint64_t buffer = r->alloc->buffer;
	fake_lent(f, r->id, f->memfd, "");
	FAKE_CHECK(f, fake_expect(f, FAKE_VERB(DROP))->drop->buffer == buffer);
	r = fake_expect(f, FAKE_VERB(ALLOC));
	fake_lent(f, r->id, f->memfd, "");
	fake_expect_end(f);
}

/* If this process lacks descriptors, that is the answer to this call, and the connection stays. */
static void test_out_of_descriptors(void **state)
{
	struct fake *f = *state;
	struct rlimit limit, none_left;
	kops_buffer *b = NULL;
	f->memfd = fake_memfd(100);
	fake_start(f, script_lend_twice);
	kops *k = fake_open(f);
	int first_free = dup(f->memfd);
	close(first_free);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none_left = limit;
	none_left.rlim_cur = (rlim_t)first_free;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none_left), 0);
	int status = kops_alloc(k, 100, KOPS_SHARED, NULL, &b);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(status, KOPS_E_SYSTEM);
	assert_non_null(strstr(kops_error(k), "this process is out of file descriptors"));
	assert_null(b);
	assert_int_equal(kops_alloc(k, 100, KOPS_SHARED, NULL, &b), 0);
	kops_close(k);
	fake_stop(f);
}

static void script_import(struct fake *f)
{
	fake_greet(f);
	for (unsigned i = 0; i < 2; i++) {
		Kops__V1__Request *r = fake_expect(f, FAKE_VERB(IMPORT));
		FAKE_CHECK(f, r->import->buffer == i + 1 && r->import->bytes == 4096);
		FAKE_CHECK(f, r->import->read_only == (i == 1));
		FAKE_CHECK(f, f->n_fds == 1);
		FAKE_CHECK(f, pwrite(f->fds[0], "seen", 5, 0) == 5);
		fake_answer(f, r->id, 0, "");
	}
	fake_answer(f, fake_expect(f, FAKE_VERB(IMPORT))->id, KOPS_E_QUOTA, "over the limit");
	fake_expect_end(f);
}

static void test_import(void **state)
{
	struct fake *f = *state;
	kops_buffer *b, *read_only, *none = NULL;
	int fd = fake_memfd(4096);
	fake_start(f, script_import);
	kops *k = fake_open(f);
	assert_int_equal(kops_import(k, fd, 4096, 0, &b), 0);
	assert_string_equal(kops_data(b), "seen");
	assert_int_equal(kops_import(k, fd, 4096, KOPS_READ_ONLY, &read_only), 0);
	assert_int_equal(kops_import(k, fd, 4096, 0, &none), KOPS_E_QUOTA);
	close(fd);
	strcpy(kops_data(b), "mine"); /* the mapping outlives the descriptor */
	assert_string_equal(kops_data(read_only), "mine");
	assert_null(none);
	kops_close(k);
	fake_stop(f);
}

static void script_lend_and_end(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	fake_lend(f);
	fake_expect(f, FAKE_VERB(DROP));
	fake_expect_end(f);
}

static void test_a_private_copy(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_lend_and_end);
	kops *k = fake_open(f);
	kops_buffer *b = fake_alloc(k, 5000, KOPS_SHARED), *resident = fake_alloc(k, 64, KOPS_RESIDENT);
	char *data = kops_data(b);
	strcpy(data, "seen");
	data[4999] = 'x';
	assert_int_equal(kops_python_keep_private(b), 0);
	assert_ptr_equal(kops_data(b), data);
	assert_string_equal(data, "seen");
	assert_int_equal(data[4999], 'x');
	assert_int_equal(pwrite(f->memfd, "late", 4, 0), 4); /* as a job in flight does */
	assert_string_equal(data, "seen");
	strcpy(data, "mine");
	assert_int_equal(kops_python_keep_private(b), 0);
	assert_string_equal(data, "mine");
	assert_int_equal(kops_copy(k, fake_matrix(b, 0), fake_matrix(b, 32)), KOPS_E_STATE);
	assert_int_equal(kops_python_keep_private(resident), KOPS_E_INVALID);
	kops_free(b);
	assert_int_equal(msync(data, 4096, MS_ASYNC), -1); /* it is unmapped */
	kops_close(k);
	fake_stop(f);
}

static void script_nothing(struct fake *f)
{
	fake_greet(f);
	fake_expect_end(f);
}

static void test_import_says_what_is_wrong_with_it(void **state)
{
	struct fake *f = *state;
	kops_buffer *none = NULL;
	int pipes[2], sealed = fake_memfd(4096), unsealed = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), folder = open("/tmp", O_RDONLY | O_CLOEXEC);
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(ftruncate(unsealed, 4096), 0);
	fake_start(f, script_nothing);
	kops *k = fake_open(f);
	const struct {
		int fd;
		uint64_t bytes;
		const char *phrase;
	} rows[] = {
	    {-1, 4096, " failed: Bad file descriptor"},
	    {pipes[0], 4096, "is not a memfd"},
	    {file, 1, "is not a memfd"},
	    {folder, 1, "is not a memfd"},
	    {unsealed, 4096, "lacks seals"},
	    {sealed, 4097, "has 4096 bytes, expected at least 4097"},
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		assert_int_equal(kops_import(k, rows[i].fd, rows[i].bytes, 0, &none), KOPS_E_FD);
		if (!strstr(kops_error(k), rows[i].phrase))
			fail_msg("row %zu: %s", i, kops_error(k));
	}
	assert_int_equal(kops_import(k, sealed, 0, 0, &none), KOPS_E_INVALID);
	assert_int_equal(kops_import(k, sealed, 1, KOPS_RESIDENT, &none), KOPS_E_INVALID);
	kops_close(k);
	fake_stop(f);
	close(pipes[0]);
	close(pipes[1]);
	close(sealed);
	close(unsealed);
	close(file);
	close(folder);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_setup, fake_teardown)
	const struct CMUnitTest tests[] = {
	    TEST(test_alloc),
	    TEST(test_bad_lends_are_refused),
	    TEST(test_late_lend_is_given_back),
	    TEST(test_out_of_descriptors),
	    TEST(test_import),
	    TEST(test_a_private_copy),
	    TEST(test_import_says_what_is_wrong_with_it),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
