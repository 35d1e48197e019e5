/*
 * jobs.h: makes random jobs for check_plans, as hostile as a client may make them.
 *
 * A job is up to JOB_OPS ops over buffers that do not exist: planning looks at views, never at elements.
 */
#ifndef KOPS_TESTS_PLAN_JOBS_H
#define KOPS_TESTS_PLAN_JOBS_H

#include "check.h"
#include "device/driver.h"

#define JOB_OPS     4
#define JOB_BUFFERS (JOB_OPS * OP_OPERANDS_MAX)

struct plan_job {
	struct memory buffers[JOB_BUFFERS];
	struct run_op ops[JOB_OPS];
	struct run run;
};

/*
 * Makes ops that kopsd would plan: each view lies inside its buffer and the op's check takes it. owner: of
 * RESIDENT buffers. The same seed gives the same jobs everywhere.
 */
void plan_job_random(struct plan_job *job, const void *owner, struct random *r);

/* Writes a sentence about op i, for failures. */
void plan_job_describe(const struct plan_job *job, unsigned i, char *text, size_t size);

#endif
