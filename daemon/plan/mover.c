#include "plan/mover.h"

#include "base/invariant.h"

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
	POST(stage_copy_is_sound(copy));
	return 0;
}

static int download(struct stage *stage, struct stage_copy *copy)
{
	int rc;

	PRE(stage_copy_is_sound(copy) && copy->dirty);
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
		if (op_writes(stage_op(stage, j), v))
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

	stage_args(stage, 0, &args);
	op_part(&op->args, &op->cut, i, &host);
	op_part(&args, &op->cut, i, &image);
	for (unsigned v = 0; v < args.op->n_operands && rc == 0; v++) {
		struct stage_copy *copy = stage_copy_of(stage, 0, v);
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

/* The uploads of part i are under way. Those of the next part follow, however late that one begins. */
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

/* ---- All runs ---- */

int stage_upload_all(struct stage *stage)
{
	if (stage->streams)
		return move_part(stage, 0, true);
	for (unsigned i = 0; i < stage->run->n_ops; i++) {
		const struct op_args *args = stage_op(stage, i);

		for (unsigned v = 0; v < args->op->n_operands && !op_is_empty(args); v++) {
			struct stage_copy *copy = stage_copy_of(stage, i, v);
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
	const struct op_args *args = stage_op(stage, i);
	struct stage_copy *copy = stage_copy_of(stage, i, v);
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
	unsigned n = stage_op(stage, i)->op->n_operands;
	int rc = 0;

	if (stage->streams)
		rc = await_part(stage, part);
	for (unsigned v = 0; v < n && rc == 0 && !stage->streams; v++)
		rc = begin_view(stage, i, v);
	if (rc == 0)
		stage_args(stage, i, ret_args);
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
	POST(stage_copy_is_sound(copy));
	stage->downloaded |= copy->direct;
}

int stage_end_part(struct stage *stage, unsigned i, uint32_t part)
{
	const struct op_args *args = stage_op(stage, i);

	if (stage->streams)
		return download_part(stage, part);
	for (unsigned v = 0; v < args->op->n_operands; v++) {
		struct stage_copy *copy = op_is_output(args->op, v) ? stage_copy_of(stage, i, v) : NULL;

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
	POST(stage_is_sound(stage));
	return 0;
}
