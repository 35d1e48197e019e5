/*
 * top_k: the k largest or smallest elements of each row of x, and where they are. x may be f32, f64, f16 or
 * bf16.
 *
 * NaN counts as larger than all numbers, as in NumPy's sort; -0 and 0 are equal. Of equal elements the lower
 * index comes first. So there is one right result, which is the same bit for bit from every kernel.
 *
 * After check() the views have rank 4: the last axis has the columns of x, or k; the three before it number the
 * rows.
 *
 * A part of an op sees some columns. Each row hands on the best k so far in args->carried, and writes them too.
 * So the last part leaves the result there.
 */
#include <math.h>
#include <string.h>

#include "common/half.h"
#include "common/rules.h"
#include "top_k/top_k.h"

enum { X = TOP_K_X, VALUES = TOP_K_VALUES, INDICES = TOP_K_INDICES };

static const struct op_operand operands[] = {
    [X] = {.name = "x", .dtypes = RULES_FLOATS, .dtype_of = OWN_DTYPE, .about = "1 to 4 axes"},
    [VALUES] = {.name = "values",
                .role = OPERAND_OUTPUT,
                .dtypes = RULES_FLOATS,
                .dtype_of = X,
                .about = "x's shape with k along the last axis"},
    [INDICES] = {.name = "indices",
                 .role = OPERAND_OUTPUT,
                 .is_optional = true,
                 .is_result = true,
                 .dtypes = DTYPE_BIT(KOPS_I32),
                 .dtype_of = OWN_DTYPE,
                 .about = "the shape of values; where they are along x's last axis, if wanted"},
};

static const char *const kinds[] = {[TOP_K_LARGEST] = "largest", [TOP_K_SMALLEST] = "smallest"};
static const char *const orders[] = {[TOP_K_BY_VALUE] = "value", [TOP_K_BY_INDEX] = "index"};

static const struct op_attribute attributes[] = {
    {.name = "k",
     .type = ATTRIBUTE_COUNT,
     .offset = offsetof(struct plain_params, counts[TOP_K_K]),
     .min = 1,
     .max = TOP_K_MAX,
     .otherwise = 1,
     .about = "how many of each row"},
    {.name = "kind",
     .type = ATTRIBUTE_CHOICE,
     .offset = offsetof(struct plain_params, counts[TOP_K_KIND]),
     .otherwise = TOP_K_LARGEST,
     .choices = kinds,
     .n_choices = sizeof kinds / sizeof kinds[0],
     .about = "which elements"},
    {.name = "order",
     .type = ATTRIBUTE_CHOICE,
     .offset = offsetof(struct plain_params, counts[TOP_K_ORDER]),
     .otherwise = TOP_K_BY_VALUE,
     .choices = orders,
     .n_choices = sizeof orders / sizeof orders[0],
     .about = "what the results are sorted by: the largest, or smallest, first; or the lowest index first"},
};

/* Refuses rows that have fewer elements than wanted, or more than i32 can number. */
static int check_rows(const struct op_args *args, const struct view *values, char why[WHY_BYTES])
{
	const struct view *x = &args->views[X];
	uint64_t n = x->shape[x->rank - 1];
	char text[RULES_SHAPE_BYTES];

	if (n > INT32_MAX)
		return rules_refuse(
		    why, KOPS_E_SHAPE,
		    "x has %llu elements along its last axis; indices are i32, so it may have %d",
		    (unsigned long long)n, INT32_MAX);
	if (n < top_k_count(args) && !view_is_empty(values))
		return rules_refuse(
		    why, KOPS_E_SHAPE,
		    "x is %s: its last axis has fewer than k = %u elements; k may be at most %llu",
		    rules_shape(x, text), top_k_count(args), (unsigned long long)n);
	return 0;
}

static int result(struct op_args *args, char why[WHY_BYTES])
{
	struct view *values = &args->views[VALUES], *indices = &args->views[INDICES];
	uint32_t k = top_k_count(args);

	if (k < 1 || k > TOP_K_MAX)
		return rules_refuse(why, KOPS_E_INVALID, "k is %u; it may be from 1 to %d", k, TOP_K_MAX);
	values->shape[values->rank - 1] = indices->shape[indices->rank - 1] = k;
	return check_rows(args, values, why);
}

static int check_values(const struct op_args *args, char why[WHY_BYTES])
{
	const struct view *x = &args->views[X], *values = &args->views[VALUES];
	struct view want = *x;
	char tx[RULES_SHAPE_BYTES], tv[RULES_SHAPE_BYTES];

	want.shape[want.rank - 1] = top_k_count(args);
	if (values->rank == want.rank &&
	    memcmp(values->shape, want.shape, want.rank * sizeof want.shape[0]) == 0)
		return 0;
	return rules_refuse(why, KOPS_E_SHAPE,
	                    "x is %s, values %s and k %u; values has x's shape with k along the last axis",
	                    rules_shape(x, tx), rules_shape(values, tv), top_k_count(args));
}

static int check(struct op_args *args, char why[WHY_BYTES])
{
	struct view *x = &args->views[X], *values = &args->views[VALUES], *indices = &args->views[INDICES];
	bool has_indices = !view_is_absent(indices);
	int rc;

	if ((rc = rules_rank(x, "x", 1, 4, why)) < 0 || (rc = check_values(args, why)) < 0 ||
	    (has_indices && (rc = rules_same_shape(values, "values", indices, "indices", why)) < 0) ||
	    (rc = check_rows(args, values, why)) < 0 || (rc = rules_outputs(args, why)) < 0)
		return rc;
	rules_pad_rank(x, 4);
	rules_pad_rank(values, 4);
	if (has_indices)
		rules_pad_rank(indices, 4);
	memset(args->params.plain.flags, 0, sizeof args->params.plain.flags);
	args->params.plain.counts[TOP_K_FIRST] = 0;
	rules_fold((struct view *[]){x, values, indices}, 2 + has_indices, 3);
	return 0;
}

static void cost(const struct op_args *args, struct cost *ret)
{
	ret->flops = (double)view_elements(&args->views[X]);
	ret->bytes = rules_bytes(&args->views[X]) + rules_bytes(&args->views[VALUES]) +
	             rules_bytes(&args->views[INDICES]);
}

struct found {
	double value;
	int64_t index;
	uint64_t bits; /* the element */
};

/* Of two elements of different indices. */
static bool comes_before(const struct found *a, const struct found *b, bool smallest)
{
	if (a->value == b->value || (isnan(a->value) && isnan(b->value)))
		return a->index < b->index;
	if (isnan(a->value) || isnan(b->value))
		return isnan(a->value) != smallest;
	return smallest ? a->value < b->value : a->value > b->value;
}

static bool has_lower_index(const struct found *a, const struct found *b)
{
	return a->index < b->index;
}

/* Puts it among n that are sorted; the last of `most` falls off. Returns how many there are. */
static uint32_t insert(struct found *sorted, uint32_t n, uint32_t most, const struct found *next, bool smallest)
{
	uint32_t at = n;

	while (at > 0 && comes_before(next, &sorted[at - 1], smallest))
		at--;
	if (at == most)
		return n;
	n -= n == most;
	memmove(sorted + at + 1, sorted + at, (n - at) * sizeof *sorted);
	sorted[at] = *next;
	return n + 1;
}

static void sort_by_index(struct found *found, uint32_t n)
{
	for (uint32_t i = 1; i < n; i++) {
		struct found next = found[i];
		uint32_t at = i;

		for (; at > 0 && has_lower_index(&next, &found[at - 1]); at--)
			found[at] = found[at - 1];
		found[at] = next;
	}
}

/* Returns how many there are. */
static uint32_t take_carried(const struct op_args *args, uint64_t row, struct found *found)
{
	const struct top_k_carried *carried = top_k_carried_row(args, row);
	uint32_t n = 0;

	for (;
	     carried && args->params.plain.flags[TOP_K_GOES_ON] && n < top_k_count(args) && carried[n].is_there;
	     n++) {
		found[n].index = carried[n].index;
		found[n].bits = carried[n].bits;
		memcpy(&found[n].value, &carried[n].key, sizeof found[n].value);
	}
	return n;
}

static void hand_on(const struct op_args *args, uint64_t row, const struct found *found, uint32_t n)
{
	struct top_k_carried *carried = top_k_carried_row(args, row);

	for (uint32_t i = 0; carried && i < top_k_count(args); i++) {
		carried[i] = (struct top_k_carried){.is_there = i < n};
		if (i >= n)
			continue;
		carried[i].index = (uint32_t)found[i].index;
		carried[i].bits = found[i].bits;
		memcpy(&carried[i].key, &found[i].value, sizeof carried[i].key);
	}
}

static void reference(const struct op_args *args)
{
	const struct view *x = &args->views[X], *values = &args->views[VALUES],
	                  *indices = &args->views[INDICES];
	uint32_t k = top_k_count(args);
	uint64_t rows = values->shape[0] * values->shape[1] * values->shape[2];
	size_t size = dtype_size(x->dtype);
	struct found found[TOP_K_MAX + 1];

	for (uint64_t row = 0; row < rows; row++) {
		int64_t x0 = view_row(x, row), to = view_row(values, row);
		uint32_t n = take_carried(args, row, found);

		for (int64_t i = 0; i < (int64_t)x->shape[3]; i++) {
			int64_t at = x0 + i * x->strides[3];
			struct found next = {half_load(x->data, x->dtype, at), top_k_first(args) + i, 0};
			memcpy(&next.bits, (char *)x->data + at * (int64_t)size, size);
			n = insert(found, n, k, &next, top_k_is(args, TOP_K_SMALLEST));
		}
		hand_on(args, row, found, n);
		if (top_k_by_index(args))
			sort_by_index(found, n);
		for (uint32_t i = 0; i < n; i++) {
			memcpy((char *)values->data + (to + i * values->strides[3]) * (int64_t)size,
			       &found[i].bits, size);
			if (!view_is_absent(indices))
				((int32_t *)indices->data)[view_row(indices, row) + i * indices->strides[3]] =
				    (int32_t)found[i].index;
		}
	}
}

/* In the form that check() leaves. */
static bool sample_of(kops_dtype dtype, uint64_t rows, uint64_t columns, uint32_t k, struct op_args *args)
{
	if (!op_takes(&op_top_k, dtype))
		return false;
	*args = (struct op_args){.op = &op_top_k};
	op_set_defaults(args);
	args->params.plain.counts[TOP_K_K] = k;
	args->views[X] = (struct view){.dtype = dtype, .rank = 4, .shape = {1, 1, rows, columns}};
	args->views[VALUES] = (struct view){.dtype = dtype, .rank = 4, .shape = {1, 1, rows, k}};
	args->views[INDICES] = (struct view){.dtype = KOPS_I32, .rank = 4, .shape = {1, 1, rows, k}};
	for (unsigned i = X; i <= INDICES; i++)
		view_make_dense(&args->views[i]);
	return true;
}

static bool sample(kops_dtype dtype, struct op_args *args)
{
	return sample_of(dtype, 9, 1291, 7, args);
}

/* Of few rows, each shared by several blocks of threads. */
static bool large_sample(kops_dtype dtype, struct op_args *args)
{
	return sample_of(dtype, 3, 200003, 70, args);
}

static double tolerance(const struct op_args *args)
{
	(void)args;
	return 0;
}

static uint64_t steps(const struct op_args *args)
{
	return args->views[X].shape[3];
}

static uint64_t carried_bytes(const struct op_args *args)
{
	return rules_row_bytes(&args->views[VALUES], top_k_count(args) * sizeof(struct top_k_carried));
}

static void step_part(struct op_args *args, unsigned pass, uint64_t first, uint64_t n)
{
	view_narrow(&args->views[X], 3, first, n);
	args->params.plain.flags[TOP_K_IS_PART] = true;
	args->params.plain.flags[TOP_K_GOES_ON] = first > 0;
	args->params.plain.counts[TOP_K_FIRST] = (uint32_t)first;
	(void)pass;
}

static const struct part_axis part_axes[] = {{{0, 0, 0}, false}, {{1, 1, 1}, false}, {{2, 2, 2}, false}};

const struct op op_top_k = {
    .name = "top_k",
    .title = "the k largest or smallest of each row",
    .about = "values = the k largest or smallest elements of x along its last axis, indices = where they are",
    .notes = "Of equal elements the lower index comes first; -0 and 0 are equal. NaN counts as larger than all "
             "numbers.",
    .operands = operands,
    .n_operands = sizeof operands / sizeof operands[0],
    .attributes = attributes,
    .n_attributes = sizeof attributes / sizeof attributes[0],
    .last_axis = AXIS_KEPT,
    .part_axes = part_axes,
    .n_part_axes = sizeof part_axes / sizeof part_axes[0],
    .passes = 1,
    .steps = steps,
    .step_part = step_part,
    .carried_bytes = carried_bytes,
    .check = check,
    .result = result,
    .cost = cost,
    .reference = reference,
    .sample = sample,
    .large_sample = large_sample,
    .tolerance = tolerance,
    .bench_shapes = "64x1024,256x1024,1024x1024,4096x1024,16384x1024,65536x1024,4194304x16,4096x16384,"
                    "64x1048576,262144x1024,1048576x1024",
};
