/* Tests published buffers and attachments: names, what freezes a buffer, what it counts as, and how long it
 * lives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "job/memory/published.h"
#include "job/uses.h"
#include "printable.h"
#include "unit/served.h"

enum { UID = 4321, OTHER = 4322, SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

static struct account *user, *other;
static char why[WHY_BYTES];

static int setup(void **state)
{
	(void)state;
	user = accounts_get(&kopsd->engine.accounts, UID);
	other = accounts_get(&kopsd->engine.accounts, OTHER);
	if (!user || !other)
		return -1;
	user->limits = account_limits_beside(&kopsd->engine.accounts, user, NULL, 0);
	return 0;
}

/* Checks that nothing of the test is left. */
static int teardown(void **state)
{
	struct engine *e = &kopsd->engine;

	(void)state;
	served_until(user->buffers == 0 && list_is_empty(&user->errands.waiting));
	served_until(other->buffers == 0 && list_is_empty(&other->errands.waiting));
	for (int kind = 0; kind < ACCOUNT_KINDS; kind++)
		assert_int_equal(e->accounts.bytes[kind], 0);
	assert_int_equal(user->published.n, 0);
	assert_null(user->published.by_name);
	assert_true(list_is_empty(&e->published.list));
	account_unref(&e->accounts, user);
	account_unref(&e->accounts, other);
	return 0;
}

static struct buffer *new_buffer(uint64_t bytes)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct buffer *b;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, SEALS), 0);
	assert_int_equal(buffer_import(&kopsd->engine, user, fd, bytes, false, &b, why), 0);
	return b;
}

static struct published *publish(struct buffer *b, const char *name)
{
	struct publishing how = {.name = name};
	struct published *p;

	assert_int_equal(published_add(b, &how, &p, why), 0);
	return p;
}

static void names(void **state)
{
	static const char *const good[] = {
	    "a", "0", "_", "-", "+", "...", ".a", "a.", "a/b", "A/b.c/d-e_f+0", "a/...", "..a/b.."};
	static const char *const bad[] = {"",     "/",        "a/",     "/a",  "a//b", ".",    "..",
	                                  "./a",  "a/.",      "a/../b", "a b", "a:b",  "a\\b", "a\n",
	                                  "\x7f", "\xc3\xa4", "a*",     "~",   "a@b"};
	char name[BUFFER_NAME_MAX + 2] = "";

	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
		assert_true(buffer_name_is_valid(good[i]));
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		assert_false(buffer_name_is_valid(bad[i]));
	memset(name, 'x', BUFFER_NAME_MAX);
	assert_true(buffer_name_is_valid(name));
	name[BUFFER_NAME_MAX] = 'x';
	assert_false(buffer_name_is_valid(name));
}

/* Names are found in any order of coming and going. */
static void many_names(void **state)
{
	enum { N = 200 };
	struct buffer *b = new_buffer(SERVED_PAGE);
	struct published *all[N];
	char name[16];

	(void)state;
	for (unsigned i = 0; i < N; i++) {
		snprintf(name, sizeof name, "n%u", i * 77 % N);
		all[i * 77 % N] = publish(b, name);
	}
	for (unsigned i = 0; i < N; i += 2)
		published_remove(all[i]);
	for (unsigned i = 0; i < N; i++) {
		snprintf(name, sizeof name, "n%u", i);
		assert_ptr_equal(published_find(user, name), i % 2 ? all[i] : NULL);
		assert_null(published_find(other, name));
	}
	assert_null(published_find(user, "m"));
	assert_null(published_find(user, "o"));
	assert_null(published_find(NULL, "n1"));
	assert_int_equal(b->n_names, N / 2);
	assert_int_equal(b->refs, 1 + N / 2);
	published_clear(&kopsd->engine);
	assert_int_equal(b->n_names, 0);
	buffer_unref(b);
}

static void a_limit_of_names(void **state)
{
	struct buffer *b = new_buffer(SERVED_PAGE);
	struct publishing how = {.name = "b"};
	struct published *p = NULL;

	(void)state;
	user->limits.max_published_per_uid = 1;
	publish(b, "a");
	assert_int_equal(published_add(b, &how, &p, why), KOPS_E_QUOTA);
	assert_string_equal(why, "you have published 1 buffers, the limit of a user; unpublish some, or have "
	                         "max-published-per-uid raised");
	how.name = "a";
	assert_int_equal(published_add(b, &how, &p, why), KOPS_E_EXISTS);
	assert_null(p);
	published_clear(&kopsd->engine);
	buffer_unref(b);
}

static void what_is_being_made_or_written(void **state)
{
	struct publishing how = {.name = "a"};
	struct published *p;
	struct buffer *b;

	(void)state;
	assert_int_equal(
	    buffer_resident(&kopsd->engine, user, kopsd->engine.devices[0].device, SERVED_PAGE, &b, why), 0);
	assert_int_equal(published_add(b, &how, &p, why), KOPS_E_BUSY);
	assert_non_null(strstr(why, "is still being made"));
	served_until(b->state == BUFFER_READY);
	b->writers_out = 1;
	assert_int_equal(published_add(b, &how, &p, why), KOPS_E_BUSY);
	b->writers_out = 0;
	assert_true(buffer_may_be_written(b));
	assert_int_equal(published_add(b, &how, &p, why), 0);
	assert_false(buffer_may_be_written(b));
	published_remove(p);
	assert_true(buffer_may_be_written(b));
	buffer_unref(b);
}

/* An attachment keeps memory alive, and its user is not charged for it. */
static void attachments(void **state)
{
	struct buffer *b = new_buffer(SERVED_PAGE + 1), *first, *second;

	(void)state;
	publish(b, "a");
	first = buffer_attach(b, other);
	second = buffer_attach(b, user);
	assert_ptr_equal(first->of, b);
	assert_int_equal(first->state, BUFFER_READY);
	assert_int_equal(first->memory.bytes, SERVED_PAGE + 1);
	assert_true(first->memory.read_only);
	assert_false(buffer_may_be_written(first));
	assert_int_equal(b->n_attached, 2);
	assert_int_equal(other->buffers, 1);
	assert_int_equal(other->bytes[ACCOUNT_MAPPED], 0);
	assert_int_equal(user->bytes[ACCOUNT_MAPPED], 2 * SERVED_PAGE);
	published_clear(&kopsd->engine);
	buffer_unref(b);
	assert_false(buffer_may_be_written(b));
	buffer_unref(second);
	served_until(user->buffers == 1);
	assert_int_equal(b->n_attached, 1);
	buffer_hold(first); /* a job */
	buffer_unref(first);
	assert_int_equal(b->state, BUFFER_READY);
	buffer_unref(first);
	served_until(user->bytes[ACCOUNT_MAPPED] == 0);
}

static void who_may_attach(void **state)
{
	gid_t groups[] = {7, 8};
	struct peer own = {.uid = UID}, colleague = {.uid = OTHER, .groups = groups, .n_groups = 2};
	struct peer stranger = {.uid = OTHER, .groups = groups, .n_groups = 1}, root = {.uid = 0};
	struct peer without = {.uid = OTHER, .groups = NULL};
	struct buffer *b = new_buffer(SERVED_PAGE);
	struct published *p = publish(b, "a");

	(void)state;
	for (unsigned access = KOPS_OWN_USER; access <= KOPS_EVERYBODY; access++) {
		p->access = (kops_access)access;
		p->group = 8;
		assert_true(published_is_for(p, &own));
		assert_true(published_is_for(p, &root));
		assert_int_equal(published_is_for(p, &colleague), access >= KOPS_GROUP);
		assert_int_equal(published_is_for(p, &stranger), access == KOPS_EVERYBODY);
		assert_int_equal(published_is_for(p, &without), access == KOPS_EVERYBODY);
	}
	groups[0] = KOPS_OVERFLOW_ID;
	p->access = KOPS_GROUP;
	p->group = KOPS_OVERFLOW_ID;
	assert_false(published_is_for(p, &stranger));
	published_remove(p);
	buffer_unref(b);
}

/* ---- Memory ---- */

static unsigned n_pins;

static int pin(void *host, uint64_t bytes, bool read_only)
{
	assert_non_null(host);
	assert_int_equal(bytes, 256 << 10);
	assert_false(read_only);
	n_pins++;
	return 0;
}

static void unpin(void *host, uint64_t bytes)
{
	(void)host;
	(void)bytes;
	n_pins--;
}

/* However many attach it, it is pinned once, and claimed once, at its publisher's expense. */
static void memory_is_the_publishers(void **state)
{
	static const struct driver pinning = {.pin = pin, .unpin = unpin};
	struct buffer *b = new_buffer(256 << 10), *attached;
	struct buffer_use list[2] = {{.reach_bytes = SERVED_PAGE}, {.reach_bytes = SERVED_PAGE}};
	struct uses uses = {.list = list, .n = 2};
	bool wants;

	(void)state;
	publish(b, "a");
	attached = buffer_attach(b, other);
	list[0].buffer = attached;
	list[1].buffer = b;
	kopsd->engine.pinning = &pinning;
	assert_int_equal(uses_start(&uses, &kopsd->engine, true, &wants, why), 0);
	assert_true(wants && list[0].pin && !list[1].pin);
	uses_pin(&uses, &pinning);
	assert_int_equal(n_pins, 1);
	assert_int_equal(b->memory.pin, MEMORY_PINNED);
	assert_int_equal(user->bytes[ACCOUNT_PINNED], 256 << 10);
	assert_int_equal(other->bytes[ACCOUNT_PINNED], 0);
	uses_end(&uses, true);
	assert_int_equal(uses_claim(&uses, false), 2 * SERVED_PAGE);
	assert_int_equal(b->reached_by_jobs, 2 * SERVED_PAGE);
	assert_int_equal(attached->reached_by_jobs, 0);
	uses.list[0].claimed_bytes = uses.list[1].claimed_bytes = 0;
	buffer_settle_pages(b, 2 * SERVED_PAGE);
	published_clear(&kopsd->engine);
	buffer_unref(attached);
	buffer_unref(b);
	served_until(user->buffers == 0);
	assert_int_equal(n_pins, 0);
	kopsd->engine.pinning = NULL;
}

static mode_t mode_of(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return st.st_mode & 0777;
}

static void descriptors_for_others_only_read(void **state)
{
	struct buffer *b = new_buffer(SERVED_PAGE);
	int fd;

	(void)state;
	publish(b, "a");
	assert_int_equal(mode_of(b->pages.fd), 0600);
	fd = buffer_open_for_reading(b);
	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_ptr_equal(mmap(NULL, SERVED_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	close(fd);
	published_clear(&kopsd->engine);
	buffer_unref(b);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
SERVED_MAIN(TEST(names), TEST(many_names), TEST(a_limit_of_names), TEST(what_is_being_made_or_written),
            TEST(attachments), TEST(who_may_attach), TEST(memory_is_the_publishers),
            TEST(descriptors_for_others_only_read))
