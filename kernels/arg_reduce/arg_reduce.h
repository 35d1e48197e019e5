/* arg_reduce.h: how arg_reduce compares what it knows of some elements of a row: an element and its index. */
#ifndef KOPS_ARG_REDUCE_H
#define KOPS_ARG_REDUCE_H

#include "reduce/join.h"

/* Whatever is found comes before it. */
static inline struct reduce_found arg_nothing(enum arg_reduction kind)
{
	return (struct reduce_found){kind == ARG_MAX ? -(double)INFINITY : (double)INFINITY, INT64_MAX};
}

/* Returns true if b comes before a. Of equal elements the first does. */
static inline bool arg_is_better(enum arg_reduction kind, const struct reduce_found *b,
                                 const struct reduce_found *a)
{
	if (a->value == b->value || (isnan(a->value) && isnan(b->value)))
		return b->index < a->index;
	if (isnan(a->value) || isnan(b->value))
		return isnan(b->value);
	return kind == ARG_MAX ? b->value > a->value : b->value < a->value;
}

static inline void arg_join(enum arg_reduction kind, struct reduce_found *found,
                            const struct reduce_found *other)
{
	if (arg_is_better(kind, other, found))
		*found = *other;
}

/* Joins what was carried, if the op is a part, and writes the row of y. */
static inline void arg_store(const struct op_args *args, uint64_t row, const struct reduce_found *found)
{
	const struct arg_reduce_params *p = &args->params.arg_reduce;
	const struct view *y = &args->views[1];
	struct reduce_found all = *found,
	                    *carried = p->is_part ? (struct reduce_found *)args->carried + row : NULL;

	if (p->goes_on)
		arg_join(p->kind, &all, carried);
	if (carried)
		*carried = all;
	((int32_t *)y->data)[view_row(y, row)] = (int32_t)all.index;
}

#endif
