/*
 * stream.h: runs an op on large files in blocks of the result's rows. While kopsd computes a block, the next
 * one is read and the one before is written.
 *
 *   read    a thread reads the rows that the next block needs
 *   compute the calling thread sends a job for each block; two are in flight
 *   write   a thread appends each block that is done to the file of -o
 *
 * The blocks take turns in four slots of shared memory. So that memory is touched for the first time once, not
 * for every byte of the files: that takes longer than reading it again from the page cache. Operands that every
 * block needs, such as b of a product, are read whole before.
 */
#ifndef KOPS_CLI_VERB_STREAM_H
#define KOPS_CLI_VERB_STREAM_H

#include "verb/job.h"

struct stream; /* opaque */

/*
 * Returns NULL if the pipeline must have everything in memory at once: it has more than one op, checks or
 * prints the result, writes it elsewhere than to a file that appears when it is complete, the op has no
 * independent rows, or two blocks would not be worth it. Also if memory is out. The pipeline must outlive the
 * stream.
 */
struct stream *stream_new(struct pipeline *pipeline);

/* Reads, sends, writes, and sets the pipeline's job, receipt and times. Once. Returns an exit code. */
int stream_run(struct stream *stream);

void stream_free(struct stream *stream); /* NULL is allowed */

#endif
