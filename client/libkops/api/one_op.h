/* one_op.h: what one-op calls do before and after they add their op. */
#ifndef KOPS_CLIENT_ONE_OP_H
#define KOPS_CLIENT_ONE_OP_H

#include "libkops/base/state.h"

/* *ret_job is the job to add the op to. */
int client_one_op_begin(kops *k, kops_job **ret_job);

/* Runs the job; status is what adding the op returned. */
int client_one_op_finish(kops *k, int status);

#endif
