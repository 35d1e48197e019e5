/*
 * wait.h: waits for a job. Without --timeout it waits as long as kopsd answers. A terminal shows how far the
 * job is.
 */
#ifndef KOPS_CLI_VERB_WAIT_H
#define KOPS_CLI_VERB_WAIT_H

#include "cli.h"

/*
 * Runs the job, and tries again while kopsd's queue is full. device: where it goes; NULL: kopsd chooses.
 * Returns an exit code: that of the failure, or CLI_TIMED_OUT when --timeout is over, or when kopsd has
 * answered no question for cli->patience_ms. In both cases the job is cancelled.
 */
int wait_for_job(struct cli *cli, kops_job *job, const char *device);

#endif
