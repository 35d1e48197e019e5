/*
 * core_dump.h: what core dumps leave out. Matrices of users do not belong in a file that outlives them, and
 * would make it as large as all their memory. The setting dump-matrices puts them in.
 */
#ifndef KOPS_CORE_DUMP_H
#define KOPS_CORE_DUMP_H

#include <stdbool.h>
#include <stdint.h>

/* Before any memory is mapped for matrices; at first they are left out. */
void core_dump_include_matrices(bool include);

/* A new mapping is for matrices, or for what is computed of them. Any thread. */
void core_dump_exclude(void *address, uint64_t bytes);

/*
 * The same for what libraries mapped for themselves, such as the buffers into which OpenBLAS copies operands.
 * They tell nobody where these are, so all anonymous mappings that are as large are taken for such. What a
 * thread has in its registers and on its stack stays in a core. May be called in a signal handler.
 */
void core_dump_exclude_libraries(void);

#endif
