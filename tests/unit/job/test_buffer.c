/*
 * Tests memory that sessions name, by kind: what is accepted, whose it counts as, and that all of it is freed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "unit/served.h"

enum { UID = 4321, SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

static struct account *user;
static unsigned n_settled, n_gone;

static int setup(void **state)
{
	(void)state;
	user = accounts_get(&kopsd->engine.accounts, UID);
	n_settled = n_gone = 0;
	if (user)
		user->limits = account_limits_beside(&kopsd->engine.accounts, user, NULL, 0);
	return user ? 0 : -1;
}

/* Checks that nothing of the test is left. */
static int teardown(void **state)
{
	struct engine *e = &kopsd->engine;

	(void)state;
	served_until(user->buffers == 0 && list_is_empty(&user->errands.waiting));
	for (int kind = 0; kind < ACCOUNT_KINDS; kind++) {
		assert_int_equal(user->bytes[kind], 0);
		assert_int_equal(e->accounts.bytes[kind], 0);
	}
	assert_int_equal(e->n_buffers, 0);
	assert_int_equal(e->devices[0].device->stats.resident_bytes, 0);
	account_unref(&e->accounts, user);
	assert_int_equal(n_gone, 0);
	return 0;
}

static int memfd(uint64_t bytes, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static int import(int fd, uint64_t bytes, bool read_only, struct buffer **ret, char why[WHY_BYTES])
{
	why[0] = '\0';
	return buffer_import(&kopsd->engine, user, fd, bytes, read_only, ret, why);
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

/* ---- Imported ---- */

static void imports_are_mapped(void **state)
{
	int fd = memfd(SERVED_PAGE + 1, SEALS), own = dup(fd);
	char why[WHY_BYTES];
	struct buffer *b;

	(void)state;
	assert_int_equal(pwrite(own, "theirs", 6, 0), 6);
	assert_int_equal(import(fd, SERVED_PAGE + 1, false, &b, why), 0);
	assert_int_equal(b->state, BUFFER_READY);
	assert_int_equal(b->memory.bytes, SERVED_PAGE + 1);
	assert_false(b->memory.read_only);
	assert_memory_equal(b->memory.host, "theirs", 6);
	memcpy(b->memory.host, "ours", 4);
	assert_int_equal(user->buffers, 1);
	assert_int_equal(user->bytes[ACCOUNT_MAPPED], 2 * SERVED_PAGE);
	assert_int_equal(b->file_bytes, SERVED_PAGE + 1);
	assert_int_equal(b->memory.missing_bytes, SERVED_PAGE);
	buffer_unref(b);
	served_until(user->buffers == 0);
	served_until(!is_open(fd));
	char content[5] = "";
	assert_int_equal(pread(own, content, 4, 0), 4);
	assert_string_equal(content, "ours");
	close(own);
}

/* Refuses files that a client could shrink, and files that are no memory. */
static void files_that_are_no_good(void **state)
{
	static const struct {
		int seals;
		const char *why;
	} rows[] = {
	    {F_SEAL_GROW | F_SEAL_SEAL,
	     "the memfd lacks F_SEAL_SHRINK; add the seals with fcntl(fd, F_ADD_SEALS, …) first"},
	    {F_SEAL_SHRINK | F_SEAL_SEAL,
	     "the memfd lacks F_SEAL_GROW; add the seals with fcntl(fd, F_ADD_SEALS, …) first"},
	    {F_SEAL_SHRINK | F_SEAL_GROW,
	     "the memfd lacks F_SEAL_SEAL; add the seals with fcntl(fd, F_ADD_SEALS, …) first"},
	};
	char why[WHY_BYTES];
	struct buffer *b = NULL;
	int fd;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		fd = memfd(SERVED_PAGE, rows[i].seals);
		assert_int_equal(import(fd, SERVED_PAGE, false, &b, why), KOPS_E_FD);
		assert_string_equal(why, rows[i].why);
		served_until(!is_open(fd));
	}
	fd = memfd(SERVED_PAGE, SEALS);
	assert_int_equal(import(fd, SERVED_PAGE + 1, false, &b, why), KOPS_E_FD);
	assert_string_equal(why, "the memfd has 4096 bytes, expected at least 4097");
	served_until(!is_open(fd));
	fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	assert_int_equal(import(fd, SERVED_PAGE, false, &b, why), KOPS_E_FD);
	assert_non_null(strstr(why, "the descriptor is not a memfd"));
	served_until(!is_open(fd));
	assert_null(b);
	assert_int_equal(user->buffers, 0);
}

/* Opens the file anew. */
static int reopen(int fd, int flags)
{
	char path[64];
	int ret;

	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	ret = open(path, flags | O_CLOEXEC);
	assert_true(ret >= 0);
	close(fd);
	return ret;
}

static void what_may_not_be_written(void **state)
{
	char why[WHY_BYTES];
	struct buffer *b;

	(void)state;
	assert_int_equal(import(memfd(SERVED_PAGE, SEALS), SERVED_PAGE, true, &b, why), 0);
	assert_true(b->memory.read_only);
	buffer_unref(b);
	assert_int_equal(import(memfd(SERVED_PAGE, SEALS | F_SEAL_WRITE), SERVED_PAGE, false, &b, why), 0);
	assert_true(b->memory.read_only);
	buffer_unref(b);
	assert_int_equal(import(reopen(memfd(SERVED_PAGE, SEALS), O_RDONLY), SERVED_PAGE, false, &b, why), 0);
	assert_true(b->memory.read_only);
	buffer_unref(b);
	assert_int_equal(import(reopen(memfd(SERVED_PAGE, SEALS), O_WRONLY), SERVED_PAGE, false, &b, why),
	                 KOPS_E_FD);
	assert_string_equal(why, "the descriptor is write-only");
}

/* ---- Limits ---- */

static void a_user_maps_so_much(void **state)
{
	char why[WHY_BYTES];
	struct buffer *b;

	(void)state;
	user->limits.max_mapped_per_uid = 2 * SERVED_PAGE;
	assert_int_equal(import(memfd(3 * SERVED_PAGE, SEALS), 2 * SERVED_PAGE + 1, false, &b, why),
	                 KOPS_E_QUOTA);
	assert_int_equal(user->bytes[ACCOUNT_MAPPED], 0);
	assert_int_equal(import(memfd(3 * SERVED_PAGE, SEALS), 2 * SERVED_PAGE, false, &b, why), 0);
	buffer_unref(b);
}

static void a_device_has_so_much(void **state)
{
	struct device *device = kopsd->engine.devices[0].device;
	struct device_info small = *device->info;
	const struct device_info *before = device->info;
	char why[WHY_BYTES];
	struct buffer *b, *more;

	(void)state;
	small.memory_bytes = 3 * SERVED_PAGE;
	device->info = &small;
	assert_int_equal(buffer_resident(&kopsd->engine, user, device, 2 * SERVED_PAGE, &b, why), 0);
	assert_int_equal(buffer_resident(&kopsd->engine, user, device, SERVED_PAGE + 1, &more, why),
	                 KOPS_E_NOMEM);
	assert_string_equal(why,
	                    "cpu has 12288 bytes, of which RESIDENT buffers use 8192; 4097 more do not fit");
	assert_int_equal(buffer_resident(&kopsd->engine, user, device, SERVED_PAGE, &more, why), 0);
	assert_int_equal(user->bytes[ACCOUNT_RESIDENT], 3 * SERVED_PAGE);
	served_until(b->state == BUFFER_READY && more->state == BUFFER_READY);
	buffer_unref(b);
	buffer_unref(more);
	served_until(user->buffers == 0);
	device->info = before;
}

/* ---- Lent and RESIDENT ---- */

static void settled(struct buffer *b)
{
	n_settled++;
	assert_true(b->state == BUFFER_READY || b->state == BUFFER_FAILED);
}

static void gone(struct buffer *b)
{
	assert_int_equal(b->account->buffers, 0); /* it does not count any more */
	n_gone++;
}

static struct buffer *lend(uint64_t bytes)
{
	char why[WHY_BYTES];
	struct buffer *b;

	assert_int_equal(buffer_lend(&kopsd->engine, user, bytes, &b, why), 0);
	return b;
}

static struct buffer *resident(uint64_t bytes)
{
	char why[WHY_BYTES];
	struct buffer *b;

	assert_int_equal(buffer_resident(&kopsd->engine, user, kopsd->engine.devices[0].device, bytes, &b, why),
	                 0);
	assert_int_equal(b->state, BUFFER_PENDING);
	return b;
}

static void is_zero(const char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		assert_int_equal(bytes[i], 0);
}

static void lent_memory_is_zero_and_counts(void **state)
{
	struct buffer *b = lend(SERVED_PAGE + 1);

	(void)state;
	if (b->state == BUFFER_PENDING) {
		assert_int_equal(b->refs, 2);
		b->settled = settled;
		served_until(b->state != BUFFER_PENDING);
		assert_int_equal(n_settled, 1);
	}
	assert_int_equal(b->refs, 1);
	assert_int_equal(user->bytes[ACCOUNT_MAPPED], pool_segment_bytes(SERVED_PAGE + 1));
	assert_int_equal(b->file_bytes, pool_segment_bytes(SERVED_PAGE + 1));
	is_zero(b->memory.host, SERVED_PAGE + 1);
	b->gone = gone;
	b->is_dropped = true;
	buffer_unref(b);
	served_until(n_gone == 1);
	n_gone = 0;
}

static void resident_memory_is_zero_and_counts(void **state)
{
	struct device_stats *stats = &kopsd->engine.devices[0].device->stats;
	struct buffer *b = resident(SERVED_PAGE);

	(void)state;
	assert_ptr_equal(b->memory.owner, kopsd->engine.devices[0].device->dev);
	assert_int_equal(b->refs, 2);
	assert_int_equal(stats->resident_bytes, SERVED_PAGE);
	b->settled = settled;
	served_until(b->state != BUFFER_PENDING);
	assert_int_equal(n_settled, 1);
	assert_int_equal(b->state, BUFFER_READY);
	assert_int_equal(b->refs, 1);
	assert_null(b->memory.host);
	is_zero(b->memory.device, SERVED_PAGE);
	b->gone = gone;
	buffer_unref(b);
	assert_int_equal(b->state, BUFFER_RELEASING);
	served_until(n_gone == 1);
	n_gone = 0;
}

/* A buffer is made while anybody waits for it. */
static void making_ends_when_nobody_wants_it(void **state)
{
	struct buffer *b = resident(64 << 20);

	(void)state;
	b->settled = settled;
	b->refs++; /* a job's reference */
	buffer_unref(b);
	assert_false(b->task.cancelled);
	buffer_unref(b);
	assert_false(b->task.cancelled); /* a client waits for an answer */
	buffer_forget_session(b);
	assert_true(b->task.cancelled);
	served_until(user->buffers == 0);
	assert_int_equal(n_settled, 0);
}

/* Unlike dropped memory, what a session leaves behind stays its user's while the user has the file. */
static void a_client_finds_its_content_again(void **state)
{
	struct buffer *b = lend(SERVED_PAGE), *again;
	char why[WHY_BYTES];
	int fd;

	(void)state;
	served_until(b->state == BUFFER_READY);
	fd = pool_open_for_client(b->segment);
	assert_false(buffer_is_kept(&kopsd->engine, user, fd));
	memcpy(b->memory.host, "kept", 5);
	buffer_unref(b);
	assert_true(buffer_is_kept(&kopsd->engine, user, fd));
	assert_int_equal(user->bytes[ACCOUNT_MAPPED], pool_segment_bytes(SERVED_PAGE));
	assert_int_equal(import(dup(fd), SERVED_PAGE, false, &again, why), 0);
	served_until(user->buffers == 1);
	assert_string_equal(again->memory.host, "kept");
	assert_false(buffer_is_kept(&kopsd->engine, user, fd));
	assert_int_equal(user->bytes[ACCOUNT_MAPPED], pool_segment_bytes(SERVED_PAGE));
	close(fd);
	again->is_dropped = true;
	buffer_unref(again);
}

/* ---- Pages of jobs ---- */

static void jobs_claim_the_pages_that_they_may_touch(void **state)
{
	int fd = memfd(8 * SERVED_PAGE, SEALS);
	char why[WHY_BYTES];
	struct buffer *b;

	(void)state;
	assert_int_equal(import(fd, 7 * SERVED_PAGE + 1, false, &b, why), 0);
	assert_int_equal(buffer_claim_pages(b, 2 * SERVED_PAGE), 2 * SERVED_PAGE);
	assert_int_equal(buffer_claim_pages(b, 3 * SERVED_PAGE), 3 * SERVED_PAGE);
	assert_int_equal(b->pages.bytes, 5 * SERVED_PAGE);
	buffer_claim_pages(b, 4 * SERVED_PAGE); /* both may use the same pages, so there are no more */
	assert_int_equal(b->pages.bytes, 8 * SERVED_PAGE);
	buffer_settle_pages(b, 3 * SERVED_PAGE);
	assert_int_equal(b->pages.bytes, 6 * SERVED_PAGE);
	buffer_settle_pages(b, 6 * SERVED_PAGE);
	assert_int_equal(b->pages.bytes, 0);
	buffer_unref(b);
}

static unsigned n_short;

static void memory_is_short(struct engine *e)
{
	(void)e;
	n_short++;
}

/* Memory is ample as far as it was at the last look. Jobs learn when it is less. */
static void memory_is_ample_up_to_a_limit(void **state)
{
	struct engine *e = &kopsd->engine;
	void (*before)(struct engine * engine) = e->memory_is_short;
	struct buffer *b;
	char why[WHY_BYTES];

	(void)state;
	assert_int_equal(import(memfd(SERVED_PAGE, SEALS), SERVED_PAGE, false, &b, why), 0);
	e->memory_is_short = memory_is_short;
	n_short = 0;
	e->looked_at_memory_ms = uv_now(&kopsd->loop);
	e->ample_bytes = SERVED_PAGE;
	assert_true(engine_memory_is_ample(e));
	assert_int_equal(n_short, 0);
	e->ample_bytes = SERVED_PAGE - 1;
	assert_false(engine_memory_is_ample(e));
	assert_int_equal(n_short, 1);
	assert_false(engine_memory_is_ample(e));
	assert_int_equal(n_short, 1);
	e->looked_at_memory_ms -= 1000; /* so that it looks again */
	assert_true(engine_memory_is_ample(e));
	assert_true(e->ample_bytes > SERVED_PAGE);
	e->memory_is_short = before;
	buffer_unref(b);
}

/* ---- Pinning ---- */

static int pin_result;
static unsigned n_pins, n_unpins;

static int pin(void *host, uint64_t bytes, bool read_only)
{
	assert_non_null(host);
	assert_int_equal(bytes, 256 << 10);
	assert_false(read_only);
	n_pins++;
	return pin_result;
}

static void unpin(void *host, uint64_t bytes)
{
	assert_non_null(host);
	assert_int_equal(bytes, 256 << 10);
	n_unpins++;
}

static const struct driver pinning = {.pin = pin, .unpin = unpin};

static void large_buffers_are_pinned(void **state)
{
	const uint64_t large = 256 << 10;
	char why[WHY_BYTES];
	struct buffer *b, *small, *other;

	(void)state;
	n_pins = n_unpins = 0;
	pin_result = 0;
	assert_int_equal(import(memfd(large, SEALS), large, false, &b, why), 0);
	assert_int_equal(import(memfd(large, SEALS), large - 1, false, &small, why), 0);
	assert_int_equal(import(memfd(large, SEALS), large, false, &other, why), 0);
	assert_false(buffer_wants_pin(b)); /* no device can */
	kopsd->engine.pinning = &pinning;
	user->limits.max_pinned_per_uid = large;
	assert_false(buffer_wants_pin(small));
	assert_true(buffer_wants_pin(b));
	assert_int_equal(user->bytes[ACCOUNT_PINNED], large);
	assert_false(buffer_wants_pin(b)); /* another job pins it */
	assert_false(buffer_wants_pin(other));
	buffer_pin(b, &pinning);
	buffer_pin(b, &pinning);
	assert_int_equal(n_pins, 1);
	assert_int_equal(b->memory.pin, MEMORY_PINNED);
	buffer_settle_pin(b);
	assert_int_equal(user->bytes[ACCOUNT_PINNED], large);
	buffer_unref(b);
	served_until(user->bytes[ACCOUNT_PINNED] == 0);
	assert_int_equal(n_unpins, 1);
	pin_result = KOPS_E_NOMEM;
	assert_true(buffer_wants_pin(other));
	buffer_pin(other, &pinning);
	assert_int_equal(other->memory.pin, MEMORY_PAGEABLE);
	buffer_settle_pin(other);
	assert_int_equal(user->bytes[ACCOUNT_PINNED], 0);
	buffer_unref(small);
	buffer_unref(other);
	served_until(user->buffers == 0);
	assert_int_equal(n_unpins, 1);
	kopsd->engine.pinning = NULL;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
SERVED_MAIN(TEST(imports_are_mapped), TEST(files_that_are_no_good), TEST(what_may_not_be_written),
            TEST(a_user_maps_so_much), TEST(a_device_has_so_much), TEST(lent_memory_is_zero_and_counts),
            TEST(resident_memory_is_zero_and_counts), TEST(making_ends_when_nobody_wants_it),
            TEST(a_client_finds_its_content_again), TEST(jobs_claim_the_pages_that_they_may_touch),
            TEST(memory_is_ample_up_to_a_limit), TEST(large_buffers_are_pinned))
