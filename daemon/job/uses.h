/*
 * uses.h: the buffers that a job names, and what it does with each. Loop thread only, but for uses_pin().
 *
 * While a device has the job, its pages are claimed where memory is short, and buffers that are worth it are
 * registered for DMA.
 */
#ifndef KOPS_USES_H
#define KOPS_USES_H

#include "job/buffer.h"

struct buffer_use {
	struct buffer *buffer; /* a reference */
	bool reads;            /* some op needs content from before the job */
	bool fills;            /* an op writes all of it */
	uint64_t reach_bytes;  /* at most so many are touched: of whole pages, of all views */
	uint64_t lo, hi;       /* all views are between these bytes */
	/* While the job is a prepared one's: in the buffer's list. */
	struct job *job;
	struct list_link link;
	/* From the job's start to its end. */
	bool pin;      /* to be registered before the run */
	bool was_lost; /* fills it, and it was lost before */
	uint64_t claimed_bytes;
};

struct uses {
	struct buffer_use *list; /* each buffer once */
	unsigned n;
};

/* The first buffer that is not there yet. NULL: all are. */
struct buffer *uses_pending(const struct uses *uses);

/*
 * The job starts. pins: its device registers buffers; then *ret_pin says whether uses_pin() is to do so first.
 * KOPS_E_NOMEM, or the code of a buffer that could not be made or has lost what the job reads, with a sentence
 * in why; nothing has changed then.
 */
int uses_start(struct uses *uses, struct engine *engine, bool pins, bool *ret_pin, char why[WHY_BYTES]);

/* On a device's thread. */
void uses_pin(const struct uses *uses, const struct backend *backend);

/* Claims what the job may touch, if it has not: memory has become short. Returns what is promised anew. */
uint64_t uses_claim(struct uses *uses, bool pins);

/* The job is through. done: it wrote what it was to write. */
void uses_end(struct uses *uses, bool done);

#endif
