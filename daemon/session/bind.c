#include "session/bind.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/rules.h"
#include "decode.h"

static int copy_view(const Kops__V1__View *msg, struct view *v, char why[WHY_BYTES])
{
	if (msg->n_shape < 1 || msg->n_shape > KOPS_RANK_MAX) {
		snprintf(why, WHY_BYTES, "a view has %zu extents, expected 1 to %d", msg->n_shape,
		         KOPS_RANK_MAX);
		return KOPS_E_SHAPE;
	}
	if (msg->n_strides && msg->n_strides != msg->n_shape) {
		snprintf(why, WHY_BYTES, "a view has %zu extents but %zu strides", msg->n_shape,
		         msg->n_strides);
		return KOPS_E_SHAPE;
	}
	if (!dtype_size((kops_dtype)msg->dtype)) {
		snprintf(why, WHY_BYTES, "%d is not a valid element type", (int)msg->dtype);
		return KOPS_E_DTYPE;
	}
	v->dtype = (kops_dtype)msg->dtype;
	v->offset = msg->offset;
	v->rank = (uint32_t)msg->n_shape;
	memcpy(v->shape, msg->shape, msg->n_shape * sizeof v->shape[0]);
	if (msg->n_strides)
		memcpy(v->strides, msg->strides, msg->n_strides * sizeof v->strides[0]);
	else
		view_make_dense(v);
	return 0;
}

/* Writes ", strides 1, 4,"; nothing if they follow from the shape. */
static const char *name_strides(const struct view *v, char text[RULES_SHAPE_BYTES + 16])
{
	struct view dense = *v;
	size_t used = 0;

	view_make_dense(&dense);
	text[0] = '\0';
	if (memcmp(dense.strides, v->strides, v->rank * sizeof v->strides[0]) == 0)
		return text;
	for (uint32_t d = 0; d < v->rank; d++)
		used += (size_t)snprintf(text + used, RULES_SHAPE_BYTES + 16 - used, "%s%" PRId64,
		                         d ? ", " : ", strides ", v->strides[d]);
	strcpy(text + used, ",");
	return text;
}

static void explain_extent(const struct view *v, uint64_t id, uint64_t bytes, int code, char why[WHY_BYTES])
{
	char shape[RULES_SHAPE_BYTES], strides[RULES_SHAPE_BYTES + 16];

	if (code == KOPS_E_INVALID)
		snprintf(why, WHY_BYTES,
		         "view offset %" PRIu64 " in buffer %" PRIu64
		         " is not a multiple of %zu bytes, the size of %s",
		         v->offset, id, dtype_alignment(v->dtype), dtype_name(v->dtype));
	else
		snprintf(why, WHY_BYTES,
		         "a view %s of %s at offset %" PRIu64 "%s exceeds buffer %" PRIu64 " of %" PRIu64
		         " bytes",
		         rules_shape(v, shape), dtype_name(v->dtype), v->offset, name_strides(v, strides), id,
		         bytes);
}

/* The most bytes of pages that hold elements spread over `span` bytes of memory. */
static uint64_t pages_bytes(const struct view *v, uint64_t span)
{
	uint64_t pages = span / HOST_PAGE_BYTES + 2, elements = view_elements(v);

	/* An element is on two pages only if it begins at the end of one, and elements are aligned. */
	return (elements < pages ? elements : pages) * HOST_PAGE_BYTES;
}

/* All views together touch no more than the sum of each, and no more than lies between their ends. */
static void note_reach(struct buffer_use *use, const struct view *v, uint64_t lo, uint64_t hi)
{
	uint64_t all;

	if (lo == hi)
		return;
	use->lo = use->hi == 0 || lo < use->lo ? lo : use->lo;
	use->hi = hi > use->hi ? hi : use->hi;
	all = ((use->hi - use->lo) / HOST_PAGE_BYTES + 2) * HOST_PAGE_BYTES;
	use->reach_bytes += pages_bytes(v, hi - lo);
	if (use->reach_bytes > all)
		use->reach_bytes = all;
}

static int find_buffer(struct request *r, uint64_t id, struct buffer **ret)
{
	*ret = idmap_get(&r->session->buffers, id);
	if (*ret)
		return 0;
	snprintf(r->why, sizeof r->why, "there is no buffer %" PRIu64, id);
	return KOPS_E_NOT_FOUND;
}

/* The job's use of a buffer; added if there is none. */
static struct buffer_use *use_of(struct uses *uses, struct buffer *buffer)
{
	for (unsigned i = 0; i < uses->n; i++)
		if (uses->list[i].buffer == buffer)
			return &uses->list[i];
	uses->list[uses->n].buffer = buffer;
	return &uses->list[uses->n++];
}

/* Binds one view to its buffer. Shapes among views are the op's own business. */
static int bind_view(struct request *r, struct job *job, const Kops__V1__View *msg, struct view *v,
                     bool is_output, struct buffer_use **ret_use)
{
	struct buffer *buffer;
	uint64_t lo, hi;
	int rc = find_buffer(r, msg->buffer, &buffer);

	if (rc < 0 || (rc = copy_view(msg, v, r->why)) < 0)
		return rc;
	rc = view_extent(v, buffer->memory.bytes, &lo, &hi);
	if (rc < 0) {
		explain_extent(v, msg->buffer, buffer->memory.bytes, rc, r->why);
		return rc;
	}
	if (is_output && !buffer_may_be_written(buffer))
		return buffer_refuse_write(buffer, r->why);
	v->space = &buffer->of->memory;
	*ret_use = use_of(&job->uses, buffer);
	note_reach(*ret_use, v, lo, hi);
	return 0;
}

/* No two elements of an accepted output share an address. So an output with as many bytes as the buffer covers
 * it. */
static bool covers_buffer(const struct view *output, const struct buffer *buffer)
{
	return view_elements(output) * dtype_size(output->dtype) == buffer->memory.bytes;
}

/* Notes a read, unless an earlier op of this job wrote the whole buffer. */
static void note_read(struct buffer_use *use, const struct view *v)
{
	use->reads |= !use->fills && view_elements(v) > 0;
}

/* All reads of an op come before its writes. */
static void note_use(const struct op_args *args, struct buffer_use *const uses[OP_OPERANDS_MAX])
{
	const struct op *op = args->op;

	for (unsigned v = 0; v < op->n_operands; v++)
		if (op_reads(args, v))
			note_read(uses[v], &args->views[v]);
	for (unsigned v = op_first_output(op); v < op->n_operands; v++)
		if (!view_is_absent(&args->views[v])) {
			uses[v]->writes = true;
			uses[v]->fills |= covers_buffer(&args->views[v], uses[v]->buffer);
		}
}

static int bind_views(struct request *r, struct job *job, struct run_op *op,
                      const Kops__V1__View *const views[OP_OPERANDS_MAX])
{
	struct op_args *args = &op->args;
	struct buffer_use *uses[OP_OPERANDS_MAX];
	int rc = 0;

	for (unsigned v = 0; v < args->op->n_operands && rc == 0; v++)
		if (views[v])
			rc = bind_view(r, job, views[v], &args->views[v], op_is_output(args->op, v), &uses[v]);
	if (rc == 0)
		op_shape_of(args, &op->shape);
	if (rc == 0)
		rc = op_check(args, r->why);
	if (rc == 0)
		note_use(args, uses);
	return rc;
}

static void count_cost(struct job *job, const struct op_args *args)
{
	struct cost cost;

	args->op->cost(args, &cost);
	job->cost.flops += cost.flops;
	job->cost.bytes += cost.bytes;
}

static int bind_op(struct request *r, struct job *job, unsigned index, const Kops__V1__Op *msg)
{
	const Kops__V1__View *views[OP_OPERANDS_MAX] = {NULL};
	struct run_op *op = &job->ops[index];
	int rc = decode_op(msg, &op->args, views, r->why);

	if (rc < 0)
		return rc;
	op->pinned = msg->kernel;
	rc = bind_views(r, job, op, views);
	if (rc == 0)
		count_cost(job, &op->args);
	return rc;
}

/* Begins the sentence with the op's number, if there are several. */
static void name_op(struct request *r, unsigned index, unsigned n_ops, const struct op *op)
{
	char sentence[WHY_BYTES];

	if (n_ops == 1 && !op)
		return;
	memcpy(sentence, r->why, sizeof sentence);
	snprintf(r->why, sizeof r->why, "op %u of %u (%s): %.200s", index + 1, n_ops, op ? op->name : "?",
	         sentence);
}

/* Holds the buffers from use number `first` on. */
static void hold_buffers(struct job *job, unsigned first)
{
	for (unsigned i = first; i < job->uses.n; i++) {
		struct buffer *buffer = job->uses.list[i].buffer;

		buffer_hold(buffer);
		job->sched.blocked |= buffer->state == BUFFER_PENDING;
	}
}

int bind_ops(struct request *r, const Kops__V1__Submit *submit, struct job *job, unsigned first, unsigned end)
{
	unsigned n_held = job->uses.n;
	int rc = 0;

	for (unsigned i = first; i < end && rc == 0; i++) {
		rc = bind_op(r, job, i, submit->ops[i]);
		if (rc < 0)
			name_op(r, i, (unsigned)submit->n_ops, job->ops[i].args.op);
	}
	if (rc < 0) {
		job->uses.n = n_held; /* the job does not hold the other buffers yet */
		return rc;
	}
	hold_buffers(job, n_held);
	return 0;
}
