/* wgmma_plan.h: how the kernel `wgmma` divides the work. */
#ifndef KOPS_KERNELS_ATTENTION_WGMMA_PLAN_H
#define KOPS_KERNELS_ATTENTION_WGMMA_PLAN_H

#include "attention/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WGMMA_DEPTH_MAX 256 /* head_dim and value_dim */

/* A unit is a head of a batch; a tile, a number of its queries. */
struct wgmma_plan {
	unsigned depth, rows, keys; /* of a tile: head_dim, padded, and how many queries and keys at a time */
	uint64_t units, row_tiles;  /* row_tiles: of a unit */
	uint64_t section;           /* units side by side, whose keys and values L2 holds */
	bool is_uneven;             /* some tiles see more keys than others */
	double ns;
};

/* The tiles of `each` keys that the rows from first to last see: all from begin to end; those from plain_begin
 * to plain_end are seen by all rows. */
struct wgmma_keys {
	int begin, end, plain_begin, plain_end;
};

static inline ATTENTION_ANYWHERE struct wgmma_keys wgmma_keys_of(const struct attention_rule *rule, int first,
                                                                 int last, int each)
{
	struct attention_keys of_first = attention_keys_of(rule, first),
	                      of_last = attention_keys_of(rule, last);
	struct wgmma_keys k = {0, 0, 0, 0};

	if (of_last.end <= of_first.begin)
		return k;
	k.begin = (int)(of_first.begin / each);
	k.end = (int)((of_last.end + each - 1) / each);
	k.plain_begin = (int)((of_last.begin + each - 1) / each);
	k.plain_end = of_first.end > 0 ? (int)(of_first.end / each) : 0;
	return k;
}

struct wgmma_plan wgmma_plan_of(const struct op_args *args);
bool attention_wgmma_supports(const struct op_args *args, const char **ret_why_not);
uint64_t attention_wgmma_workspace(const struct op_args *args);
double attention_wgmma_ns(const struct op_args *args);

#ifdef __cplusplus
}
#endif

#endif
