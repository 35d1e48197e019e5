#include "plan/choose.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/*
 * Prefers a kernel that reads host memory in place, if there is one. Estimates assume operands in place, and
 * saving the copy gains more than kernels differ by.
 */
static void prefer_in_place(const struct kernel_list *list, const struct op_args *args, struct preference *ret)
{
	bool is_host = false;

	*ret = (struct preference){.why = "reads host memory in place"};
	for (unsigned v = 0; v < args->op->n_operands; v++)
		is_host |= view_is_in_host_memory(&args->views[v]);
	for (size_t i = 0; is_host && i < list->n && ret->n < PREFERRED_MAX; i++)
		if (list->kernels[i].once)
			ret->kernels[ret->n++] = (uint8_t)i;
}

/*
 * How much slower alone a kernel may be and still be preferred, because it can share a launch. Sharing saves a
 * launch, more than kernels differ by.
 */
#define COMPANY_NS        1000.0
#define COMPANY_BYTES_MAX (512u << 10) /* of outputs: no kernel runs larger ones together */

static bool goes_together(const struct kernel *kernel, const struct op_args *args)
{
	return kernel->together_max && kernel->together_max(args) > 1;
}

unsigned choose_company(const struct kernel_list *list, const struct op_args *args,
                        struct rival rivals[RIVALS_MAX], unsigned n)
{
	struct rival kept[RIVALS_MAX];
	double least = INFINITY, least_kept = INFINITY;
	unsigned n_kept = 0;

	for (unsigned i = 0; i < n; i++) {
		least = fmin(least, rivals[i].time_ns);
		if (!goes_together(&list->kernels[rivals[i].kernel], args))
			continue;
		least_kept = fmin(least_kept, rivals[i].time_ns);
		kept[n_kept++] = rivals[i];
	}
	if (n_kept == 0 || least_kept > least + COMPANY_NS)
		return n;
	memcpy(rivals, kept, n_kept * sizeof(kept[0]));
	return n_kept;
}

/* Prefers the fastest kernel that shares launches, if it is preferable. */
static void prefer_company(const struct kernel_list *list, const struct op_args *args, uint64_t disabled,
                           struct preference *ret)
{
	struct rival rivals[RIVALS_MAX];
	unsigned n = choose_company(list, args, rivals, kernel_rivals(list, args, disabled, rivals)), best = 0;

	*ret = (struct preference){
	    .why = "shares a launch with ops like it; alone at most 1 us slower, by estimate"};
	for (unsigned i = 1; i < n; i++)
		if (rivals[i].time_ns < rivals[best].time_ns)
			best = i;
	if (n > 0 && goes_together(&list->kernels[rivals[best].kernel], args))
		ret->kernels[ret->n++] = (uint8_t)rivals[best].kernel;
}

static bool may_have_company(const struct planner *p, const struct run_op *op)
{
	uint64_t bytes = 0;

	for (unsigned v = op_first_output(op->args.op); v < op->args.op->n_operands; v++)
		bytes += view_elements(&op->args.views[v]) * dtype_size(op->args.views[v].dtype);
	return p->info.crowd_us > 0 && !op->preferred && !*op->pinned && bytes <= COMPANY_BYTES_MAX;
}

static bool has_first_launches(const struct kernel_list *list, const struct op_args *args)
{
	const char *why_not;

	for (size_t i = 0; i < list->n; i++) {
		const struct kernel *kernel = &list->kernels[i];
		if (kernel->first_ns && kernel->supports(args, &why_not) && kernel->first_ns(args) > 0)
			return true;
	}
	return false;
}

/*
 * Prefers another kernel than op->kernel if that one would first have to find out how to compute the shape, and
 * the other is through by then. Notes the kernel that later ops of the shape may take instead.
 */
static void prefer_ready(const struct kernel_list *list, const struct op_args *args, uint64_t disabled,
                         struct run_op *op, struct preference *ret)
{
	struct rival rivals[RIVALS_MAX];
	unsigned n = kernel_rivals(list, args, disabled, rivals);
	double least_ns = INFINITY, chosen_ns = INFINITY, chosen_first_ns = 0;
	size_t best = 0;

	*ret = (struct preference){0};
	for (unsigned i = 0; i < n; i++) {
		const struct kernel *kernel = &list->kernels[rivals[i].kernel];
		double first_ns = kernel->first_ns ? kernel->first_ns(args) : 0;
		/* In this job, op by op: its first launch delays the job once. */
		double ns = rivals[i].time_ns + first_ns / op->sharing_first;

		if (first_ns > 0 && !op->first_launch)
			op->first_launch = kernel;
		if (kernel == op->kernel) {
			chosen_ns = rivals[i].time_ns;
			chosen_first_ns = ns;
		}
		if (ns < least_ns) {
			least_ns = ns;
			best = rivals[i].kernel;
		}
	}
	if (op->preferred || chosen_first_ns <= chosen_ns || least_ns >= chosen_first_ns)
		return;
	ret->kernels[ret->n++] = (uint8_t)best;
	snprintf(ret->why, sizeof(ret->why),
	         "%.1f us by estimate; %.16s %.1f, but it does not know the shape yet", least_ns / 1e3,
	         op->kernel->name, chosen_ns / 1e3);
}

/* Chooses without regard to first launches. */
static int choose_lasting(const struct planner *p, const struct kernel_list *list, struct run_op *op,
                          const struct op_args *args, bool may_stream)
{
	uint64_t disabled = p->disabled[op_index(op->args.op)];
	struct preference preference = {0};
	int rc;

	if (p->info.link_rate > 0 && !may_stream)
		prefer_in_place(list, &op->args, &preference);
	rc = kernel_choose(list, args, op->pinned, op->preferred ? op->preferred : &preference, disabled,
	                   &op->kernel, op->why);
	if (rc < 0 || preference.n > 0 || !may_have_company(p, op) || goes_together(op->kernel, args))
		return rc;
	prefer_company(list, args, disabled, &preference);
	return preference.n == 0 ? 0
	                         : kernel_choose(list, args, "", &preference, disabled, &op->kernel, op->why);
}

int choose_kernel(const struct planner *p, struct run_op *op, const struct op_args *args, bool may_stream)
{
	const struct kernel_list *list = p->kernels(op->args.op);
	uint64_t disabled = p->disabled[op_index(op->args.op)];
	struct preference ready;
	int rc = choose_lasting(p, list, op, args, may_stream);

	op->first_launch = NULL;
	if (rc < 0 || op->sharing_first == 0 || *op->pinned || !has_first_launches(list, args))
		return rc;
	prefer_ready(list, args, disabled, op, &ready);
	return ready.n == 0 ? 0 : kernel_choose(list, args, "", &ready, disabled, &op->kernel, op->why);
}
