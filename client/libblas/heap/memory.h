/* memory.h: the memfd of a block and its mapping. */
#ifndef KOPS_LIBBLAS_MEMORY_H
#define KOPS_LIBBLAS_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct memory {
	char *base;
	uint64_t bytes; /* whole pages */
	int fd;         /* -1: none any more */
	dev_t device;   /* of the file; the program may close fd and open another file under its number */
	ino_t inode;
};

uint64_t memory_page_bytes(void);

/* Makes zeroed memory, at a multiple of align, a power of two. Children of fork() do not have it. */
bool memory_make(struct memory *ret, uint64_t bytes, uint64_t align);
void memory_free(struct memory *memory);

/* Closes the descriptor alone. */
void memory_close(struct memory *memory);

/* Changes the size, and perhaps the address. Returns false, and changed nothing, if that is not possible. */
bool memory_resize(struct memory *memory, uint64_t bytes);

/*
 * Fixes the size. Returns a duplicate of the descriptor, or -1 if it is lost, or if more than wanted_bytes of
 * the pages are not there.
 */
int memory_seal(struct memory *memory, uint64_t wanted_bytes);

/* Gets all pages. Returns false if they cannot be had. */
bool memory_populate(const void *base, uint64_t bytes);

/*
 * Ends sharing: stores of this process are seen by nobody else, and children of fork() get a copy. Closes the
 * descriptor. In one step for other threads, unless the descriptor was lost. False: the system has no memory.
 */
bool memory_make_private(struct memory *memory);

/* Copies the pages of private memory, so that stores into the file are no longer seen. Changes no byte. */
void memory_touch(void *memory, uint64_t bytes);

#endif
