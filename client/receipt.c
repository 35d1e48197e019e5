/* receipt.c: the daemon's answer to a job, copied into one block that the job owns. */
#include <stdlib.h>
#include <string.h>

#include "client.h"

struct receipt {
	kops_receipt shown; /* the first member: callers have its address */
	kops_op_receipt ops[];
};

static size_t text_bytes(const Kops__V1__Receipt *from)
{
	size_t n = strlen(from->device) + 1;
	for (size_t i = 0; i < from->n_ops; i++)
		n += strlen(from->ops[i]->op) + strlen(from->ops[i]->kernel) + strlen(from->ops[i]->why) +
		     strlen(from->ops[i]->passed_over) + 4;
	return n;
}

static const char *put_text(char **at, const char *text)
{
	const char *put = *at;
	*at = stpcpy(*at, text) + 1;
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

static void fill(struct receipt *to, const Kops__V1__Receipt *from)
{
	kops_op_receipt *ops = to->ops;
	char *text = (char *)(ops + from->n_ops);
	to->shown = (kops_receipt){.device = put_text(&text, from->device),
	                           .queue_us = from->queue_us,
	                           .upload_us = from->upload_us,
	                           .compute_us = from->compute_us,
	                           .download_us = from->download_us,
	                           .total_us = from->total_us,
	                           .n_ops = from->n_ops,
	                           .prepared = from->prepared,
	                           .graph = from->graph};
	for (size_t i = 0; i < from->n_ops; i++) {
		const Kops__V1__OpReceipt *op = from->ops[i];
		ops[i] = (kops_op_receipt){.op = put_text(&text, op->op),
		                           .kernel = put_text(&text, op->kernel),
		                           .why = put_text(&text, op->why),
		                           .flops = op->flops,
		                           .bytes = op->bytes,
		                           .compute_us = op->compute_us,
		                           .passed_over = put_text(&text, op->passed_over),
		                           .larger_errors = op->larger_errors,
		                           .learning = op->learning,
		                           .shape = client_op_shape(op->dtype, op->n_shape, op->shape)};
	}
}

/* Device, kernels and words are those of the last one. */
static void update(struct receipt *to, const Kops__V1__Receipt *from)
{
	to->shown.queue_us = from->queue_us;
	to->shown.upload_us = from->upload_us;
	to->shown.compute_us = from->compute_us;
	to->shown.download_us = from->download_us;
	to->shown.total_us = from->total_us;
	to->shown.prepared = from->prepared;
	to->shown.graph = from->graph;
	for (size_t i = 0; i < to->shown.n_ops; i++)
		to->ops[i].compute_us = i < from->n_ops_us ? from->ops_us[i] : 0;
}

int client_receipt_keep(kops_job *job, const Kops__V1__Receipt *from)
{
	if (from->as_before && job->receipt) {
		update(job->receipt, from);
		return 0;
	}
	size_t need = sizeof(struct receipt) + from->n_ops * sizeof(kops_op_receipt) + text_bytes(from);
	if (need > job->receipt_cap) {
		struct receipt *grown = realloc(job->receipt, need);
		if (!grown)
			return KOPS_E_NOMEM;
		job->receipt = grown;
		job->receipt_cap = need;
	}
	fill(job->receipt, from);
	return 0;
}

const kops_receipt *kops_job_receipt(const kops_job *job)
{
	return job->phase == PHASE_ENDED && job->has_receipt ? &job->receipt->shown : NULL;
}

const kops_op_receipt *kops_receipt_op(const kops_receipt *receipt, size_t i)
{
	return i < receipt->n_ops ? &((const struct receipt *)receipt)->ops[i] : NULL;
}
