/*
 * Tests the blocks of KOPS_BLAS_ALLOC: what they hold after they were used before, resized, and around fork();
 * when there are none; and what kopsd is given.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "heap/heap.h"

#define MIB    (UINT64_C(1) << 20)
#define BLOCKS 256

static uint64_t page;

static bool is_filled(const void *memory, uint64_t bytes, int value)
{
	const unsigned char *p = memory;
	return bytes == 0 || (p[0] == value && memcmp(p, p + 1, bytes - 1) == 0);
}

/* Runs in a child of fork(). Returns its exit code, or 256 and the signal that killed it. */
static int in_child(int (*run)(void *), void *ctx)
{
	int status = -1;
	pid_t child = fork();
	if (child == 0)
		_exit(run(ctx));
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFSIGNALED(status) ? 256 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* ---- Allocating ---- */

static void test_memory_is_whole_and_zeroed(void **state)
{
	(void)state;
	for (uint64_t bytes = MIB; bytes < 9 * MIB; bytes += 777777) {
		char *p = heap_get(bytes, 0, true);
		assert_non_null(p);
		assert_true(heap_size(p) >= bytes && heap_size(p) < bytes + page);
		assert_true(is_filled(p, heap_size(p), 0));
		memset(p, 0xA5, heap_size(p));
		assert_true(heap_free(p));
	}
}

static void test_reuse(void **state)
{
	(void)state;
	char *p = heap_get(4 * MIB, 0, false);
	memset(p, 1, 4 * MIB);
	heap_free(p);
	char *same = heap_get(4 * MIB - 5000, 0, false);
	assert_ptr_equal(same, p);
	heap_free(same);
	same = heap_get(4 * MIB, 0, true);
	assert_ptr_equal(same, p);
	assert_true(is_filled(same, 4 * MIB, 0));
	char *other = heap_get(4 * MIB, 0, true);
	assert_ptr_not_equal(other, same);
	heap_free(same);
	char *smaller = heap_get(2 * MIB, 0, false);
	assert_ptr_not_equal(smaller, same);
	heap_free(smaller);
	heap_free(other);
}

/* Blocks that are cached never take more memory than blocks that were used at one time. */
static void test_cache_is_bounded(void **state)
{
	(void)state;
	enum { N = 8 };
	char *p[N];
	for (int i = 0; i < N; i++)
		p[i] = heap_get(16 * MIB, 0, false);
	for (int i = 0; i < N; i++)
		heap_free(p[i]);
	char *large = heap_get(100 * MIB, 0, false);
	assert_non_null(large);
	int left = 0;
	unsigned char present;
	for (int i = 0; i < N; i++)
		left += mincore(p[i], page, &present) == 0 && (p[i] < large || p[i] >= large + 100 * MIB);
	assert_true(left <= 1);
	heap_free(large);
}

static void test_alignment(void **state)
{
	(void)state;
	for (uint64_t align = 1; align <= 64 * MIB; align *= 2) {
		char *p = heap_get(MIB + 1, align, true);
		assert_non_null(p);
		assert_int_equal((uintptr_t)p % align, 0);
		p[0] = p[MIB] = 1;
		assert_true(heap_free(p));
	}
	assert_null(heap_get(MIB, UINT64_C(1) << 63, false));
}

static void test_sizes_that_nobody_has(void **state)
{
	(void)state;
	errno = 42;
	assert_null(heap_get(UINT64_MAX, 0, false));
	assert_null(heap_get(UINT64_MAX - page, 0, false));
	assert_null(heap_get(PTRDIFF_MAX, 0, false));
	assert_null(heap_get(PTRDIFF_MAX - page, 4096 * page, false));
	assert_null(heap_get(UINT64_C(1) << 46, 0, false));
	char *p = heap_get(MIB, 0, false);
	assert_null(heap_resize(p, UINT64_MAX));
	assert_null(heap_resize(p, UINT64_C(1) << 46));
	assert_true(is_filled(memset(p, 3, MIB), MIB, 3));
	heap_free(p);
	assert_int_equal(errno, 42);
}

static void test_other_memory(void **state)
{
	(void)state;
	char *block = heap_get(2 * MIB, 0, false), *other = aligned_alloc(page, page);
	assert_false(heap_free(other));
	assert_false(heap_free(NULL));
	assert_false(heap_free(block + page));
	assert_false(heap_free(block + 1));
	assert_int_equal(heap_size(other), 0);
	assert_int_equal(heap_size(block + page), 0);
	heap_free(block);
	free(other);
}

static int free_again(void *p)
{
	close(2); /* what it says is not for the tests' reader */
	signal(SIGABRT, SIG_DFL);
	char *own = heap_get(3 * MIB, 0, false);
	return p || !own || !heap_free(own) || !heap_free(own);
}

static void test_double_free(void **state)
{
	(void)state;
	assert_int_equal(in_child(free_again, NULL), 256 + SIGABRT);
}

static void test_resize(void **state)
{
	(void)state;
	char *p = heap_get(MIB, 0, true), *neighbour;
	memset(p, 7, MIB);
	p = heap_resize(p, 5 * MIB);
	assert_non_null(p);
	assert_int_equal(heap_size(p), 5 * MIB);
	assert_true(is_filled(p, MIB, 7) && is_filled(p + MIB, 4 * MIB, 0));
	neighbour = mmap(p + 5 * MIB, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(p, 8, 5 * MIB);
	p = heap_resize(p, 50 * MIB);
	assert_true(p && is_filled(p, 5 * MIB, 8) && is_filled(p + 5 * MIB, 45 * MIB, 0));
	munmap(neighbour, page);
	p = heap_resize(p, 2 * MIB + 1);
	assert_int_equal(heap_size(p), 2 * MIB + page);
	assert_true(is_filled(p, 2 * MIB + page, 8));
	heap_free(p);
}

/* ---- Limits ---- */

static int fill_the_table(void *unused)
{
	static char *p[BLOCKS + 8];
	int n = 0, again = 0;
	(void)unused;
	while (n < BLOCKS + 8 && (p[n] = heap_get(MIB, 0, true)))
		n++;
	for (int i = 0; i < n; i++)
		if (!is_filled(p[i], MIB, 0) || !heap_free(p[i]))
			return 255;
	while (again < BLOCKS + 8 && heap_get(2 * MIB, 0, true))
		again++;
	return n == BLOCKS && again == BLOCKS ? 0 : 1;
}

static void test_full_table(void **state)
{
	(void)state;
	assert_int_equal(in_child(fill_the_table, NULL), 0);
}

static int without_descriptors(void *unused)
{
	struct rlimit none = {3, 3};
	(void)unused;
	if (setrlimit(RLIMIT_NOFILE, &none) < 0)
		return 1;
	errno = 42;
	return heap_get(MIB, 0, false) != NULL || errno != 42;
}

static int without_long_files(void *unused)
{
	struct rlimit limit = {3 * MIB, 3 * MIB};
	(void)unused;
	if (setrlimit(RLIMIT_FSIZE, &limit) < 0)
		return 1;
	char *p = heap_get(2 * MIB, 0, false);
	return !p || heap_get(4 * MIB, 0, false) || heap_resize(p, 4 * MIB) ||
	       !is_filled(memset(p, 1, 2 * MIB), 2 * MIB, 1);
}

static int without_address_space(void *unused)
{
	struct rlimit limit = {MIB, MIB};
	(void)unused;
	if (setrlimit(RLIMIT_AS, &limit) < 0)
		return 1;
	return heap_get(4 * MIB, 0, false) != NULL;
}

static void test_limits(void **state)
{
	(void)state;
	assert_int_equal(in_child(without_descriptors, NULL), 0);
	assert_int_equal(in_child(without_long_files, NULL), 0);
	assert_int_equal(in_child(without_address_space, NULL), 0);
}

/* ---- fork() ---- */

struct shared {
	_Atomic int turn; /* of the parent if even */
	char *block, *cached;
};

static void wait_for(const struct shared *s, int turn)
{
	while (s->turn != turn)
		usleep(100);
}

static int child_looks_and_writes(void *ctx)
{
	struct shared *s = ctx;
	if (!is_filled(s->block, 4 * MIB, 1))
		return 1;
	s->turn = 1;
	wait_for(s, 2); /* the parent has written some pages */
	if (!is_filled(s->block, 4 * MIB, 1))
		return 2;
	memset(s->block + MIB, 3, MIB);
	s->turn = 3;
	wait_for(s, 4);
	if (!is_filled(s->block, MIB, 1) || !is_filled(s->block + MIB, MIB, 3) ||
	    !is_filled(s->block + 2 * MIB, 2 * MIB, 1))
		return 3;
	char *new = heap_get(4 * MIB, 0, true);
	if (!new || new == s->cached || !is_filled(new, 4 * MIB, 0) || !heap_free(new))
		return 4;
	return heap_free(s->block) ? 0 : 5;
}

static void test_fork_separates(void **state)
{
	(void)state;
	int status = -1;
	struct shared *s = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	s->block = heap_get(4 * MIB, 0, false);
	s->cached = heap_get(5 * MIB, 0, false);
	heap_free(s->cached);
	memset(s->block, 1, 4 * MIB);
	pid_t child = fork();
	if (child == 0)
		_exit(child_looks_and_writes(s));
	wait_for(s, 1);
	memset(s->block, 2, 2 * MIB);
	s->turn = 2;
	wait_for(s, 3);
	assert_true(is_filled(s->block, 2 * MIB, 2) && is_filled(s->block + 2 * MIB, 2 * MIB, 1));
	memset(s->block + 2 * MIB, 4, 2 * MIB);
	s->turn = 4;
	waitpid(child, &status, 0);
	assert_int_equal(status, 0);
	assert_true(is_filled(s->block, 2 * MIB, 2) && is_filled(s->block + 2 * MIB, 2 * MIB, 4));
	/* It is this process's alone for good, and what was cached is still known to kopsd. */
	struct heap_part part;
	assert_false(heap_find(s->block, 1, &part));
	assert_ptr_equal(heap_get(5 * MIB, 0, false), s->cached);
	assert_true(heap_find(s->cached, 1, &part));
	heap_free(s->cached);
	heap_free(s->block);
	munmap(s, page);
}

/* A child's memory is that of one moment, though threads of the parent write on. */
#ifndef __SANITIZE_THREAD__ /* the sanitizer takes the new mapping for a store to it */
#define WORDS (MIB / sizeof(uint64_t))

static _Atomic bool is_over;

static void *count_up(void *block)
{
	_Atomic uint64_t *words = block;
	for (uint64_t n = 1; !is_over; n++)
		for (size_t i = 0; i < WORDS; i += 256)
			atomic_store_explicit(&words[i], n, memory_order_relaxed);
	return NULL;
}

static int look_for_change(void *block)
{
	const _Atomic uint64_t *words = block;
	uint64_t first = words[0], sum = 0, again = 0;
	for (size_t i = 0; i < WORDS; i += 256) {
		if (words[i] != first && words[i] + 1 != first)
			return 1;
		sum += words[i];
	}
	usleep(2000);
	for (size_t i = 0; i < WORDS; i += 256)
		again += words[i];
	return sum != again;
}

static void test_fork_while_a_thread_writes(void **state)
{
	(void)state;
	pthread_t thread;
	is_over = false;
	for (int i = 0; i < 20; i++) {
		void *block = heap_get(MIB, 0, true);
		is_over = false;
		assert_int_equal(pthread_create(&thread, NULL, count_up, block), 0);
		usleep(300);
		assert_int_equal(in_child(look_for_change, block), 0);
		assert_int_equal(in_child(look_for_change, block), 0);
		is_over = true;
		pthread_join(thread, NULL);
		heap_free(block);
	}
}

#endif

static int grandchild(void *block)
{
	memset(block, 6, MIB);
	return !is_filled(block, 2 * MIB, 5) ? 0 : 1;
}

static int child_forks(void *block)
{
	memset(block, 5, 2 * MIB);
	char *own = heap_get(2 * MIB, 0, false);
	memset(own, 5, 2 * MIB);
	if (in_child(grandchild, own) != 0 || in_child(grandchild, block) != 0)
		return 1;
	return is_filled(block, 2 * MIB, 5) && is_filled(own, 2 * MIB, 5) ? 0 : 2;
}

static void test_forks_of_children(void **state)
{
	(void)state;
	char *block = heap_get(2 * MIB, 0, true);
	assert_int_equal(in_child(child_forks, block), 0);
	assert_true(is_filled(block, 2 * MIB, 0));
	heap_free(block);
}

/* ---- For kopsd ---- */

static void test_share(void **state)
{
	(void)state;
	struct heap_part part;
	char *p = heap_get(4 * MIB, 0, true);
	assert_false(heap_find(p, 4 * MIB + 1, &part));
	assert_false(heap_find(p - 1, 2, &part));
	assert_true(heap_find(p + 100, 4 * MIB - 100, &part));
	assert_ptr_equal(part.base, p);
	assert_int_equal(part.bytes, 4 * MIB);
	/* It has no pages, so only a matrix that is nearly all of it is a reason to get them. */
	assert_int_equal(heap_share(&part, MIB), -1);
	assert_false(heap_is_shared(part.block));
	int fd = heap_share(&part, 4 * MIB - 100);
	assert_true(fd > 2);
	assert_true(heap_is_shared(part.block));
	assert_int_equal(fcntl(fd, F_GET_SEALS), F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	char *other = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	p[5] = 9;
	assert_int_equal(other[5], 9);

	/* Its size stays. A smaller one is the same memory. */
	assert_null(heap_resize(p, 5 * MIB));
	assert_ptr_equal(heap_resize(p, 3 * MIB), p);
	assert_null(heap_resize(p, MIB));

	/* Cached, it is still shared, and not to be found. */
	heap_free(p);
	assert_true(heap_is_shared(part.block));
	assert_false(heap_find(p, 1, &part));
	assert_ptr_equal(heap_get(4 * MIB, 0, true), p);
	assert_int_equal(other[5], 0);

	uint64_t before = heap_releases();
	heap_keep(p + 10, MIB);
	assert_int_equal(heap_releases(), before + 1);
	assert_false(heap_is_shared(part.block));
	assert_int_equal(heap_share(&part, 4 * MIB), -1);
	memset(other, 0x55, 2 * MIB);
	assert_true(is_filled(p, MIB + 10, 0));
	munmap(other, 4 * MIB);
	close(fd);
	heap_free(p);

	/* Of memory that was freed meanwhile nobody gets anything. */
	p = heap_get(4 * MIB, 0, true);
	heap_free(p);
	heap_keep(p, MIB);
	unsigned char present;
	assert_int_equal(mincore(p, page, &present), -1);
}

static void test_descriptors_that_the_program_closed(void **state)
{
	(void)state;
	struct heap_part part;
	struct stat st;
	char *p = heap_get(2 * MIB, 0, false), *q = heap_get(2 * MIB, 0, false);
	memset(p, 1, 2 * MIB);
	memset(q, 2, 2 * MIB);
	closefrom(3);
	int own = open("/dev/null", O_RDWR), last = own;
	while (last < 40)
		last = dup(own);
	assert_true(heap_find(p, MIB, &part));
	assert_int_equal(heap_share(&part, 2 * MIB), -1);
	assert_null(heap_resize(p, 3 * MIB));
	assert_ptr_equal(heap_resize(p, 3 * MIB / 2), p);
	assert_int_equal(in_child(grandchild, p), 0);
	assert_true(is_filled(p, 2 * MIB, 1) && is_filled(q, 2 * MIB, 2));
	heap_free(p);
	heap_free(q);
	for (int fd = own; fd <= last; fd++)
		assert_int_equal(fstat(fd, &st), 0);
	closefrom(own);
}

/* ---- Threads ---- */

#define THREADS 4

static void *use(void *number)
{
	uint64_t random = ((uintptr_t)number + 1) * UINT64_C(0x9E3779B97F4A7C15);
	char *p[6] = {NULL};
	uint64_t bytes[6];
	for (int i = 0; i < 300; i++) {
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		int at = (int)(random % 6);
		unsigned char mark = (unsigned char)((uintptr_t)number * 6 + (unsigned)at + 1);
		if (p[at]) {
			if (!is_filled(p[at], 64, mark) || !is_filled(p[at] + bytes[at] - 64, 64, mark))
				return number;
			heap_free(p[at]);
		}
		bytes[at] = MIB + (random >> 20) % (3 * MIB);
		p[at] = heap_get(bytes[at], 0, (random >> 50) % 2);
		memset(p[at], mark, 64);
		memset(p[at] + bytes[at] - 64, mark, 64);
	}
	for (int i = 0; i < 6; i++)
		heap_free(p[i]);
	return NULL;
}

static void test_threads(void **state)
{
	(void)state;
	pthread_t threads[THREADS];
	void *failed;
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, use, (void *)(i + 1)), 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_memory_is_whole_and_zeroed),
	    cmocka_unit_test(test_reuse),
	    cmocka_unit_test(test_cache_is_bounded),
	    cmocka_unit_test(test_alignment),
	    cmocka_unit_test(test_sizes_that_nobody_has),
	    cmocka_unit_test(test_other_memory),
	    cmocka_unit_test(test_double_free),
	    cmocka_unit_test(test_resize),
	    cmocka_unit_test(test_full_table),
	    cmocka_unit_test(test_limits),
	    cmocka_unit_test(test_fork_separates),
#ifndef __SANITIZE_THREAD__
	    cmocka_unit_test(test_fork_while_a_thread_writes),
#endif
	    cmocka_unit_test(test_forks_of_children),
	    cmocka_unit_test(test_share),
	    cmocka_unit_test(test_descriptors_that_the_program_closed),
	    cmocka_unit_test(test_threads),
	};
	page = (uint64_t)sysconf(_SC_PAGESIZE);
	return heap_begin() ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
