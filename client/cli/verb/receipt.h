/* receipt.h: shows the receipts of one job, or of several that did an op block by block, for people and as
 * JSON. */
#ifndef KOPS_CLI_VERB_RECEIPT_H
#define KOPS_CLI_VERB_RECEIPT_H

#include <stdbool.h>
#include <stdio.h>

#include "json.h"
#include "kops.h"

#define RECEIPT_OPS_MAX 256 /* twice the values of a job file */

/* All zero: of no job. */
struct receipt {
	const kops_receipt *first; /* tells device and kernels; its job must outlive this */
	unsigned jobs;
	bool is_spread; /* some ran on other devices */
	/* Sums over the jobs. Where the jobs overlap, so do these times. */
	double queue_us, upload_us, compute_us, download_us, total_us, paused_us;
	uint32_t pauses;
	struct {
		double flops, bytes, compute_us;
	} ops[RECEIPT_OPS_MAX];
};

/* Adds the receipt of a job with the same ops. */
void receipt_add(struct receipt *sum, const kops_receipt *receipt);

/* Prints device, kernels and the reasons for them, where the time went, and rates. */
void receipt_show(FILE *out, const struct receipt *receipt);

/* Writes the same as member "receipt". */
void receipt_json(struct json *json, const struct receipt *receipt);

#endif
