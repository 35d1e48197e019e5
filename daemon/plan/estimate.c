#include "plan/estimate.h"

#include <math.h>

#include "host_memory.h"

#define ROW_BYTES_MIN 256 /* of a copied row; elements of shorter rows are gathered one by one */
#define LINE_BYTES    64  /* bytes of host memory read for an element far from its neighbours */

/* ---- Pages of host memory ---- */

#define WORKSPACE_PAGE_US 0.8
/* A page takes six times as long as planned if a virtual machine must first get the memory from its host. */
#define PAGES_AT_WORST 6

/*
 * us for pages of a view of SHARED memory that this process touches for the first time. The kernel has to make
 * pages that nobody has written. It has to map others, together with their neighbours on reads, unless jobs
 * have reached them before. Which of the buffer's pages these are is unknown, so a view gets its share of all.
 */
static double host_pages_us(const struct view *v, bool is_written)
{
	const double make_us = 1.8, map_us = is_written ? 0.9 : 0.2;
	const struct memory *m = (const struct memory *)v->space;
	double pages = view_blocks(v, HOST_PAGE_BYTES), missing, mapped;

	if (m->owner || pages == 0)
		return 0;
	missing = fmin((double)m->missing_bytes / (double)m->bytes, 1);
	mapped = fmin((double)m->reached_bytes / (double)m->bytes, 1 - missing);
	return pages * (missing * make_us + (1 - missing - mapped) * map_us);
}

/* Returns true if the previous op of the job touched the view's pages. before NULL: there is none. */
static bool is_touched(const struct op_args *before, const struct view *v)
{
	for (unsigned i = 0; before && i < before->op->n_operands; i++)
		if (before->views[i].space == v->space && before->views[i].offset == v->offset)
			return true;
	return false;
}

static bool is_ignored(const struct op_args *args, unsigned i)
{
	return view_is_absent(&args->views[i]) ||
	       (!op_is_output(args->op, i) && args->op->ignores_inputs && args->op->ignores_inputs(args));
}

static double pages_us(const struct op_args *args, const struct op_args *before)
{
	double us = 0;

	for (unsigned i = 0; i < args->op->n_operands; i++)
		if (!is_touched(before, &args->views[i]) && !is_ignored(args, i))
			us += host_pages_us(&args->views[i], op_is_output(args->op, i));
	return us;
}

/* ---- Ops ---- */

/* page_factor: how many times longer than expected pages take. */
static double op_us(const struct device_info *info, const struct kernel *kernel, const struct op_args *args,
                    const struct op_args *before, double page_factor)
{
	static const struct op_cut uncut = {.n_parts = 1, .n_steps = 1};
	double us = info->op_us;
	uint64_t workspace;

	if (op_is_empty(args))
		return 0;
	if (info->link_rate > 0)
		return us + kernel->time_ns(args) * 1e-3;
	us += page_factor * pages_us(args, before);
	workspace = kernel_workspace(kernel, args, &uncut);
	if (workspace > info->kept_workspace_max_bytes)
		us += (double)workspace / HOST_PAGE_BYTES * WORKSPACE_PAGE_US;
	return us + kernel->time_ns(args) * 1e-3;
}

/* Uses the worst case, because others wait for a part. */
static double part_ns(const void *info, const struct kernel *kernel, const struct op_args *args)
{
	return op_us(info, kernel, args, NULL, PAGES_AT_WORST) * 1e3;
}

static void estimate_with(const struct device_info *info, struct run_op *op, const struct op_args *args,
                          const struct op_args *before, const struct part_limits *limits)
{
	op->plan_us = op_us(info, op->kernel, args, before, 1);
	op->plan_us *= kernel_cut(op->kernel, args, limits, &op->cut);
}

void estimate_op(const struct planner *p, struct run_op *op, const struct op_args *args,
                 const struct op_args *before)
{
	const struct part_limits limits = {part_ns, &p->info, PART_US * 1e3, p->info.carried_max_bytes};
	const struct kernel_list *list = p->kernels(op->args.op);
	uint64_t disabled = p->disabled[op_index(op->args.op)];
	struct preference preference;

	estimate_with(&p->info, op, args, before, &limits);
	if (*op->pinned || run_part_us(op) <= PART_US)
		return;
	kernel_prefer_cut(list, args, disabled, &limits, &preference);
	if (preference.n > 0 && kernel_choose(list, args, "", &preference, disabled, &op->kernel, op->why) == 0)
		estimate_with(&p->info, op, args, before, &limits);
}

/* ---- Transfers ---- */

/* Time of one direction. Pinned memory is mapped; the CPU reads or writes other memory. */
static double transfer_us(const struct device_info *info, const struct stage_copy *copy)
{
	const struct layout *l = &copy->layout;
	bool rows = l->rank == 0 || (l->host_stride[0] == 1 && l->extent[0] * l->element >= ROW_BYTES_MIN) ||
	            (l->rank == 1 && l->host_stride[0] == 1);
	double bytes = (double)l->bytes, lines = LINE_BYTES * view_blocks(copy->view, LINE_BYTES);

	if (copy->pinned)
		return fmax(rows ? bytes : lines, bytes) / info->link_rate;
	if (rows)
		return bytes / info->pageable_rate;
	return (bytes + lines) / info->pageable_rate + bytes / l->element * info->gather_us +
	       host_pages_us(copy->view, copy->is_written);
}

double estimate_transfers(const struct planner *p, const struct stage *stage)
{
	double us = 0;

	for (unsigned c = 0; c < stage->n_copies; c++)
		us += (stage->copies[c].is_read + stage->copies[c].is_written) *
		      transfer_us(&p->info, &stage->copies[c]);
	return us;
}
