/*
 * heap.c: the table of blocks.
 *
 * The table is a plain array, as there are few blocks. Only addresses that begin a page are looked up: malloc()
 * returns none, but for blocks.
 */
#include "heap/heap.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "guard.h"
#include "heap/memory.h"
#include "host_files.h"

#define BLOCKS      256
#define CACHE_BYTES (UINT64_C(1) << 30)

enum state { LIVE, CACHED, PRIVATE };

struct block {
	struct memory memory;
	uint64_t number, used; /* used: when it was cached */
	enum state state;
	bool shared; /* kopsd may have it, so its size stays */
};

_Atomic bool heap_begun;

/* Recursive, as another library's handlers around fork() may allocate. */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static bool is_forking;
static struct block blocks[BLOCKS];
static _Atomic unsigned n_blocks;
static unsigned most_blocks;
static uint64_t numbers, uses;
static uint64_t live_bytes, cached_bytes, peak_bytes; /* peak: of live_bytes */
static _Atomic uint64_t releases;
static void (*_Atomic tell_releases)(void);

/* ---- The lock ---- */

struct held {
	sigset_t signals;
	int error;
};

static void hold(struct held *held)
{
	held->error = errno;
	guard_block_signals(&held->signals);
	pthread_mutex_lock(&lock);
}

static void let_go(const struct held *held)
{
	pthread_mutex_unlock(&lock);
	guard_restore_signals(&held->signals);
	errno = held->error;
}

/* ---- The table; with the lock ---- */

static struct block *find(const void *memory)
{
	for (struct block *b = blocks; b < blocks + n_blocks; b++)
		if (b->memory.base == memory)
			return b;
	return NULL;
}

static struct block *find_around(const void *memory, uint64_t bytes)
{
	for (struct block *b = blocks; b < blocks + n_blocks; b++) {
		uint64_t at = (uintptr_t)memory - (uintptr_t)b->memory.base; /* wraps below the base */
		if (at < b->memory.bytes && bytes <= b->memory.bytes - at)
			return b;
	}
	return NULL;
}

static struct block *find_number(uint64_t number)
{
	for (struct block *b = blocks; b < blocks + n_blocks; b++)
		if (b->number == number)
			return b;
	return NULL;
}

static void add_live(uint64_t bytes)
{
	live_bytes += bytes;
	if (peak_bytes < live_bytes)
		peak_bytes = live_bytes;
}

static void take_out(struct block *b, struct block *ret)
{
	*ret = *b;
	*b = blocks[--n_blocks];
}

static void make_private(struct block *b)
{
	if (b->state != LIVE || !memory_make_private(&b->memory))
		return;
	b->state = PRIVATE;
	if (b->shared)
		releases++;
}

/* Takes the block that was cached first out of the table, if there is too much. */
static bool take_surplus(uint64_t coming_bytes, unsigned coming, struct block *ret)
{
	struct block *oldest = NULL;
	if (n_blocks + coming <= most_blocks && cached_bytes <= CACHE_BYTES &&
	    live_bytes + cached_bytes + coming_bytes <= peak_bytes)
		return false;
	for (struct block *b = blocks; b < blocks + n_blocks; b++)
		if (b->state == CACHED && (!oldest || b->used < oldest->used))
			oldest = b;
	if (!oldest)
		return false;
	cached_bytes -= oldest->memory.bytes;
	take_out(oldest, ret);
	return true;
}

/* Takes a cached block of a suitable size: not much larger, since the rest would be of no use. */
static void *take_cached(uint64_t bytes, uint64_t align, uint64_t *ret_bytes)
{
	struct block *best = NULL;
	for (struct block *b = blocks; b < blocks + n_blocks && !is_forking; b++)
		if (b->state == CACHED && b->memory.bytes >= bytes && b->memory.bytes - bytes <= bytes / 8 &&
		    (!align || (uintptr_t)b->memory.base % align == 0) &&
		    (!best || b->memory.bytes < best->memory.bytes))
			best = b;
	if (!best)
		return NULL;
	best->state = LIVE;
	cached_bytes -= best->memory.bytes;
	add_live(best->memory.bytes);
	*ret_bytes = best->memory.bytes;
	return best->memory.base;
}

/* ---- Giving back; without the lock ---- */

static void give_back(struct block *b)
{
	int error = errno;
	memory_free(&b->memory);
	if (b->shared) {
		releases++;
		void (*tell)(void) = tell_releases;
		if (tell)
			tell();
	}
	errno = error;
}

/* Makes room for a block that comes, or for none. */
static void trim(uint64_t coming_bytes, unsigned coming)
{
	struct block surplus;
	struct held held;
	bool found;
	do {
		hold(&held);
		found = take_surplus(coming_bytes, coming, &surplus);
		let_go(&held);
		if (found)
			give_back(&surplus);
	} while (found);
}

/* ---- Allocating ---- */

static void *get_cached(uint64_t bytes, uint64_t align, bool zeroed)
{
	struct held held;
	uint64_t size = 0;
	hold(&held);
	void *memory = take_cached(bytes, align, &size);
	let_go(&held);
	/* Holes would be quicker, but kopsd may have pinned the pages. */
	return memory && zeroed ? memset(memory, 0, size) : memory;
}

static void *add(const struct memory *memory)
{
	struct held held;
	hold(&held);
	bool fits = n_blocks < most_blocks && !is_forking;
	if (fits) {
		blocks[n_blocks++] = (struct block){.memory = *memory, .number = ++numbers, .state = LIVE};
		add_live(memory->bytes);
	}
	let_go(&held);
	return fits ? memory->base : NULL;
}

void *heap_get(uint64_t bytes, uint64_t align, bool zeroed)
{
	struct memory memory;
	int error = errno;
	void *got = get_cached(bytes, align, zeroed);
	if (got || bytes > PTRDIFF_MAX)
		return got;
	trim(bytes, 1);
	if (n_blocks < most_blocks && memory_make(&memory, bytes, align)) {
		got = add(&memory);
		if (!got)
			memory_free(&memory);
	}
	errno = error;
	return got;
}

static bool may_be_block(const void *memory)
{
	return memory && n_blocks > 0 && (uintptr_t)memory % memory_page_bytes() == 0;
}

_Noreturn static void report_double_free(void)
{
	static const char text[] = "free(): double free detected by libkops-blas\n";
	if (write(2, text, sizeof text - 1) < 0)
		abort();
	abort();
}

/* Returns true if the block is to be given back. */
static bool free_block(struct block *b, struct block *ret)
{
	if (b->state == CACHED)
		report_double_free();
	live_bytes -= b->memory.bytes;
	if (b->state == PRIVATE) {
		take_out(b, ret);
		return true;
	}
	b->state = CACHED;
	b->used = ++uses;
	cached_bytes += b->memory.bytes;
	return false;
}

bool heap_free(void *memory)
{
	struct held held;
	struct block given;
	if (!may_be_block(memory))
		return false;
	hold(&held);
	struct block *b = find(memory);
	bool gives = b && free_block(b, &given);
	let_go(&held);
	if (gives)
		give_back(&given);
	if (b)
		trim(0, 0);
	return b != NULL;
}

uint64_t heap_size(const void *memory)
{
	struct held held;
	if (!may_be_block(memory))
		return 0;
	hold(&held);
	struct block *b = find(memory);
	uint64_t bytes = b && b->state != CACHED ? b->memory.bytes : 0;
	let_go(&held);
	return bytes;
}

static void *resize(struct block *b, uint64_t bytes)
{
	uint64_t before = b->memory.bytes;
	if (b->state == LIVE && !b->shared && memory_resize(&b->memory, bytes)) {
		live_bytes -= before;
		add_live(b->memory.bytes);
		return b->memory.base;
	}
	return bytes <= before && bytes >= before / 2 ? b->memory.base : NULL;
}

void *heap_resize(void *memory, uint64_t bytes)
{
	struct held held;
	hold(&held);
	struct block *b = find(memory);
	void *resized = b && b->state != CACHED ? resize(b, bytes) : NULL;
	let_go(&held);
	return resized;
}

/* ---- For kopsd ---- */

bool heap_find(const void *memory, uint64_t bytes, struct heap_part *ret)
{
	struct held held;
	if (n_blocks == 0)
		return false;
	hold(&held);
	struct block *b = find_around(memory, bytes);
	bool found = b && b->state == LIVE;
	if (found)
		*ret = (struct heap_part){b->number, b->memory.base, b->memory.bytes};
	let_go(&held);
	return found;
}

int heap_share(const struct heap_part *part, uint64_t wanted_bytes)
{
	struct held held;
	hold(&held);
	struct block *b = find_number(part->block);
	int fd = b && b->state == LIVE ? memory_seal(&b->memory, wanted_bytes) : -1;
	if (fd >= 0)
		b->shared = true;
	let_go(&held);
	return fd;
}

bool heap_is_shared(uint64_t number)
{
	struct held held;
	hold(&held);
	struct block *b = find_number(number);
	bool shared = b && b->shared && b->state != PRIVATE;
	let_go(&held);
	return shared;
}

void heap_keep(void *memory, uint64_t bytes)
{
	struct held held;
	struct block freed;
	hold(&held);
	struct block *b = find_around(memory, bytes);
	bool is_freed = b && b->state == CACHED;
	if (is_freed) {
		cached_bytes -= b->memory.bytes;
		take_out(b, &freed);
	} else if (b) {
		make_private(b);
	}
	let_go(&held);
	if (is_freed)
		give_back(&freed);
	else if (b)
		memory_touch(memory, bytes);
}

uint64_t heap_releases(void)
{
	return releases;
}

void heap_tell_releases(void (*tell)(void))
{
	tell_releases = tell;
}

/* ---- fork() ---- */

static struct held held_at_fork;

static void before_fork(void)
{
	hold(&held_at_fork);
	for (struct block *b = blocks; b < blocks + n_blocks; b++)
		make_private(b);
	is_forking = true;
}

static void after_fork(void)
{
	is_forking = false;
	let_go(&held_at_fork);
}

/* Children have no mapping of blocks that are not private, so they forget them. */
static void in_child(void)
{
	struct block gone;
	for (unsigned i = n_blocks; i-- > 0;)
		if (blocks[i].state != PRIVATE) {
			take_out(&blocks[i], &gone);
			memory_close(&gone.memory);
		}
	live_bytes = cached_bytes = 0;
	for (unsigned i = 0; i < n_blocks; i++)
		live_bytes += blocks[i].memory.bytes;
	peak_bytes = live_bytes;
	is_forking = false;
	lock =
	    (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP; /* its owner was a thread of the parent */
	guard_restore_signals(&held_at_fork.signals);
	errno = held_at_fork.error;
}

/* ---- The beginning ---- */

/*
 * A memfd's pages are not there before they are touched, and under strict accounting might be refused then. A
 * limit on data might refuse the private mappings that fork() needs.
 */
static bool is_limited(void)
{
	char line[16];
	bool missed = false;
	struct rlimit data;
	if (getrlimit(RLIMIT_DATA, &data) < 0 || data.rlim_cur != RLIM_INFINITY)
		return true;
	return !host_files_read_line("", "/proc/sys/vm/overcommit_memory", line, sizeof line, &missed) ||
	       line[0] == '2';
}

/* Leaves the program most of its descriptors. */
static unsigned count_blocks(void)
{
	struct rlimit files;
	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return 0;
	return files.rlim_cur / 4 < BLOCKS ? (unsigned)files.rlim_cur / 4 : BLOCKS;
}

bool heap_begin(void)
{
	most_blocks = count_blocks();
	if (most_blocks > 0 && !is_limited() && pthread_atfork(before_fork, after_fork, in_child) == 0)
		heap_begun = true;
	return heap_begun;
}

void heap_clear(void)
{
	struct held held;
	hold(&held);
	peak_bytes = live_bytes;
	let_go(&held);
	trim(0, 0);
}

void heap_end(void)
{
	heap_begun = false;
}
