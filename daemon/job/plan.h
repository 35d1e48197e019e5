/* plan.h: decides which device runs a job, by which kernels, and how long that will take. */
#ifndef KOPS_PLAN_H
#define KOPS_PLAN_H

#include "job/job.h"

/* The state of planning. Initially zeros, except device_name. */
struct planning {
	const char *device_name; /* the device, or devices, that the job asks for: device_is_meant() */
	bool has_begun;
	unsigned device;    /* the one being planned for */
	unsigned n_planned; /* ops planned on that device */
	bool heeds_some;    /* some ops use what jobs of their shape showed */
	bool plainly;       /* plan again without that, because the job could not run with it */
	bool was_at_fault;  /* it failed for a reason other than room */
	bool is_decided;    /* the current device is the chosen one */
	/* The best device so far; kind NULL: none. */
	const struct driver *kind;
	double soonest_us;
	int refusal; /* error of the first device that cannot run the job */
};

#define PLAN_GOES_ON 1

/*
 * Plans the job on every device that it may use, then for the one that should end it first: job->sched.device.
 * A call takes a step of at most 20 us. Returns PLAN_GOES_ON if there are more steps, 0 at the end.
 * KOPS_E_DEVICE, KOPS_E_UNSUPPORTED, KOPS_E_NOMEM, KOPS_E_QUOTA (too long for the settings), KOPS_E_INTERRUPTED
 * (such jobs ended the daemon before: marks.h), with a sentence in why.
 */
int job_plan(struct job *job, struct planning *planning, char why[WHY_BYTES]);

/* Returns true if a READY job should be planned again, because another device would end it clearly sooner. */
bool job_should_move(const struct job *job);

#endif
