/* bind.h: from the ops of a Submit to a job's: decoded, bound to buffers of the session, checked by their op.
 */
#ifndef KOPS_BIND_H
#define KOPS_BIND_H

#include "job/job.h"
#include "session/verbs.h"

/*
 * Ops [first, end) of the job, which has as many as the message; all before are bound. It holds their buffers.
 * What the wire or an op forbids is refused with its code and a sentence in r->why, which names the op where
 * there are several.
 */
int bind_ops(struct request *r, const Kops__V1__Submit *submit, struct job *job, unsigned first, unsigned end);

#endif
