#include "verb/receipt.h"

#include <string.h>

#include "op/operation.h"
#include "show.h"

void receipt_add(struct receipt *sum, const kops_receipt *receipt)
{
	if (sum->jobs++ == 0)
		sum->first = receipt;
	sum->is_spread |= strcmp(receipt->device, sum->first->device) != 0;
	sum->queue_us += receipt->queue_us;
	sum->upload_us += receipt->upload_us;
	sum->compute_us += receipt->compute_us;
	sum->download_us += receipt->download_us;
	sum->total_us += receipt->total_us;
	sum->pauses += receipt->pauses;
	sum->paused_us += receipt->paused_us;
	for (size_t i = 0; i < receipt->n_ops && i < RECEIPT_OPS_MAX; i++) {
		const kops_op_receipt *op = kops_receipt_op(receipt, i);
		sum->ops[i].flops += op->flops;
		sum->ops[i].bytes += op->bytes;
		sum->ops[i].compute_us += op->compute_us;
	}
}

static void put_op(FILE *out, const struct receipt *receipt, size_t i)
{
	const kops_op_receipt *op = kops_receipt_op(receipt->first, i);
	double flops = receipt->ops[i].flops, bytes = receipt->ops[i].bytes, us = receipt->ops[i].compute_us;
	const struct operation *known = operation_by_name(op->op);
	bool counts_flops = known && known->bench.counts_flops;

	/* If single ops are not timed, the time of an only op is the job's. */
	if (us <= 0 && receipt->first->n_ops == 1)
		us = receipt->compute_us;
	struct show_text speed = counts_flops ? show_flops(flops, us) : show_rate(bytes, us);

	fprintf(out, "  %s  %s: %s", show_op(op->op, &op->shape).text, op->kernel, op->why);
	if (us > 0)
		fprintf(out, "; %s", show_us(us).text);
	if (speed.text[0])
		fprintf(out, ", %s", speed.text);
	fputc('\n', out);
	if (op->passed_over[0])
		fprintf(out, "            passed over: %s\n", op->passed_over);
	if (op->learning)
		fprintf(out,
		        "            kopsd tries kernels on jobs of this shape: a later one may run another\n");
}

void receipt_show(FILE *out, const struct receipt *receipt)
{
	fprintf(out, "%s%s: queue %s, upload %s, compute %s, download %s; in all %s", receipt->first->device,
	        receipt->is_spread ? " and others" : "", show_us(receipt->queue_us).text,
	        show_us(receipt->upload_us).text, show_us(receipt->compute_us).text,
	        show_us(receipt->download_us).text, show_us(receipt->total_us).text);
	if (receipt->pauses > 0)
		fprintf(out, "; paused for other jobs %u time%s, %s", receipt->pauses,
		        receipt->pauses == 1 ? "" : "s", show_us(receipt->paused_us).text);
	if (receipt->jobs > 1)
		fprintf(out, "; %u jobs, which overlap, each of a part like this one:", receipt->jobs);
	fputc('\n', out);
	for (size_t i = 0; i < receipt->first->n_ops; i++)
		put_op(out, receipt, i);
}

void receipt_json(struct json *json, const struct receipt *receipt)
{
	json_object(json, "receipt");
	json_text(json, "device", receipt->first->device);
	json_count(json, "jobs", receipt->jobs);
	json_us(json, "queue_us", receipt->queue_us);
	json_us(json, "upload_us", receipt->upload_us);
	json_us(json, "compute_us", receipt->compute_us);
	json_us(json, "download_us", receipt->download_us);
	json_us(json, "total_us", receipt->total_us);
	json_bool(json, "prepared", receipt->first->prepared);
	json_bool(json, "graph", receipt->first->graph);
	json_count(json, "pauses", receipt->pauses);
	json_us(json, "paused_us", receipt->paused_us);
	json_array(json, "ops");
	for (size_t i = 0; i < receipt->first->n_ops; i++) {
		const kops_op_receipt *op = kops_receipt_op(receipt->first, i);
		json_object(json, NULL);
		json_text(json, "op", op->op);
		show_op_shape_json(json, &op->shape);
		json_text(json, "kernel", op->kernel);
		json_text(json, "why", op->why);
		json_text(json, "passed_over", op->passed_over);
		json_bool(json, "larger_errors", op->larger_errors);
		json_bool(json, "learning", op->learning);
		json_real(json, "flops", receipt->ops[i].flops);
		json_real(json, "bytes", receipt->ops[i].bytes);
		json_us(json, "compute_us", receipt->ops[i].compute_us);
		json_close_object(json);
	}
	json_close_array(json);
	json_close_object(json);
}
