/*
 * python.h: what the Python package needs of libkops beyond kops.h. It is not installed, and its symbols have a
 * version of their own (kops.map): they may change with every release. A Python package serves the libkops of
 * its own version only.
 */
#ifndef KOPS_PYTHON_H
#define KOPS_PYTHON_H

#include "kops.h"

#pragma GCC visibility push(default)

/* A place in memory, and the bytes that it held. */
typedef struct kops_python_held {
	const void *place, *content;
	size_t bytes;
} kops_python_held;

/*
 * Returns true if every place still holds its bytes. An entry of 0 bytes ends the list. Places are compared in
 * order up to the first difference, so a place may depend on a pointer in an earlier one.
 */
bool kops_python_holds(const kops_python_held *places);

/*
 * The number of CPUs that the process can keep busy, at least 1: those that the thread may run on, or fewer
 * where a cgroup limits the process's CPU time. Reads files of /proc and /sys, in about 0.1 ms.
 */
unsigned kops_python_cpus(void);

/*
 * Replaces the memory of a SHARED buffer in this process by a private copy, at the same address: this process
 * no longer sees what a job writes to the buffer. kops_free() frees the copy. Copies the whole buffer.
 * KOPS_E_INVALID for a buffer without memory here; KOPS_E_NOMEM. Nothing has changed after an error.
 */
int kops_python_keep_private(kops_buffer *buffer);

enum kops_python_call {
	KOPS_PYTHON_MALLOC = 0,
	KOPS_PYTHON_CALLOC = 1,
	KOPS_PYTHON_REALLOC = 2,
	KOPS_PYTHON_FREE = 3,
};

/*
 * The context of the four functions below. NumPy also calls its memory handler (NEP 49) while an exception is
 * set, when no Python function may be called. So these functions put the exception aside, call `call`, which is
 * in Python, and restore the exception. `call` sets answer[1] to an address, and then answer[0] to 1. If a
 * signal handler raises before that, it is called again. The other members are CPython's functions.
 */
typedef struct kops_python_numpy {
	int (*enter)(void);                                         /* PyGILState_Ensure() */
	void (*leave)(int state);                                   /* PyGILState_Release() */
	void (*fetch)(void **type, void **value, void **traceback); /* PyErr_Fetch() */
	void (*restore)(void *type, void *value, void *traceback);  /* PyErr_Restore() */
	void (*call)(enum kops_python_call what, void *address, size_t bytes, uint64_t answer[2]);
} kops_python_numpy;

/* The functions of a NumPy memory handler whose context is a kops_python_numpy. Only NumPy calls them. */
void *kops_python_malloc(void *context, size_t bytes);
void *kops_python_calloc(void *context, size_t count, size_t size);
void *kops_python_realloc(void *context, void *address, size_t bytes);
void kops_python_free(void *context, void *address, size_t bytes);

#pragma GCC visibility pop

#endif
