/* jobs.h: what concerns all queued jobs. server.c calls it. */
#ifndef KOPS_JOBS_H
#define KOPS_JOBS_H

#include "job/engine.h"

/* Sets up what dispatch/ has of the engine. Its loop and timers are there. */
void jobs_init(struct engine *engine);

/* The engine's buffer_settled: a buffer has become READY or FAILED, so jobs that waited for it may start. */
void jobs_unblock(struct engine *engine);

/* Ends every queued job with KOPS_E_SHUTDOWN. */
void jobs_shut_down(struct engine *engine);

#endif
