/* imports.c: a short list, searched from its beginning. */
#include "heap/imports.h"

#include <unistd.h>

#include "copy.h"

struct import *imports_find(struct imports *l, uint64_t block)
{
	for (struct import *i = l->at; i < l->at + l->n; i++)
		if (i->block == block) {
			i->used = ++l->uses;
			return i;
		}
	return NULL;
}

struct import *imports_in_the_way(struct imports *l)
{
	struct import *oldest = l->at;
	for (struct import *i = l->at; i < l->at + l->n; i++)
		if (i->used < oldest->used)
			oldest = i;
	return l->n == IMPORTS ? oldest : NULL;
}

struct import *imports_stale(struct imports *l)
{
	for (struct import *i = l->at; i < l->at + l->n; i++)
		if (!heap_is_shared(i->block))
			return i;
	return NULL;
}

int imports_add(struct imports *l, kops *k, const struct heap_part *part, uint64_t wanted_bytes)
{
	kops_buffer *buffer = NULL;
	int fd = heap_share(part, wanted_bytes);
	if (fd < 0)
		return KOPS_E_FD;
	bool has_pages = copy_get_pages((void *)(uintptr_t)part->base, part->bytes);
	int status = has_pages ? kops_import(k, fd, part->bytes, 0, &buffer) : KOPS_E_FD;
	close(fd);
	if (!has_pages)
		return status;
	if (status == KOPS_E_CONNECT || status == KOPS_E_TIMEOUT)
		return status;
	l->at[l->n++] = (struct import){.block = part->block, .used = ++l->uses, .buffer = buffer};
	return 0;
}

void imports_drop(struct imports *l, struct import *import)
{
	kops_free(import->buffer);
	*import = l->at[--l->n];
}
