/* flash.h: what the host decides for the kernel `flash`. */
#ifndef KOPS_KERNELS_FLASH_H
#define KOPS_KERNELS_FLASH_H

#include "attention/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FLASH_KEYS      64  /* that it takes at a time */
#define FLASH_DEPTH_MAX 256 /* head_dim and value_dim */

/*
 * How the work is divided. Rows of a unit: the queries of `packed` neighbouring heads, which share one head of
 * k and v, one head after another; 1 unless there are few queries. Each block has block_rows rows of a unit and
 * one of `parts` parts of the keys; if there are several, their results are joined.
 */
struct flash_plan {
	uint64_t queries, packed, rows; /* rows: queries * packed */
	uint64_t block_rows;            /* 64 or 128 */
	uint64_t units, tiles;          /* tiles: blocks of rows, for each unit */
	unsigned parts;
};

struct flash_plan flash_plan_of(const struct op_args *args);
bool attention_flash_supports(const struct op_args *args, const char **ret_why_not);
uint64_t attention_flash_workspace(const struct op_args *args);

#ifdef __cplusplus
}
#endif

#endif
