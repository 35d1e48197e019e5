/* entries.h: devices, users and sessions with their rates between two snapshots, for text and for JSON. */
#ifndef KOPS_TOP_ENTRIES_H
#define KOPS_TOP_ENTRIES_H

#include <stddef.h>

#include "snapshot.h"
#include "top.h"

struct device_rates {
	const kops_device_info *device;
	double jobs_per_s, busy; /* busy: share of the time, 0 to 1 */
};

/* Returns the rates of device i of the second snapshot. */
struct device_rates device_rates_of(const struct snapshot *before, const struct snapshot *now, size_t i);

/* A user or a session. */
struct entry {
	const kops_user_info *user;
	const kops_session_info *session;
	const kops_usage *usage;
	uint64_t queued;
	double jobs_per_s, device_share;
};

/*
 * Return the *ret_n entries of the second snapshot, the largest by `sort` first. Only users with sessions are
 * listed. The caller frees them with free(). NULL and 0: out of memory.
 */
struct entry *entries_of_users(const struct snapshot *before, const struct snapshot *now, enum top_sort sort,
                               size_t *ret_n);
struct entry *entries_of_sessions(const struct snapshot *before, const struct snapshot *now, enum top_sort sort,
                                  size_t *ret_n);

#endif
