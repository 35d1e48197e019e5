/*
 * wait.h: waits for jobs. Without --timeout it waits as long as kopsd answers. A terminal shows how far the
 * job is.
 */
#ifndef KOPS_CLI_VERB_WAIT_H
#define KOPS_CLI_VERB_WAIT_H

#include "cli.h"

/* How far a running job is. */
struct wait_share {
	double done; /* 0 to 1 */
	double running_us, expected_us;
};

struct wait_how {
	const char *device; /* where the job goes; NULL: kopsd chooses */
	bool is_sent;       /* kops_submit() has been called */
	double until_us;    /* when --timeout is over, if it was given; 0: counted from now on */
	/* Called on a terminal while the job runs, instead of showing this one job. */
	void (*tell)(void *user, const struct wait_share *share);
	void *user;
};

/*
 * Runs the job, and tries again while kopsd's queue is full. how may be NULL. Returns an exit code: that of the
 * failure, or CLI_TIMED_OUT when --timeout is over, or when kopsd has answered no question for
 * cli->patience_ms. In both cases the job is cancelled.
 */
int wait_for_job(struct cli *cli, kops_job *job, const struct wait_how *how);

#endif
