/*
 * mover.h: moves the copies that a stage has planned (stage.h) to a device and back, for a driver.
 *
 * Within a run that is not streamed: a copy is uploaded when an op first reads it, and downloaded when the run
 * ends or another view of the same bytes is touched.
 */
#ifndef KOPS_PLAN_MOVER_H
#define KOPS_PLAN_MOVER_H

#include "plan/stage.h"

/*
 * How a driver moves elements. Enqueued on the stream; of host memory that is not pinned, upload and download
 * return after the elements were read or written, and their caller has called settle() where anything may still
 * write them. 0, KOPS_E_NOMEM or KOPS_E_FAULT. host: the memory's first byte.
 */
struct stage_mover {
	int (*upload)(const struct layout *layout, const void *host, bool pinned, void *image,
	              struct stream *stream);
	int (*download)(const struct layout *layout, void *host, bool pinned, const void *image,
	                struct stream *stream);
	int (*settle)(struct stream *stream); /* blocks until all that is enqueued is through */
	/* What is enqueued on `after` from here on waits for all that is on `before` by now. */
	int (*follow)(struct stream *before, struct stream *after, void *mark);
	/* The same in two steps, by a mark that may be of another device. Of runs that exchange operands. */
	int (*mark)(struct stream *before, void *mark);
	int (*await)(struct stream *after, void *mark);
	/* Copies a part of an image to the same part of another image, whose lowest elements are given. */
	int (*copy)(const struct layout *layout, const void *from, void *to, struct stream *stream);
};

/*
 * These enqueue on stage->stream, and transfers of a streamed run on its other two. 0, KOPS_E_NOMEM or
 * KOPS_E_FAULT.
 *
 * begin_slice: before the other calls of a slice. upload_all: copies whose first use is a read of what no op of
 * this run wrote before; of a streamed run what its first part needs, and of one that exchanges operands
 * (exchange.h) all that its parts do. begin_part: what a part of op i still lacks, and the op's args with
 * device addresses. end_part: notes what the part has written; a streamed run downloads it. download_all: every
 * written copy that is not downloaded yet. end_slice: the stream waits for all transfers if the run `ends`, in
 * failure too; else they go on while the run is paused.
 */
int stage_begin_slice(struct stage *stage);
int stage_upload_all(struct stage *stage);
int stage_begin_part(struct stage *stage, unsigned i, uint32_t part, struct op_args *ret_args);
int stage_end_part(struct stage *stage, unsigned i, uint32_t part);
int stage_download_all(struct stage *stage);
int stage_end_slice(struct stage *stage, bool ends);
/* Blocks until no transfer of a paused run is under way, which will not go on. 0 or KOPS_E_FAULT. */
int stage_abandon(struct stage *stage);

#endif
