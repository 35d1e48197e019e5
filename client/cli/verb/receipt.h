/* receipt.h: shows a job's receipt, for people and as JSON. */
#ifndef KOPS_CLI_VERB_RECEIPT_H
#define KOPS_CLI_VERB_RECEIPT_H

#include <stdio.h>

#include "json.h"
#include "kops.h"

/* Prints device, kernels and the reasons for them, where the time went, and rates. */
void receipt_show(FILE *out, const kops_receipt *receipt);

/* Writes the same as member "receipt". */
void receipt_json(struct json *json, const kops_receipt *receipt);

#endif
