/*
 * side.h: which side computes a product faster here, kopsd or the next BLAS.
 *
 * Products are sorted by FLOPs and by FLOPs per byte moved, each in steps of two. For each class the first few
 * calls go to either side in turn and are timed, copies and waiting included; later ones go to the faster.
 * Those are timed as well, and now and then one goes to the slower side if it was near, so a change of load is
 * noticed. Nothing is computed twice. The process keeps it in memory.
 */
#ifndef KOPS_LIBBLAS_SIDE_H
#define KOPS_LIBBLAS_SIDE_H

#include <stdbool.h>

struct side;

/* The class of products of so many FLOPs for which so many bytes go to kopsd and back. */
struct side *side_of(bool f64, double flops, double bytes);

/* True: kopsd. */
bool side_choose(struct side *side);

/* What a call took, waiting included. */
void side_note(struct side *side, bool kopsd, double ns_per_flop);

#endif
