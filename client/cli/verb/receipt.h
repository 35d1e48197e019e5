/* receipt.h: what a job's receipt says, for people and as JSON. */
#ifndef KOPS_CLI_VERB_RECEIPT_H
#define KOPS_CLI_VERB_RECEIPT_H

#include <stdio.h>

#include "json.h"
#include "kops.h"

/* Device, kernels and why, where the time went, rates. */
void receipt_show(FILE *out, const kops_receipt *receipt);

/* The same as member "receipt". */
void receipt_json(struct json *json, const kops_receipt *receipt);

#endif
