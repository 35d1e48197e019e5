/*
 * wait.h: a job until its end. Without --timeout that takes as long as kopsd answers; a terminal shows how far
 * the job is.
 */
#ifndef KOPS_CLI_VERB_WAIT_H
#define KOPS_CLI_VERB_WAIT_H

#include "cli.h"

/*
 * Runs the job, again and again while kopsd's queue is full. device: where it goes; NULL: kopsd chooses. An
 * exit code: that of its failure; CLI_TIMED_OUT when --timeout is over, and the job is cancelled then, or when
 * kopsd has not answered any question for cli->patience_ms.
 */
int wait_for_job(struct cli *cli, kops_job *job, const char *device);

#endif
