#include "job/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plan/plan.h"

/* Ops planned per step (10 to 20 us). */
#define STEP_OPS 8

/*
 * Notes what jobs of the same shape showed, for those of ops [first, end) that name no kernel. learned NULL:
 * nothing. Returns true if it noted something. Valid only until the table changes.
 */
static bool look_up(struct job *job, struct learned *learned, unsigned first, unsigned end)
{
	bool found = false;

	for (unsigned i = first; i < end; i++) {
		struct run_op *op = &job->ops[i];

		op->preferred = NULL;
		op->sharing_first = 0;
		if (*op->pinned || !learned)
			continue;
		op->sharing_first = job->n_alike > 0 ? job->n_alike : 1;
		if (i > first && job->n_alike > 0) /* the ops are alike, so the first one's holds for all */
			op->preferred = job->ops[first].preferred;
		else
			op->preferred = learned_find(learned, &op->args, job->n_alike);
		found |= op->preferred != NULL;
	}
	return found;
}

/* Nothing stops a running job: one that is too long would keep the device from others, or look hung. */
static uint64_t longest_ms(const struct config *c, const struct device *device, const char **ret_setting)
{
	bool hangs = device_can_hang(device) && c->hang_timeout < c->max_run_time;

	*ret_setting = hangs ? "hang-timeout" : "max-run-time";
	return hangs ? c->hang_timeout : c->max_run_time;
}

static bool is_short_enough(const struct engine *e, const struct device *device, double plan_us)
{
	const char *setting;

	return plan_us <= (double)longest_ms(e->config, device, &setting) * 1e3;
}

static int check_length(const struct engine *e, const struct device *device, double plan_us,
                        char why[WHY_BYTES])
{
	const char *setting;
	uint64_t limit_ms;

	if (is_short_enough(e, device, plan_us))
		return 0;
	limit_ms = longest_ms(e->config, device, &setting);
	snprintf(why, WHY_BYTES,
	         "the job's estimated run time of %.3g s exceeds the limit of %.3g s (%s); split the job",
	         plan_us / 1e6, (double)limit_ms / 1e3, setting);
	return KOPS_E_QUOTA;
}

/* Checks max-hold. Parts are short, but not every op can be cut. If the whole job is too long as well, the
 * sentence names that limit, because a larger max-hold would not help. */
static int check_hold(const struct engine *e, const struct device *device, struct run *run)
{
	const uint64_t max_hold_ms = e->config->max_hold;

	for (unsigned i = 0; i < run->n_ops; i++) {
		const struct run_op *op = &run->ops[i];
		double part_us = run_part_us(op);

		if (part_us <= (double)max_hold_ms * 1e3)
			continue;
		if (check_length(e, device, run->plan_us, run->error) < 0)
			return KOPS_E_QUOTA;
		snprintf(run->error, WHY_BYTES,
		         "op %u of %u (%s, kernel %s) cannot be paused, and its estimated run time of %.3g s "
		         "exceeds the limit of %.3g s (max-hold); split the op, or choose another kernel",
		         i + 1, run->n_ops, op->args.op->name, op->kernel->name, part_us / 1e6,
		         (double)max_hold_ms / 1e3);
		return KOPS_E_QUOTA;
	}
	return 0;
}

/* ---- On one device ---- */

/* Plans the next ops. Returns like job_plan(). */
static int plan_some(struct job *job, struct planning *p)
{
	const struct engine_device *of = &job->engine->devices[p->device];
	unsigned first = p->n_planned, left = job->run.n_ops - first;
	unsigned end = first + (left < STEP_OPS ? left : STEP_OPS);
	int rc;

	job->run.room_bytes = device_room_bytes(of->device) > 0 ? device_room_bytes(of->device) : 1;
	if (first == 0 && !p->plainly)
		job->n_alike = of->learned ? learned_alike(&job->run) : 0;
	p->heeds_some |= look_up(job, p->plainly ? NULL : of->learned, first, end);
	rc = plan_ops(of->device->planner, &job->run, first, end);
	p->n_planned = end;
	if (rc < 0 || end < job->run.n_ops)
		return rc < 0 ? rc : PLAN_GOES_ON;
	return check_hold(job->engine, of->device, &job->run);
}

/*
 * Plans on one device. A kernel from trials must not cause a refusal if another kernel can run the job. If that
 * kernel is at fault itself, it is rejected for good; a shortage of memory is temporary.
 */
static int plan_on_device(struct job *job, struct planning *p)
{
	const struct engine *e = job->engine;
	const struct engine_device *of = &e->devices[p->device];
	int rc = plan_some(job, p);
	bool is_short = rc == 0 && is_short_enough(e, of->device, job->run.plan_us);

	if (rc == PLAN_GOES_ON)
		return rc;
	if (p->plainly) {
		if (of->learned && job->n_alike > 0 && p->was_at_fault && is_short)
			learned_reject(of->learned, &job->ops[0].args, job->n_alike);
		job->n_alike = 0;
		return rc;
	}
	if (!p->heeds_some || rc == KOPS_E_DEVICE ||
	    (is_short && job->run.device_bytes <= device_room_bytes(of->device)))
		return rc;
	p->was_at_fault = !is_short;
	p->plainly = true;
	p->n_planned = 0;
	return PLAN_GOES_ON;
}

/* Clears what planning has used: `pinned` lies in the request's arena, `preferred` in a table that changes. */
static void clear_kernel_hints(struct job *job)
{
	for (unsigned i = 0; i < job->run.n_ops; i++) {
		job->ops[i].pinned = "";
		job->ops[i].preferred = NULL;
	}
}

/*
 * What it costs a job to move from its device, or that of its queue. The job is made again, loses its graph,
 * and waits until earlier jobs of its queue have ended. Backlogs are estimates, so a job moves only if it gains
 * more than a share of the other device's backlog.
 */
#define MOVE_US    200.0
#define MOVE_SHARE 4

/* Time until the device would start the job. home: its device unless another is clearly better; -1: none. */
static double wait_us(const struct job *job, unsigned device, int home)
{
	double us = job->engine->sched.devices[device].backlog_us;

	if (home < 0 || device == (unsigned)home)
		return us;
	return MOVE_US + fmax(us, job->sched.queue->backlog_us) * (1 + 1.0 / MOVE_SHARE);
}

bool job_should_move(const struct job *job)
{
	const struct engine *e = job->engine;
	const struct driver *kind = job_device(job)->device->driver;
	int home = sched_queue_device(job->sched.queue);

	if (!job->has_choice)
		return false;
	if (home < 0)
		home = (int)job->sched.device;
	for (unsigned i = 0; i < e->n_devices; i++)
		if (e->devices[i].device->driver == kind &&
		    wait_us(job, i, home) < wait_us(job, job->sched.device, home))
			return true;
	return false;
}

static void turn_to(struct planning *p, unsigned device)
{
	p->device = device;
	p->n_planned = 0;
	p->plainly = p->heeds_some = false;
}

/* Compares the device just planned, or its error rc, and keeps the best. */
static void compare(struct job *job, struct planning *p, int rc, char why[WHY_BYTES])
{
	double end_us = wait_us(job, p->device, sched_queue_device(job->sched.queue)) + job->run.plan_us;

	if (rc < 0 && p->refusal == 0) {
		p->refusal = rc;
		memcpy(why, job->run.error, WHY_BYTES);
	}
	job->has_choice |= p->kind && rc == 0;
	if (rc < 0 || (p->kind && end_us >= p->soonest_us))
		return;
	p->kind = job->engine->devices[p->device].device->driver;
	p->soonest_us = end_us;
	job->sched.device = p->device;
}

/* The next device that the job may use. Once a device can run it, only others of the same kind count. */
static bool next_device(const struct job *job, struct planning *p)
{
	for (unsigned i = p->device + 1; i < job->engine->n_devices; i++) {
		const struct device *device = job->engine->devices[i].device;

		if (!device_is_meant(device, p->device_name) || (p->kind && device->driver != p->kind))
			continue;
		turn_to(p, i);
		return true;
	}
	return false;
}

/*
 * Plans on each device that the job may use. They are in order of preference by kind, so the CPU serves only
 * what no GPU can. Then plans on the best again, unless it was the last, because the run holds the last plan.
 */
static int plan_on_each(struct job *job, struct planning *p, char why[WHY_BYTES])
{
	int rc = plan_on_device(job, p);

	if (p->is_decided && rc < 0)
		memcpy(why, job->run.error, WHY_BYTES);
	if (rc == PLAN_GOES_ON || p->is_decided)
		return rc;
	compare(job, p, rc, why);
	if (next_device(job, p))
		return PLAN_GOES_ON;
	if (!p->kind)
		return p->refusal;
	why[0] = '\0';
	p->is_decided = true;
	if (job->sched.device == p->device)
		return 0;
	turn_to(p, job->sched.device);
	return PLAN_GOES_ON;
}

/* Finds the devices that the job may use. */
static int begin_plan(struct job *job, struct planning *p, char why[WHY_BYTES])
{
	const struct engine *e = job->engine;
	unsigned first = 0;

	if (!engine_device(e, p->device_name, &first)) {
		snprintf(why, WHY_BYTES, "there is no device \"%.32s\"; `kops-client devices` lists them",
		         p->device_name);
		return KOPS_E_DEVICE;
	}
	turn_to(p, first);
	p->has_begun = true;
	job->has_choice = false;
	return 0;
}

/* Checks for jobs that may have ended the daemon before: see marks.h. */
static int check_marks(struct job *job, char why[WHY_BYTES])
{
	const struct marks *marks = job->engine->marks;
	unsigned deaths;

	if (!marks)
		return 0;
	job->shape = marks_shape(&job->run);
	deaths = marks_deaths(marks, job->account->uid, job->shape);
	job->is_suspect = deaths > 0;
	if (deaths < MARKS_DEATHS_MAX)
		return 0;
	snprintf(why, WHY_BYTES,
	         "such a job of yours was running at the last %u crashes of kopsd, the last time alone, so it "
	         "is refused for an hour; use other shapes or another kernel, and see kopsd's log",
	         deaths);
	return KOPS_E_INTERRUPTED;
}

int job_plan(struct job *job, struct planning *p, char why[WHY_BYTES])
{
	int rc = p->has_begun ? 0 : begin_plan(job, p, why);

	if (rc == 0)
		rc = plan_on_each(job, p, why);
	if (rc == PLAN_GOES_ON)
		return rc;
	clear_kernel_hints(job);
	if (rc == 0)
		rc = check_length(job->engine, job_device(job)->device, job->run.plan_us, why);
	if (rc == 0)
		rc = check_marks(job, why);
	return rc;
}
