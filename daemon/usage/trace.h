/*
 * trace.h: the latest jobs that were answered, of all users: a ring that overwrites the oldest. Loop thread
 * only.
 */
#ifndef KOPS_TRACE_H
#define KOPS_TRACE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "kernel.h"

#define TRACE_ENTRIES 1024u /* a power of 2 */

/* Texts are of kernels and devices, which outlive it. */
struct trace_entry {
	uint64_t session, job; /* its serial, and the request's id */
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

/* The place of the next one, to be filled. */
static inline struct trace_entry *trace_next(struct trace *trace)
{
	return &trace->entries[trace->n++ % TRACE_ENTRIES];
}

/* Number `sequence`, from 1; NULL: it is not there, or not any more. */
static inline const struct trace_entry *trace_at(const struct trace *trace, uint64_t sequence)
{
	if (sequence == 0 || sequence > trace->n || trace->n - sequence >= TRACE_ENTRIES)
		return NULL;
	return &trace->entries[(sequence - 1) % TRACE_ENTRIES];
}

#endif
