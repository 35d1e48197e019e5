/* mapping.c: the memory of SHARED buffers in this process. */
#include <errno.h>
#include <sys/mman.h>

#include "libkops/job/mapping.h"

void *client_map(const kops_buffer *b, int fd, int protection, int flags)
{
	void *data = mmap(NULL, b->bytes, protection, MAP_SHARED | flags, fd, 0);
	if (data != MAP_FAILED && !b->attached && madvise(data, b->bytes, MADV_DONTFORK) < 0) {
		int error = errno;
		munmap(data, b->bytes);
		errno = error;
		return MAP_FAILED;
	}
	return data;
}

/* All that may fail comes before the old mapping goes. */
int client_map_over(kops_buffer *b, int fd, int protection)
{
	void *data = client_map(b, fd, protection, 0);
	if (data == MAP_FAILED)
		return -1;
	if (!b->data) {
		b->data = data;
		return 0;
	}
	if (mremap(data, b->bytes, b->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, b->data) != MAP_FAILED)
		return 0;
	munmap(data, b->bytes);
	return -1;
}

void client_unmap(kops_buffer *b)
{
	if (b->data && !client_is_copy(b->k))
		munmap(b->data, b->bytes);
	b->data = NULL;
}
