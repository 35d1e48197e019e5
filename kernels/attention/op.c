/*
 * attention: o = softmax(scale * q * kT + mask) * v, for each batch and head. A. Vaswani et al., "Attention is
 * all you need", 2017.
 *
 * q is [batch, heads, queries, head_dim], k [batch, kv_heads, keys, head_dim], v [batch, kv_heads, keys,
 * value_dim] and o [batch, heads, queries, value_dim]. Batch and heads may be missing. kv_heads divides heads:
 * as many neighbouring heads of q share one of k and v (J. Ainslie et al., "GQA", 2023). After check() all
 * matrices have rank 4, and the mask, if given, the shape [batch, heads, queries, keys] with strides of 0 where
 * it is repeated.
 *
 * lengths hides keys as padding masks of other libraries do, but no queries: those beyond the length of a batch
 * are computed as others. Kernels read them where the data is, so they refuse none.
 *
 * A query that sees no key, or only keys whose mask is -Inf, gives zeros. NaN among what a query sees makes its
 * row of o NaN.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/attention.h"
#include "attention/reference.h"
#include "common/rules.h"

enum {
	Q = ATTENTION_Q,
	K = ATTENTION_K,
	V = ATTENTION_V,
	MASK = ATTENTION_MASK,
	LENGTHS = ATTENTION_LENGTHS,
	O = ATTENTION_O,
	LSE = ATTENTION_LSE,
};

static const struct op_operand operands[] = {
    [Q] = {.name = "q",
           .dtypes = RULES_FLOATS,
           .dtype_of = OWN_DTYPE,
           .about =
               "queries: [batch, heads, queries, head_dim], or without batch, or without heads too; head_dim "
               "is at most 1024"},
    [K] = {.name = "k",
           .dtypes = RULES_FLOATS,
           .dtype_of = Q,
           .about = "keys: [batch, kv_heads, keys, head_dim]; kv_heads divides heads"},
    [V] = {.name = "v",
           .dtypes = RULES_FLOATS,
           .dtype_of = Q,
           .about = "values: [batch, kv_heads, keys, value_dim]; value_dim is at most 1024"},
    [MASK] = {.name = "mask",
              .is_optional = true,
              .dtypes = RULES_FLOATS,
              .dtype_of = Q,
              .about = "added to scale * q * kT; broadcast to [batch, heads, queries, keys]"},
    [LENGTHS] = {.name = "lengths",
                 .is_optional = true,
                 .dtypes = DTYPE_BIT(KOPS_I32),
                 .dtype_of = OWN_DTYPE,
                 .is_index = true,
                 .about = "how many keys of each batch count, the first ones: [batch]"},
    [O] = {.name = "o",
           .role = OPERAND_OUTPUT,
           .dtypes = RULES_FLOATS,
           .dtype_of = Q,
           .about = "[batch, heads, queries, value_dim]"},
    [LSE] = {.name = "lse",
             .role = OPERAND_OUTPUT,
             .is_optional = true,
             .dtypes = DTYPE_BIT(KOPS_F32) | DTYPE_BIT(KOPS_F64),
             .dtype_of = OWN_DTYPE,
             .about =
                 "the logarithm of the sum of exponentials of what a query sees: [batch, heads, queries]; f64 "
                 "if q is"},
};

static const char *const causal[] = {
    [ATTENTION_NOT_CAUSAL] = "none",
    [ATTENTION_TOP_LEFT] = "top_left",
    [ATTENTION_BOTTOM_RIGHT] = "bottom_right",
};

static const struct op_attribute attributes[] = {
    {.name = "scale",
     .offset = offsetof(struct plain_params, numbers[ATTENTION_SCALE]),
     .min = -(double)FLT_MAX,
     .max = (double)FLT_MAX,
     .otherwise = 0,
     .about = "factor of q * kT; 0: 1 / sqrt(head_dim)"},
    {.name = "causal",
     .type = ATTRIBUTE_CHOICE,
     .offset = offsetof(struct plain_params, counts[ATTENTION_DIAGONAL]),
     .otherwise = ATTENTION_NOT_CAUSAL,
     .choices = causal,
     .n_choices = sizeof causal / sizeof causal[0],
     .about = "query i sees keys 0 to i (top_left), or to i + keys - queries (bottom_right), of the keys that "
              "count"},
    {.name = "window",
     .type = ATTRIBUTE_COUNT,
     .offset = offsetof(struct plain_params, counts[ATTENTION_WINDOW]),
     .min = 0,
     .max = INT32_MAX,
     .otherwise = 0,
     .about = "a query sees so many keys up to its own position, and beyond it too unless causal; 0: all"},
};

/* ---- Rules ---- */

static uint64_t extent(const struct view *v, uint32_t from_end)
{
	return v->rank >= from_end ? v->shape[v->rank - from_end] : 1;
}

static bool heads_fit(const struct view *q, const struct view *k)
{
	uint64_t heads = extent(q, 3), shared = extent(k, 3);

	return shared == heads || (shared > 0 && heads % shared == 0);
}

static int check_shapes(const struct op_args *args, char why[WHY_BYTES])
{
	const struct view *q = &args->views[Q], *k = &args->views[K], *v = &args->views[V];
	char tq[RULES_SHAPE_BYTES], tk[RULES_SHAPE_BYTES], tv[RULES_SHAPE_BYTES];
	int rc;

	if ((rc = rules_rank(q, "q", 2, 4, why)) < 0 || (rc = rules_rank(k, "k", 2, 4, why)) < 0 ||
	    (rc = rules_rank(v, "v", 2, 4, why)) < 0)
		return rc;
	rules_shape(q, tq);
	rules_shape(k, tk);
	rules_shape(v, tv);
	if (extent(q, 1) != extent(k, 1))
		return rules_refuse(why, KOPS_E_SHAPE,
		                    "q is %s and k %s; they need the same last axis, head_dim", tq, tk);
	if (extent(k, 2) != extent(v, 2) || extent(k, 3) != extent(v, 3))
		return rules_refuse(why, KOPS_E_SHAPE, "k is %s and v %s; they need the same heads and keys",
		                    tk, tv);
	if (extent(q, 4) != extent(k, 4) || extent(q, 4) != extent(v, 4))
		return rules_refuse(why, KOPS_E_SHAPE, "q is %s, k %s and v %s; they need one batch", tq, tk,
		                    tv);
	if (!heads_fit(q, k))
		return rules_refuse(
		    why, KOPS_E_SHAPE,
		    "q is %s and k %s; k's heads must divide q's: neighbouring heads of q share one", tq, tk);
	if (extent(q, 1) > ATTENTION_DEPTH_MAX || extent(v, 1) > ATTENTION_DEPTH_MAX)
		return rules_refuse(why, KOPS_E_SHAPE,
		                    "q is %s and v %s; head_dim and value_dim are at most %d", tq, tv,
		                    ATTENTION_DEPTH_MAX);
	return 0;
}

/* The mask's shape when it is spread. */
static struct view scores_of(const struct op_args *args)
{
	const struct view *q = &args->views[Q];

	return (struct view){.rank = 4,
	                     .shape = {extent(q, 4), extent(q, 3), extent(q, 2), extent(&args->views[K], 2)}};
}

static int spread_mask(const struct op_args *args, struct view *mask, char why[WHY_BYTES])
{
	struct view scores = scores_of(args);

	return view_is_absent(mask) ? 0 : rules_spread(mask, "mask", &scores, "q * kT", 4, why);
}

static int check_lengths(const struct op_args *args, char why[WHY_BYTES])
{
	const struct view *lengths = &args->views[LENGTHS];
	char text[RULES_SHAPE_BYTES];
	uint64_t batches = extent(&args->views[Q], 4);

	if (view_is_absent(lengths) || (lengths->rank == 1 && lengths->shape[0] == batches))
		return 0;
	return rules_refuse(why, KOPS_E_SHAPE, "lengths is %s; it has one number for each batch: [%llu]",
	                    rules_shape(lengths, text), (unsigned long long)batches);
}

static int check_inputs(const struct op_args *args, char why[WHY_BYTES])
{
	int rc = check_shapes(args, why);

	return rc < 0 ? rc : check_lengths(args, why);
}

static kops_dtype dtype_of_lse(const struct op_args *args)
{
	return args->views[Q].dtype == KOPS_F64 ? KOPS_F64 : KOPS_F32;
}

static int result(struct op_args *args, char why[WHY_BYTES])
{
	const struct view *q = &args->views[Q];
	struct view *o = &args->views[O], *lse = &args->views[LSE], mask = args->views[MASK];
	int rc;

	if ((rc = check_inputs(args, why)) < 0 || (rc = spread_mask(args, &mask, why)) < 0)
		return rc;
	o->rank = q->rank;
	lse->rank = q->rank - 1;
	lse->dtype = dtype_of_lse(args);
	for (uint32_t d = 0; d < q->rank; d++)
		o->shape[d] = lse->shape[d] = q->shape[d];
	o->shape[q->rank - 1] = extent(&args->views[V], 1);
	return 0;
}

static int check_lse(const struct op_args *args, char why[WHY_BYTES])
{
	const struct view *q = &args->views[Q], *lse = &args->views[LSE];
	char tq[RULES_SHAPE_BYTES], tl[RULES_SHAPE_BYTES];

	if (view_is_absent(lse))
		return 0;
	if (lse->dtype != dtype_of_lse(args))
		return rules_refuse(why, KOPS_E_DTYPE, "q is %s and lse %s; lse is %s then",
		                    dtype_name(q->dtype), dtype_name(lse->dtype),
		                    dtype_name(dtype_of_lse(args)));
	if (lse->rank + 1 == q->rank && memcmp(lse->shape, q->shape, lse->rank * sizeof lse->shape[0]) == 0)
		return 0;
	return rules_refuse(why, KOPS_E_SHAPE, "q is %s and lse %s; lse has q's shape without the last axis",
	                    rules_shape(q, tq), rules_shape(lse, tl));
}

static int check_output(const struct op_args *args, char why[WHY_BYTES])
{
	const struct view *q = &args->views[Q], *o = &args->views[O], *v = &args->views[V];
	char tq[RULES_SHAPE_BYTES], tv[RULES_SHAPE_BYTES], to[RULES_SHAPE_BYTES];
	bool fits = o->rank == q->rank && extent(o, 1) == extent(v, 1);

	for (uint32_t from_end = 2; fits && from_end <= q->rank; from_end++)
		fits = extent(o, from_end) == extent(q, from_end);
	if (fits)
		return 0;
	return rules_refuse(why, KOPS_E_SHAPE, "q is %s, v %s and o %s; o has q's shape, with v's last axis",
	                    rules_shape(q, tq), rules_shape(v, tv), rules_shape(o, to));
}

static void settle_attributes(struct op_args *args)
{
	struct plain_params *p = &args->params.plain;
	double depth = (double)args->views[Q].shape[3], shared = (double)args->views[K].shape[1];

	if (p->numbers[ATTENTION_SCALE] == 0)
		p->numbers[ATTENTION_SCALE] = depth > 0 ? 1 / sqrt(depth) : 1;
	p->numbers[ATTENTION_FIRST] = p->counts[ATTENTION_DIAGONAL] == ATTENTION_BOTTOM_RIGHT
	                                  ? (double)args->views[K].shape[2] - (double)args->views[Q].shape[2]
	                                  : 0;
	p->numbers[ATTENTION_HEAD] = p->numbers[ATTENTION_BEFORE] = 0;
	p->numbers[ATTENTION_ALL] = (double)args->views[K].shape[2];
	p->numbers[ATTENTION_GROUP] = shared > 0 ? (double)args->views[Q].shape[1] / shared : 1;
	p->flags[ATTENTION_IS_PART] = p->flags[ATTENTION_GOES_ON] = false;
}

static int check(struct op_args *args, char why[WHY_BYTES])
{
	int rc;

	if ((rc = check_inputs(args, why)) < 0 || (rc = check_output(args, why)) < 0 ||
	    (rc = check_lse(args, why)) < 0 || (rc = rules_outputs(args, why)) < 0 ||
	    (rc = spread_mask(args, &args->views[MASK], why)) < 0)
		return rc;
	for (unsigned i = Q; i <= O; i++)
		if (i != MASK && i != LENGTHS)
			rules_pad_rank(&args->views[i], 4);
	if (!view_is_absent(&args->views[LSE]))
		rules_pad_rank(&args->views[LSE], 3);
	settle_attributes(args);
	return 0;
}

/* ---- Cost ---- */

/* Returns how many keys all queries of a head see, if all keys count. */
static double keys_seen(const struct op_args *args)
{
	struct attention_rule r = attention_rule_of(args);
	uint64_t rows = args->views[Q].shape[2];
	const unsigned samples = 64;
	double seen = 0;

	for (unsigned i = 0; i < samples; i++) {
		struct attention_keys keys =
		    attention_keys_of(&r, (int64_t)((double)rows * (i + 0.5) / samples));
		seen += keys.end > keys.begin ? (double)(keys.end - keys.begin) : 0;
	}
	return seen / samples * (double)rows;
}

/* Counts the products, as others do. */
static void cost(const struct op_args *args, struct cost *ret)
{
	const struct view *q = &args->views[Q];
	double heads = (double)q->shape[0] * (double)q->shape[1];
	double depths = (double)q->shape[3] + (double)args->views[V].shape[3];

	ret->flops = heads * keys_seen(args) * 2 * depths;
	ret->bytes = 0;
	for (unsigned i = Q; i <= LSE; i++)
		ret->bytes += rules_bytes(&args->views[i]);
}

/* ---- Samples ---- */

static bool sample_of(kops_dtype dtype, uint64_t queries, uint64_t keys, uint64_t depth, struct op_args *args)
{
	const uint64_t shapes[][4] = {
	    [Q] = {2, 4, queries, depth}, [K] = {2, 2, keys, depth},    [V] = {2, 2, keys, depth},
	    [LENGTHS] = {2, 1, 1, 1},     [O] = {2, 4, queries, depth},
	};

	if (!op_takes(&op_attention, dtype))
		return false;
	*args = (struct op_args){.op = &op_attention};
	op_set_defaults(args);
	args->params.plain.counts[ATTENTION_DIAGONAL] = ATTENTION_BOTTOM_RIGHT;
	for (unsigned i = Q; i <= O; i++) {
		if (i == MASK)
			continue;
		args->views[i] =
		    (struct view){.dtype = op_dtype_beside(args->op, i, dtype), .rank = i == LENGTHS ? 1 : 4};
		memcpy(args->views[i].shape, shapes[i], sizeof shapes[i]);
		view_make_dense(&args->views[i]);
	}
	settle_attributes(args);
	return true;
}

static bool sample(kops_dtype dtype, struct op_args *args)
{
	return sample_of(dtype, 19, 70, 24, args);
}

static bool large_sample(kops_dtype dtype, struct op_args *args)
{
	return sample_of(dtype, 130, 200, 64, args);
}

/* Results lie within [-1, 1]; exponentials are rounded to the type, and results again. */
static double tolerance(const struct op_args *args)
{
	switch (args->views[O].dtype) {
	case KOPS_F64:
		return 1e-13;
	case KOPS_F16:
		return 0x1p-10;
	case KOPS_BF16:
		return 0x1p-7;
	default:
		return 4e-6;
	}
}

/* ---- Parts: batches, heads, queries; and keys, one part after another ---- */

static const struct part_axis part_axes[] = {
    {{0, 0, 0, 0, 0, 0, 0}, false},
    {{1, 1, 1, 1, PART_NONE, 1, 1}, false},
    {{2, PART_NONE, PART_NONE, 2, PART_NONE, 2, 2}, false},
};

static void part_range(const struct op_args *args, unsigned axis, unsigned v, uint64_t *first, uint64_t *n)
{
	uint64_t last;

	if (part_axes[axis].axis[O] != 1 || (v != K && v != V))
		return;
	last = attention_shared_head(args, *first + *n - 1);
	*first = attention_shared_head(args, *first);
	*n = last - *first + 1;
}

static void begin_part(struct op_args *part, unsigned axis, uint64_t first)
{
	struct attention_rule rule = attention_rule_of(part);
	double *numbers = part->params.plain.numbers;

	if (part_axes[axis].axis[O] == 1)
		numbers[ATTENTION_HEAD] =
		    fmod(numbers[ATTENTION_HEAD] + (double)first, numbers[ATTENTION_GROUP]);
	if (part_axes[axis].axis[O] == 2 && (rule.causal || rule.window > 0))
		numbers[ATTENTION_FIRST] += (double)first;
}

static uint64_t steps(const struct op_args *args)
{
	return args->views[K].shape[2];
}

static void step_part(struct op_args *args, unsigned pass, uint64_t first, uint64_t n)
{
	struct plain_params *p = &args->params.plain;

	(void)pass;
	view_narrow(&args->views[K], 2, first, n);
	view_narrow(&args->views[V], 2, first, n);
	if (!view_is_absent(&args->views[MASK]))
		view_narrow(&args->views[MASK], 3, first, n);
	p->numbers[ATTENTION_FIRST] -= (double)first;
	p->numbers[ATTENTION_BEFORE] += (double)first;
	p->flags[ATTENTION_IS_PART] = true;
	p->flags[ATTENTION_GOES_ON] = first > 0;
}

static uint64_t carried_bytes(const struct op_args *args)
{
	const struct view *o = &args->views[O];

	return rules_row_bytes(o, (o->shape[3] + 2) * sizeof(double));
}

static void shape(const struct op_args *args, struct op_shape *ret)
{
	const struct view *q = &args->views[Q], *k = &args->views[K];

	rules_take_shape(q, ret);
	if (q->rank >= 2 && q->rank <= 4 && k->rank >= 2)
		ret->extents[q->rank - 1] = k->shape[k->rank - 2];
}

enum { BATCH, HEADS, KV_HEADS, QUERIES, KEYS, HEAD_DIM }; /* extents of a size */

static const uint64_t usual_depths[] = {64, 64, 80, 96, 128, 128, 128, 192, 256, 0};
static const struct size_span size_spans[] = {
    [BATCH] = {1, 8, NULL},      [HEADS] = {1, 32, NULL},   [KV_HEADS] = {1, 32, NULL},
    [QUERIES] = {1, 8192, NULL}, [KEYS] = {16, 8192, NULL}, [HEAD_DIM] = {32, 256, usual_depths},
};

/* The mask is one for all heads. */
static void of_size(const uint64_t *extents, struct op_args *args)
{
	for (unsigned i = Q; i <= V; i++)
		args->views[i] = (struct view){.rank = 4,
		                               .shape = {extents[BATCH], extents[i == Q ? HEADS : KV_HEADS],
		                                         extents[i == Q ? QUERIES : KEYS], extents[HEAD_DIM]}};
	args->views[MASK] = (struct view){.rank = 2, .shape = {extents[QUERIES], extents[KEYS]}};
	args->views[LENGTHS] = (struct view){.rank = 1, .shape = {extents[BATCH]}};
}

static uint64_t index_limit(const struct op_args *args, unsigned v)
{
	(void)v;
	return extent(&args->views[K], 2) + 1;
}

const struct op op_attention = {
    .name = "attention",
    .title = "scaled dot-product attention",
    .about = "o = softmax(scale * q * kT + mask) * v, for each batch and head",
    .notes =
        "kv_heads divides heads: neighbouring heads of q share one of k and v. A query that sees no key, or "
        "only keys whose mask is -Inf, gives zeros, and -Inf in lse. Keys from a batch's length on are not "
        "seen, "
        "whatever the query; a length below 0 counts as 0, and one beyond the keys as all of them. With "
        "bottom_right the last query is the one of the last key that counts. A value of v that is not finite "
        "may show in rows whose queries do not see its key.",
    .operands = operands,
    .n_operands = sizeof operands / sizeof operands[0],
    .attributes = attributes,
    .n_attributes = sizeof attributes / sizeof attributes[0],
    .part_axes = part_axes,
    .n_part_axes = sizeof part_axes / sizeof part_axes[0],
    .part_range = part_range,
    .begin_part = begin_part,
    .passes = 1,
    .steps = steps,
    .step_part = step_part,
    .carried_bytes = carried_bytes,
    .shape = shape,
    .check = check,
    .result = result,
    .cost = cost,
    .reference = attention_reference,
    .bounds = attention_bounds,
    .further_bounds = attention_further_bounds,
    .index_limit = index_limit,
    .sample = sample,
    .large_sample = large_sample,
    .tolerance = tolerance,
    .size_form = "BATCHxHEADS/KV_HEADSxQUERIES/KEYSxHEAD_DIM",
    .of_size = of_size,
    .size_spans = size_spans,
    .counts_flops = true,
    .bench_shapes = "8x12x128x64,4x16x1024x64,2x16x2048x128,1x16x8192x128,8x32/8x1/8192x128",
};
