#include "verb/receipt.h"

#include "op/operation.h"
#include "show.h"

static void put_op(FILE *out, const kops_receipt *receipt, const kops_op_receipt *op)
{
	/* If single ops are not timed, the time of an only op is the job's. */
	double us = op->compute_us > 0 ? op->compute_us : receipt->n_ops == 1 ? receipt->compute_us : 0;
	const struct operation *known = operation_by_name(op->op);
	bool counts_flops = known && known->bench.counts_flops;
	struct show_text speed = counts_flops ? show_flops(op->flops, us) : show_rate(op->bytes, us);

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

void receipt_show(FILE *out, const kops_receipt *receipt)
{
	fprintf(out, "%s: queue %s, upload %s, compute %s, download %s; in all %s", receipt->device,
	        show_us(receipt->queue_us).text, show_us(receipt->upload_us).text,
	        show_us(receipt->compute_us).text, show_us(receipt->download_us).text,
	        show_us(receipt->total_us).text);
	if (receipt->pauses > 0)
		fprintf(out, "; paused for other jobs %u time%s, %s", receipt->pauses,
		        receipt->pauses == 1 ? "" : "s", show_us(receipt->paused_us).text);
	fputc('\n', out);
	for (size_t i = 0; i < receipt->n_ops; i++)
		put_op(out, receipt, kops_receipt_op(receipt, i));
}

void receipt_json(struct json *json, const kops_receipt *receipt)
{
	json_object(json, "receipt");
	json_text(json, "device", receipt->device);
	json_us(json, "queue_us", receipt->queue_us);
	json_us(json, "upload_us", receipt->upload_us);
	json_us(json, "compute_us", receipt->compute_us);
	json_us(json, "download_us", receipt->download_us);
	json_us(json, "total_us", receipt->total_us);
	json_bool(json, "prepared", receipt->prepared);
	json_bool(json, "graph", receipt->graph);
	json_count(json, "pauses", receipt->pauses);
	json_us(json, "paused_us", receipt->paused_us);
	json_array(json, "ops");
	for (size_t i = 0; i < receipt->n_ops; i++) {
		const kops_op_receipt *op = kops_receipt_op(receipt, i);
		json_object(json, NULL);
		json_text(json, "op", op->op);
		show_op_shape_json(json, &op->shape);
		json_text(json, "kernel", op->kernel);
		json_text(json, "why", op->why);
		json_text(json, "passed_over", op->passed_over);
		json_bool(json, "larger_errors", op->larger_errors);
		json_bool(json, "learning", op->learning);
		json_real(json, "flops", op->flops);
		json_real(json, "bytes", op->bytes);
		json_us(json, "compute_us", op->compute_us);
		json_close_object(json);
	}
	json_close_array(json);
	json_close_object(json);
}
