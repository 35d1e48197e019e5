/* cholesky.h: what cholesky is asked for. After check() it is the lower triangle that counts. */
#ifndef KOPS_CHOLESKY_H
#define KOPS_CHOLESKY_H

#include "cholesky/operands.h"
#include "linalg/linalg.h"

static inline uint64_t cholesky_order(const struct op_args *args)
{
	return args->views[CHOLESKY_FACTOR].shape[3];
}

static inline bool cholesky_keeps(const struct op_args *args)
{
	return args->params.plain.flags[CHOLESKY_KEEP];
}

static inline bool cholesky_is_first(const struct op_args *args)
{
	return linalg_begin(args) == 0;
}

static inline bool cholesky_is_last(const struct op_args *args)
{
	return linalg_end(args) == cholesky_order(args);
}

static inline bool cholesky_is_whole(const struct op_args *args)
{
	return cholesky_is_first(args) && cholesky_is_last(args);
}

static inline bool cholesky_is_in_place(const struct op_args *args)
{
	return view_same(&args->views[CHOLESKY_A], &args->views[CHOLESKY_FACTOR]);
}

#endif
