/* host_mover.h: copies operands to and from a device whose memory is this process's, one element at a time. */
#ifndef KOPS_TESTS_HOST_MOVER_H
#define KOPS_TESTS_HOST_MOVER_H

#include <string.h>

#include "plan/mover.h"

/* Returns the offset of element i, by these strides. */
static inline uint64_t host_offset(const struct layout *l, const uint64_t strides[KOPS_RANK_MAX], uint64_t i)
{
	uint64_t at = 0;

	for (uint32_t d = 0; d < l->rank; i /= l->extent[d++])
		at += i % l->extent[d] * strides[d];
	return at * l->element;
}

static inline int host_upload(const struct layout *l, const void *host, bool pinned, void *image,
                              struct stream *stream)
{
	(void)pinned;
	(void)stream;
	for (uint64_t i = 0; i < l->bytes / l->element; i++)
		memcpy((char *)image + host_offset(l, l->image_stride, i),
		       (const char *)host + l->lowest + host_offset(l, l->host_stride, i), l->element);
	return 0;
}

static inline int host_download(const struct layout *l, void *host, bool pinned, const void *image,
                                struct stream *stream)
{
	(void)pinned;
	(void)stream;
	for (uint64_t i = 0; i < l->bytes / l->element; i++)
		memcpy((char *)host + l->lowest + host_offset(l, l->host_stride, i),
		       (const char *)image + host_offset(l, l->image_stride, i), l->element);
	return 0;
}

static inline int host_settle(struct stream *stream)
{
	(void)stream;
	return 0;
}

static inline int host_follow(struct stream *before, struct stream *after, void *mark)
{
	(void)before;
	(void)after;
	(void)mark;
	return 0;
}

/* All is done at once, so what is before a mark is through when others see it. */
static inline int host_mark(struct stream *stream, void *mark)
{
	(void)stream;
	(void)mark;
	return 0;
}

static inline int host_copy(const struct layout *l, const void *from, void *to, struct stream *stream)
{
	struct layout there = *l;

	/* As from memory that lies like the image. */
	there.lowest = 0;
	memcpy(there.host_stride, there.image_stride, sizeof there.host_stride);
	return host_upload(&there, from, true, to, stream);
}

static const struct stage_mover host_mover = {
    .upload = host_upload,
    .download = host_download,
    .settle = host_settle,
    .follow = host_follow,
    .mark = host_mark,
    .await = host_mark,
    .copy = host_copy,
};

#endif
