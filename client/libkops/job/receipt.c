/* receipt.c: the daemon's answer to a job, copied into one block that the job owns. */
#include <stdlib.h>
#include <string.h>

#include "libkops/base/base.h"
#include "libkops/job/receipt.h"

struct receipt {
	kops_receipt shown; /* the first member: callers have its address */
	kops_op_receipt ops[];
};

/* Room for the texts of each op, which always holds its names, and mostly the rest. */
#define OP_TEXT_BYTES 512

static size_t room_for(size_t n_ops, size_t text)
{
	return sizeof(struct receipt) + n_ops * sizeof(kops_op_receipt) + text;
}

static size_t text_bytes(const Kops__V1__Receipt *from)
{
	size_t n = strlen(from->device) + 1;
	for (size_t i = 0; i < from->n_ops; i++)
		n += strlen(from->ops[i]->op) + strlen(from->ops[i]->kernel) + strlen(from->ops[i]->why) +
		     strlen(from->ops[i]->passed_over) + 4;
	return n;
}

/* The room left for texts. */
struct room {
	char *at, *end;
};

/* Returns "" if there is no room. */
static const char *put_text(struct room *room, const char *text)
{
	char *put = room->at;
	size_t bytes = strlen(text) + 1;
	if (bytes > (size_t)(room->end - put))
		return "";
	memcpy(put, text, bytes);
	room->at += bytes;
	return put;
}

kops_op_shape client_op_shape(Kops__V1__DType dtype, size_t n, const uint64_t *extents)
{
	kops_op_shape shape = {.dtype = (kops_dtype)dtype,
	                       .rank = n < KOPS_VIEW_AXES ? (uint32_t)n : KOPS_VIEW_AXES};
	for (uint32_t i = 0; i < shape.rank; i++)
		shape.extents[i] = extents[i];
	return shape;
}

/* Copies names before sentences, for which there may be no room. */
static void fill(struct receipt *to, size_t bytes, const Kops__V1__Receipt *from)
{
	kops_op_receipt *ops = to->ops;
	size_t most = (bytes - room_for(0, 0)) / sizeof *ops;
	size_t n_ops = from->n_ops < most ? from->n_ops : most;
	struct room text = {(char *)(ops + n_ops), (char *)to + bytes};
	to->shown = (kops_receipt){.device = put_text(&text, from->device),
	                           .queue_us = from->queue_us,
	                           .upload_us = from->upload_us,
	                           .compute_us = from->compute_us,
	                           .download_us = from->download_us,
	                           .total_us = from->total_us,
	                           .n_ops = n_ops,
	                           .prepared = from->prepared,
	                           .graph = from->graph,
	                           .pauses = from->pauses,
	                           .paused_us = from->paused_us};
	for (size_t i = 0; i < n_ops; i++) {
		const Kops__V1__OpReceipt *op = from->ops[i];
		ops[i] = (kops_op_receipt){.op = put_text(&text, op->op),
		                           .kernel = put_text(&text, op->kernel),
		                           .flops = op->flops,
		                           .bytes = op->bytes,
		                           .compute_us = op->compute_us,
		                           .larger_errors = op->larger_errors,
		                           .learning = op->learning,
		                           .shape = client_op_shape(op->dtype, op->n_shape, op->shape)};
	}
	for (size_t i = 0; i < n_ops; i++) {
		ops[i].why = put_text(&text, from->ops[i]->why);
		ops[i].passed_over = put_text(&text, from->ops[i]->passed_over);
	}
}

/* Takes over the figures. Device, kernels and sentences stay those of the last receipt. */
static void update(struct receipt *to, const Kops__V1__Receipt *from)
{
	to->shown.queue_us = from->queue_us;
	to->shown.upload_us = from->upload_us;
	to->shown.compute_us = from->compute_us;
	to->shown.download_us = from->download_us;
	to->shown.total_us = from->total_us;
	to->shown.prepared = from->prepared;
	to->shown.graph = from->graph;
	to->shown.pauses = from->pauses;
	to->shown.paused_us = from->paused_us;
	for (size_t i = 0; i < to->shown.n_ops; i++)
		to->ops[i].compute_us = i < from->n_ops_us ? from->ops_us[i] : 0;
}

static bool grow(kops_job *job, size_t bytes)
{
	if (bytes <= job->receipt_cap)
		return true;
	struct receipt *grown = realloc(job->receipt, bytes);
	if (!grown)
		return false;
	if (!job->receipt)
		grown->shown = (kops_receipt){.device = ""};
	job->receipt = grown;
	job->receipt_cap = bytes;
	return true;
}

int client_receipt_reserve(kops_job *job)
{
	if (grow(job, room_for(job->n_ops, job->n_ops * OP_TEXT_BYTES)))
		return 0;
	return client_fail(job->k, KOPS_E_NOMEM, "out of memory for the receipt of a job");
}

void client_receipt_keep(kops_job *job, const Kops__V1__Receipt *from)
{
	if (from->as_before) {
		update(job->receipt, from);
		return;
	}
	grow(job, room_for(from->n_ops, text_bytes(from)));
	fill(job->receipt, job->receipt_cap, from);
}

const kops_receipt *kops_job_receipt(const kops_job *job)
{
	return job->phase == PHASE_ENDED && job->has_receipt ? &job->receipt->shown : NULL;
}

const kops_op_receipt *kops_receipt_op(const kops_receipt *receipt, size_t i)
{
	return i < receipt->n_ops ? &((const struct receipt *)receipt)->ops[i] : NULL;
}
