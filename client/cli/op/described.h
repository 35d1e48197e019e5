/* described.h: the descriptor of an op that has no file in this folder, made from the op's description. */
#ifndef KOPS_CLI_OP_DESCRIBED_H
#define KOPS_CLI_OP_DESCRIBED_H

#include "op/operation.h"

/* index: in ops.def. */
const struct operation *operation_described(size_t index);

#endif
