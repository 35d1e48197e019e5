/* plan.h: which device runs a job, by which kernels, and how long that will take. */
#ifndef KOPS_PLAN_H
#define KOPS_PLAN_H

#include "job/job.h"

/* How far it is. Zeros beside device_name: it has not begun. */
struct planning {
	const char *device_name; /* where the job has to run; empty: anywhere */
	unsigned device, end;    /* the one at hand, and the end of those that come into question */
	unsigned n_planned;      /* ops on that */
	bool heeds_some;         /* of them by what jobs of their shape showed */
	bool plainly;            /* once more without, since with it the job could not run */
	bool was_at_fault;       /* for another reason than room */
	bool is_decided;         /* the device at hand is the one that it goes to */
	/* Of the best device so far; kind: NULL: there is none. */
	const struct backend *kind;
	double soonest_us;
	int refusal; /* by the first device that cannot do it */
};

#define PLAN_GOES_ON 1

/*
 * Plans the job on every device that it may use, and for the one that is expected to end it soonest:
 * job->sched.device. One call takes a step of some 20 us at most: PLAN_GOES_ON where there is another to take,
 * 0 at the end. KOPS_E_DEVICE, KOPS_E_UNSUPPORTED, KOPS_E_NOMEM, KOPS_E_QUOTA (too long for the settings),
 * KOPS_E_INTERRUPTED (such jobs ended the daemon before: marks.h), with a sentence in why.
 */
int job_plan(struct job *job, struct planning *planning, char why[WHY_BYTES]);

/* Whether a planned job that runs again should be planned anew, since another device would be through with it
 * clearly sooner. */
bool job_should_move(const struct job *job);

#endif
