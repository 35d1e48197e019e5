/* host_mover.h: copies operands to and from a device whose memory is this process's, one element at a time. */
#ifndef KOPS_TESTS_HOST_MOVER_H
#define KOPS_TESTS_HOST_MOVER_H

#include <string.h>

#include "plan/stage.h"

/* Returns the offset of element i of the image in host memory. */
static inline uint64_t host_offset(const struct layout *l, uint64_t i)
{
	uint64_t at = 0;

	for (uint32_t d = 0; d < l->rank; i /= l->extent[d++])
		at += i % l->extent[d] * l->host_stride[d];
	return l->lowest + at * l->element;
}

static inline int host_upload(const struct layout *l, const void *host, bool pinned, void *image,
                              struct stream *stream)
{
	(void)pinned;
	(void)stream;
	for (uint64_t i = 0; i < l->bytes / l->element; i++)
		memcpy((char *)image + i * l->element, (const char *)host + host_offset(l, i), l->element);
	return 0;
}

static inline int host_download(const struct layout *l, void *host, bool pinned, const void *image,
                                struct stream *stream)
{
	(void)pinned;
	(void)stream;
	for (uint64_t i = 0; i < l->bytes / l->element; i++)
		memcpy((char *)host + host_offset(l, i), (const char *)image + i * l->element, l->element);
	return 0;
}

static inline int host_settle(struct stream *stream)
{
	(void)stream;
	return 0;
}

static const struct stage_mover host_mover = {host_upload, host_download, host_settle};

#endif
