#include "job/plan.h"

#include <math.h>
#include <stdio.h>

/*
 * What jobs of the same shape showed, for ops that leave the choice of a kernel to us. learned: NULL: nothing.
 * True: there was something for some op.
 */
static bool look_up(struct job *job, struct learned *learned)
{
	bool found = false;

	for (unsigned i = 0; i < job->run.n_ops; i++) {
		struct run_op *op = &job->ops[i];

		op->preferred = NULL;
		if (*op->pinned || !learned)
			continue;
		if (i > 0 && job->n_alike > 0) /* what holds for the first does for all */
			op->preferred = job->ops[0].preferred;
		else
			op->preferred = learned_find(learned, &op->args, job->n_alike);
		found |= op->preferred != NULL;
	}
	return found;
}

/* Nothing stops a job that runs: one that is too long would keep the device from everybody, or look hung. */
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
	snprintf(why, WHY_BYTES, "the job would take an estimated %.3g s, more than the %.3g s of %s; split it",
	         plan_us / 1e6, (double)limit_ms / 1e3, setting);
	return KOPS_E_QUOTA;
}

/* Parts are short, but not every op can be cut. Where the whole job is too long besides, the sentence names
 * that limit: a larger max-hold would not help. */
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
		         "op %u of %u (%s by %s) cannot be paused and would keep others from the device for an "
		         "estimated %.3g s, more than the %.3g s of max-hold; split it, or try another kernel",
		         i + 1, run->n_ops, op->args.op->name, op->kernel->name, part_us / 1e6,
		         (double)max_hold_ms / 1e3);
		return KOPS_E_QUOTA;
	}
	return 0;
}

static int plan_once(struct job *job, struct device *device)
{
	int rc = device->backend->plan(device->dev, &job->run);

	return rc < 0 ? rc : check_hold(job->engine, device, &job->run);
}

/*
 * A kernel that jobs of the shape showed, or that is on trial, must not be why a job is refused that another
 * kernel can do. Where the fault is the kernel's own it is not asked for again; a shortage of memory is
 * temporary.
 */
static int plan_on(struct job *job, unsigned index)
{
	const struct engine *e = job->engine;
	struct device *device = e->devices[index].device;
	struct learned *learned = e->devices[index].learned;

	job->n_alike = learned ? learned_alike(&job->run) : 0;
	bool preferred = look_up(job, learned);
	int rc = plan_once(job, device);
	bool at_fault = rc < 0 || !is_short_enough(e, device, job->run.plan_us);
	if (!preferred || rc == KOPS_E_DEVICE ||
	    (!at_fault && job->run.device_bytes <= device_room_bytes(device)))
		return rc;
	look_up(job, NULL);
	rc = plan_once(job, device);
	if (job->n_alike > 0 && at_fault && rc == 0 && is_short_enough(e, device, job->run.plan_us))
		learned_reject(learned, &job->ops[0].args, job->n_alike);
	job->n_alike = 0;
	return rc;
}

/* Both have been heeded; one lies in the request's arena, the other in a table that changes. */
static void forget_wishes(struct job *job)
{
	for (unsigned i = 0; i < job->run.n_ops; i++) {
		job->ops[i].pinned = "";
		job->ops[i].preferred = NULL;
	}
}

/*
 * To go to another device than where it is, or where its queue is, costs a job about this much: it is made
 * anew, is no longer known as a graph, and waits until those before it are through, rather than right behind
 * them. Backlogs are estimates, so it goes there for more than a share of that one's only.
 */
#define MOVE_US    200.0
#define MOVE_SHARE 4

/* Until the device would be at the job. home: where it goes unless another is clearly better; -1: all are
 * alike. */
static double wait_us(const struct job *job, unsigned device, int home)
{
	double us = job->engine->sched.backlog_us[device];

	if (home < 0 || device == (unsigned)home)
		return us;
	return MOVE_US + fmax(us, job->sched.queue->backlog_us) * (1 + 1.0 / MOVE_SHARE);
}

bool job_should_move(const struct job *job)
{
	const struct engine *e = job->engine;
	const struct backend *kind = job_device(job)->device->backend;
	int home = sched_queue_device(job->sched.queue);

	if (!job->has_choice)
		return false;
	if (home < 0)
		home = (int)job->sched.device;
	for (unsigned i = 0; i < e->n_devices; i++)
		if (e->devices[i].device->backend == kind &&
		    wait_us(job, i, home) < wait_us(job, job->sched.device, home))
			return true;
	return false;
}

/*
 * Plans the job on devices [first, end), of which it may use all of one kind: they stand in order of preference
 * by kind, so the CPU serves only what no GPU can.
 */
static int plan_on_each(struct job *job, unsigned first, unsigned end, char why[WHY_BYTES])
{
	const struct engine *e = job->engine;
	const struct backend *kind = NULL;
	unsigned last = end;
	double soonest_us = 0;
	int refusal = 0, home = sched_queue_device(job->sched.queue);

	job->has_choice = false;

	for (unsigned i = first; i < end; i++) {
		const struct backend *backend = e->devices[i].device->backend;
		double end_us;
		int rc;

		if (kind && backend != kind)
			continue;
		last = i;
		rc = plan_on(job, i);
		if (rc < 0 && refusal == 0) {
			refusal = rc;
			snprintf(why, WHY_BYTES, "%s", job->run.error);
		}
		end_us = wait_us(job, i, home) + job->run.plan_us;
		job->has_choice |= kind && rc == 0;
		if (rc < 0 || (kind && end_us >= soonest_us))
			continue;
		kind = backend;
		soonest_us = end_us;
		job->sched.device = i;
	}
	if (!kind)
		return refusal;
	why[0] = '\0';
	return job->sched.device == last ? 0
	                                 : plan_on(job, job->sched.device); /* the run holds the last plan */
}

/* Picks the device that is expected to be through with it first. */
static int place(struct job *job, const char *wanted, char why[WHY_BYTES])
{
	const struct engine *e = job->engine;
	unsigned first = 0, end = e->n_devices;
	int rc;

	if (*wanted && !engine_device(e, wanted, &first)) {
		snprintf(why, WHY_BYTES, "there is no device \"%.32s\"; `kops-client devices` lists them",
		         wanted);
		return KOPS_E_DEVICE;
	}
	if (*wanted)
		end = first + 1;
	rc = plan_on_each(job, first, end, why);
	forget_wishes(job);
	return rc;
}

/* Jobs that may have ended the daemon before: see marks.h. */
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
	         "kopsd died %u times in a row while such a job of yours was running, the last time with no "
	         "other; for an hour it is refused: use other shapes or another kernel, and see kopsd's log",
	         deaths);
	return KOPS_E_INTERRUPTED;
}

int job_plan(struct job *job, const char *device_name, char why[WHY_BYTES])
{
	int rc = place(job, device_name, why);

	if (rc == 0)
		rc = check_length(job->engine, job_device(job)->device, job->run.plan_us, why);
	if (rc == 0)
		rc = check_marks(job, why);
	return rc;
}
