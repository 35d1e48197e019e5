/* jobs.h: handles many queued jobs at once: those that wait for a buffer, and all. */
#ifndef KOPS_JOBS_H
#define KOPS_JOBS_H

#include "job/engine.h"

/* Sets up dispatch/'s members of the engine, whose loop and timers are set. */
void jobs_init(struct engine *engine);

/* Returns true if a buffer of the job is PENDING. The job then waits in the list of the first such buffer. */
bool job_waits_for_buffers(struct job *job);

/*
 * The engine's buffer_settled: lets jobs that waited for this buffer start, or wait for their next one. There
 * may be thousands, so it is an errand of their user.
 */
void jobs_unblock(struct buffer *buffer);

/* Ends every queued job with KOPS_E_SHUTDOWN. */
void jobs_shut_down(struct engine *engine);

#endif
