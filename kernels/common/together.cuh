/*
 * together.cuh: where the operands of a launch are: those of one op, or of several that are alike (kernel.h:
 * launch_together). Then an axis of the grid numbers the ops. A kernel is compiled for both from one source, so
 * what an op comes to is the same alone and among others.
 */
#ifndef KOPS_KERNELS_TOGETHER_H
#define KOPS_KERNELS_TOGETHER_H

#include "common/cuda.h"

namespace
{

/* A kernel's parameter: the addresses of VIEWS views of each of n ops, OPS at most. */
template <unsigned VIEWS, unsigned OPS> struct operands {
	void *of[OPS][VIEWS];
	unsigned n;
	void *const *elsewhere = NULL; /* of all, op by op; NULL: they are here */
	bool exchanged = false;        /* elsewhere the first two views have each other's places */

	/* Elsewhere is host memory, so reads of it should be cached. No kernel writes it: they can be done
	 * before the kernel before is through (overlap.cuh). */
	__device__ __forceinline__ void *at(unsigned view, uint64_t op) const
	{
		if (OPS > 1 && elsewhere) {
			unsigned there = exchanged && view < 2 ? 1 - view : view;

			return (void *)__ldg((const unsigned long long *)(elsewhere + op * VIEWS + there));
		}
		return of[OPS > 1 ? op : 0][view];
	}
};

constexpr unsigned PARAMETERS_MAX = 4096; /* bytes of all of a kernel's */
static_assert(sizeof(operands<OP_OPERANDS_MAX, TOGETHER_OPS(OP_OPERANDS_MAX)>) + 512 <= PARAMETERS_MAX &&
                  sizeof(operands<3, TOGETHER_OPS(3)>) + 512 <= PARAMETERS_MAX,
              "leaves room for others");

template <unsigned VIEWS, unsigned OPS>
operands<VIEWS, OPS> operands_of_all(const op_args *const *args, unsigned n, void *const *elsewhere)
{
	operands<VIEWS, OPS> where;

	where.elsewhere = elsewhere;
	for (unsigned i = 0; i < n; i++)
		for (unsigned v = 0; v < VIEWS; v++)
			where.of[i][v] = args[i]->views[v].data;
	where.n = n;
	return where;
}

template <unsigned VIEWS> operands<VIEWS, 1> operands_of(const op_args *args)
{
	return operands_of_all<VIEWS, 1>(&args, 1, NULL);
}

template <unsigned VIEWS>
operands<VIEWS, TOGETHER_OPS(VIEWS)> operands_of(const op_args *const *args, unsigned n,
                                                 const struct launch *launch)
{
	return operands_of_all<VIEWS, TOGETHER_OPS(VIEWS)>(args, n, launch->addresses);
}

} // namespace

#endif
