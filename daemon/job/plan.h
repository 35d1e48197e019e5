/* plan.h: which device runs a job, by which kernels, and how long that will take. */
#ifndef KOPS_PLAN_H
#define KOPS_PLAN_H

#include "job/job.h"

/*
 * Plans the job on every device that it may use (device_name; empty: any), and for the one that is expected to
 * end it soonest: job->sched.device. KOPS_E_DEVICE, KOPS_E_UNSUPPORTED, KOPS_E_NOMEM, KOPS_E_QUOTA (too long
 * for the settings), KOPS_E_INTERRUPTED (such jobs ended the daemon before: marks.h), with a sentence in why.
 */
int job_plan(struct job *job, const char *device_name, char why[WHY_BYTES]);

/* Whether a planned job that runs again should be planned anew, since another device would be through with it
 * clearly sooner. */
bool job_should_move(const struct job *job);

#endif
