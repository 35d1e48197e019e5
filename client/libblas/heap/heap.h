/*
 * heap.h: the program's large allocations, in memory that kopsd can see (KOPS_BLAS_ALLOC).
 *
 * A block is a memfd that this process maps MAP_SHARED. kopsd learns of it when a product first wants it.
 *
 *            heap_get()
 *     (none) -----------> LIVE --heap_free()--> CACHED --heap_get()--> LIVE
 *                          |                      |
 *                          | fork(), or           | too much, or not used: oldest first
 *                          | heap_keep()          v
 *                          v                    (none)
 *                        PRIVATE --heap_free()--> (none)
 *
 * fork() makes all live blocks private: a private mapping of the same memfd replaces the shared one in one
 * step, which no thread of the program can notice. From then on nobody stores into the memfd, so it is what the
 * memory was at that moment, and both processes copy the pages that they write. kopsd sees no more of such a
 * block.
 *
 * The cache keeps memory that kopsd has pinned. With it the blocks never take more memory than the program's
 * own allocations once did.
 *
 * All functions may be called by any thread. They keep errno, and block signals while they hold the lock, so a
 * signal handler may call them, or leave by longjmp() whatever it interrupted.
 */
#ifndef KOPS_LIBBLAS_HEAP_H
#define KOPS_LIBBLAS_HEAP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HEAP_LEAST (UINT64_C(1) << 20) /* bytes; about where glibc maps an allocation of its own */

/* Read by heap_is_on() alone. */
extern _Atomic bool heap_begun;

/*
 * Begins, unless this process's memory has limits under which a block could not keep malloc()'s promises. Once,
 * while no other thread runs. heap_end(): there will be no blocks.
 */
bool heap_begin(void);
void heap_end(void);

/* Gives back what is cached, as if the program had never had more than now. */
void heap_clear(void);

static inline bool heap_is_on(void)
{
	return atomic_load_explicit(&heap_begun, memory_order_relaxed);
}

/*
 * Returns memory of at least `bytes`, of any content or zeroed. align: a power of two, or less for a page's.
 * NULL: another allocator has to give it.
 */
void *heap_get(uint64_t bytes, uint64_t align, bool zeroed);

/* Returns false if the memory is another allocator's. Aborts, as malloc() does, if it is freed already. */
bool heap_free(void *memory);

/* Returns the bytes that may be used; 0: the memory is another allocator's. */
uint64_t heap_size(const void *memory);

/*
 * Changes the size without copying, perhaps at another address. NULL: that is not possible, and nothing
 * changed.
 */
void *heap_resize(void *memory, uint64_t bytes);

/* ---- For kopsd ---- */

/* A part of a block. */
struct heap_part {
	uint64_t block; /* its number, never used again; 0: none */
	const char *base;
	uint64_t bytes; /* of the block */
};

/* Finds the block that has all of this memory, if kopsd may see it. */
bool heap_find(const void *memory, uint64_t bytes, struct heap_part *ret);

/*
 * Returns a descriptor of the block's memfd, to be imported and closed, or -1. Of a block that lacks pages, the
 * part that is wanted has to make up for them: kopsd may pin all of a block. Get the pages first: those that
 * kopsd touches first would be kopsd's, and not the program's.
 */
int heap_share(const struct heap_part *part, uint64_t wanted_bytes);

/* Returns true while the block is there and its memfd is its content. */
bool heap_is_shared(uint64_t block);

/*
 * Makes the memory's block private, or gives it back if it was freed. Then what kopsd still writes to this part
 * is not seen here.
 */
void heap_keep(void *memory, uint64_t bytes);

/*
 * How often something that was shared has been given back or made private; and who is told of what was given
 * back.
 */
uint64_t heap_releases(void);
void heap_tell_releases(void (*tell)(void));

#endif
