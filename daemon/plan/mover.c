#include "plan/mover.h"

#include "base/invariant.h"
#include "plan/exchange.h"

/* Before the CPU reads host memory on its own: whatever may still be writing it has to be through. */
static int settle_stream(struct stage *stage)
{
	if (!stage->others_out && !stage->downloaded)
		return 0;
	stage->others_out = false;
	stage->downloaded = false;
	return stage->mover->settle(stage->stream);
}

/* What is enqueued on `after` from here on waits for all that is on `before`. */
static int order(const struct stage *stage, struct stream *before, struct stream *after)
{
	return stage->mover->follow(before, after, stage->mark);
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

/* What of a part is moved, and how. */
enum moves {
	UPLOAD,        /* what is new in it */
	UPLOAD_OWN,    /* the same without the other run's halves (exchange.h) */
	UPLOAD_OTHERS, /* these halves alone */
	TAKE,          /* the same, from the other device */
	DOWNLOAD,      /* its results */
};

static bool moves_operand(const struct op_args *args, enum moves how, unsigned v)
{
	return how == DOWNLOAD ? op_is_output(args->op, v) : op_reads(args, v);
}

static bool is_shared(const struct stage *stage, unsigned v)
{
	return stage->run->ops[0].shared.operands >> v & 1;
}

/* Leaves what is moved of a part of operand v, at this place of the image. */
static void leave_half(const struct stage *stage, unsigned v, enum moves how, struct layout *part, char **at)
{
	if (how == UPLOAD || how == DOWNLOAD)
		return;
	if (is_shared(stage, v))
		*at += layout_halve(part, how == UPLOAD_OWN ? stage->run->side : !stage->run->side);
	else if (how != UPLOAD_OWN)
		part->bytes = 0;
}

/* at: the part's lowest element in the image. offer: whose images to TAKE from. */
static int move_piece(struct stage *stage, unsigned v, enum moves how, const struct layout *part, char *at,
                      const struct exchange_offer *offer)
{
	const struct stage_copy *copy = stage_copy_of(stage, 0, v);

	if (part->bytes == 0)
		return 0;
	switch (how) {
	case TAKE:
		return stage->mover->copy(part, offer->images[v] + (at - stage->scratch - copy->offset), at,
		                          stage->across);
	case DOWNLOAD:
		return stage->mover->download(part, copy->memory->host, true, at, stage->down);
	default:
		return stage->mover->upload(part, copy->memory->host, true, at, stage->up);
	}
}

static int move_part(struct stage *stage, uint32_t i, enum moves how, const struct exchange_offer *offer)
{
	const struct run_op *op = &stage->run->ops[0];
	unsigned moves =
	    how == DOWNLOAD ? op_part_results(&op->args, &op->cut, i) : op_part_news(&op->args, &op->cut, i);
	struct op_args args, host, image;
	int rc = 0;

	stage_args(stage, 0, &args);
	op_part(&op->args, &op->cut, i, &host);
	op_part(&args, &op->cut, i, &image);
	for (unsigned v = 0; v < args.op->n_operands && rc == 0; v++) {
		const struct stage_copy *copy = stage_copy_of(stage, 0, v);
		struct layout part;
		char *at;

		if (!copy || copy->direct || !(moves >> v & 1) || !moves_operand(&op->args, how, v))
			continue;
		at = layout_of_part(&host.views[v], &image.views[v], &part);
		leave_half(stage, v, how, &part, &at);
		rc = move_piece(stage, v, how, &part, at, offer);
	}
	return rc;
}

/* ---- Streamed runs that exchange operands ---- */

/* Whether part i brings pieces of shared operands. */
static bool brings_shared(const struct stage *stage, uint32_t i)
{
	const struct run_op *op = &stage->run->ops[0];

	return op_part_news(&op->args, &op->cut, i) & op->shared.operands;
}

static int upload_own(struct stage *stage)
{
	int rc = 0;

	for (uint32_t i = 0; i < stage->run->ops[0].cut.n_parts && rc == 0; i++) {
		rc = move_part(stage, i, UPLOAD_OWN, NULL);
		if (rc == 0)
			rc = stage->mover->mark(stage->up, stage->marks->own[i]);
	}
	return rc;
}

static void offer_images(struct stage *stage)
{
	struct exchange_offer offer = {.marks = stage->marks->own};

	for (unsigned v = 0; v < stage->run->ops[0].args.op->n_operands; v++)
		if (is_shared(stage, v))
			offer.images[v] = stage->scratch + stage_copy_of(stage, 0, v)->offset;
	exchange_offer(stage->run, &offer);
}

/* The other's halves for part i: from its device, or NULL, from host memory. */
static int fetch_others(struct stage *stage, uint32_t i, const struct exchange_offer *offer)
{
	struct stream *stream = offer ? stage->across : stage->up;
	int rc = offer ? stage->mover->await(stream, offer->marks[i]) : 0;

	if (rc == 0)
		rc = move_part(stage, i, offer ? TAKE : UPLOAD_OTHERS, offer);
	return rc < 0 ? rc : stage->mover->mark(stream, stage->marks->others[i]);
}

/* Everything at once: the other waits for the offer, and streams must not wait for what is not enqueued yet. */
static int exchange_operands(struct stage *stage)
{
	const struct exchange_offer *offer;
	int rc = upload_own(stage), rc_taken;

	if (rc < 0)
		return rc;
	offer_images(stage);
	offer = exchange_take(stage->run);
	for (uint32_t i = 0; i < stage->run->ops[0].cut.n_parts && rc == 0; i++)
		if (brings_shared(stage, i))
			rc = fetch_others(stage, i, offer);
	if (!offer)
		return rc;
	rc_taken = stage->mover->mark(stage->across, stage->marks->taken);
	exchange_took(stage->run, stage->marks->taken);
	return rc < 0 ? rc : rc_taken;
}

static int await_exchanged(struct stage *stage, uint32_t i)
{
	int rc = stage->mover->await(stage->stream, stage->marks->own[i]);

	return rc < 0 || !brings_shared(stage, i) ? rc
	                                          : stage->mover->await(stage->stream, stage->marks->others[i]);
}

/* The stream waits for what it takes, and for what the other takes of its memory. */
static int end_exchange(struct stage *stage)
{
	void *taken = exchange_withdraw(stage->run);
	int rc = order(stage, stage->across, stage->stream), rc_taken;

	rc_taken = taken ? stage->mover->await(stage->stream, taken) : 0;
	return rc < 0 ? rc : rc_taken;
}

/* ---- Parts of streamed runs ---- */

/* The uploads of part i are under way. Those of the next part follow, however late that one begins. */
static int await_part(struct stage *stage, uint32_t i)
{
	int rc;

	if (stage->exchanges)
		return await_exchanged(stage, i);
	rc = order(stage, stage->up, stage->stream);

	if (rc < 0 || i + 1 == stage->run->ops[0].cut.n_parts)
		return rc;
	return move_part(stage, i + 1, UPLOAD, NULL);
}

static int download_part(struct stage *stage, uint32_t i)
{
	int rc = order(stage, stage->stream, stage->down);

	return rc < 0 ? rc : move_part(stage, i, DOWNLOAD, NULL);
}

/* ---- Runs with windows ---- */

/* Gives what a part needs beside the part before its places, and uploads it. */
static int fill_windows(struct stage *stage, unsigned i, uint32_t part)
{
	const struct run_op *op = &stage->run->ops[i];
	unsigned moves = op_part_moves(&op->args, &op->cut, part);
	struct op_args args;
	int rc = 0;

	op_part_operands(&op->args, &op->cut, part, &args);
	for (unsigned v = 0; v < args.op->n_operands && rc == 0; v++) {
		const struct stage_copy *copy = stage_copy_of(stage, i, v);
		struct window *window = &stage->windows[i][v];
		struct layout layout;

		if (!copy || !(moves >> v & 1))
			continue;
		window->fills++;
		if (!window_is_read(&args, v))
			continue;
		layout_of(&args.views[v], &layout);
		rc = stage->mover->upload(&layout, copy->memory->host, copy->pinned,
		                          window_image(window, stage->scratch, 0), stage->up);
	}
	return rc;
}

/* Downloads what the tile that ends with this part has written. age: of its places. */
static int download_tile(struct stage *stage, unsigned i, uint32_t part, unsigned age)
{
	const struct run_op *op = &stage->run->ops[i];
	struct op_args args;
	int rc = order(stage, stage->stream, stage->down);

	stage->downloaded = true;
	op_part_operands(&op->args, &op->cut, part, &args);
	for (unsigned v = op_first_output(args.op); v < args.op->n_operands && rc == 0; v++) {
		const struct stage_copy *copy = stage_copy_of(stage, i, v);
		struct layout layout;

		if (!copy)
			continue;
		layout_of(&args.views[v], &layout);
		rc = stage->mover->download(&layout, copy->memory->host, copy->pinned,
		                            window_image(&stage->windows[i][v], stage->scratch, age),
		                            stage->down);
	}
	return rc;
}

/* The first part of an op: what was before it on the device is through, as it had the same memory. */
static int begin_windows(struct stage *stage, unsigned i)
{
	int rc = order(stage, stage->stream, stage->down);

	if (rc == 0)
		rc = order(stage, stage->down, stage->stream);
	if (rc == 0 && stage_waits(stage))
		rc = settle_stream(stage);
	if (rc == 0)
		rc = order(stage, stage->stream, stage->up);
	return rc < 0 ? rc : fill_windows(stage, i, 0);
}

/*
 * The first part of a tile writes to places that the tile before the last one had: these have been downloaded.
 * The last one's can be downloaded from now on.
 */
static int begin_tile(struct stage *stage, unsigned i, uint32_t part)
{
	int rc = order(stage, stage->down, stage->stream);

	return rc < 0 || part == 0 ? rc : download_tile(stage, i, part - 1, 1);
}

/* The places for part i are those that the last part but one had, which is through once the stream has come
 * here. */
static int fill_next(struct stage *stage, unsigned i, uint32_t part)
{
	int rc = order(stage, stage->stream, stage->up);

	if (rc == 0 && op_reads_outputs(stage_op(stage, i)))
		rc = order(stage, stage->down, stage->up);
	return rc < 0 ? rc : fill_windows(stage, i, part);
}

static int begin_part_of_windows(struct stage *stage, unsigned i, uint32_t part, struct op_args *ret_args)
{
	const struct run_op *op = &stage->run->ops[i];
	int rc = part == 0 ? begin_windows(stage, i) : 0;

	if (rc == 0)
		rc = order(stage, stage->up, stage->stream);
	if (rc == 0 && part % op->cut.n_steps == 0)
		rc = begin_tile(stage, i, part);
	if (rc < 0)
		return rc;
	window_args(&op->args, &op->cut, part, stage->windows[i], stage->scratch, ret_args);
	return part + 1 < op->cut.n_parts ? fill_next(stage, i, part + 1) : 0;
}

static int end_part_of_windows(struct stage *stage, unsigned i, uint32_t part)
{
	return part + 1 < stage->run->ops[i].cut.n_parts ? 0 : download_tile(stage, i, part, 0);
}

/* ---- All runs ---- */

/* Its transfers have streams of their own. */
static bool moves_beside(const struct stage *stage)
{
	return stage->streams || stage->has_windows;
}

/* Another lane's transfers end first. On the same lane they are ahead in their streams anyway. */
static int follow_last_slice(struct stage *stage)
{
	int rc = 0;

	if (stage->last_up && stage->last_up != stage->up) {
		rc = order(stage, stage->last_up, stage->stream);
		if (rc == 0)
			rc = order(stage, stage->last_down, stage->stream);
	}
	stage->last_up = stage->last_down = NULL;
	return rc;
}

int stage_begin_slice(struct stage *stage)
{
	int rc;

	if (exchange_is_on(stage->run) && !stage->exchanges)
		exchange_withdraw(stage->run); /* so that the other does not wait */
	if (!moves_beside(stage))
		return 0;
	rc = follow_last_slice(stage);
	if (rc == 0)
		rc = order(stage, stage->stream, stage->up);
	return rc < 0 || !stage->exchanges ? rc : order(stage, stage->stream, stage->across);
}

int stage_end_slice(struct stage *stage, bool ends)
{
	int rc_up, rc_down, rc_across;

	if (!moves_beside(stage))
		return 0;
	PRE(ends || !stage->exchanges);
	rc_across = stage->exchanges ? end_exchange(stage) : 0;
	if (!ends) {
		stage->last_up = stage->up;
		stage->last_down = stage->down;
		return 0;
	}
	rc_up = order(stage, stage->up, stage->stream);
	rc_down = order(stage, stage->down, stage->stream);
	rc_up = rc_up < 0 ? rc_up : rc_across;
	return rc_up < 0 ? rc_up : rc_down;
}

int stage_abandon(struct stage *stage)
{
	int rc_up, rc_down;

	if (!stage->last_up)
		return 0;
	rc_up = stage->mover->settle(stage->last_up);
	rc_down = stage->mover->settle(stage->last_down);
	stage->last_up = stage->last_down = NULL;
	return rc_up < 0 ? rc_up : rc_down;
}

int stage_upload_all(struct stage *stage)
{
	if (stage->exchanges)
		return exchange_operands(stage);
	if (stage->streams)
		return move_part(stage, 0, UPLOAD, NULL);
	if (stage->has_windows)
		return 0;
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

	if (stage->has_windows)
		return begin_part_of_windows(stage, i, part, ret_args);
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
	if (stage->has_windows)
		return end_part_of_windows(stage, i, part);
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
