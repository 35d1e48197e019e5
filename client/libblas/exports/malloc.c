/*
 * malloc.c: malloc() and its family. The next library's functions serve all calls but those for large memory
 * while KOPS_BLAS_ALLOC=1 is set.
 *
 * Only in the library for LD_PRELOAD, and not with sanitizers, which have a malloc() of their own.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "heap/heap.h"
#include "settings.h"

#define LEAST ((size_t)HEAP_LEAST)

/* ---- The next library's ---- */

static void *first_malloc(size_t bytes);
static void *first_calloc(size_t n, size_t bytes);
static void *first_realloc(void *memory, size_t bytes);
static void *first_memalign(size_t align, size_t bytes);
static void *first_aligned_alloc(size_t align, size_t bytes);
static int first_posix_memalign(void **ret, size_t align, size_t bytes);
static void *first_valloc(size_t bytes);
static void first_free(void *memory);
static size_t first_malloc_usable_size(void *memory);

static struct {
	void *(*malloc)(size_t bytes);
	void *(*calloc)(size_t n, size_t bytes);
	void *(*realloc)(void *memory, size_t bytes);
	void *(*memalign)(size_t align, size_t bytes);
	void *(*aligned_alloc)(size_t align, size_t bytes);
	int (*posix_memalign)(void **ret, size_t align, size_t bytes);
	void *(*valloc)(size_t bytes);
	void (*free)(void *memory);
	size_t (*malloc_usable_size)(void *memory);
} next = {first_malloc,         first_calloc, first_realloc, first_memalign,          first_aligned_alloc,
          first_posix_memalign, first_valloc, first_free,    first_malloc_usable_size};

/* Sets a pointer to a function. A missing one stays what it was. */
static void look_up(void *pointer, const char *name)
{
	void *function = dlsym(RTLD_NEXT, name);
	if (function)
		memcpy(pointer, &function, sizeof function);
}

/*
 * Returns false within itself, as dlsym() may allocate and manages without, and later: what was not found then
 * is missing. Comes before the program's first thread, as that would allocate.
 */
static bool find_next(void)
{
	static bool has_begun;
	if (has_begun)
		return false;
	has_begun = true;
	look_up(&next.malloc, "malloc");
	look_up(&next.calloc, "calloc");
	look_up(&next.realloc, "realloc");
	look_up(&next.memalign, "memalign");
	look_up(&next.aligned_alloc, "aligned_alloc");
	look_up(&next.posix_memalign, "posix_memalign");
	look_up(&next.valloc, "valloc");
	look_up(&next.free, "free");
	look_up(&next.malloc_usable_size, "malloc_usable_size");
	return true;
}

static void *refuse(void)
{
	errno = ENOMEM;
	return NULL;
}

static void *first_malloc(size_t bytes)
{
	return find_next() ? next.malloc(bytes) : refuse();
}

static void *first_calloc(size_t n, size_t bytes)
{
	return find_next() ? next.calloc(n, bytes) : refuse();
}

static void *first_realloc(void *memory, size_t bytes)
{
	return find_next() ? next.realloc(memory, bytes) : refuse();
}

static void *first_memalign(size_t align, size_t bytes)
{
	return find_next() ? next.memalign(align, bytes) : refuse();
}

static void *first_aligned_alloc(size_t align, size_t bytes)
{
	return find_next() ? next.aligned_alloc(align, bytes) : refuse();
}

static int first_posix_memalign(void **ret, size_t align, size_t bytes)
{
	return find_next() ? next.posix_memalign(ret, align, bytes) : ENOMEM;
}

static void *first_valloc(size_t bytes)
{
	return find_next() ? next.valloc(bytes) : refuse();
}

static void first_free(void *memory)
{
	if (memory && find_next())
		next.free(memory);
}

static size_t first_malloc_usable_size(void *memory)
{
	return memory && find_next() ? next.malloc_usable_size(memory) : 0;
}

/* ---- Large memory ---- */

static inline bool is_large(size_t bytes)
{
	return heap_is_on() && bytes >= LEAST;
}

/* Others' rules for strange alignments differ, and are theirs. */
static inline bool is_large_aligned(size_t align, size_t bytes)
{
	return is_large(bytes) && align > 0 && (align & (align - 1)) == 0;
}

static void *move(void *memory, size_t used, size_t bytes, void *to)
{
	memcpy(to, memory, used < bytes ? used : bytes);
	if (!heap_free(memory))
		next.free(memory);
	return to;
}

/* Moves the next library's memory here once it is large. What it could not get here stays there. */
static void *grow_from_next(void *memory, size_t bytes)
{
	size_t used = bytes < LEAST ? LEAST : next.malloc_usable_size(memory);
	void *large = used < LEAST ? heap_get(bytes, 0, false) : NULL;
	return large ? move(memory, used, bytes, large) : next.realloc(memory, bytes);
}

static void *resize_block(void *memory, size_t used, size_t bytes)
{
	if (bytes == 0) {
		heap_free(memory);
		return NULL;
	}
	void *to = bytes >= LEAST ? heap_resize(memory, bytes) : NULL;
	if (to)
		return to;
	to = bytes >= LEAST ? heap_get(bytes, 0, false) : NULL;
	if (!to)
		to = next.malloc(bytes);
	return to ? move(memory, used, bytes, to) : NULL;
}

/* ---- The functions ---- */

#pragma GCC visibility push(default)

void *malloc(size_t bytes);
void *calloc(size_t n, size_t bytes);
void *realloc(void *memory, size_t bytes);
void *reallocarray(void *memory, size_t n, size_t bytes);
void *memalign(size_t align, size_t bytes);
void *aligned_alloc(size_t align, size_t bytes);
int posix_memalign(void **ret, size_t align, size_t bytes);
void *valloc(size_t bytes);
void free(void *memory);
size_t malloc_usable_size(void *memory);

void *malloc(size_t bytes)
{
	void *large = is_large(bytes) ? heap_get(bytes, 0, false) : NULL;
	return large ? large : next.malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
	size_t all;
	void *large = NULL;
	if (heap_is_on() && !__builtin_mul_overflow(n, bytes, &all) && all >= LEAST)
		large = heap_get(all, 0, true);
	return large ? large : next.calloc(n, bytes);
}

void *realloc(void *memory, size_t bytes)
{
	if (!heap_is_on())
		return next.realloc(memory, bytes);
	if (!memory)
		return malloc(bytes);
	size_t used = heap_size(memory);
	return used ? resize_block(memory, used, bytes) : grow_from_next(memory, bytes);
}

void *reallocarray(void *memory, size_t n, size_t bytes)
{
	size_t all;
	return __builtin_mul_overflow(n, bytes, &all) ? refuse() : realloc(memory, all);
}

void *memalign(size_t align, size_t bytes)
{
	void *large = is_large_aligned(align, bytes) ? heap_get(bytes, align, false) : NULL;
	return large ? large : next.memalign(align, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
	void *large = is_large_aligned(align, bytes) ? heap_get(bytes, align, false) : NULL;
	return large ? large : next.aligned_alloc(align, bytes);
}

int posix_memalign(void **ret, size_t align, size_t bytes)
{
	bool valid = align % sizeof(void *) == 0;
	void *large = valid && is_large_aligned(align, bytes) ? heap_get(bytes, align, false) : NULL;
	if (!large)
		return next.posix_memalign(ret, align, bytes);
	*ret = large;
	return 0;
}

void *valloc(size_t bytes)
{
	void *large = is_large(bytes) ? heap_get(bytes, 0, false) : NULL;
	return large ? large : next.valloc(bytes);
}

void free(void *memory)
{
	if (!heap_is_on() || !heap_free(memory))
		next.free(memory);
}

size_t malloc_usable_size(void *memory)
{
	size_t bytes = heap_is_on() ? heap_size(memory) : 0;
	return bytes ? bytes : next.malloc_usable_size(memory);
}

#pragma GCC visibility pop

/* ---- The beginning ---- */

/*
 * The program may have a malloc() of its own, which comes first for everybody. Addresses do not tell: those of
 * a program may be in its own table of jumps.
 */
static bool is_everybodys(void)
{
	void *memory = malloc(LEAST);
	bool is_block = heap_size(memory) > 0;
	free(memory);
	heap_clear();
	return is_block;
}

/* Not at the first call, which may come before the environment. */
__attribute__((constructor)) static void begin(void)
{
	find_next();
	if (settings_alloc() && heap_begin() && !is_everybodys())
		heap_end();
}
