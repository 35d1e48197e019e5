/* bind.h: decodes the ops of a Submit into a job's, binds them to buffers of the session, and has each op check
 * them. */
#ifndef KOPS_BIND_H
#define KOPS_BIND_H

#include "job/job.h"
#include "session/verbs.h"

/*
 * Binds ops [first, end) of the job, which has as many ops as the message; all before must be bound. The job
 * then holds their buffers. If the wire or an op forbids it: a code, with a sentence in r->why that names the
 * op if there are several.
 */
int bind_ops(struct request *r, const Kops__V1__Submit *submit, struct job *job, unsigned first, unsigned end);

#endif
