/*
 * side.h: learns which side computes a call faster here, kopsd or the next BLAS.
 *
 * Calls are classified by what they compute, by FLOPs and by FLOPs per byte moved, each in steps of two. The
 * first few calls of a class go to both sides in turn and are timed, including copies and waiting. Later calls
 * go to the faster side and are timed too. Now and then one goes to the slower side, if it was near, to notice
 * a change of load. Nothing is computed twice. The times are kept in the process's memory.
 */
#ifndef KOPS_LIBBLAS_SIDE_H
#define KOPS_LIBBLAS_SIDE_H

#include <stdbool.h>

#include "kops.h"

struct side;

/* What a call computes. The next BLAS does not compute each at the same rate. */
enum side_kind { SIDE_PRODUCT, SIDE_TRIANGLE, SIDE_CHOLESKY, SIDE_LU, SIDE_KINDS };

/* Returns the class of a call by its type, its FLOPs and the bytes that go to kopsd and back. */
struct side *side_of(enum side_kind kind, kops_dtype dtype, double flops, double bytes);

/* Returns true for kopsd. */
bool side_choose(struct side *side);

/* Records what a call took, including waiting. */
void side_note(struct side *side, bool kopsd, double ns_per_flop);

#endif
