/* imports.h: the blocks of the program's memory (heap.h) that a handle has imported, or that kopsd refused. */
#ifndef KOPS_LIBBLAS_IMPORTS_H
#define KOPS_LIBBLAS_IMPORTS_H

#include <stdint.h>

#include "heap/heap.h"
#include "kops.h"

#define IMPORTS 64

struct import {
	uint64_t block, used;
	kops_buffer *buffer; /* NULL: kopsd refused it, as beyond a limit, and is not asked again */
};

struct imports {
	struct import at[IMPORTS];
	unsigned n;
	uint64_t uses, seen; /* seen: heap_releases() when they were last looked through */
};

/* Returns NULL if there is none. Else the import counts as used. */
struct import *imports_find(struct imports *imports, uint64_t block);

/* Returns the import whose place another one may take, or NULL if there is a free place. */
struct import *imports_in_the_way(struct imports *imports);

/* Returns an import of a block that is gone or private, or NULL. */
struct import *imports_stale(struct imports *imports);

/*
 * Imports a block to a free place. Blocks for a round trip. Returns 0, also if kopsd refused; KOPS_E_CONNECT or
 * KOPS_E_TIMEOUT; or KOPS_E_FD if the block cannot be shared now.
 */
int imports_add(struct imports *imports, kops *k, const struct heap_part *part, uint64_t wanted_bytes);

/* Frees the buffer. Free the jobs that use it before. */
void imports_drop(struct imports *imports, struct import *import);

#endif
