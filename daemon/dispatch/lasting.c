#include "dispatch/lasting.h"

#include <math.h>

#include "base/clock.h"
#include "base/timers.h"

bool job_is_lasting(const struct job *job, uint64_t now)
{
	return now - job->started_ns >= MARKS_LASTING_MS * 1000000ull;
}

static void note_lasting(struct job *job, uint64_t now)
{
	double left_us = job->sched.cost_us - clock_us(job->resumed_ns, now);

	sched_progress(&job->engine->sched, &job->sched, fmax(left_us, 0));
	if (job_is_lasting(job, now))
		marks_set_lasting(job->engine->marks, job->account->uid, job->shape);
}

/* Stops itself when nothing is in flight, so that an idle daemon does not wake up. */
static void on_lasting(uv_timer_t *timer)
{
	struct engine *e = timer->data;
	uint64_t now = clock_ns();
	struct job *job;

	for (unsigned i = 0; i < e->n_devices; i++)
		list_for_each (job, &e->devices[i].out, out)
			note_lasting(job, now);
	if (!engine_has_jobs_out(e))
		uv_timer_stop(timer);
}

void lasting_watch(struct engine *e)
{
	if (!uv_is_active((uv_handle_t *)&e->lasting_timer))
		timers_start(&e->lasting_timer, on_lasting, MARKS_LASTING_MS, MARKS_LASTING_MS);
}

void lasting_init(struct engine *e)
{
	uv_timer_init(e->timers, &e->lasting_timer);
	e->lasting_timer.data = e;
}
