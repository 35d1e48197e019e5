/* counts.h: which columns a part has. See linalg.h. */
#ifndef KOPS_LINALG_COUNTS_H
#define KOPS_LINALG_COUNTS_H

#include "kernel.h"

/* counts of struct plain_params, set by check() and of parts: the part's first column, and the one behind it.
 */
enum { LINALG_BEGIN, LINALG_END };

static inline uint64_t linalg_begin(const struct op_args *args)
{
	return args->params.plain.counts[LINALG_BEGIN];
}

static inline uint64_t linalg_end(const struct op_args *args)
{
	return args->params.plain.counts[LINALG_END];
}

#endif
