#include "plan/stage.h"

#include <stdlib.h>

#include "base/invariant.h"
#include "common/rules.h"
#include "plan/exchange.h"

static struct memory *memory_of(const struct view *v)
{
	return (struct memory *)(uintptr_t)v->space;
}

/* Whether nothing is moved: its memory is the device's, or it is absent, or nothing is launched. */
static bool stays(const struct op_args *args, unsigned v)
{
	return view_is_absent(&args->views[v]) || memory_of(&args->views[v])->owner || op_is_empty(args);
}

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
		const struct op_args *args = stage_op(stage, i);

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
	const struct op_args *args = stage_op(stage, i);
	const struct stage_copy *copy = stage_copy_of(stage, i, v);

	if (!stage->run->ops[i].kernel->once || stage->run->ops[i].cut.grows)
		return false; /* of a streamed run, the copy engines move more than a kernel can over the link
		               */
	for (unsigned w = 0; w < args->op->n_operands; w++)
		if (is_preferred(args, w, v) && stage_copy_of(stage, i, w))
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

void stage_args(const struct stage *stage, unsigned i, struct op_args *ret_args)
{
	*ret_args = *stage_op(stage, i);
	for (unsigned v = 0; v < ret_args->op->n_operands; v++) {
		const struct stage_copy *copy = stage_copy_of(stage, i, v);
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

	stage_args(stage, i, &args);
	return kernel_takes_parts(op->kernel, &args, &op->cut);
}

/* Drops `direct` from the op's copies; true if one had it. */
static bool withdraw(struct stage *stage, unsigned i)
{
	bool had = false;

	for (unsigned v = 0; v < stage_op(stage, i)->op->n_operands; v++) {
		struct stage_copy *copy = stage_copy_of(stage, i, v);

		had |= copy && copy->direct;
		if (copy)
			copy->direct = false;
	}
	return had;
}

/* An input beside larger operands is read again for each of their pieces, which is too slow over the link. */
static bool is_read_again(const struct op_args *args, unsigned v, uint64_t max_bytes)
{
	for (unsigned w = 0; w < args->op->n_operands && !op_is_output(args->op, v); w++)
		if (rules_bytes(&args->views[w]) > (double)max_bytes)
			return true;
	return false;
}

/* A copy is direct if every use of it can do without an image. */
static void decide_direct(struct stage *stage, const struct direct_limits *direct)
{
	bool changed = true;

	for (unsigned c = 0; c < stage->n_copies; c++)
		stage->copies[c].direct = true;
	for (unsigned i = 0; i < stage->run->n_ops; i++) {
		uint64_t max_bytes = direct_max_bytes(stage, i, direct);

		for (unsigned v = 0; v < stage_op(stage, i)->op->n_operands; v++) {
			struct stage_copy *copy = stage_copy_of(stage, i, v);

			if (copy && !takes_host_view(stage, i, v) &&
			    (!is_near(copy, &stage_op(stage, i)->views[v], max_bytes) ||
			     is_read_again(stage_op(stage, i), v, max_bytes)))
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
	stage->copies_bytes = stage->workspace_bytes = stage->carried_bytes = stage->kept_bytes = 0;
	for (unsigned c = 0; c < stage->n_copies; c++) {
		if (stage->copies[c].direct)
			continue;
		stage->copies[c].offset = stage->copies_bytes;
		stage->copies_bytes += layout_aligned(stage->copies[c].layout.bytes);
	}
	for (unsigned i = 0; i < stage->run->n_ops; i++) {
		const struct run_op *op = &stage->run->ops[i];
		struct op_args args;
		uint64_t bytes = layout_aligned(op->cut.carried_bytes);

		if (bytes > stage->carried_bytes)
			stage->carried_bytes = bytes;
		if (op_is_empty(stage_op(stage, i)))
			continue;
		stage_args(stage, i, &args);
		bytes = layout_aligned(kernel_workspace(op->kernel, &args, &op->cut));
		if (bytes > stage->workspace_bytes)
			stage->workspace_bytes = bytes;
		bytes = layout_aligned(kernel_kept_bytes(op->kernel, &args, &op->cut));
		if (bytes > stage->kept_bytes)
			stage->kept_bytes = bytes;
	}
}

static void give_windows(struct stage *stage)
{
	for (unsigned i = 0; i < stage->run->n_ops; i++) {
		const struct run_op *op = &stage->run->ops[i];
		uint64_t bytes;

		if (op_is_empty(&op->args))
			continue;
		bytes = window_lay_out(&op->args, &op->cut, stage->windows[i]);
		if (bytes > stage->copies_bytes)
			stage->copies_bytes = bytes;
		bytes = layout_aligned(window_workspace(op->kernel, &op->args, &op->cut));
		if (bytes > stage->workspace_bytes)
			stage->workspace_bytes = bytes;
		bytes = layout_aligned(op->cut.carried_bytes);
		if (bytes > stage->carried_bytes)
			stage->carried_bytes = bytes;
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
	bool has_windows = n > 0 && run->ops[0].cut.has_windows;
	struct stage *stage =
	    calloc(1, sizeof(*stage) + n_copies * sizeof(struct stage_copy) +
	                  n * has_windows * sizeof(*stage->windows) + n * sizeof(*stage->uses));

	if (!stage)
		return KOPS_E_NOMEM;
	stage->run = run;
	stage->has_windows = has_windows;
	stage->copies = (struct stage_copy *)(stage + 1);
	stage->windows = (struct window(*)[OP_OPERANDS_MAX])(stage->copies + n_copies);
	stage->uses = (unsigned(*)[OP_OPERANDS_MAX])(stage->windows + n * has_windows);
	find_copies(stage);
	find_pinned(stage);
	if (has_windows)
		give_windows(stage);
	else
		give_room(stage);
	*ret_stage = stage;
	return 0;
}

bool stage_copy_is_sound(const struct stage_copy *copy)
{
	return !(copy->direct && copy->valid) && (!copy->dirty || (copy->valid && copy->is_written));
}

bool stage_is_sound(const struct stage *stage)
{
	for (unsigned c = 0; c < stage->n_copies; c++) {
		const struct stage_copy *copy = &stage->copies[c];

		if (!stage_copy_is_sound(copy) || (stage->has_windows && copy->valid) ||
		    (!stage->has_windows && !copy->direct &&
		     copy->offset + copy->layout.bytes > stage->copies_bytes))
			return false;
	}
	return true;
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

/* An operand that is used in place, or written too, has no image that another device may take. */
static bool can_exchange(const struct stage *stage)
{
	const struct run_op *op = &stage->run->ops[0];

	if (!stage->streams || !exchange_is_on(stage->run))
		return false;
	for (unsigned v = 0; v < op->args.op->n_operands; v++) {
		const struct stage_copy *copy = stage_copy_of(stage, 0, v);

		if (op->shared.operands >> v & 1 && (!copy || copy->direct || copy->is_written))
			return false;
	}
	return true;
}

void stage_begin(struct stage *stage, const struct direct_limits *direct)
{
	if (stage->has_windows) {
		find_pinned(stage);
		stage->is_settled = true;
	} else if (find_pinned(stage) || !stage->is_settled) {
		decide_direct(stage, direct);
		give_room(stage);
		stage->streams = can_stream(stage);
		stage->is_settled = true;
	}
	for (unsigned c = 0; c < stage->n_copies; c++)
		stage->copies[c].valid = stage->copies[c].dirty = false;
	for (unsigned i = 0; i < stage->run->n_ops && stage->has_windows; i++)
		for (unsigned v = 0; v < OP_OPERANDS_MAX; v++)
			stage->windows[i][v].fills = 0;
	stage->downloaded = false;
	stage->last_up = stage->last_down = NULL;
	stage->exchanges = can_exchange(stage);
	POST(stage->is_settled && stage_is_sound(stage));
}

void stage_free(struct stage *stage)
{
	free(stage);
}

uint64_t stage_scratch_bytes(const struct stage *stage)
{
	return stage->copies_bytes + stage->workspace_bytes + stage->carried_bytes + stage->kept_bytes;
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
	return !stage->unrecordable && !exchange_is_on(stage->run);
}
