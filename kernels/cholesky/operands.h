/* operands.h: the operands and flags of cholesky, also for CUDA sources. */
#ifndef KOPS_CHOLESKY_OPERANDS_H
#define KOPS_CHOLESKY_OPERANDS_H

enum { CHOLESKY_A, CHOLESKY_FACTOR, CHOLESKY_INFO };
enum { CHOLESKY_UPPER, CHOLESKY_KEEP }; /* flags of struct plain_params */

#endif
