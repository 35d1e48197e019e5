/*
 * uses.h: the buffers that a job names, and how it uses each. Loop thread only, except uses_pin().
 *
 * While a device has the job, its pages are claimed if memory is short, and buffers that are worth it are
 * registered for DMA.
 */
#ifndef KOPS_USES_H
#define KOPS_USES_H

#include "job/memory/buffer.h"

struct buffer_use {
	struct buffer *buffer; /* holds a reference */
	bool reads;            /* an op needs content from before the job */
	bool writes;           /* an op writes some of it */
	bool fills;            /* an op writes all of it */
	uint64_t reach_bytes;  /* bytes of whole pages that all views may touch */
	uint64_t lo, hi;       /* all views are within these bytes */
	/* In the buffer's list, while the job belongs to a prepared one. */
	struct job *job;
	struct list_link link;
	/* Valid from the job's start to its end. */
	bool pin;      /* register it before the run */
	bool was_lost; /* the job fills the buffer, whose content was lost */
	uint64_t claimed_bytes;
};

struct uses {
	struct buffer_use *list; /* each buffer once */
	unsigned n;
	bool beside; /* set before the start: the job runs beside others */
};

/* The first PENDING buffer; NULL: none. */
struct buffer *uses_pending(const struct uses *uses);

/*
 * Starts the use, when the job starts. pins: its device registers buffers; then *ret_pin says whether
 * uses_pin() must be called first. On failure nothing has changed: KOPS_E_NOMEM, or the code of a buffer that
 * could not be made, has lost what the job reads, or is frozen where the job writes, with a sentence in why.
 */
int uses_start(struct uses *uses, struct engine *engine, bool pins, bool *ret_pin, char why[WHY_BYTES]);

/* Returns true if a job that has started, and not ended, uses one of the buffers. beside: count only jobs that
 * run beside others. */
bool uses_meet(const struct uses *uses, bool beside);

/* Registers buffers for DMA, on a device's thread. */
void uses_pin(const struct uses *uses, const struct driver *driver);

/* Claims what the job may touch, unless it did, because memory has become short. Returns the bytes claimed
 * now. */
uint64_t uses_claim(struct uses *uses, bool pins);

/* Ends the use. done: the job wrote all of its outputs. */
void uses_end(struct uses *uses, bool done);

#endif
