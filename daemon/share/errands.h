/*
 * errands.h: work on the loop that grows with what a user has: ending sessions, releasing buffers, finding lent
 * memory that nobody holds. It is done in the user's own turns (turns.h), a few steps in each. So other users
 * never wait for all of it, and the user pays for it as for its requests.
 *
 * A user's errands take steps in rotation. They run before its sessions. So when a client reconnects, the loop
 * has already released what its last session held. Loop thread only.
 */
#ifndef KOPS_ERRANDS_H
#define KOPS_ERRANDS_H

#include "share/turns.h"

#define ERRANDS_STEPS 16u    /* the most steps of a turn */
#define ERRANDS_NS    10000u /* after this time a turn starts no more steps */

struct errand {
	struct list_link link; /* while it waits for its next step */
	/* Does a step of a few µs. Returns false after the last step; the errand may then be freed. NULL: the
	 * errand is not queued. */
	bool (*step)(struct errand *errand);
};

/* A user's errands, as part of an account. */
struct errands {
	struct turns *turns;
	struct turns_waiter waiter;
	struct list waiting;
};

void errands_init(struct errands *errands, struct turns *turns, struct turns_user *user);

/* Queues an errand that is not queued. The errand must keep the user's account alive until it ends. */
void errands_add(struct errands *errands, struct errand *errand, bool (*step)(struct errand *errand));

/* Does all errands at once, and those that they add, when kopsd stops. */
void errands_finish(struct errands *errands);

#endif
