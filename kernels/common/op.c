/* op.c: the table of ops (ops.def) and the rules that several ops share (rules.h). */
#include "common/rules.h"
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const struct op *const ops[OP_COUNT] = {
#define X(name) &op_##name,
#include "ops.def"
#undef X
};

static unsigned index_by_name(const char *name)
{
	unsigned i = 0;

	while (i < OP_COUNT && strcmp(ops[i]->name, name) != 0)
		i++;
	return i;
}

unsigned op_index(const struct op *op)
{
	return index_by_name(op->name);
}

const struct op *op_by_name(const char *name)
{
	unsigned i = index_by_name(name);

	return i < OP_COUNT ? ops[i] : NULL;
}

void rules_take_shape(const struct view *v, struct op_shape *ret)
{
	ret->dtype = v->dtype;
	ret->rank = v->rank;
	memcpy(ret->extents, v->shape, sizeof ret->extents);
}

void op_shape_of(const struct op_args *args, struct op_shape *ret)
{
	*ret = (struct op_shape){.rank = 0};
	if (args->op->shape)
		args->op->shape(args, ret);
	else
		rules_take_shape(&args->views[0], ret);
}

int rules_refuse(char why[WHY_BYTES], int code, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vsnprintf(why, WHY_BYTES, format, list);
	va_end(list);
	return code;
}

const char *rules_shape(const struct view *v, char text[RULES_SHAPE_BYTES])
{
	size_t used = 0;

	text[0] = 0;
	for (uint32_t d = 0; d < v->rank && used < RULES_SHAPE_BYTES; d++)
		used += (size_t)snprintf(text + used, RULES_SHAPE_BYTES - used, d ? "x%llu" : "%llu",
		                         (unsigned long long)v->shape[d]);
	return text;
}

int rules_rank(const struct view *v, const char *name, uint32_t min, uint32_t max, char why[WHY_BYTES])
{
	if (v->rank >= min && v->rank <= max)
		return 0;
	return rules_refuse(why, KOPS_E_SHAPE, "%s has rank %u; this op takes rank %u to %u", name, v->rank,
	                    min, max);
}

int rules_same_shape(const struct view *x, const char *x_name, const struct view *y, const char *y_name,
                     char why[WHY_BYTES])
{
	char x_text[RULES_SHAPE_BYTES], y_text[RULES_SHAPE_BYTES];
	bool same = x->rank == y->rank;

	for (uint32_t d = 0; same && d < x->rank; d++)
		same = x->shape[d] == y->shape[d];
	if (same)
		return 0;
	return rules_refuse(why, KOPS_E_SHAPE, "%s is %s, %s is %s: the shapes must be equal", x_name,
	                    rules_shape(x, x_text), y_name, rules_shape(y, y_text));
}

void rules_pad_rank(struct view *v, uint32_t rank)
{
	if (view_is_empty(v))
		memset(v->strides, 0, sizeof v->strides);
	while (v->rank < rank) {
		memmove(v->shape + 1, v->shape, v->rank * sizeof v->shape[0]);
		memmove(v->strides + 1, v->strides, v->rank * sizeof v->strides[0]);
		v->shape[0] = 1;
		v->strides[0] = 0;
		v->rank++;
	}
}

int rules_spread(struct view *v, const char *name, const struct view *y, const char *y_name, uint32_t rank,
                 char why[WHY_BYTES])
{
	char tv[RULES_SHAPE_BYTES], ty[RULES_SHAPE_BYTES];
	struct view wide = *v, goal = *y;

	rules_pad_rank(&wide, rank);
	rules_pad_rank(&goal, rank);
	for (uint32_t d = 0; d < rank; d++) {
		if (wide.shape[d] == 1)
			wide.strides[d] = 0;
		else if (wide.shape[d] != goal.shape[d])
			return rules_refuse(
			    why, KOPS_E_SHAPE,
			    "%s is %s, which does not repeat to %s's %s: each extent, from the last, must be "
			    "equal or 1",
			    name, rules_shape(v, tv), y_name, rules_shape(y, ty));
		wide.shape[d] = goal.shape[d];
	}
	*v = wide;
	return 0;
}

/* Returns true if axis d of v continues axis d + 1, so one axis of shape[d] * shape[d + 1] is equivalent. */
static bool continues(const struct view *v, uint32_t d)
{
	int64_t step;

	return v->shape[d] == 1 ||
	       (!__builtin_mul_overflow(v->strides[d + 1], (int64_t)v->shape[d + 1], &step) &&
	        v->strides[d] == step);
}

static bool all_continue(struct view *const views[], unsigned n, uint32_t d)
{
	for (unsigned i = 0; i < n; i++)
		if (views[i]->shape[d + 1] != 1 && !continues(views[i], d))
			return false;
	return true;
}

/* Merges axis d into d + 1, and shifts the axes before it to the right. */
static void merge(struct view *v, uint32_t d)
{
	if (v->shape[d + 1] == 1)
		v->strides[d + 1] = v->strides[d];
	v->shape[d + 1] *= v->shape[d];
	memmove(v->shape + 1, v->shape, d * sizeof v->shape[0]);
	memmove(v->strides + 1, v->strides, d * sizeof v->strides[0]);
	v->shape[0] = 1;
	v->strides[0] = 0;
}

void rules_fold(struct view *const views[], unsigned n, uint32_t axes)
{
	if (axes < 2 || view_elements(views[0]) == 0)
		return;
	for (unsigned i = 0; i < n; i++)
		for (uint32_t d = 0; d < views[i]->rank; d++)
			if (views[i]->shape[d] == 1)
				views[i]->strides[d] = 0;
	for (uint32_t d = axes - 1, left = axes - 1; left > 0; left--) {
		if (!all_continue(views, n, d - 1)) {
			d--;
			continue;
		}
		for (unsigned i = 0; i < n; i++)
			merge(views[i], d - 1);
	}
}

static void take_parts(struct view *v, uint32_t axis)
{
	memmove(v->shape, v->shape + 1, axis * sizeof v->shape[0]);
	memmove(v->strides, v->strides + 1, axis * sizeof v->strides[0]);
	for (uint32_t d = 0; d < v->rank; d++)
		v->strides[d] *= 2;
	v->shape[axis] = 2;
	v->strides[axis] = 1;
	v->dtype = dtype_component(v->dtype);
}

int rules_take_parts(struct view *const views[], unsigned n, uint32_t axis, char why[WHY_BYTES])
{
	for (unsigned i = 0; i < n; i++)
		if (view_elements(views[i]) > INT64_MAX / 2)
			return rules_refuse(why, KOPS_E_SHAPE, "complex operands may have up to 2^62 elements");
	for (unsigned i = 0; i < n; i++)
		take_parts(views[i], axis);
	return 0;
}

uint32_t rules_axes_max(const struct view *v)
{
	return dtype_kind(v->dtype) == DTYPE_COMPLEX ? KOPS_RANK_MAX - 1 : KOPS_RANK_MAX;
}

static void swap_axes(struct view *v, uint32_t d, uint32_t e)
{
	uint64_t extent = v->shape[d];
	int64_t stride = v->strides[d];

	v->shape[d] = v->shape[e];
	v->strides[d] = v->strides[e];
	v->shape[e] = extent;
	v->strides[e] = stride;
}

/* Sorts axes of one index first, and the others by falling stride. */
static bool out_of_order(const struct view *y, uint32_t d)
{
	if (y->shape[d + 1] == 1 || y->shape[d] == 1)
		return y->shape[d] != 1;
	return stride_magnitude(y->strides[d]) < stride_magnitude(y->strides[d + 1]);
}

void rules_order(struct view *const views[], unsigned n)
{
	const struct view *y = views[n - 1];

	for (uint32_t pass = 1; pass < y->rank; pass++)
		for (uint32_t d = 0; d + pass < y->rank; d++)
			for (unsigned i = 0; out_of_order(y, d) && i < n; i++)
				swap_axes(views[i], d, d + 1);
}

double rules_bytes(const struct view *v)
{
	double count = (double)dtype_size(v->dtype);

	for (uint32_t d = 0; d < v->rank; d++)
		if (v->shape[d] == 0 || v->strides[d] != 0)
			count *= (double)v->shape[d];
	return count;
}

int rules_reduced(const struct view *x, struct view *y, char why[WHY_BYTES])
{
	char tx[RULES_SHAPE_BYTES], ty[RULES_SHAPE_BYTES];
	struct view whole = *y;
	bool fits;
	int rc;

	if ((rc = rules_rank(x, "x", 1, rules_axes_max(x), why)) < 0 ||
	    (rc = rules_rank(y, "y", 1, rules_axes_max(y), why)) < 0)
		return rc;
	if (y->rank + 1 == x->rank) {
		whole.shape[y->rank] = 1;
		whole.strides[y->rank] = 0;
		whole.rank++;
	}
	fits = whole.rank == x->rank && whole.shape[x->rank - 1] == 1;
	for (uint32_t d = 0; fits && d + 1 < x->rank; d++)
		fits = whole.shape[d] == x->shape[d];
	if (!fits)
		return rules_refuse(why, KOPS_E_SHAPE,
		                    "x is %s and y %s; y has x's shape without the last axis, or with 1 there",
		                    rules_shape(x, tx), rules_shape(y, ty));
	*y = whole;
	return 0;
}

int rules_reduced_result(struct op_args *args, char why[WHY_BYTES])
{
	struct view *y = op_output(args);
	int rc = rules_rank(&args->views[0], "x", 1, rules_axes_max(&args->views[0]), why);

	if (rc < 0)
		return rc;
	if (y->rank > 1)
		y->rank--;
	else
		y->shape[0] = 1;
	return 0;
}

void rules_reduced_sample(struct op_args *args, kops_dtype x, kops_dtype y, bool large)
{
	const uint64_t rows = large ? 3 : 9, cols = large ? 200003 : 1291;

	args->views[0] = (struct view){.dtype = x, .rank = 4, .shape = {1, 1, rows, cols}};
	args->views[1] = (struct view){.dtype = y, .rank = 4, .shape = {1, 1, rows, 1}};
	view_make_dense(&args->views[0]);
	view_make_dense(&args->views[1]);
}

static bool is_widened(const struct view *y)
{
	return dtype_accumulator(y->dtype) != y->dtype;
}

uint64_t rules_wide_bytes(const struct op_args *args)
{
	const struct view *y = op_output_const(args);
	uint64_t bytes;

	if (!is_widened(y))
		return 0;
	return __builtin_mul_overflow(view_elements(y), dtype_size(dtype_accumulator(y->dtype)), &bytes)
	           ? UINT64_MAX
	           : bytes;
}

/* Independent roundings add up like the square root of their number, those of equal terms like the number. */
double rules_sum_roundings(const struct view *v)
{
	double n = (double)v->shape[v->rank - 1];

	if (v->dtype != KOPS_F64)
		return 0;
	return v->strides[v->rank - 1] == 0 ? n : 8 * sqrt(n);
}

double rules_flushed(kops_dtype dtype)
{
	return 2 * (dtype == KOPS_F64 ? DBL_MIN : (double)FLT_MIN);
}

uint64_t rules_row_bytes(const struct view *v, uint64_t of_row)
{
	uint64_t bytes;

	return __builtin_mul_overflow(v->shape[0] * v->shape[1] * v->shape[2], of_row, &bytes) ? UINT64_MAX
	                                                                                       : bytes;
}

void rules_widen(struct op_args *part)
{
	struct view *y = op_output(part);

	if (!is_widened(y))
		return;
	y->dtype = dtype_accumulator(y->dtype);
	y->offset = 0;
	y->data = part->carried;
	view_make_dense(y);
}

static bool view_alike(const struct view *a, const struct view *b)
{
	if (a->dtype != b->dtype || a->rank != b->rank || a->offset % 16 != b->offset % 16 ||
	    (uintptr_t)a->data % 16 != (uintptr_t)b->data % 16)
		return false;
	for (uint32_t d = 0; d < a->rank; d++)
		if (a->shape[d] != b->shape[d] || a->strides[d] != b->strides[d])
			return false;
	return true;
}

bool op_args_alike(const struct op_args *a, const struct op_args *b)
{
	if (a->op != b->op || memcmp(&a->params, &b->params, sizeof(a->params)) != 0)
		return false;
	for (unsigned v = 0; v < a->op->n_operands; v++)
		if (!view_alike(&a->views[v], &b->views[v]))
			return false;
	return true;
}
