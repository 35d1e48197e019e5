/* described.h: what the programs know of an op, made from its description. */
#ifndef KOPS_CLI_OP_DESCRIBED_H
#define KOPS_CLI_OP_DESCRIBED_H

#include "op/operation.h"

/* index: in ops.def. To be called once for each. */
void operation_describe(size_t index, struct operation *ret);

#endif
