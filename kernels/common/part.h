/* part.h: what part.c and cut.c share. */
#ifndef KOPS_PART_H
#define KOPS_PART_H

#include "kernel.h"

/* The extent of the op's part axis with this number. */
uint64_t part_extent(const struct op_args *args, unsigned axis);

/* Whether the axis divides the view's elements. */
bool part_divides(const struct op_args *args, unsigned axis, unsigned v);

#endif
