#include "plan/stage.h"

#include <limits.h>
#include <stdlib.h>

#include "base/invariant.h"

#define ALIGNMENT 256u

static uint64_t aligned(uint64_t bytes)
{
	return (bytes + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
}

static struct memory *memory_of(const struct view *v)
{
	return (struct memory *)(uintptr_t)v->space;
}

static const struct op_args *args_of(const struct stage *stage, unsigned i)
{
	return &stage->run->ops[i].args;
}

/* Whether nothing is moved: its memory is the device's, or it is absent, or nothing is launched. */
static bool stays(const struct op_args *args, unsigned v)
{
	return view_is_absent(&args->views[v]) || memory_of(&args->views[v])->owner || op_is_empty(args);
}

static struct stage_copy *copy_of(const struct stage *stage, unsigned i, unsigned v)
{
	unsigned use = stage->uses[i][v];

	return use == STAGE_NONE ? NULL : &stage->copies[use];
}

static bool is_sound(const struct stage_copy *copy)
{
	return !(copy->direct && (copy->valid || copy->dirty)) &&
	       (!copy->dirty || (copy->valid && copy->is_written));
}

/* ---- Laying out ---- */

static unsigned find_or_add_copy(struct stage *stage, const struct view *v)
{
	struct layout layout;
	struct stage_copy *copy;
	unsigned i = 0;

	layout_of(v, &layout);
	while (i < stage->n_copies && !(stage->copies[i].memory == memory_of(v) &&
	                                layout_is_same_image(&stage->copies[i].layout, &layout)))
		i++;
	if (i < stage->n_copies)
		return i;
	copy = &stage->copies[stage->n_copies++];
	copy->view = v;
	copy->memory = memory_of(v);
	copy->layout = layout;
	return i;
}

static void note_copy_use(struct stage_copy *copy, const struct op_args *args, unsigned v)
{
	copy->is_read |= op_reads(args, v) && !copy->is_written;
	copy->is_written |= op_is_output(args->op, v);
}

static void find_copies(struct stage *stage)
{
	for (unsigned i = 0; i < stage->run->n_ops; i++) {
		const struct op_args *args = args_of(stage, i);

		for (unsigned v = 0; v < args->op->n_operands; v++) {
			stage->uses[i][v] = STAGE_NONE;
			if (stays(args, v))
				continue;
			stage->uses[i][v] = find_or_add_copy(stage, &args->views[v]);
			note_copy_use(&stage->copies[stage->uses[i][v]], args, v);
		}
	}
}

/* True if it is not as it was. */
static bool find_pinned(struct stage *stage)
{
	bool changed = false;

	for (unsigned c = 0; c < stage->n_copies; c++) {
		struct stage_copy *copy = &stage->copies[c];
		bool pinned = __atomic_load_n(&copy->memory->pin, __ATOMIC_ACQUIRE) == MEMORY_PINNED;

		changed |= pinned != copy->pinned;
		copy->pinned = pinned;
	}
	return changed;
}

/* Operations per byte up to which an op counts as streaming: adding is below 1, a 64×64×64 product is near 10.
 */
#define STREAMING_MAX 2.0

uint64_t stage_direct_max_bytes(const struct op_args *args, const struct direct_limits *direct)
{
	struct cost cost;

	args->op->cost(args, &cost);
	return cost.flops <= STREAMING_MAX * cost.bytes ? direct->streaming_max_bytes
	                                                : direct->reusing_max_bytes;
}

static uint64_t direct_max_bytes(const struct stage *stage, unsigned i, const struct direct_limits *direct)
{
	const struct run_op *op = &stage->run->ops[i];

	if (op->kernel->once)
		return 0; /* takes_host_view() decides */
	return stage_direct_max_bytes(&op->args, direct);
}

/*
 * Over PCIe a kernel that walks a view across its rows fetches far more than the elements: beyond a
 * few pages only views that lie as they are counted through are worth it.
 */
#define SCATTERED_MAX_BYTES (64u << 10)

static bool is_near(const struct stage_copy *copy, const struct view *v, uint64_t max_bytes)
{
	uint64_t lo, hi;

	if (max_bytes == 0 || !copy->pinned || view_extent(v, copy->memory->bytes, &lo, &hi) < 0)
		return false;
	return hi - lo <= max_bytes && (hi - lo <= SCATTERED_MAX_BYTES || view_is_dense(v));
}

/* Outputs come before inputs, otherwise they go in their order. */
static bool is_preferred(const struct op_args *args, unsigned v, unsigned to)
{
	return op_is_output(args->op, v) == op_is_output(args->op, to) ? v < to : op_is_output(args->op, v);
}

/*
 * A kernel that touches each element once takes one host view: an output, or an input where the
 * outputs are RESIDENT. Of memory that is not pinned, only where both are runs: then it is one DMA copy.
 */
static bool takes_host_view(const struct stage *stage, unsigned i, unsigned v)
{
	const struct op_args *args = args_of(stage, i);
	const struct stage_copy *copy = copy_of(stage, i, v);

	if (!stage->run->ops[i].kernel->once || stage->run->ops[i].cut.grows)
		return false; /* of a streamed run, the copy engines move more than a kernel can over the link
		               */
	for (unsigned w = 0; w < args->op->n_operands; w++)
		if (is_preferred(args, w, v) && copy_of(stage, i, w))
			return false;
	if (copy->pinned)
		return true;
	for (unsigned w = 0; w < args->op->n_operands; w++)
		if (!view_is_dense(&args->views[w]))
			return false;
	return true;
}

static void point_at_host(const struct stage_copy *copy, struct view *v)
{
	v->data = memory_at(copy->memory, v->offset);
}

static void point_at_image(const struct stage_copy *copy, char *scratch, struct view *v)
{
	struct layout layout;

	layout_of(v, &layout);
	v->data = scratch ? scratch + copy->offset + layout.origin * layout.element : NULL;
	for (uint32_t d = 0; d < v->rank; d++)
		v->strides[d] = layout.strides[d];
}

static void fill_args(const struct stage *stage, unsigned i, struct op_args *ret_args)
{
	*ret_args = *args_of(stage, i);
	for (unsigned v = 0; v < ret_args->op->n_operands; v++) {
		const struct stage_copy *copy = copy_of(stage, i, v);
		struct view *view = &ret_args->views[v];

		if (view_is_absent(view))
			continue;
		if (!copy)
			view->data = memory_at(memory_of(view), view->offset);
		else if (copy->direct)
			point_at_host(copy, view);
		else
			point_at_image(copy, stage->scratch, view);
	}
}

/* Whether the op's kernel can take the direct views as they lie; it was chosen for images of them. */
static bool kernel_agrees(struct stage *stage, unsigned i)
{
	const struct run_op *op = &stage->run->ops[i];
	struct op_args args;

	fill_args(stage, i, &args);
	return kernel_takes_parts(op->kernel, &args, &op->cut);
}

/* Drops `direct` from the op's copies; true if one had it. */
static bool withdraw(struct stage *stage, unsigned i)
{
	bool had = false;

	for (unsigned v = 0; v < args_of(stage, i)->op->n_operands; v++) {
		struct stage_copy *copy = copy_of(stage, i, v);

		had |= copy && copy->direct;
		if (copy)
			copy->direct = false;
	}
	return had;
}

/* A copy is direct if every use of it can do without an image. */
static void decide_direct(struct stage *stage, const struct direct_limits *direct)
{
	bool changed = true;

	for (unsigned c = 0; c < stage->n_copies; c++)
		stage->copies[c].direct = true;
	for (unsigned i = 0; i < stage->run->n_ops; i++) {
		uint64_t max_bytes = direct_max_bytes(stage, i, direct);

		for (unsigned v = 0; v < args_of(stage, i)->op->n_operands; v++) {
			struct stage_copy *copy = copy_of(stage, i, v);

			if (copy && !takes_host_view(stage, i, v) &&
			    !is_near(copy, &args_of(stage, i)->views[v], max_bytes))
				copy->direct = false;
		}
	}
	while (changed) {
		changed = false;
		for (unsigned i = 0; i < stage->run->n_ops; i++)
			if (!kernel_agrees(stage, i))
				changed |= withdraw(stage, i);
	}
	stage->reads_host = false;
	for (unsigned c = 0; c < stage->n_copies; c++)
		stage->reads_host |= stage->copies[c].direct && stage->copies[c].is_read;
}

static void give_room(struct stage *stage)
{
	stage->copies_bytes = stage->workspace_bytes = stage->carried_bytes = 0;
	for (unsigned c = 0; c < stage->n_copies; c++) {
		if (stage->copies[c].direct)
			continue;
		stage->copies[c].offset = stage->copies_bytes;
		stage->copies_bytes += aligned(stage->copies[c].layout.bytes);
	}
	for (unsigned i = 0; i < stage->run->n_ops; i++) {
		const struct run_op *op = &stage->run->ops[i];
		struct op_args args;
		uint64_t bytes = aligned(op->cut.carried_bytes);

		if (bytes > stage->carried_bytes)
			stage->carried_bytes = bytes;
		if (!op->kernel->workspace || op_is_empty(args_of(stage, i)))
			continue;
		fill_args(stage, i, &args);
		bytes = aligned(kernel_workspace(op->kernel, &args, &op->cut));
		if (bytes > stage->workspace_bytes)
			stage->workspace_bytes = bytes;
	}
}

static size_t operand_total(const struct run *run)
{
	size_t n = 0;

	for (unsigned i = 0; i < run->n_ops; i++)
		n += run->ops[i].args.op->n_operands;
	return n;
}

int stage_new(const struct run *run, struct stage **ret_stage)
{
	size_t n = run->n_ops;
	size_t n_copies = operand_total(run);
	struct stage *stage =
	    calloc(1, sizeof(*stage) + n_copies * sizeof(struct stage_copy) + n * sizeof(*stage->uses));

	if (!stage)
		return KOPS_E_NOMEM;
	stage->run = run;
	stage->copies = (struct stage_copy *)(stage + 1);
	stage->uses = (unsigned(*)[OP_OPERANDS_MAX])(stage->copies + n_copies);
	find_copies(stage);
	find_pinned(stage);
	give_room(stage);
	*ret_stage = stage;
	return 0;
}

static bool can_stream(const struct stage *stage)
{
	if (stage->run->n_ops > 1 || !stage->run->ops[0].cut.grows)
		return false;
	for (unsigned c = 0; c < stage->n_copies; c++)
		if (!stage->copies[c].direct && !stage->copies[c].pinned)
			return false;
	return true;
}

void stage_begin(struct stage *stage, const struct direct_limits *direct)
{
	if (find_pinned(stage) || !stage->is_settled) {
		decide_direct(stage, direct);
		give_room(stage);
		stage->streams = can_stream(stage);
		stage->is_settled = true;
	}
	for (unsigned c = 0; c < stage->n_copies; c++)
		stage->copies[c].valid = stage->copies[c].dirty = false;
	stage->downloaded = false;
	POST(stage->is_settled);
}

void stage_free(struct stage *stage)
{
	free(stage);
}

uint64_t stage_scratch_bytes(const struct stage *stage)
{
	return stage->copies_bytes + stage->workspace_bytes + stage->carried_bytes;
}

bool stage_waits(const struct stage *stage)
{
	for (unsigned c = 0; c < stage->n_copies; c++)
		if (!stage->copies[c].direct && !stage->copies[c].pinned)
			return true;
	return false;
}

bool stage_is_recordable(const struct stage *stage)
{
	for (unsigned c = 0; c < stage->n_copies; c++)
		if (!stage->copies[c].pinned)
			return false;
	return !stage->unrecordable;
}

/* ---- Moving ---- */

/* Before the CPU reads host memory on its own: whatever may still be writing it has to be through. */
static int settle_stream(struct stage *stage)
{
	if (!stage->others_out && !stage->downloaded)
		return 0;
	stage->others_out = false;
	stage->downloaded = false;
	return stage->mover->settle(stage->stream);
}

static int upload(struct stage *stage, struct stage_copy *copy)
{
	int rc = copy->pinned ? 0 : settle_stream(stage);

	PRE(!copy->direct && !copy->dirty); /* else it would lose what an op has written */
	if (rc < 0)
		return rc;
	rc = stage->mover->upload(&copy->layout, copy->memory->host, copy->pinned,
	                          stage->scratch + copy->offset, stage->stream);
	if (rc < 0)
		return rc;
	copy->valid = true;
	POST(is_sound(copy));
	return 0;
}

static int download(struct stage *stage, struct stage_copy *copy)
{
	int rc;

	PRE(is_sound(copy) && copy->dirty);
	rc = stage->mover->download(&copy->layout, copy->memory->host, copy->pinned,
	                            stage->scratch + copy->offset, stage->stream);

	if (rc < 0)
		return rc;
	copy->dirty = false;
	stage->downloaded = true;
	return 0;
}

/* Downloads written copies of other views that share bytes with this one. */
static int flush_others(struct stage *stage, const struct stage_copy *copy)
{
	for (unsigned c = 0; c < stage->n_copies; c++) {
		struct stage_copy *other = &stage->copies[c];
		int rc;

		if (other == copy || !other->dirty || !view_overlap(other->view, copy->view))
			continue;
		rc = download(stage, other);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static bool written_before(const struct stage *stage, unsigned i, const struct view *v)
{
	for (unsigned j = 0; j < i; j++)
		if (op_writes(args_of(stage, j), v))
			return true;
	return false;
}

/* ---- Streamed runs ---- */

/* Moves what is new in a part: inputs up, or outputs down. */
static int move_part(struct stage *stage, uint32_t i, bool up)
{
	const struct run_op *op = &stage->run->ops[0];
	unsigned news = op_part_news(&op->args, &op->cut, i);
	struct op_args args, host, image;
	int rc = 0;

	fill_args(stage, 0, &args);
	op_part(&op->args, &op->cut, i, &host);
	op_part(&args, &op->cut, i, &image);
	for (unsigned v = 0; v < args.op->n_operands && rc == 0; v++) {
		struct stage_copy *copy = copy_of(stage, 0, v);
		struct layout part;
		void *at;

		if (!copy || copy->direct || !(news >> v & 1) ||
		    !(up ? op_reads(&op->args, v) : op_is_output(args.op, v)))
			continue;
		at = layout_of_part(&host.views[v], &image.views[v], &part);
		rc = up ? stage->mover->upload(&part, copy->memory->host, true, at, stage->up)
		        : stage->mover->download(&part, copy->memory->host, true, at, stage->down);
	}
	return rc;
}

/* The uploads of part i are under way; those of the next follow, however late that one is begun. */
static int await_part(struct stage *stage, uint32_t i)
{
	int rc = stage->mover->follow(stage->up, stage->stream, stage->mark);

	if (rc < 0 || i + 1 == stage->run->ops[0].cut.n_parts)
		return rc;
	return move_part(stage, i + 1, true);
}

static int download_part(struct stage *stage, uint32_t i)
{
	int rc = stage->mover->follow(stage->stream, stage->down, stage->mark);

	return rc < 0 ? rc : move_part(stage, i, false);
}

int stage_begin_slice(struct stage *stage)
{
	return stage->streams ? stage->mover->follow(stage->stream, stage->up, stage->mark) : 0;
}

int stage_end_slice(struct stage *stage)
{
	int rc_up, rc_down;

	if (!stage->streams)
		return 0;
	rc_up = stage->mover->follow(stage->up, stage->stream, stage->mark);
	rc_down = stage->mover->follow(stage->down, stage->stream, stage->mark);
	return rc_up < 0 ? rc_up : rc_down;
}

/* ---- Other runs ---- */

int stage_upload_all(struct stage *stage)
{
	if (stage->streams)
		return move_part(stage, 0, true);
	for (unsigned i = 0; i < stage->run->n_ops; i++) {
		const struct op_args *args = args_of(stage, i);

		for (unsigned v = 0; v < args->op->n_operands && !op_is_empty(args); v++) {
			struct stage_copy *copy = copy_of(stage, i, v);
			int rc;

			if (!copy || copy->direct || copy->valid || !op_reads(args, v) ||
			    written_before(stage, i, &args->views[v]))
				continue;
			rc = upload(stage, copy);
			if (rc < 0)
				return rc;
		}
	}
	return 0;
}

static int begin_view(struct stage *stage, unsigned i, unsigned v)
{
	const struct op_args *args = args_of(stage, i);
	struct stage_copy *copy = copy_of(stage, i, v);
	int rc;

	if (!copy || copy->layout.bytes == 0)
		return 0;
	if (copy->valid && !op_is_output(args->op, v))
		return 0;
	rc = flush_others(stage, copy);
	if (rc < 0)
		return rc;
	if (copy->direct)
		return copy->pinned || op_is_output(args->op, v) ? 0 : settle_stream(stage);
	return op_reads(args, v) && !copy->valid ? upload(stage, copy) : 0;
}

int stage_begin_part(struct stage *stage, unsigned i, uint32_t part, struct op_args *ret_args)
{
	unsigned n = args_of(stage, i)->op->n_operands;
	int rc = 0;

	if (!stage->streams)
		for (unsigned v = 0; v < n && rc == 0; v++)
			rc = begin_view(stage, i, v);
	else
		rc = await_part(stage, part);
	if (rc == 0)
		fill_args(stage, i, ret_args);
	return rc;
}

static void end_output(struct stage *stage, struct stage_copy *copy)
{
	for (unsigned c = 0; c < stage->n_copies; c++) {
		struct stage_copy *other = &stage->copies[c];

		if (other == copy || !view_overlap(other->view, copy->view))
			continue;
		INVARIANT(!other->dirty); /* stage_begin_part() has downloaded it */
		other->valid = false;
	}
	copy->valid = copy->dirty = !copy->direct;
	POST(is_sound(copy));
	stage->downloaded |= copy->direct;
}

int stage_end_part(struct stage *stage, unsigned i, uint32_t part)
{
	const struct op_args *args = args_of(stage, i);

	if (stage->streams)
		return download_part(stage, part);
	for (unsigned v = 0; v < args->op->n_operands; v++) {
		struct stage_copy *copy = op_is_output(args->op, v) ? copy_of(stage, i, v) : NULL;

		if (copy)
			end_output(stage, copy);
	}
	return 0;
}

int stage_download_all(struct stage *stage)
{
	for (unsigned c = 0; c < stage->n_copies; c++) {
		int rc = stage->copies[c].dirty ? download(stage, &stage->copies[c]) : 0;

		if (rc < 0)
			return rc;
	}
	return 0;
}
