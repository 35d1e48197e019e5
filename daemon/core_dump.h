/*
 * core_dump.h: what core dumps leave out. Users' matrices do not belong in a file that outlives them, and would
 * make it as large as all their memory. The setting dump-matrices includes them.
 */
#ifndef KOPS_CORE_DUMP_H
#define KOPS_CORE_DUMP_H

#include <stdbool.h>
#include <stdint.h>

/* Call it before any memory is mapped for matrices. Initially they are left out. */
void core_dump_include_matrices(bool include);

/* Excludes a new mapping of matrices, or of data computed from them. Any thread. */
void core_dump_exclude(void *address, uint64_t bytes);

/*
 * Excludes libraries' mappings, such as the buffers into which OpenBLAS copies operands. Libraries do not say
 * where these are, so this takes all anonymous mappings that are as large. A core still contains threads'
 * registers and stacks. May be called in a signal handler.
 */
void core_dump_exclude_libraries(void);

#endif
