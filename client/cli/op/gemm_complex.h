/* gemm_complex.h: the check of complex products, for gemm.c. */
#ifndef KOPS_CLI_OP_GEMM_COMPLEX_H
#define KOPS_CLI_OP_GEMM_COMPLEX_H

#include "op/operation.h"

/* As struct operation's check. The result is complex. */
int gemm_check_complex(const struct step *step, const struct elements *in, const struct elements *y,
                       struct check *ret_check);

/* gemm.c: which row of an operand's matrices is row `in_matrix` of the batch that row `row` of y belongs to. */
uint64_t gemm_operand_row(const struct elements *operand, const struct elements *y, uint64_t row,
                          uint64_t in_matrix);

#endif
