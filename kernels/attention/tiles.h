/* tiles.h: what the host decides for the kernel `tiles`. */
#ifndef KOPS_KERNELS_ATTENTION_TILES_H
#define KOPS_KERNELS_ATTENTION_TILES_H

#include "attention/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TILES_EDGE      64  /* queries of a block, and keys that it takes at a time */
#define TILES_DEPTH_MAX 128 /* head_dim and value_dim */

/* A unit is a head of a batch; a block has a tile of its queries, and one of `parts` parts of the keys. */
struct tiles_plan {
	uint64_t units, row_tiles;
	unsigned parts;
};

struct tiles_plan tiles_plan_of(const struct op_args *args);
bool attention_tiles_supports(const struct op_args *args, const char **ret_why_not);
uint64_t attention_tiles_workspace(const struct op_args *args);

#ifdef __cplusplus
}
#endif

#endif
