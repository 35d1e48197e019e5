/* top_k.h: what top_k's rules and kernels have in common. */
#ifndef KOPS_TOP_K_H
#define KOPS_TOP_K_H

#include "kernel.h"

#define TOP_K_MAX 1024

enum { TOP_K_X, TOP_K_VALUES, TOP_K_INDICES };

enum { TOP_K_K, TOP_K_KIND, TOP_K_ORDER, TOP_K_FIRST }; /* counts of struct plain_params */
enum { TOP_K_IS_PART, TOP_K_GOES_ON };                  /* and flags */
enum top_k_kind { TOP_K_LARGEST, TOP_K_SMALLEST };
enum top_k_order { TOP_K_BY_VALUE, TOP_K_BY_INDEX };

/*
 * What a part of an op hands on of each row: the best k so far, the best first. key is the kernel's own. In a
 * row's first places; is_there is false behind them.
 */
struct top_k_carried {
	uint64_t key, bits; /* bits: the element, in the low bytes */
	uint32_t index, is_there;
};

/* Returns NULL if the op is no part. */
static inline struct top_k_carried *top_k_carried_row(const struct op_args *args, uint64_t row)
{
	const struct plain_params *p = &args->params.plain;

	return p->flags[TOP_K_IS_PART] ? (struct top_k_carried *)args->carried + row * p->counts[TOP_K_K]
	                               : NULL;
}

static inline uint32_t top_k_count(const struct op_args *args)
{
	return args->params.plain.counts[TOP_K_K];
}

static inline bool top_k_is(const struct op_args *args, enum top_k_kind kind)
{
	return args->params.plain.counts[TOP_K_KIND] == (uint32_t)kind;
}

static inline bool top_k_by_index(const struct op_args *args)
{
	return args->params.plain.counts[TOP_K_ORDER] == TOP_K_BY_INDEX;
}

/* Returns the index of a part's first column in the op's rows. */
static inline uint32_t top_k_first(const struct op_args *args)
{
	return args->params.plain.counts[TOP_K_FIRST];
}

#endif
