/*
 * arg_reduce on the CPU.
 *
 * vectorised  Vector loops find the largest of a block of a row; only in a block that has a better one than all
 *             before it is its index looked for. reduce/cpu_rows.c goes through the rows.
 * reference   plain loops
 */
#include <math.h>

#include "arg_reduce/arg_reduce.h"
#include "common/cpu.h"
#include "common/half.h"
#include "reduce/cpu_rows.h"

enum { X, Y };

#define BLOCK 512 /* elements */

/* Returns the index of the first of n elements that has this value; 0: none has, as its client has changed it.
 */
static int64_t find_value(const void *x, int64_t n, kops_dtype dtype, double value)
{
	for (int64_t i = 0; i < n; i++) {
		double v = half_load(x, dtype, i);
		if (v == value || (isnan(v) && isnan(value)))
			return i;
	}
	return 0;
}

static void join_run(const struct op_args *args, const void *x, int64_t column, int64_t n,
                     struct reduce_found *found)
{
	const struct arg_reduce_params *p = &args->params.arg_reduce;
	kops_dtype dtype = args->views[X].dtype;

	for (int64_t i = 0; i < n; i += BLOCK) {
		const char *block = (const char *)x + i * (int64_t)dtype_size(dtype);
		int64_t length = n - i < BLOCK ? n - i : BLOCK;
		struct reduce_found next = {
		    reduce_run(p->kind == ARG_MAX ? KOPS_MAX : KOPS_MIN, block, dtype, length),
		    p->first + column + i};

		if (!arg_is_better(p->kind, &next, found))
			continue;
		next.index += find_value(block, length, dtype, next.value);
		*found = next;
	}
}

static void join(const struct op_args *args, struct reduce_found *found, const struct reduce_found *behind)
{
	arg_join(args->params.arg_reduce.kind, found, behind);
}

static double time_ns(const struct op_args *args)
{
	kops_dtype dtype = args->views[X].dtype;

	return reduce_rows_ns(args, dtype == KOPS_F32   ? 0.25
	                            : dtype == KOPS_F16 ? 0.8
	                                                : 0.45 /* f64: as bf16 */);
}

static int vectorised(const struct op_args *args, const struct launch *launch)
{
	const struct reduce_steps steps = {arg_nothing(args->params.arg_reduce.kind), join_run, join, arg_store,
	                                   NULL};

	reduce_rows_run(args, &steps, launch);
	return 0;
}

static const struct kernel kernels[] = {
    {.name = "vectorised",
     .idea = "vector loops over blocks, strided rows through a tile, threads",
     .dtypes = "f32 f64 f16 bf16",
     .takes = "any strides",
     .supports = cpu_reference_supports,
     .workspace = reduce_rows_workspace,
     .time_ns = time_ns,
     .carries = true,
     .launch = vectorised},
    CPU_REFERENCE_KERNEL("f32 f64 f16 bf16"),
};

const struct kernel_list arg_reduce_cpu_kernels = {kernels, sizeof kernels / sizeof kernels[0]};
