/* search.h: what search's rules and kernels have in common. */
#ifndef KOPS_SEARCH_H
#define KOPS_SEARCH_H

#include <math.h>

#include "kernel.h"

#define SEARCH_MAX         256
#define SEARCH_COLUMNS_MAX 65536

enum { SEARCH_QUERIES, SEARCH_BASE, SEARCH_FILTER, SEARCH_VALUES, SEARCH_INDICES };

enum { SEARCH_K, SEARCH_METRIC, SEARCH_FIRST }; /* counts of struct plain_params */
enum { SEARCH_IS_PART, SEARCH_GOES_ON };        /* and flags */
enum search_metric { SEARCH_IP, SEARCH_L2, SEARCH_COSINE };

/* What a part of an op hands on of each query: the best k so far, the best first. index -1: there is none. */
struct search_found {
	float value;
	int32_t index;
};

static inline uint32_t search_count(const struct op_args *args)
{
	return args->params.plain.counts[SEARCH_K];
}

static inline enum search_metric search_metric_of(const struct op_args *args)
{
	return (enum search_metric)args->params.plain.counts[SEARCH_METRIC];
}

/* Returns the index of a part's first row in the op's base. */
static inline uint32_t search_first(const struct op_args *args)
{
	return args->params.plain.counts[SEARCH_FIRST];
}

/* Returns NULL if the op is no part. */
static inline struct search_found *search_carried(const struct op_args *args, uint64_t query)
{
	const struct plain_params *p = &args->params.plain;

	return p->flags[SEARCH_IS_PART] ? (struct search_found *)args->carried + query * p->counts[SEARCH_K]
	                                : NULL;
}

/* The value of a place that no row takes: worse than any. */
static inline float search_nothing(enum search_metric metric)
{
	return metric == SEARCH_L2 ? INFINITY : -INFINITY;
}

/* Returns true if the filter lets a row of the op's whole base come. */
static inline bool search_allows(const struct op_args *args, uint64_t query, uint64_t row)
{
	const struct view *f = &args->views[SEARCH_FILTER];

	if (view_is_absent(f))
		return true;
	return ((const uint32_t *)
	            f->data)[(int64_t)query * f->strides[0] + (int64_t)(row / 32) * f->strides[1]] >>
	           (row % 32) &
	       1;
}

#ifdef __cplusplus
extern "C" {
#endif

/* A score in f64, and how far one that is computed in f32 may lie from it; negative: no saying. row: of the
 * views' base. (op.c) */
struct search_score {
	double value, bound;
};
struct search_score search_score(const struct op_args *args, uint64_t query, uint64_t row);

#ifdef __cplusplus
}
#endif

#endif
