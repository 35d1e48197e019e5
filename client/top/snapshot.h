/* snapshot.h: all that kopsd says of its devices, users and sessions at one time. */
#ifndef KOPS_TOP_SNAPSHOT_H
#define KOPS_TOP_SNAPSHOT_H

#include "kops.h"

struct snapshot {
	double taken_us; /* CLOCK_MONOTONIC */
	kops_info *info; /* NULL: there is none yet */
	kops_list *users, *sessions;
};

/* Waits for kopsd. 0, or what kops_query() and kops_list_*() fail with; *ret is untouched then. */
int snapshot_take(kops *k, struct snapshot *ret);
void snapshot_free(struct snapshot *s);

/* As it was then; NULL: it was not there. */
const kops_usage *snapshot_user(const struct snapshot *s, uint32_t uid);
const kops_usage *snapshot_session(const struct snapshot *s, uint64_t session);

#endif
