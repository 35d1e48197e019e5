/* tiles.h: what the host decides for the kernel `tiles`. */
#ifndef KOPS_KERNELS_ATTENTION_TILES_H
#define KOPS_KERNELS_ATTENTION_TILES_H

#include "attention/attention.h"
#include "attention/f16x3/found.h"

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

/* Launches it for f32, without workspace, in the place of `f16x3`: if what was found says that this does not
 * fit. */
int attention_tiles_otherwise(const struct op_args *args, const struct split_found *found,
                              const struct launch *launch);

#ifdef __cplusplus
}
#endif

#endif
