/*
 * exchange.h: two runs on two devices that need the same operands: each uploads half of them and takes the
 * other half from the other device, so that they cross the link to the host once. For the two tiles of an op
 * (job/spread.h), if both are streamed (stage.h) in one slice.
 *
 * The threads of both devices start their runs at about the same time. In its start() each run (mover.c)
 *
 *     1. enqueues the uploads of all its parts, but for the other's halves, with a mark behind each part;
 *     2. offers the images and marks to the other: exchange_offer();
 *     3. asks for the other's offer: exchange_take(). If it comes, enqueues copies of the other's halves, each
 *        behind the mark of its part: exchange_took(). Else it uploads these halves too;
 *     4. enqueues kernels and downloads;
 *     5. withdraws its offer: exchange_withdraw(). Where the other has taken something, this run ends behind
 *        the last copy: its memory may then become another user's.
 *
 * A run that fails, or cannot take part, withdraws too, whether or not it has offered anything.
 *
 *     offer    ABSENT ──offer──→ OFFERED ──withdraw──→ WITHDRAWN      (ABSENT → WITHDRAWN)
 *     taking   UNDECIDED ──take──→ TAKING ──took──→ DECIDED           (UNDECIDED → DECIDED: nothing is taken)
 *
 * Nobody waits for ever:
 *     - Streams wait for marks only. What is before a mark was enqueued before the offer, and waits for nothing
 *       of another device, also where a device has fewer queues than streams.
 *     - A thread waits for EXCHANGE_WAIT_US at most until the other has offered, and at the end for as long
 *       until the other has decided; then for TAKING to end, in which the other only enqueues.
 */
#ifndef KOPS_PLAN_EXCHANGE_H
#define KOPS_PLAN_EXCHANGE_H

#include "plan/run.h"

/* A thread that waits starts no other run meanwhile. */
#define EXCHANGE_WAIT_US 1000u

struct exchange;

/* What a run lets the other take. */
struct exchange_offer {
	/* Of shared operands, which are the same in both runs but for the address. */
	const char *images[OP_OPERANDS_MAX];
	void *const *marks; /* behind the uploads of each part */
};

/*
 * Makes an exchange of two planned runs whose ops have the same operands shared (struct run_op), and sets
 * run->exchange and run->side. NULL: out of memory, a run is not streamed in one slice, or the parts of both do
 * not have the same pieces of these operands. Both runs must be at rest when it is freed.
 */
struct exchange *exchange_new(struct run *first, struct run *second);
void exchange_free(struct exchange *x); /* NULL allowed */

/* Before both runs start. With is_on false, each uploads all that it needs by itself. */
void exchange_begin(struct exchange *x, bool is_on);
/* Whether the run is to take part. */
bool exchange_is_on(const struct run *run);

/* By the thread that starts the run. */
void exchange_offer(const struct run *run, const struct exchange_offer *offer);
/* NULL: there is none, or not in time. The offer stays valid until exchange_took(), which has to follow. */
const struct exchange_offer *exchange_take(const struct run *run);
/* mark: behind all that was taken. */
void exchange_took(const struct run *run, void *mark);
/* Returns the other's mark behind what it has taken; NULL: it has taken nothing, and never will. */
void *exchange_withdraw(const struct run *run);

#endif
