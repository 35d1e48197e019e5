/*
 * trace.h: the latest jobs that were answered, of all users. New entries overwrite the oldest. Loop thread
 * only.
 */
#ifndef KOPS_TRACE_H
#define KOPS_TRACE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "kernel.h"

#define TRACE_ENTRIES 1024u /* a power of 2 */

/* Texts belong to kernels and devices, which outlive the entry. */
struct trace_entry {
	uint64_t session, job; /* the session's serial, and the request's id */
	uint64_t ended_ns;
	const char *device, *op, *kernel; /* of the first op */
	struct op_shape shape;            /* likewise */
	struct cost cost;
	double queue_us, upload_us, compute_us, download_us, total_us;
	uid_t uid;
	pid_t pid;
	int16_t status;
	uint8_t n_ops;
	bool prepared, graph, by_ring;
};

struct trace {
	uint64_t n; /* ever */
	struct trace_entry entries[TRACE_ENTRIES];
};

/* Returns the next entry, to be filled. */
static inline struct trace_entry *trace_next(struct trace *trace)
{
	return &trace->entries[trace->n++ % TRACE_ENTRIES];
}

/* Entry number `sequence`, from 1; NULL: it does not exist or was overwritten. */
static inline const struct trace_entry *trace_at(const struct trace *trace, uint64_t sequence)
{
	if (sequence == 0 || sequence > trace->n || trace->n - sequence >= TRACE_ENTRIES)
		return NULL;
	return &trace->entries[(sequence - 1) % TRACE_ENTRIES];
}

#endif
