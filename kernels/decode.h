/* decode.h: ops as they are on the wire, read by the descriptions that ops give of themselves. */
#ifndef KOPS_DECODE_H
#define KOPS_DECODE_H

#include "kernel.h"
#include "kops.pb-c.h"

/*
 * Once, before the first decode_op(): finds where the messages keep what ops describe. KOPS_E_STATE with a
 * sentence where an op and its message do not agree: the program has a bug.
 */
int decode_open(char why[WHY_BYTES]);

/*
 * Which op it is, its attributes, and its views: views[i] points into msg, NULL where operand i is absent. In
 * *args only these are set. KOPS_E_INVALID with a sentence; args->op is set where the op was found.
 */
int decode_op(const Kops__V1__Op *msg, struct op_args *args, const Kops__V1__View *views[OP_OPERANDS_MAX],
              char why[WHY_BYTES]);

/* How many views the ops of a message have, at most. */
size_t decode_views_max(const Kops__V1__Submit *submit);

#endif
