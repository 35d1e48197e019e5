/* reference.c: the kernel of every op that runs its reference(). */
#include "common/cpu.h"

#include "common/half.h"

bool cpu_reference_supports(const struct op_args *args, const char **ret_why_not)
{
	(void)args;
	(void)ret_why_not;
	return true;
}

/* Estimates up to twice the measured time; types that are converted take longer. */
double cpu_reference_ns(const struct op_args *args)
{
	const double flop_ns = 1.5, element_ns = 5;
	kops_dtype dtype = args->views[0].dtype;
	double elements = (double)view_elements(op_output_const(args));
	struct cost cost;

	args->op->cost(args, &cost);
	double ns = cost.flops * flop_ns + elements * element_ns;
	return ns * (dtype == KOPS_F32 || dtype == KOPS_F64 ? 1 : 2.5) + cpu_memory_ns(args, 1);
}

int cpu_reference_launch(const struct op_args *args, const struct launch *launch)
{
	(void)launch;
	args->op->reference(args);
	return 0;
}

/* Returns where element i in row-major order lies. */
static int64_t index_of(const struct view *v, uint64_t i)
{
	int64_t index = 0;

	for (uint32_t d = v->rank; d-- > 0; i /= v->shape[d])
		index += (int64_t)(i % v->shape[d]) * v->strides[d];
	return index;
}

int cpu_convert(const struct view *from, const struct view *to, const struct launch *launch)
{
	(void)launch;
	for (uint64_t i = 0; i < view_elements(to); i++)
		half_store(to->data, to->dtype, index_of(to, i),
		           half_load(from->data, from->dtype, index_of(from, i)));
	return 0;
}
