/* decode.h: decodes ops from the wire by the ops' descriptions of themselves. */
#ifndef KOPS_DECODE_H
#define KOPS_DECODE_H

#include "kernel.h"
#include "kops.pb-c.h"

/*
 * Must be called once before the first decode_op(). Finds where messages keep what ops describe. KOPS_E_STATE
 * with a sentence if an op and its message disagree, which is a bug in the program.
 */
int decode_open(char why[WHY_BYTES]);

/*
 * Finds the op, its attributes and its views, and sets only these in *args. views[i] points into msg; NULL if
 * operand i is absent. KOPS_E_INVALID with a sentence; args->op is set if the op was found.
 */
int decode_op(const Kops__V1__Op *msg, struct op_args *args, const Kops__V1__View *views[OP_OPERANDS_MAX],
              char why[WHY_BYTES]);

/* Returns the most views that any op of the message has. */
size_t decode_views_max(const Kops__V1__Submit *submit);

#endif
