#include "plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/choose.h"
#include "plan/estimate.h"
#include "plan/fit.h"
#include "plan/stage.h"

void plan_disable(struct planner *p, const struct op *op, unsigned kernel)
{
	unsigned i = op_index(op);

	if (i < OP_COUNT && kernel < 64)
		p->disabled[i] |= (uint64_t)1 << kernel;
}

/* Kernels query the current device of the calling thread. */
static void enter(const struct planner *p)
{
	if (p->enter)
		p->enter(p->dev);
}

static bool has_own_memory(const struct planner *p)
{
	return p->info.link_rate > 0;
}

void plan_args(const struct planner *p, const struct op_args *args, struct op_args *ret)
{
	*ret = *args;
	for (unsigned v = 0; has_own_memory(p) && v < args->op->n_operands; v++) {
		struct layout layout;

		if (!view_is_in_host_memory(&args->views[v]))
			continue;
		layout_of(&args->views[v], &layout);
		memcpy(ret->views[v].strides, layout.strides, sizeof(layout.strides));
	}
}

unsigned plan_rivals(const struct planner *p, const struct op_args *args, struct rival ret[RIVALS_MAX])
{
	const struct kernel_list *list = p->kernels(args->op);
	struct op_args staged;

	enter(p);
	plan_args(p, args, &staged);
	return choose_company(list, &staged, ret,
	                      kernel_rivals(list, &staged, p->disabled[op_index(args->op)], ret));
}

/* ---- Ops ---- */

/* The device whose RESIDENT memory the view is in; NULL of others, and of one that is absent. */
static const void *memory_owner(const struct view *v)
{
	const struct memory *m = v->space;

	return m ? m->owner : NULL;
}

/* Refuses RESIDENT memory of other devices. */
static int check_owners(const struct planner *p, struct run *run, unsigned i)
{
	const struct op_args *args = &run->ops[i].args;

	for (unsigned v = 0; v < args->op->n_operands; v++) {
		const void *owner = memory_owner(&args->views[v]);

		if (!owner || owner == p->dev)
			continue;
		snprintf(run->error, WHY_BYTES,
		         "op %u (%s) uses a RESIDENT buffer of another device; run it there, or copy the data "
		         "through a SHARED buffer",
		         i, args->op->name);
		return KOPS_E_DEVICE;
	}
	return 0;
}

/* The previous op, if its plan holds for op i: the ops differ only in the addresses of operands, in memory of
 * the same owner. NULL: plan op i itself. */
static const struct run_op *like_before(const struct run *run, unsigned i)
{
	const struct run_op *op = &run->ops[i], *before = op - 1;

	if (i == 0 || op->preferred != before->preferred || strcmp(op->pinned, before->pinned) != 0 ||
	    !op_args_alike(&op->args, &before->args))
		return NULL;
	for (unsigned v = 0; v < op->args.op->n_operands; v++)
		if (memory_owner(&op->args.views[v]) != memory_owner(&before->args.views[v]))
			return NULL;
	return before;
}

/* Copies the plan of the previous op, except for the time of host memory's pages, which that op may have
 * touched. */
static void plan_again(const struct planner *p, struct run_op *op, const struct run_op *before)
{
	op->kernel = before->kernel;
	op->first_launch = NULL; /* of the op before */
	op->larger_errors = before->larger_errors;
	memcpy(op->why, before->why, sizeof(op->why));
	memcpy(op->passed_over, before->passed_over, sizeof(op->passed_over));
	op->plan_us = before->plan_us;
	op->cut = before->cut;
	op->together = before->together;
	if (!has_own_memory(p))
		estimate_op(p, op, &op->args, &before->args);
}

void plan_note_parts(const struct op_cut *cut, char why[WHY_BYTES])
{
	size_t n = strlen(why);

	if (cut->n_parts <= 1 || !(cut->grows || cut->has_windows))
		return;
	snprintf(why + n, WHY_BYTES - n, "; in %u parts, %s", cut->n_parts,
	         cut->has_windows ? "two of which are on the device at a time" : "while others' operands move");
}

static void describe_choice(const struct planner *p, struct run_op *op, const struct op_args *args)
{
	const char *why_not;

	op->larger_errors = !kernel_is_accurate(op->kernel, args, &why_not);
	kernel_passed_over(p->kernels(op->args.op), args, p->disabled[op_index(op->args.op)], op->kernel,
	                   op->passed_over);
}

static uint64_t room_bytes(const struct planner *p, const struct run *run)
{
	return run->room_bytes > 0 && run->room_bytes < p->info.memory_bytes ? run->room_bytes
	                                                                     : p->info.memory_bytes;
}

#define WINDOWS_MIN_US 10e3 /* of shorter ops they are not tried: that takes up to 1 ms */

/* An op that is streamed may do better with windows, whose tiles are more alike and have kernels of their own.
 */
static void compare_streams(const struct planner *p, struct run_op *op, const struct op_args *args,
                            uint64_t room)
{
	double us = estimate_stream(p, op, args);
	struct run_op before = *op;

	if (us < WINDOWS_MIN_US)
		return;
	if ((fit_op(p, op, room / 2) || fit_op(p, op, room)) && op->plan_us >= us * STREAM_GAIN)
		*op = before;
}

/*
 * How the calling thread planned streamed ops of late. Comparing cuts takes 0.1 to 1 ms, and most clients send
 * the same shapes again.
 */
#define STREAMS_KEPT 16
static __thread struct kept_stream {
	uint64_t device, room;
	const struct kernel *kernel;
	unsigned shared; /* as the op's */
	double rate;
	struct op_args args;                 /* their memory may be gone */
	const void *owners[OP_OPERANDS_MAX]; /* of their memory */
	struct op_cut cut;
	double plan_us;
} streams_kept[STREAMS_KEPT];
static __thread unsigned next_kept;

static bool is_of(const struct kept_stream *kept, const struct planner *p, const struct run_op *op,
                  uint64_t room)
{
	if (kept->device != p->id || kept->room != room || kept->kernel != op->kernel ||
	    kept->shared != op->shared.operands || fabs(kept->rate - op->shared.rate) > 0 ||
	    !op_args_alike(&kept->args, &op->args))
		return false;
	for (unsigned v = 0; v < op->args.op->n_operands; v++)
		if (kept->owners[v] != memory_owner(&op->args.views[v]))
			return false;
	return true;
}

static void keep_stream(const struct planner *p, const struct run_op *op, uint64_t room)
{
	struct kept_stream *kept = &streams_kept[next_kept++ % STREAMS_KEPT];

	*kept = (struct kept_stream){.device = p->id,
	                             .room = room,
	                             .kernel = op->kernel,
	                             .shared = op->shared.operands,
	                             .rate = op->shared.rate,
	                             .args = op->args,
	                             .cut = op->cut,
	                             .plan_us = op->plan_us};
	for (unsigned v = 0; v < op->args.op->n_operands; v++)
		kept->owners[v] = memory_owner(&op->args.views[v]);
}

static void plan_stream(const struct planner *p, struct run_op *op, const struct op_args *args, uint64_t room)
{
	for (unsigned i = 0; p->id > 0 && i < STREAMS_KEPT; i++)
		if (is_of(&streams_kept[i], p, op, room)) {
			op->cut = streams_kept[i].cut;
			op->plan_us = streams_kept[i].plan_us;
			return;
		}
	compare_streams(p, op, args, room);
	if (p->id > 0)
		keep_stream(p, op, room);
}

static int plan_op(const struct planner *p, struct run *run, unsigned i)
{
	struct run_op *op = &run->ops[i];
	const struct run_op *before = like_before(run, i);
	const struct op_args *args = &op->args;
	struct op_args staged;
	bool may_stream;
	int rc;

	if (before) {
		plan_again(p, op, before);
		return 0;
	}
	rc = check_owners(p, run, i);
	if (rc < 0)
		return rc;
	if (has_own_memory(p)) {
		plan_args(p, &op->args, &staged);
		args = &staged;
	}
	may_stream = has_own_memory(p) && run->n_ops == 1 && estimate_may_stream(p, &op->args);
	rc = choose_kernel(p, op, args, may_stream);
	if (rc < 0) {
		memcpy(run->error, op->why, WHY_BYTES);
		return rc;
	}
	run->has_first_launches |= op->first_launch != NULL;
	estimate_op(p, op, args, i > 0 ? &run->ops[i - 1].args : NULL);
	if (may_stream)
		plan_stream(p, op, args, room_bytes(p, run));
	describe_choice(p, op, args);
	op->together = 1;
	if (op->kernel->together_max && op->cut.n_parts <= 1 && op->plan_us > 0)
		op->together = op->kernel->together_max(args);
	return 0;
}

/* ---- Runs ---- */

static void free_stage(struct run *run)
{
	stage_free(run->planned);
}

static int new_stage(struct run *run)
{
	struct stage *stage;
	int rc = stage_new(run, &stage);

	if (rc < 0) {
		snprintf(run->error, WHY_BYTES, "out of host memory");
		return rc;
	}
	run->planned = stage;
	run->forget_plan = free_stage;
	run->device_bytes = stage_scratch_bytes(stage);
	return 0;
}

/* Gives op i windows that take at most so many bytes, like those of the op before if its plan holds. */
static bool fit_one(const struct planner *p, struct run *run, unsigned i, uint64_t bytes)
{
	struct run_op *op = &run->ops[i];
	const struct run_op *before = like_before(run, i);
	struct op_args args;

	if (before) {
		plan_again(p, op, before);
		return true;
	}
	if (!fit_op(p, op, bytes))
		return false;
	plan_args(p, &op->args, &args);
	describe_choice(p, op, &args);
	return true;
}

/* All ops or none. */
static bool fit_all(const struct planner *p, struct run *run, uint64_t bytes)
{
	size_t all = run->n_ops * sizeof(*run->ops);
	struct run_op *before = malloc(all);
	bool fits = before != NULL;

	if (before)
		memcpy(before, run->ops, all);
	for (unsigned i = 0; fits && i < run->n_ops; i++)
		fits = fit_one(p, run, i, bytes);
	if (before && !fits)
		memcpy(run->ops, before, all);
	free(before);
	return fits;
}

/*
 * Cuts all ops so that they fit into half of the room, as the rest is for others' runs. Those of one op may
 * have the largest windows, and those of another the largest workspace. If it must be, into all of it.
 */
static int fit_into(const struct planner *p, struct run *run, uint64_t room)
{
	const uint64_t tries[] = {room / 2, room / 4, room};
	int rc = 0;

	for (unsigned i = 0; i < 3 && rc == 0 && run->device_bytes > room; i++) {
		if (!fit_all(p, run, tries[i]))
			continue;
		run_forget_plan(run);
		rc = new_stage(run);
	}
	return rc;
}

static int plan_stage(const struct planner *p, struct run *run)
{
	int rc = new_stage(run);

	if (rc == 0)
		rc = fit_into(p, run, room_bytes(p, run));
	if (rc == 0)
		run->plan_us += estimate_transfers(p, run->planned);
	return rc;
}

/* Ops run one after the other, so the largest workspace serves all. */
static uint64_t workspace_bytes(const struct run *run)
{
	uint64_t most = 0;

	for (unsigned i = 0; i < run->n_ops; i++) {
		const struct run_op *op = &run->ops[i];
		uint64_t bytes = kernel_workspace(op->kernel, &op->args, &op->cut);

		most = bytes > most ? bytes : most;
	}
	return most;
}

static int check_room(const struct planner *p, struct run *run)
{
	if (run->device_bytes <= p->info.memory_bytes)
		return 0; /* beside RESIDENT buffers it may fit later */
	run_forget_plan(run);
	snprintf(
	    run->error, WHY_BYTES,
	    has_own_memory(p)
	        ? "the job needs %.1f MiB of device memory and the device has %.1f; split it, or use device cpu"
	        : "the job needs %.1f MiB of workspace and the machine has %.1f; give its operands a unit "
	          "stride",
	    (double)run->device_bytes / 0x1p20, (double)p->info.memory_bytes / 0x1p20);
	return KOPS_E_NOMEM;
}

static int end_plan(const struct planner *p, struct run *run)
{
	int rc = 0;

	run->plan_us = p->info.run_us;
	if (has_own_memory(p))
		rc = plan_stage(p, run);
	else
		run->device_bytes = workspace_bytes(run);
	for (unsigned i = 0; i < run->n_ops; i++) {
		run->plan_us += run->ops[i].plan_us;
		plan_note_parts(&run->ops[i].cut, run->ops[i].why);
	}
	run->estimate_us = run->plan_us;
	return rc < 0 ? rc : check_room(p, run);
}

int plan_ops(const struct planner *p, struct run *run, unsigned first, unsigned end)
{
	int rc;

	if (first == 0) {
		run_forget_plan(run);
		run->has_first_launches = false;
		run->error[0] = '\0';
	}
	enter(p);
	for (unsigned i = first; i < end; i++)
		if ((rc = plan_op(p, run, i)) < 0)
			return rc;
	return end < run->n_ops ? 0 : end_plan(p, run);
}

int plan_run(const struct planner *p, struct run *run)
{
	return plan_ops(p, run, 0, run->n_ops);
}

int plan_run_like(const struct planner *p, struct run *run, const struct run *like)
{
	run_forget_plan(run);
	run->has_first_launches = false;
	run->error[0] = '\0';
	enter(p);
	for (unsigned i = 0; i < run->n_ops; i++)
		plan_again(p, &run->ops[i], &like->ops[i]);
	run->plan_us = run->estimate_us = like->estimate_us;
	run->device_bytes = like->device_bytes;
	return has_own_memory(p) ? new_stage(run) : 0;
}
