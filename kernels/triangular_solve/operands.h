/* operands.h: the operands and flags of triangular_solve, also for CUDA sources. */
#ifndef KOPS_TRIANGULAR_SOLVE_OPERANDS_H
#define KOPS_TRIANGULAR_SOLVE_OPERANDS_H

#include "kernel.h"

enum { SOLVE_A, SOLVE_B, SOLVE_X };
enum { SOLVE_UPPER, SOLVE_UNIT, SOLVE_CONJ, SOLVE_RIGHT }; /* flags of struct plain_params */

static inline bool solve_has(const struct op_args *args, unsigned flag)
{
	return args->params.plain.flags[flag];
}

#endif
