/* jobs.h: what concerns many queued jobs: those that wait for a buffer, and all. */
#ifndef KOPS_JOBS_H
#define KOPS_JOBS_H

#include "job/engine.h"

/* Sets up what dispatch/ has of the engine. Its loop and timers are there. */
void jobs_init(struct engine *engine);

/* Whether some buffer that it names is PENDING. Then the job waits in the list of the first one. */
bool job_waits_for_buffers(struct job *job);

/*
 * The engine's buffer_settled: jobs that waited for this buffer may start, or wait for their next one. There
 * may be thousands, so it is an errand of their user.
 */
void jobs_unblock(struct buffer *buffer);

/* Ends every queued job with KOPS_E_SHUTDOWN. */
void jobs_shut_down(struct engine *engine);

#endif
