/*
 * errands.h: work on the loop that grows with what a user has: the end of a session, buffers that go, looks for
 * memory that nobody holds any more. It is done in the user's own turns (turns.h), a few steps in each, so
 * other users never wait for all of it. The user pays for it as for its requests.
 *
 * A user's errands go round, step by step. They go before its sessions, so a client that comes again finds what
 * its last session held given back as far as the loop is concerned. Loop thread only.
 */
#ifndef KOPS_ERRANDS_H
#define KOPS_ERRANDS_H

#include "share/turns.h"

#define ERRANDS_STEPS 16u    /* at most in one turn, and … */
#define ERRANDS_NS    10000u /* … none begins later than this in it */

struct errand {
	struct list_link link; /* while it waits for its next step */
	/* Some µs at most. False: it was the last step, and the errand may be freed. NULL: the errand is not
	 * out. */
	bool (*step)(struct errand *errand);
};

/* Of one user, as part of an account. */
struct errands {
	struct turns *turns;
	struct turns_place place;
	struct list waiting;
};

void errands_init(struct errands *errands, struct turns *turns, struct turns_user *user);

/* The errand must not be out. It keeps a reference to the user's account, if only by what it is a part of. */
void errands_add(struct errands *errands, struct errand *errand, bool (*step)(struct errand *errand));

/* All of them at once, and those that they add: kopsd stops. */
void errands_finish(struct errands *errands);

#endif
