#include "plan/estimate.h"

#include <math.h>

#include "common/rules.h"
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

/* Returns what of a view may be touched: of one that is indexed, as many rows as there are indices. */
static struct view touched_of(const struct op_args *args, unsigned v)
{
	struct view touched = args->views[v];
	bool is_indexed = v == 0 && !args->op->index_limit;

	for (unsigned i = 0; is_indexed && i < args->op->n_operands; i++)
		if (args->op->operands[i].is_index && view_elements(&args->views[i]) < touched.shape[0])
			touched.shape[0] = view_elements(&args->views[i]);
	return touched;
}

static double pages_us(const struct op_args *args, const struct op_args *before)
{
	double us = 0;

	for (unsigned i = 0; i < args->op->n_operands; i++) {
		struct view touched = touched_of(args, i);

		if (!view_is_absent(&touched) && !op_ignores(args, i) && !is_touched(before, &touched))
			us += host_pages_us(&touched, op_is_output(args->op, i));
	}
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

	if (stage->has_windows || (stage->run->n_ops == 1 && stage->run->ops[0].cut.grows))
		return 0; /* the op's time has them in it */
	for (unsigned c = 0; c < stage->n_copies; c++)
		us += (stage->copies[c].is_read + stage->copies[c].is_written) *
		      transfer_us(&p->info, &stage->copies[c]);
	return us;
}

/* ---- Streamed runs ---- */

#define STREAM_PART_US 20.0  /* of the host, which enqueues a part's transfers, waits and kernel */
#define LINK_CALL_US   6.0   /* between two transfers */
#define BOTH_WAYS      0.93  /* of the link's rate, where uploads meet downloads */
#define STEPS_LOSS     1.035 /* how much longer than by this model it took with a first tile in steps */

/* Returns the bytes of operands in host memory; 0 if some of them are not pinned, and *ret_largest of one. */
static double pinned_bytes(const struct op_args *args, double *ret_largest)
{
	double bytes = 0;

	*ret_largest = 0;

	for (unsigned v = 0; v < args->op->n_operands; v++) {
		const struct memory *m = args->views[v].space;

		if (!view_is_in_host_memory(&args->views[v]))
			continue;
		if (__atomic_load_n(&m->pin, __ATOMIC_ACQUIRE) != MEMORY_PINNED)
			return 0;
		bytes += rules_bytes(&args->views[v]);
		*ret_largest = fmax(*ret_largest, rules_bytes(&args->views[v]));
	}
	return bytes;
}

bool estimate_may_stream(const struct planner *p, const struct op_args *args)
{
	double largest, bytes = pinned_bytes(args, &largest);

	return bytes > 0 && bytes >= (double)p->info.stream_min_bytes && !op_is_empty(args) &&
	       largest > (double)stage_direct_max_bytes(args, &p->info.direct);
}

/* What else is transferred meanwhile. */
struct traffic {
	bool other_way;    /* the other way of the link */
	bool other_device; /* by another device, which needs the same operands */
};

/* The link finds the next row as fast as it moves bytes, unless it has to look it up for few of them. */
#define FAR_BYTES   (64u << 10)
#define SHORT_BYTES (16u << 10)
#define FAR_ALONE   0.4 /* of the time for that, while nothing goes the other way */

static double row_us(const struct device_info *info, const struct layout *l, double row_bytes,
                     const struct traffic *beside)
{
	uint64_t next = l->rank > 1 ? l->host_stride[1] * l->element : 0;

	if (next < (beside->other_device ? FAR_BYTES / 2 : FAR_BYTES) || row_bytes >= SHORT_BYTES)
		return info->link_row_us;
	return info->link_far_row_us * (beside->other_way ? 1 : FAR_ALONE);
}

static double view_transfer_us(const struct planner *p, const struct view *v, const struct traffic *beside)
{
	double bytes = rules_bytes(v), row_bytes;
	double us = bytes / ((beside->other_way ? BOTH_WAYS : 1) * p->info.link_rate);
	struct layout l;

	layout_of(v, &l);
	if (l.rank == 0) /* one element, or none */
		return us + p->info.link_row_us;
	row_bytes = l.element * (l.host_stride[0] == 1 ? (double)l.extent[0] : 1);
	return us + bytes / row_bytes * row_us(&p->info, &l, row_bytes, beside);
}

/* Returns us to upload or download these views of a part. */
static double part_transfer_us(const struct planner *p, const struct op_args *part, unsigned moves, bool up,
                               const struct traffic *beside)
{
	double us = LINK_CALL_US;

	for (unsigned v = 0; v < part->op->n_operands; v++)
		if (view_is_in_host_memory(&part->views[v]) && moves >> v & 1 &&
		    (up ? op_reads(part, v) : op_is_output(part->op, v)))
			us += view_transfer_us(p, &part->views[v], beside);
	return us;
}

#define TAKE_US 20.0 /* from the mark behind an upload on one device to the end of a short copy on another */

/* Of what is new in a part, the bytes that a run on another device needs too; us that their uploads take. */
static double shared_transfer_us(const struct planner *p, const struct run_op *op, const struct op_args *part,
                                 unsigned news, const struct traffic *beside, double *ret_bytes)
{
	double us = 0;

	*ret_bytes = 0;
	for (unsigned v = 0; v < part->op->n_operands; v++) {
		if (!(news & op->shared.operands & 1u << v))
			continue;
		us += view_transfer_us(p, &part->views[v], beside);
		*ret_bytes += rules_bytes(&part->views[v]);
	}
	return us;
}

/* Returns us to compute a part. keeps: the kernel finds what it made of operands for earlier parts. */
static double part_us(const struct planner *p, const struct run_op *op, const struct op_args *args,
                      const struct op_cut *cut, uint32_t i, bool keeps)
{
	struct op_args part, fresh;

	op_part(args, cut, i, &part);
	if (!keeps)
		return op_us(&p->info, op->kernel, &part, NULL, 1);
	if (!op_part_fresh(args, cut, i, &fresh))
		fresh = part;
	return p->info.op_us + op->kernel->kept_ns(args, &part, &fresh) * 1e-3;
}

/* When the uploads of a cut's parts are there, and when its parts are computed, in us. */
struct timeline {
	double up[GROWING_PARTS_MAX], computed[GROWING_PARTS_MAX];
};

/* Uploads wait for nothing, and each part waits for its upload, and for what it takes from another device.
 * args: as the kernel sees them. */
static void time_parts(const struct planner *p, const struct run_op *op, const struct op_args *args,
                       const struct op_cut *cut, struct timeline *ret)
{
	bool keeps = kernel_kept_bytes(op->kernel, args, cut) > 0;
	double up = 0, taken = 0, computed = 0, first_result = INFINITY;

	for (uint32_t i = 0; i < cut->n_parts; i++) {
		unsigned news = op_part_news(&op->args, cut, i);
		const struct traffic beside = {up > first_result, op->shared.operands != 0};
		struct op_args host;
		double bytes, there;

		op_part(&op->args, cut, i, &host);
		up += part_transfer_us(p, &host, news, true, &beside);
		up -= shared_transfer_us(p, op, &host, news, &beside, &bytes) / 2;
		if (bytes > 0) {
			up += bytes / 2 / op->shared.rate;
			taken = up + TAKE_US;
		}
		there = bytes > 0 ? taken : up;
		computed =
		    fmax(fmax(computed, there), i * STREAM_PART_US) + part_us(p, op, args, cut, i, keeps);
		if (op_part_results(&op->args, cut, i))
			first_result = fmin(first_result, computed);
		ret->up[i] = up;
		ret->computed[i] = computed;
	}
}

/* Returns us from the first upload to the last download, and the most that a part adds to it. */
static double streamed_us(const struct planner *p, const struct run_op *op, const struct op_args *args,
                          const struct op_cut *cut, double *ret_longest_us)
{
	struct traffic beside = {.other_device = op->shared.operands != 0};
	struct timeline t;
	double down = 0, through = 0;

	*ret_longest_us = 0;
	time_parts(p, op, args, cut, &t);
	for (uint32_t i = 0; i < cut->n_parts; i++) {
		double before = through;
		struct op_args host;

		op_part(&op->args, cut, i, &host);
		down = fmax(t.computed[i], down);
		beside.other_way = down < t.up[cut->n_parts - 1];
		down += part_transfer_us(p, &host, op_part_results(&op->args, cut, i), false, &beside);
		through = fmax(t.computed[i], down);
		*ret_longest_us = fmax(*ret_longest_us, through - before);
	}
	return through;
}

/* Takes a cut of the op if with it the op is through sooner than best_us. Returns when it is, at best. */
static double try_cut(const struct planner *p, struct run_op *op, const struct op_args *args,
                      const struct growth *how, double best_us)
{
	struct op_cut cut;
	double longest_us, us;

	if (!op_cut_growing(args, how, &cut))
		return best_us;
	us = streamed_us(p, op, args, &cut, &longest_us) * (cut.first_parts > 0 ? STEPS_LOSS : 1);
	if (us >= best_us || longest_us > PART_US || !kernel_takes_parts(op->kernel, args, &cut))
		return best_us;
	op->plan_us = us;
	op->cut = cut;
	op->cut.share = longest_us / us;
	return us;
}

/*
 * Plans are made while others wait, so few cuts are compared. Chunks of one axis are rows in memory, which are
 * transferred fastest; those of the other should have long pieces of rows, and so be fewer.
 *
 * The first chunks of a product give little to compute for their bytes, and the last ones keep the device busy
 * longer than the link. So a larger first tile with finer ones behind it is faster, and if it takes long to
 * upload, in steps of K, the first of which can be computed soon. Of 600 cuts of products of 25 shapes, these
 * come within 1 % of the best on average, by this model for an H200.
 */
static void try_cuts(const struct planner *p, struct run_op *op, const struct op_args *args, double best_us)
{
	static const struct growth finer[] = {
	    {4, 6, 0, 0, 0},  {8, 9, 0, 0, 0},      {16, 9, 0, 0, 0},    {20, 9, 0, 0, 0},
	    {24, 6, 0, 0, 0}, {8, 3, 0.5, 0.65, 4}, {8, 9, 0.7, 0.7, 4}, {16, 9, 0.3, 0.7, 3},
	};
	const struct growth rows_first = {.wanted = 6, .skew = 3},
	                    columns_first = {.wanted = 6, .skew = 1.0 / 3};
	double us = try_cut(p, op, args, &rows_first, best_us);
	double turned_us = try_cut(p, op, args, &columns_first, us);
	bool turns = turned_us < us;

	us = turned_us;
	for (unsigned i = 0; i < 2 * sizeof finer / sizeof *finer; i++) {
		struct growth how = finer[i / 2];

		/* What is shared takes half as long: other chunks than the coarse ones may come first. */
		if (i % 2 != turns && op->shared.operands == 0)
			continue;
		how.skew = i % 2 ? 1 / how.skew : how.skew;
		us = try_cut(p, op, args, &how, us);
	}
}

double estimate_stream(const struct planner *p, struct run_op *op, const struct op_args *args)
{
	const struct growth coarsest = {.wanted = 3, .skew = 1};
	const struct traffic none = {false, false};
	double whole_us = op->plan_us + part_transfer_us(p, &op->args, ~0u, true, &none) +
	                  part_transfer_us(p, &op->args, ~0u, false, &none);
	struct op_cut coarse;

	/* A kernel that is for larger operands than these takes no finer parts either. */
	if (op_cut_growing(args, &coarsest, &coarse) && kernel_takes_parts(op->kernel, args, &coarse))
		try_cuts(p, op, args, whole_us * STREAM_GAIN);
	return op->cut.grows ? op->plan_us : whole_us;
}

/* ---- Windows ---- */

static double window_transfer_us(const struct planner *p, const struct view *v, bool *is_pageable)
{
	static const struct traffic both_ways = {.other_way = true};
	const struct memory *m = v->space;

	if (__atomic_load_n(&m->pin, __ATOMIC_ACQUIRE) == MEMORY_PINNED)
		return view_transfer_us(p, v, &both_ways) + LINK_CALL_US;
	*is_pageable = true;
	return rules_bytes(v) / p->info.pageable_rate;
}

double estimate_windows(const struct planner *p, const struct kernel *kernel, const struct op_args *args,
                        const struct op_cut *cut, double *ret_longest_us)
{
	double up = 0, down = 0, compute, first = 0;
	bool is_pageable = false;
	struct op_args part, staged;

	op_part_operands(args, cut, 0, &part);
	for (unsigned v = 0; v < args->op->n_operands; v++) {
		double us, moves;

		if (!view_is_in_host_memory(&args->views[v]))
			continue;
		us = window_transfer_us(p, &part.views[v], &is_pageable);
		moves = op_cut_moves(args, cut, v);
		up += window_is_read(&part, v) * moves * us;
		down += op_is_output(args->op, v) * moves * us;
		first += us;
	}
	window_args(args, cut, 0, NULL, NULL, &staged);
	op_part(&staged, cut, 0, &part);
	*ret_longest_us = op_us(&p->info, kernel, &part, NULL, 1);
	compute = fmax(*ret_longest_us, STREAM_PART_US) * cut->n_parts;
	if (is_pageable) { /* the device's thread waits for each transfer, and others for it */
		*ret_longest_us += first;
		return compute + up + down;
	}
	*ret_longest_us = fmax(fmax(*ret_longest_us, STREAM_PART_US), fmax(up, down) / cut->n_parts);
	return fmax(compute, fmax(up, down)) + first;
}
