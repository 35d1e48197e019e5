/* snapshot.h: the state of devices, users and sessions at one time. */
#ifndef KOPS_TOP_SNAPSHOT_H
#define KOPS_TOP_SNAPSHOT_H

#include "kops.h"

struct snapshot {
	double taken_us; /* CLOCK_MONOTONIC */
	kops_info *info; /* NULL: nothing was taken yet */
	kops_list *users, *sessions;
};

/* Asks kopsd. Blocks. Returns 0, or the error of kops_query() or kops_list_*(), with *ret untouched. */
int snapshot_take(kops *k, struct snapshot *ret);
void snapshot_free(struct snapshot *s);

/* Return what it was then; NULL: it was not there. */
const kops_usage *snapshot_user(const struct snapshot *s, uint32_t uid);
const kops_usage *snapshot_session(const struct snapshot *s, uint64_t session);

#endif
