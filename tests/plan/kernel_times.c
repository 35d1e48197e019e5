/*
 * kernel_times: what the CUDA kernels' time functions say about an H200 that is described and not there. For
 * tests/plan/check_tables and scripts/fit-times, which have measured times to compare with. Lines from stdin:
 *
 *     time OP DTYPE PRECISION SHAPE KERNEL     prints ns; nan if it does not support that
 *     plan OP DTYPE PRECISION SHAPE KERNEL     prints the ns that a job of this op alone is planned to take
 *     host OP DTYPE PRECISION SHAPE            the same from and to pinned host memory, behind the kernel and
 *                                              the number of parts that are streamed
 *     choose OP DTYPE PRECISION SHAPE          prints the kernel that `auto` takes if nothing was measured
 *     set N VALUE                              the N-th constant of kernels/fitted.c, from 0 on; prints
 *                                              nothing
 *
 * Operands are dense. SHAPE: as kops-bench has it, MxNxK of gemm. OP: its name, and attributes that are
 * choices: attention,causal=top_left.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cuda.h"
#include "cuda/gpu.h"
#include "described.h"

/* Matches the tests' build of the kernels. */
#define KOPS_DESCRIBED
#include "fitted.h"
#include "gemm/gemm.h"
#include "plan/plan.h"

static const struct described_gpu h200 = {"H200",  9,    0, 132,          232448, 1980000,
                                          3201000, 6016, 2, 140ull << 30, 0};

struct question {
	char op[64], dtype[8], precision[8], shape[96], kernel[16];
};

static kops_dtype dtype_of(const char *name)
{
	for (kops_dtype dtype = DTYPE_FIRST; dtype < DTYPE_END; dtype++)
		if (strcmp(dtype_name(dtype), name) == 0)
			return dtype;
	return 0;
}

static kops_precision precision_of(const char *name)
{
	return strcmp(name, "ieee") == 0   ? KOPS_PRECISION_IEEE
	       : strcmp(name, "tf32") == 0 ? KOPS_PRECISION_TF32
	       : strcmp(name, "bf16") == 0 ? KOPS_PRECISION_BF16
	                                   : KOPS_PRECISION_F32;
}

/* form: the op's size_form from its first separator on; extents after a slash may be left out. NULL: there is
 * no slash. */
static unsigned extents_of(const char *shape, const char *form, uint64_t ret[SIZE_EXTENTS_MAX])
{
	unsigned n = 0;
	char *at = (char *)shape;

	for (; n < SIZE_EXTENTS_MAX; n++) {
		bool follows = n > 0 && form && *form == '/';

		if (n > 0 && !follows && *at != 'x')
			break;
		ret[n] = follows && *at != '/' ? ret[n - 1] : strtoull(at + (n > 0), &at, 10);
		if (n > 0 && form)
			form = strpbrk(form + 1, "x/");
	}
	return n;
}

/* Sets the op and the attributes that follow it. */
static bool set_op(const char *text, struct op_args *ret)
{
	char copy[64], *rest = copy, *word;

	snprintf(copy, sizeof copy, "%s", text);
	*ret = (struct op_args){.op = op_by_name(strsep(&rest, ","))};
	if (!ret->op)
		return false;
	op_set_defaults(ret);
	while ((word = strsep(&rest, ",")) != NULL) {
		const char *name = strsep(&word, "=");
		unsigned i = op_attribute_index(ret->op, name), choice;

		if (i == ret->op->n_attributes || !word || ret->op->attributes[i].type != ATTRIBUTE_CHOICE)
			return false;
		choice = attribute_choice(&ret->op->attributes[i], word);
		if (choice == ret->op->attributes[i].n_choices)
			return false;
		op_set_attribute(ret, i, choice);
	}
	return true;
}

static void set_matrix(struct view *v, uint64_t rows, uint64_t cols)
{
	v->rank = 2;
	v->shape[0] = rows;
	v->shape[1] = cols;
}

static void set_shapes(struct op_args *args, const uint64_t *e, unsigned n)
{
	struct view *v = args->views;

	for (unsigned i = 0; i < args->op->n_operands; i++) {
		v[i].rank = n;
		memcpy(v[i].shape, e, n * sizeof *e);
	}
	if (strcmp(args->op->name, "gemm") == 0) {
		set_matrix(&v[0], e[0], e[2]);
		set_matrix(&v[1], e[2], e[1]);
		set_matrix(&v[GEMM_C], e[0], e[1]);
	}
	if (strcmp(args->op->name, "transpose") == 0)
		set_matrix(&v[1], e[1], e[0]);
	if (strcmp(args->op->name, "reduce") == 0)
		v[1].rank = n - 1;
}

/* Without optional operands. */
static bool set_sized_args(const struct question *q, const uint64_t *extents, struct memory *memory,
                           struct op_args *ret)
{
	char why[WHY_BYTES];

	ret->op->of_size(extents, ret);
	for (unsigned i = 0; i < ret->op->n_operands; i++)
		if (ret->op->operands[i].is_optional)
			ret->views[i] = (struct view){.rank = 0};
		else
			ret->views[i].dtype = op_dtype_beside(ret->op, i, dtype_of(q->dtype));
	if (op_result(ret, why) < 0)
		return false;
	for (unsigned i = 0; i < ret->op->n_operands; i++) {
		if (ret->op->operands[i].is_optional)
			ret->views[i] = (struct view){.rank = 0};
		view_make_dense(&ret->views[i]);
		ret->views[i].space = &memory[i];
	}
	return op_check(ret, why) == 0;
}

static bool set_args(const struct question *q, struct memory *memory, struct op_args *ret)
{
	uint64_t extents[SIZE_EXTENTS_MAX] = {0};
	char why[WHY_BYTES];

	if (!set_op(q->op, ret))
		return false;
	const char *form = ret->op->size_form;
	unsigned n = extents_of(q->shape, form ? strpbrk(form, "x/") : NULL, extents);

	if (ret->op == op_by_name("attention"))
		return set_sized_args(q, extents, memory, ret);
	set_shapes(ret, extents, n);
	for (unsigned i = 0; i < ret->op->n_operands; i++) {
		if (ret->op->operands[i].is_extra ||
		    (op_is_output(ret->op, i) && ret->op->operands[i].is_optional)) {
			ret->views[i] = (struct view){.rank = 0};
			continue;
		}
		ret->views[i].dtype = dtype_of(q->dtype);
		if (ret->op->operands[i].is_optional)
			op_fit_optional(ret, i, ANY_COUNT);
		view_make_dense(&ret->views[i]);
		ret->views[i].space = &memory[i];
	}
	if (strcmp(q->op, "gemm") == 0) { /* the tables have no bias */
		ret->views[GEMM_BIAS] = (struct view){.rank = 0};
		ret->params.gemm = (struct gemm_params){.alpha = 1, .precision = precision_of(q->precision)};
	}
	if (strcmp(q->op, "softmax") == 0)
		ret->params.softmax.scale = 1;
	if (strcmp(q->op, "reduce") == 0)
		ret->params.reduce.kind = KOPS_SUM;
	return op_check(ret, why) == 0;
}

static double time_of(const struct question *q, const struct op_args *args)
{
	const struct kernel_list *list = cuda_kernels(args->op);
	const char *why_not;

	for (size_t i = 0; i < list->n; i++)
		if (strcmp(list->kernels[i].name, q->kernel) == 0 && list->kernels[i].supports(args, &why_not))
			return list->kernels[i].time_ns(args);
	return NAN;
}

static const char *choice_of(const struct op_args *args)
{
	const struct kernel *kernel;
	char why[WHY_BYTES];

	return kernel_choose(cuda_kernels(args->op), args, NULL, NULL, 0, &kernel, why) < 0 ? "-"
	                                                                                    : kernel->name;
}

static double plan_of(const struct question *q, const struct op_args *args, bool in_host_memory)
{
	struct planner gpu = {.kernels = cuda_kernels,
	                      .info = {.memory_bytes = h200.memory_bytes, .link_rate = fitted.host.link}};
	struct run_op op = {.args = *args, .pinned = q->kernel};
	struct run run = {.ops = &op, .n_ops = 1};

	cuda_fill_costs(&gpu.info);
	gpu.dev = (const struct device_state *)&gpu; /* any address */
	for (unsigned v = 0; v < args->op->n_operands; v++)
		if (!view_is_absent(&args->views[v]))
			*(struct memory *)op.args.views[v].space =
			    (struct memory){.owner = in_host_memory ? NULL : gpu.dev,
			                    .bytes = 1ull << 40,
			                    .pin = MEMORY_PINNED};
	if (plan_run(&gpu, &run) < 0)
		return NAN;
	run_forget_plan(&run);
	if (in_host_memory)
		printf("%s %u ", op.kernel->name, op.cut.grows || op.cut.has_windows ? op.cut.n_parts : 1);
	return run.plan_us * 1e3;
}

static bool set_constant(const char *line)
{
	unsigned i;
	double value;

	if (sscanf(line, "set %u %lf", &i, &value) != 2 || i >= sizeof fitted / sizeof value)
		return false;
	memcpy((char *)&fitted + i * sizeof value, &value, sizeof value);
	return true;
}

static bool answer(const char *line)
{
	struct memory memory[OP_OPERANDS_MAX] = {{0}};
	struct question q = {0};
	struct op_args args;
	char what[8];
	int n = sscanf(line, "%7s %63s %7s %7s %95s %15s", what, q.op, q.dtype, q.precision, q.shape, q.kernel);

	if (n < 5 || !set_args(&q, memory, &args))
		return false;
	if (n == 6 && strcmp(what, "time") == 0)
		printf("%.17g\n", time_of(&q, &args));
	else if (n == 6 && strcmp(what, "plan") == 0)
		printf("%.17g\n", plan_of(&q, &args, false));
	else if (strcmp(what, "host") == 0)
		printf("%.17g\n", plan_of(&q, &args, true));
	else if (n == 5 && strcmp(what, "choose") == 0)
		printf("%s\n", choice_of(&args));
	else
		return false;
	return true;
}

int main(void)
{
	char line[256];

	described_gpu_set(&h200);
	while (fgets(line, sizeof line, stdin)) {
		if (strcmp(line, "\n") == 0) {
			fflush(stdout); /* the caller waits for the answers so far */
			continue;
		}
		if (!set_constant(line) && !answer(line)) {
			fprintf(stderr, "kernel_times: what is %s", line);
			return 2;
		}
	}
	return 0;
}
