/* python.c: what the Python package cannot do in Python, or only more slowly. */
#include <string.h>
#include <sys/mman.h>

#include "cpus.h"
#include "libkops/api/python.h"
#include "libkops/base/base.h"

bool kops_python_holds(const kops_python_held *places)
{
	for (const kops_python_held *at = places; at->bytes > 0; at++)
		if (memcmp(at->place, at->content, at->bytes))
			return false;
	return true;
}

int kops_python_keep_private(kops_buffer *b)
{
	if (!b->data)
		return client_fail(b->k, KOPS_E_INVALID,
		                   "a buffer without memory in this process cannot be copied");
	void *copy = mmap(NULL, b->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (copy == MAP_FAILED)
		return client_fail(b->k, KOPS_E_NOMEM, "out of memory for a copy of %llu bytes",
		                   (unsigned long long)b->bytes);
	memcpy(copy, b->data, b->bytes);
	if (mremap(copy, b->bytes, b->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, b->data) == b->data) {
		b->is_private = true;
		return 0;
	}
	munmap(copy, b->bytes);
	return client_fail(b->k, KOPS_E_NOMEM, "out of memory to map a copy of %llu bytes",
	                   (unsigned long long)b->bytes);
}

unsigned kops_python_cpus(void)
{
	return cpus_count();
}

/* ---- NumPy's memory ---- */

#define TRIES 3

static void *ask(const kops_python_numpy *python, enum kops_python_call what, void *address, size_t bytes)
{
	uint64_t answer[2] = {0}; /* whether there is an answer, and an address */
	void *exception[3];
	int state = python->enter();

	python->fetch(&exception[0], &exception[1], &exception[2]);
	/* A signal handler may raise before the function's first statement. */
	for (int i = 0; i < TRIES && !answer[0]; i++)
		python->call(what, address, bytes, answer);
	python->restore(exception[0], exception[1], exception[2]);
	python->leave(state);
	return (void *)(uintptr_t)answer[1];
}

void *kops_python_malloc(void *context, size_t bytes)
{
	return ask(context, KOPS_PYTHON_MALLOC, NULL, bytes);
}

void *kops_python_calloc(void *context, size_t count, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(count, size, &bytes))
		return NULL;
	return ask(context, KOPS_PYTHON_CALLOC, NULL, bytes);
}

void *kops_python_realloc(void *context, void *address, size_t bytes)
{
	return ask(context, KOPS_PYTHON_REALLOC, address, bytes);
}

void kops_python_free(void *context, void *address, size_t bytes)
{
	ask(context, KOPS_PYTHON_FREE, address, bytes);
}
