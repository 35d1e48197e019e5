/* Tests lent memory: sealed, zeroed, never another user's, with a bounded cache. Uses a real loop. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "job/memory/pool.h"
#include "unit/fake_host.h"

#define KIB 1024ull
#define MIB (1024 * KIB)

struct fixture {
	uv_loop_t loop;
	struct turns turns;
	struct config config;
	struct sched sched;
	struct accounts accounts;
	struct account *user, *other;
	struct workers *workers;
	struct task_flow flow;
	struct pool *pool;
	struct segment *got;
	int status;
	unsigned answers;
};

static void on_ready(struct segment *segment, int status, void *arg)
{
	struct fixture *f = arg;

	f->got = status == 0 ? segment : NULL;
	f->status = status;
	f->answers++;
}

#define CACHE_SEGMENTS 100

/* The test's waiters have no sockets. */
static void unwatch(struct turns_waiter *waiter)
{
	(void)waiter;
}

static void open_pool(struct fixture *f, const struct driver *gpu, uint64_t warm_bytes, uint64_t cache_bytes)
{
	char why[WHY_BYTES];

	memset(f, 0, sizeof *f);
	uv_loop_init(&f->loop);
	turns_init(&f->turns, &f->loop, NULL, unwatch);
	f->accounts = (struct accounts){.config = &f->config, .sched = &f->sched, .turns = &f->turns};
	accounts_init(&f->accounts);
	f->user = accounts_get(&f->accounts, 1);
	f->other = accounts_get(&f->accounts, 2);
	assert_int_equal(workers_start(&f->loop, workers_by_cpus(2), workers_by_cpus(2), &f->workers, why), 0);
	f->pool = pool_new(&f->loop, &f->accounts, f->workers, gpu, warm_bytes, cache_bytes, CACHE_SEGMENTS);
	assert_non_null(f->pool);
}

static void settle(struct fixture *f)
{
	while (workers_are_busy(f->workers) || turns_are_wanted(&f->turns))
		uv_run(&f->loop, UV_RUN_ONCE);
}

static void close_pool(struct fixture *f)
{
	settle(f);
	pool_free(f->pool);
	workers_stop(f->workers);
	account_unref(&f->accounts, f->user);
	account_unref(&f->accounts, f->other);
	accounts_clear(&f->accounts);
	uv_close((uv_handle_t *)&f->turns.check, NULL);
	uv_close((uv_handle_t *)&f->turns.idle, NULL);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&f->loop), 0);
}

static void on_released(void *arg)
{
	++*(unsigned *)arg;
}

/* Returns once the memory that was given back is zeroed and kept, or gone. */
static void take_back(struct fixture *f, struct segment *s)
{
	unsigned released = 0;

	pool_take_back(s, &f->flow, on_released, &released);
	assert_int_equal(released, 0);
	settle(f);
	assert_int_equal(released, 1);
}

/* Lends memory, at once or after a while. */
static struct segment *lend(struct fixture *f, uid_t uid, uint64_t bytes)
{
	unsigned before = f->answers;
	bool ready;
	struct segment *s = pool_lend(f->pool, uid, &f->flow, bytes, true, on_ready, f, &ready);

	assert_non_null(s);
	if (ready)
		return s;
	while (f->answers == before)
		uv_run(&f->loop, UV_RUN_ONCE);
	assert_int_equal(f->status, 0);
	return f->got;
}

static bool is_zero(const struct segment *s)
{
	const unsigned char *p = s->map;

	return p[0] == 0 && memcmp(p, p + 1, s->bytes - 1) == 0;
}

static ino_t inode(const struct segment *s)
{
	struct stat st;

	assert_int_equal(fstat(s->fd, &st), 0);
	return st.st_ino;
}

static void test_sealed_touched_and_zeroed(void **state)
{
	static const uint64_t sizes[] = {1, 64 * KIB, 64 * KIB + 1, 3 * MIB, 64 * MIB, 64 * MIB + 1};
	static const uint64_t taken[] = {64 * KIB, 64 * KIB, 128 * KIB, 4 * MIB, 64 * MIB, 66 * MIB};
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	struct fixture f;

	(void)state;
	open_pool(&f, NULL, 0, 0);
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		struct segment *s = lend(&f, 1, sizes[i]);
		struct stat st;
		assert_int_equal(pool_segment_bytes(sizes[i]), taken[i]);
		assert_int_equal(s->bytes, taken[i]);
		assert_int_equal(pool_bytes(f.pool), taken[i]);
		assert_int_equal(fstat(s->fd, &st), 0);
		assert_int_equal(st.st_size, taken[i]);
		assert_int_equal(st.st_blocks * 512, taken[i]);
		assert_int_equal(fcntl(s->fd, F_GET_SEALS) & seals, seals);
		assert_int_equal(ftruncate(s->fd, 0), -1);
		assert_true(is_zero(s));
		take_back(&f, s);
		assert_int_equal(pool_bytes(f.pool), 0);
	}
	close_pool(&f);
}

static void test_a_segment_stays_with_its_user(void **state)
{
	struct fixture f;
	struct segment *s, *other;
	ino_t first;

	(void)state;
	open_pool(&f, NULL, 0, MIB);
	s = lend(&f, 1, 100);
	first = inode(s);
	memset(s->map, 0xc5, s->bytes);
	take_back(&f, s);

	other = lend(&f, 2, 100);
	assert_int_not_equal(inode(other), first);
	assert_true(is_zero(other));

	s = lend(&f, 1, 200);
	assert_int_equal(inode(s), first);
	assert_true(is_zero(s));
	take_back(&f, s);
	take_back(&f, other);
	close_pool(&f);
}

/* The uid of users that this user namespace does not know may stand for several. */
static void test_a_uid_of_several_users(void **state)
{
	struct fixture f;
	struct segment *s;

	(void)state;
	open_pool(&f, NULL, 0, MIB);
	s = lend(&f, 65534, 100);
	memset(s->map, 0xc5, s->bytes);
	take_back(&f, s);
	assert_int_equal(pool_bytes(f.pool), 0);
	close_pool(&f);
}

/* Memory that is being zeroed is not lent. */
static void test_not_lent_while_being_zeroed(void **state)
{
	struct fixture f;
	struct segment *s, *again;
	unsigned released = 0;
	ino_t first;

	(void)state;
	open_pool(&f, NULL, 0, 256 * MIB);
	s = lend(&f, 1, 32 * MIB);
	first = inode(s);
	memset(s->map, 0xc5, s->bytes);
	pool_take_back(s, &f.flow, on_released, &released);
	again = lend(&f, 1, 32 * MIB);
	assert_true(is_zero(again));
	if (inode(again) == first)
		assert_ptr_equal(again, s);
	take_back(&f, again);
	assert_int_equal(released, 1);
	close_pool(&f);
}

static void test_cache_is_trimmed_oldest_first(void **state)
{
	struct fixture f;
	struct segment *s[4];
	ino_t inodes[4];

	(void)state;
	open_pool(&f, NULL, 0, 2 * MIB);
	for (int i = 0; i < 4; i++) {
		s[i] = lend(&f, 1, MIB);
		inodes[i] = inode(s[i]);
	}
	assert_int_equal(pool_bytes(f.pool), 4 * MIB);
	for (int i = 0; i < 4; i++) {
		take_back(&f, s[i]);
	}
	assert_int_equal(pool_bytes(f.pool), 2 * MIB);
	s[0] = lend(&f, 1, MIB);
	s[1] = lend(&f, 1, MIB);
	assert_int_equal(inode(s[0]), inodes[3]);
	assert_int_equal(inode(s[1]), inodes[2]);
	take_back(&f, s[0]);
	take_back(&f, s[1]);
	pool_set_cache(f.pool, MIB);
	settle(&f);
	assert_int_equal(pool_bytes(f.pool), MIB);
	pool_set_cache(f.pool, 0);
	settle(&f);
	assert_int_equal(pool_bytes(f.pool), 0);
	close_pool(&f);
}

/* The latest segment that was given back is lent, whatever others gave back since. */
static void test_the_cache_finds_by_user_and_size(void **state)
{
	enum { N = 4 };
	static const uint64_t sizes[N] = {64 * KIB, 128 * KIB, 64 * KIB, 64 * KIB};
	static const uid_t uids[N] = {1, 1, 2, 1};
	struct fixture f;
	struct segment *s[N];
	ino_t inodes[N];

	(void)state;
	open_pool(&f, NULL, 0, MIB);
	for (int i = 0; i < N; i++)
		s[i] = lend(&f, uids[i], sizes[i]);
	for (int i = 0; i < N; i++) {
		inodes[i] = inode(s[i]);
		take_back(&f, s[i]);
	}
	assert_int_equal(inode(s[3] = lend(&f, 1, 64 * KIB)), inodes[3]);
	assert_int_equal(inode(s[1] = lend(&f, 1, 128 * KIB)), inodes[1]);
	assert_int_equal(inode(s[0] = lend(&f, 1, 64 * KIB)), inodes[0]);
	assert_int_equal(inode(s[2] = lend(&f, 2, 64 * KIB)), inodes[2]);
	assert_int_equal(pool_bytes(f.pool), (64 + 128 + 64 + 64) * KIB);
	for (int i = 0; i < N; i++)
		take_back(&f, s[i]);
	close_pool(&f);
}

/* More than a turn's work is done in several turns. */
static void test_a_large_segment_takes_the_place_of_many(void **state)
{
	enum { N = 64 };
	struct fixture f;
	struct segment *s[N], *large;

	(void)state;
	open_pool(&f, NULL, 0, N * 64 * KIB);
	large = lend(&f, 1, N * 64 * KIB);
	for (int i = 0; i < N; i++)
		s[i] = lend(&f, 1, 64 * KIB);
	for (int i = 0; i < N; i++)
		take_back(&f, s[i]);
	assert_int_equal(pool_bytes(f.pool), 2 * N * 64 * KIB);
	take_back(&f, large);
	settle(&f);
	assert_int_equal(pool_bytes(f.pool), N * 64 * KIB);
	assert_ptr_equal(lend(&f, 1, N * 64 * KIB), large);
	take_back(&f, large);
	close_pool(&f);
}

/* The number is bounded, since each has a descriptor. */
static void test_cache_is_bounded_in_number(void **state)
{
	struct fixture f;
	struct segment *s[CACHE_SEGMENTS + 5];

	(void)state;
	open_pool(&f, NULL, 0, 1024 * MIB);
	for (int i = 0; i < CACHE_SEGMENTS + 5; i++)
		s[i] = lend(&f, 1, 64 * KIB);
	for (int i = 0; i < CACHE_SEGMENTS + 5; i++)
		take_back(&f, s[i]);
	assert_int_equal(pool_bytes(f.pool), CACHE_SEGMENTS * 64 * KIB);
	close_pool(&f);
}

/* Looks once at all segments that the user keeps. Returns how many were free. */
static unsigned look_at_all(struct fixture *f, struct account *a)
{
	unsigned n = a->kept.n, unheld = 0;

	while (n-- > 0)
		unheld += pool_look(f->pool, a);
	return unheld;
}

static struct segment *adopt(struct fixture *f, struct account *a, dev_t device, ino_t number)
{
	struct segment *s = NULL;

	assert_int_equal(pool_adopt(f->pool, a, device, number, &s), 0);
	return s;
}

/*
 * A segment that a session's end left with its client stays the client's, with its content, while anybody has
 * it.
 */
static void test_kept_while_somebody_has_it(void **state)
{
	struct fixture f;
	struct segment *s, *again;
	struct stat st;
	unsigned released = 0;
	void *map;
	int fd;

	(void)state;
	open_pool(&f, NULL, 0, MIB);
	s = lend(&f, 1, MIB);
	fd = pool_open_for_client(s);
	assert_true(fd >= 0);
	map = mmap(NULL, s->bytes, PROT_READ, MAP_SHARED, fd, 0);
	memset(s->map, 0xc5, s->bytes);
	pool_let_go(s, f.user, on_released, &released);
	settle(&f);
	assert_int_equal(f.user->kept.n, 1);
	assert_int_equal(look_at_all(&f, f.user), 0);
	assert_int_equal(fstat(fd, &st), 0);
	close(fd);
	assert_int_equal(look_at_all(&f, f.user), 0);
	assert_int_equal(released, 0);
	assert_int_equal(pool_bytes(f.pool), MIB);
	assert_int_equal(((unsigned char *)map)[4711], 0xc5);

	assert_false(pool_keeps(f.pool, f.other, st.st_dev, st.st_ino));
	assert_null(adopt(&f, f.other, st.st_dev, st.st_ino));
	assert_null(adopt(&f, f.user, st.st_dev + 1, st.st_ino));
	assert_true(pool_keeps(f.pool, f.user, st.st_dev, st.st_ino));
	again = adopt(&f, f.user, st.st_dev, st.st_ino);
	assert_ptr_equal(again, s);
	assert_int_equal(released, 1);
	assert_int_equal(((unsigned char *)again->map)[4711], 0xc5);
	assert_null(adopt(&f, f.user, st.st_dev, st.st_ino));

	pool_let_go(again, f.user, on_released, &released);
	settle(&f);
	munmap(map, MIB);
	assert_int_equal(look_at_all(&f, f.user), 1);
	assert_int_equal(released, 2);
	settle(&f);
	assert_int_equal(pool_bytes(f.pool), 0);
	close_pool(&f);
}

static void keep_many(struct fixture *f, struct account *a, unsigned n, unsigned *released)
{
	for (unsigned i = 0; i < n; i++)
		pool_let_go(lend(f, a->uid, 64 * KIB), a, on_released, released);
	while (workers_are_busy(f->workers))
		uv_run(&f->loop, UV_RUN_ONCE);
}

/* Lets go of memory that a client still has open; returns the client's descriptor. */
static int keep_held(struct fixture *f, struct account *a, unsigned *released)
{
	struct segment *held = lend(f, a->uid, 64 * KIB);
	int fd = pool_open_for_client(held);

	pool_let_go(held, a, on_released, released);
	return fd;
}

/* Each time after at least twice as long. */
static void test_what_stays_is_looked_at_less_and_less(void **state)
{
	struct fixture f;
	unsigned released = 0, looks = 0;
	uint64_t wait_ms;
	int fd;

	(void)state;
	open_pool(&f, NULL, 0, 0);
	fd = keep_held(&f, f.user, &released);
	settle(&f);
	pool_look_soon(f.pool, f.user);
	wait_ms = f.user->kept.wait_ms;
	assert_true(wait_ms > 0);
	uv_ref((uv_handle_t *)&f.turns.check);
	while (looks < 4) {
		uv_run(&f.loop, UV_RUN_ONCE);
		if (f.user->kept.wait_ms == wait_ms)
			continue;
		assert_true(f.user->kept.wait_ms >= 2 * wait_ms);
		wait_ms = f.user->kept.wait_ms;
		looks++;
	}
	close(fd);
	pool_look_soon(f.pool, f.user);
	while (f.user->kept.n > 0)
		uv_run(&f.loop, UV_RUN_ONCE);
	assert_int_equal(released, 1);
	uv_unref((uv_handle_t *)&f.turns.check);
	close_pool(&f);
}

/* The timer looks at them, as an errand of their user and of nobody else. */
static void test_many_kept_are_looked_at_by_and_by(void **state)
{
	enum { N = 100 };
	struct fixture f;
	unsigned released = 0;
	int fd;

	(void)state;
	open_pool(&f, NULL, 0, 0);
	fd = keep_held(&f, f.other, &released);
	keep_many(&f, f.user, N, &released);
	uv_ref((uv_handle_t *)&f.turns.check);
	while (f.user->kept.n > 0)
		uv_run(&f.loop, UV_RUN_ONCE);
	assert_true(f.user->turns.party.vtime > 0);
	assert_int_equal(released, N);
	assert_int_equal(f.other->kept.n, 1);
	close(fd);
	pool_look_soon(f.pool, f.other);
	while (f.other->kept.n > 0)
		uv_run(&f.loop, UV_RUN_ONCE);
	assert_int_equal(released, N + 1);
	uv_unref((uv_handle_t *)&f.turns.check);
	close_pool(&f);
}

/* A turn looks at few segments, but a stop of kopsd at all that are left. */
static void test_a_turn_looks_at_few(void **state)
{
	enum { N = 100 };
	struct fixture f;
	unsigned released = 0;
	struct errands *errands;

	(void)state;
	open_pool(&f, NULL, 0, 0);
	errands = &f.user->errands;
	turns_hold(&f.user->turns, TURNS_CLOSING); /* it gets no turn meanwhile, however long this takes */
	keep_many(&f, f.user, N, &released);
	pool_look_soon(f.pool, f.user);
	while (f.user->kept.left < N)
		uv_run(&f.loop, UV_RUN_ONCE);
	f.turns.began_ns = UINT64_MAX / 2;
	released = 0;
	errands->waiter.take(&errands->waiter);
	assert_in_range(released, 1, ERRANDS_STEPS);
	errands_finish(errands);
	assert_int_equal(f.user->kept.n, 0);
	turns_release(&f.turns, &f.user->turns, TURNS_CLOSING);
	close_pool(&f);
}

/* A cancelled request's memory is freed. */
static void test_cancelled(void **state)
{
	struct fixture f;
	struct segment *s;
	bool ready;

	(void)state;
	open_pool(&f, NULL, 0, 1024 * MIB);
	s = pool_lend(f.pool, 1, &f.flow, 512 * MIB, true, on_ready, &f, &ready);
	assert_false(ready);
	usleep(10000); /* by now it has begun, and not ended */
	uv_run(&f.loop, UV_RUN_NOWAIT);
	pool_cancel(s);
	settle(&f);
	assert_int_equal(f.answers, 1);
	assert_int_equal(f.status, KOPS_E_CANCELLED);
	assert_int_equal(pool_bytes(f.pool), 0);
	close_pool(&f);
}

/* A user who waits for much memory delays nobody who waits for little. */
static void test_users_share_the_threads(void **state)
{
	struct fixture f;
	struct task_flow other = {0};
	struct segment *large[8], *small;
	bool ready;

	(void)state;
	open_pool(&f, NULL, 0, 0);
	for (int i = 0; i < 8; i++)
		large[i] = pool_lend(f.pool, 1, &f.flow, 64 * MIB, true, on_ready, &f, &ready);
	f.answers = 0;
	small = pool_lend(f.pool, 2, &other, MIB, true, on_ready, &f, &ready);
	while (f.answers == 0)
		uv_run(&f.loop, UV_RUN_ONCE);
	assert_ptr_equal(f.got, small);
	settle(&f);
	assert_int_equal(f.answers, 9);
	for (int i = 0; i < 8; i++)
		take_back(&f, large[i]);
	take_back(&f, small);
	close_pool(&f);
}

static void test_too_large_for_the_cache(void **state)
{
	struct fixture f;

	(void)state;
	open_pool(&f, NULL, 0, MIB);
	take_back(&f, lend(&f, 1, 2 * MIB));
	assert_int_equal(pool_bytes(f.pool), 0);
	close_pool(&f);
}

static void test_warm_segments_are_lent_at_once_and_made_again(void **state)
{
	struct fixture f;
	struct segment *s[8];
	bool ready;

	(void)state;
	open_pool(&f, NULL, 4 * (64 + 128) * KIB, 0);
	settle(&f);
	assert_int_equal(pool_bytes(f.pool), 4 * (64 + 128) * KIB);
	for (int i = 0; i < 4; i++) {
		s[i] = pool_lend(f.pool, 1, &f.flow, 100 * KIB, true, on_ready, &f, &ready);
		assert_true(ready);
		assert_true(is_zero(s[i]));
		for (int j = 0; j < i; j++)
			assert_int_not_equal(inode(s[i]), inode(s[j]));
	}
	settle(&f);
	for (int i = 4; i < 8; i++) {
		s[i] = pool_lend(f.pool, 2, &f.flow, 100 * KIB, true, on_ready, &f, &ready);
		assert_true(ready);
	}
	for (int i = 0; i < 8; i++)
		take_back(&f, s[i]);
	assert_int_equal(pool_bytes(f.pool), 4 * (64 + 128) * KIB);
	close_pool(&f);
}

static void test_one_that_cannot_be_made(void **state)
{
	struct fixture f;
	bool ready;

	(void)state;
	open_pool(&f, NULL, 0, 0);
	assert_non_null(pool_lend(f.pool, 1, &f.flow, 1ull << 46, true, on_ready, &f, &ready));
	assert_false(ready);
	settle(&f);
	assert_int_equal(f.answers, 1);
	assert_null(f.got);
	assert_int_equal(f.status, KOPS_E_NOMEM);
	assert_int_equal(pool_bytes(f.pool), 0);
	close_pool(&f);
}

/* ---- With a simulated GPU that counts pins ---- */

static int pins, refuse_pins;
static uint64_t pinned_bytes;

static int fake_pin(void *host, uint64_t bytes, bool read_only)
{
	(void)host;
	assert_false(read_only);
	if (refuse_pins)
		return KOPS_E_NOMEM;
	__atomic_add_fetch(&pins, 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&pinned_bytes, bytes, __ATOMIC_RELAXED);
	return 0;
}

static void fake_unpin(void *host, uint64_t bytes)
{
	assert_non_null(host);
	__atomic_sub_fetch(&pins, 1, __ATOMIC_RELAXED);
	__atomic_sub_fetch(&pinned_bytes, bytes, __ATOMIC_RELAXED);
}

static void test_pinned_and_unpinned(void **state)
{
	static const struct driver gpu = {.pin = fake_pin, .unpin = fake_unpin};
	struct fixture f;
	struct segment *s;

	(void)state;
	open_pool(&f, &gpu, 4 * 64 * KIB, 0);
	settle(&f);
	assert_int_equal(pins, 4);
	s = lend(&f, 1, 3 * MIB);
	assert_true(s->pinned);
	assert_int_equal(pins, 5);
	take_back(&f, s);
	assert_int_equal(pins, 4);
	refuse_pins = 1;
	s = lend(&f, 1, 3 * MIB);
	assert_false(s->pinned);
	take_back(&f, s);
	close_pool(&f);
	refuse_pins = 0;
	assert_int_equal(pins, 0);
	assert_int_equal(pinned_bytes, 0);
}

static void unpin_slowly(void *host, uint64_t bytes)
{
	usleep(5000);
	fake_unpin(host, bytes);
}

/*
 * What the cache gives up counts for nobody until it is freed, which a GPU can make slow. That is bounded too:
 * in addition to a full cache, to as much again plus a segment.
 */
static void test_what_is_at_nobodys_expense(void **state)
{
	enum { N = 32, CACHED = 2 };
	static const struct driver gpu = {.pin = fake_pin, .unpin = unpin_slowly};
	struct fixture f;
	struct segment *s[N];
	unsigned released = 0;

	(void)state;
	open_pool(&f, &gpu, 0, CACHED * MIB);
	for (int i = 0; i < N; i++)
		s[i] = lend(&f, 1, MIB);
	for (int i = 0; i < N; i++)
		pool_take_back(s[i], &f.flow, on_released, &released);
	while (workers_are_busy(f.workers)) {
		uint64_t freed = N * MIB - pool_bytes(f.pool);
		assert_true(released * MIB <= freed + (2 * CACHED + 1) * MIB);
		uv_run(&f.loop, UV_RUN_ONCE);
	}
	assert_int_equal(released, N);
	close_pool(&f);
	assert_int_equal(pins, 0);
	assert_int_equal(pinned_bytes, 0);
}

static uv_sem_t unpinning, may_unpin;

static void unpin_when_told(void *host, uint64_t bytes)
{
	uv_sem_post(&unpinning);
	uv_sem_wait(&may_unpin);
	fake_unpin(host, bytes);
}

/* It counts once, however long a thread takes to unmap its old memory. */
static void test_adopted_while_it_is_unmapped(void **state)
{
	static const struct driver gpu = {.pin = fake_pin, .unpin = unpin_when_told};
	struct fixture f;
	struct segment *s, *again;
	struct stat st;
	unsigned released = 0;

	(void)state;
	uv_sem_init(&unpinning, 0);
	uv_sem_init(&may_unpin, 0);
	open_pool(&f, &gpu, 0, MIB);
	s = lend(&f, 1, MIB);
	memset(s->map, 0xc5, s->bytes);
	assert_int_equal(fstat(s->fd, &st), 0);
	pool_let_go(s, f.user, on_released, &released);
	uv_sem_wait(&unpinning);

	again = adopt(&f, f.user, st.st_dev, st.st_ino);
	assert_non_null(again);
	assert_int_equal(released, 1);
	assert_int_equal(pool_bytes(f.pool), MIB);
	assert_false(pool_keeps(f.pool, f.user, st.st_dev, st.st_ino));
	uv_sem_post(&may_unpin);
	settle(&f);
	assert_int_equal(pins, 0);
	assert_int_equal(pinned_bytes, 0);
	assert_int_equal(f.user->kept.n, 0);
	assert_false(again->pinned);
	assert_int_equal(inode(again), st.st_ino);
	assert_int_equal(((unsigned char *)again->map)[4711], 0xc5);

	pool_let_go(again, f.user, on_released, &released);
	settle(&f);
	assert_int_equal(look_at_all(&f, f.user), 1);
	settle(&f);
	assert_int_equal(released, 2);
	assert_int_equal(pool_bytes(f.pool), 0);
	close_pool(&f);
	uv_sem_destroy(&unpinning);
	uv_sem_destroy(&may_unpin);
}

static int make_host(void **state)
{
	(void)state;
	fake_host_make();
	return 0;
}

static int remove_host(void **state)
{
	(void)state;
	return fake_host_remove();
}

/* It is not zeroed, so nothing stays claimed for its missing pages. */
static void test_one_with_holes_is_not_kept(void **state)
{
	static const struct driver gpu = {.pin = fake_pin, .unpin = unpin_when_told};
	struct fixture f;
	struct segment *s;
	unsigned released = 0;
	int fd;

	(void)state;
	uv_sem_init(&unpinning, 0);
	uv_sem_init(&may_unpin, 0);
	open_pool(&f, &gpu, 0, 4 * MIB);
	s = lend(&f, 1, 4 * MIB);
	fd = pool_open_for_client(s);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 3 * MIB), 0);
	pool_take_back(s, &f.flow, on_released, &released);
	uv_sem_wait(&unpinning); /* its file is still open */
	assert_int_equal(host_memory_room(), FAKE_HOST_ROOM);
	uv_sem_post(&may_unpin);
	settle(&f);
	assert_int_equal(released, 1);
	assert_int_equal(pool_bytes(f.pool), 0);
	assert_int_equal(host_memory_room(), FAKE_HOST_ROOM);
	close(fd);
	close_pool(&f);
	uv_sem_destroy(&unpinning);
	uv_sem_destroy(&may_unpin);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_sealed_touched_and_zeroed),
	    cmocka_unit_test(test_a_segment_stays_with_its_user),
	    cmocka_unit_test(test_a_uid_of_several_users),
	    cmocka_unit_test(test_not_lent_while_being_zeroed),
	    cmocka_unit_test(test_cache_is_trimmed_oldest_first),
	    cmocka_unit_test(test_cache_is_bounded_in_number),
	    cmocka_unit_test(test_kept_while_somebody_has_it),
	    cmocka_unit_test(test_adopted_while_it_is_unmapped),
	    cmocka_unit_test(test_what_stays_is_looked_at_less_and_less),
	    cmocka_unit_test(test_many_kept_are_looked_at_by_and_by),
	    cmocka_unit_test(test_a_turn_looks_at_few),
	    cmocka_unit_test(test_the_cache_finds_by_user_and_size),
	    cmocka_unit_test(test_a_large_segment_takes_the_place_of_many),
	    cmocka_unit_test(test_cancelled),
	    cmocka_unit_test(test_users_share_the_threads),
	    cmocka_unit_test(test_too_large_for_the_cache),
	    cmocka_unit_test(test_warm_segments_are_lent_at_once_and_made_again),
	    cmocka_unit_test(test_one_that_cannot_be_made),
	    cmocka_unit_test(test_pinned_and_unpinned),
	    cmocka_unit_test(test_what_is_at_nobodys_expense),
	    cmocka_unit_test_setup_teardown(test_one_with_holes_is_not_kept, make_host, remove_host),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
