/* part.c: cutting an op into parts, so that others get their turn in between. See kernel.h. */
#include "kernel.h"

/* Parts begin at multiples of this, so that kernels for aligned operands take them too. */
#define CHUNK_ALIGN 256u
#define PARTS_MAX   (1u << 20)

static uint64_t extent_of(const struct op_args *args, int axis)
{
	const int8_t *axes = args->op->part_axes[axis].axis;
	unsigned output = args->op->n_inputs;

	return args->views[output].shape[axes[output]];
}

/* The first axis that is long enough; else the longest. */
static int best_axis(const struct op_args *args, uint64_t wanted)
{
	int best = 0;

	for (int i = 0; i < (int)args->op->n_part_axes; i++) {
		if (extent_of(args, i) >= wanted)
			return i;
		if (extent_of(args, i) > extent_of(args, best))
			best = i;
	}
	return best;
}

static void cut(uint64_t extent, uint64_t wanted, struct op_cut *ret)
{
	uint64_t chunk = extent / wanted + (extent % wanted != 0);

	if (chunk > CHUNK_ALIGN)
		chunk = chunk / CHUNK_ALIGN * CHUNK_ALIGN;
	ret->chunk = chunk;
	ret->n_parts = (uint32_t)(extent / chunk + (extent % chunk != 0));
}

void op_cut(const struct op_args *args, double wanted, struct op_cut *ret)
{
	const struct op *op = args->op;
	uint64_t n = wanted < PARTS_MAX ? (uint64_t)wanted : PARTS_MAX, steps, extent;

	*ret = (struct op_cut){.n_parts = 1};
	if (!(wanted > 1) || op->n_part_axes == 0 || view_elements(op_output_const(args)) == 0)
		return;
	n += (double)n < wanted && n < PARTS_MAX;
	ret->axis = best_axis(args, n);
	extent = extent_of(args, ret->axis);
	steps = extent < n && op->steps ? op->steps(args) : 0;
	if (steps > extent) {
		ret->axis = CUT_STEPS;
		cut(steps, n < steps ? n : steps, ret);
	} else {
		cut(extent, n < extent ? n : extent, ret);
	}
}

static void narrow(struct view *v, int axis, bool keeps_stride, uint64_t first, uint64_t n)
{
	int64_t bytes = (int64_t)first * v->strides[axis] * (int64_t)dtype_size(v->dtype);

	v->offset += (uint64_t)bytes;
	if (v->data)
		v->data = (char *)v->data + bytes;
	v->shape[axis] = n;
	if (n == 1 && !keeps_stride)
		v->strides[axis] = 0;
}

static void widen(struct view *y)
{
	y->dtype = KOPS_F32;
	view_make_dense(y);
}

void op_part(const struct op_args *args, const struct op_cut *cut, uint32_t i, struct op_args *ret)
{
	const struct op *op = args->op;
	uint64_t first = i * cut->chunk, left;

	*ret = *args;
	if (cut->n_parts <= 1)
		return;
	if (cut->wide)
		widen(op_output(ret));
	left = (cut->axis == CUT_STEPS ? op->steps(ret) : extent_of(args, cut->axis)) - first;
	if (left > cut->chunk)
		left = cut->chunk;
	if (cut->axis == CUT_STEPS) {
		op->step_part(ret, first, left);
		return;
	}
	for (unsigned v = 0; v <= op->n_inputs; v++) {
		const struct part_axis *axis = &op->part_axes[cut->axis];

		if (axis->axis[v] != PART_NONE)
			narrow(&ret->views[v], axis->axis[v], axis->keeps_stride, first, left);
	}
}

/* Parts are alike but for where the first begins, which may be better aligned, and the size of the last. */
bool kernel_takes_parts(const struct kernel *kernel, const struct op_args *args, const struct op_cut *cut)
{
	const uint32_t which[] = {0, 1, cut->n_parts - 1};
	const char *why_not;
	struct op_args part;

	if (cut->n_parts <= 1)
		return kernel->supports(args, &why_not);
	for (unsigned i = 0; i < sizeof which / sizeof which[0]; i++) {
		op_part(args, cut, which[i], &part);
		if (!kernel->supports(&part, &why_not))
			return false;
	}
	return true;
}

static uint64_t workspace_of_part(const struct kernel *kernel, const struct op_args *args,
                                  const struct op_cut *cut, uint32_t i)
{
	struct op_args part;

	op_part(args, cut, i, &part);
	return kernel->workspace(&part);
}

uint64_t kernel_workspace(const struct kernel *kernel, const struct op_args *args, const struct op_cut *cut)
{
	uint64_t first, last;

	if (!kernel->workspace || view_elements(op_output_const(args)) == 0)
		return 0;
	first = workspace_of_part(kernel, args, cut, 0);
	last = cut->n_parts > 1 ? workspace_of_part(kernel, args, cut, cut->n_parts - 1) : 0;
	return first > last ? first : last;
}

/* Along steps that the op has only if its output is not rounded between them. False: it has none. */
static bool cut_wide(const struct op_args *args, double wanted, struct op_cut *ret)
{
	struct op_args wide = *args;
	struct view *y = op_output(&wide);

	if (dtype_size(y->dtype) != 2 || view_elements(y) > WIDE_ELEMENTS_MAX)
		return false;
	widen(y);
	op_cut(&wide, wanted, ret);
	ret->wide = true;
	return ret->axis == CUT_STEPS;
}

void kernel_cut(const struct kernel *kernel, const struct op_args *args, double wanted, struct op_cut *ret)
{
	struct op_cut wide;

	op_cut(args, wanted, ret);
	if (kernel->wide_output && ret->axis != CUT_STEPS && cut_wide(args, wanted, &wide) &&
	    kernel_takes_parts(kernel, args, &wide))
		*ret = wide;
	else if (!kernel_takes_parts(kernel, args, ret))
		*ret = (struct op_cut){.n_parts = 1};
}
