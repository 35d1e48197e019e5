/*
 * attention: o = softmax(scale * q * kT + mask) * v, for each batch and head. A. Vaswani et al., "Attention is
 * all you need", 2017.
 *
 * q is [batch, heads, queries, head_dim], k [batch, kv_heads, keys, head_dim], v [batch, kv_heads, keys,
 * value_dim] and o [batch, heads, queries, value_dim]. Batch and heads may be missing. kv_heads divides heads:
 * as many neighbouring heads of q share one of k and v (J. Ainslie et al., "GQA", 2023). After check() all
 * views have rank 4, and the mask, if given, the shape [batch, heads, queries, keys] with strides of 0 where it
 * is repeated.
 *
 * A query that sees no key, or only keys whose mask is -Inf, gives zeros. NaN among what a query sees makes its
 * row of o NaN.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "attention/attention.h"
#include "common/half.h"
#include "common/rules.h"

enum { Q = ATTENTION_Q, K = ATTENTION_K, V = ATTENTION_V, MASK = ATTENTION_MASK, O = ATTENTION_O };

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
    [O] = {.name = "o",
           .role = OPERAND_OUTPUT,
           .dtypes = RULES_FLOATS,
           .dtype_of = Q,
           .about = "[batch, heads, queries, value_dim]"},
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
     .about = "query i sees keys 0 to i (top_left), or to i + keys - queries (bottom_right)"},
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

static int result(struct op_args *args, char why[WHY_BYTES])
{
	const struct view *q = &args->views[Q];
	struct view *o = &args->views[O], mask = args->views[MASK];
	int rc;

	if ((rc = check_shapes(args, why)) < 0 || (rc = spread_mask(args, &mask, why)) < 0)
		return rc;
	o->rank = q->rank;
	for (uint32_t d = 0; d < q->rank; d++)
		o->shape[d] = q->shape[d];
	o->shape[q->rank - 1] = extent(&args->views[V], 1);
	return 0;
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
	p->numbers[ATTENTION_HEAD] = 0;
	p->numbers[ATTENTION_GROUP] = shared > 0 ? (double)args->views[Q].shape[1] / shared : 1;
	p->flags[ATTENTION_IS_PART] = p->flags[ATTENTION_GOES_ON] = false;
}

static int check(struct op_args *args, char why[WHY_BYTES])
{
	int rc;

	if ((rc = check_shapes(args, why)) < 0 || (rc = check_output(args, why)) < 0 ||
	    (rc = rules_outputs(args, why)) < 0 || (rc = spread_mask(args, &args->views[MASK], why)) < 0)
		return rc;
	for (unsigned i = Q; i <= O; i++)
		if (i != MASK)
			rules_pad_rank(&args->views[i], 4);
	settle_attributes(args);
	return 0;
}

/* ---- Cost ---- */

/* Returns how many keys all queries of a head see. */
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

/* Counts both products, and four operations for the exponential of each score. */
static void cost(const struct op_args *args, struct cost *ret)
{
	const struct view *q = &args->views[Q];
	double heads = (double)q->shape[0] * (double)q->shape[1];
	double depths = (double)q->shape[3] + (double)args->views[V].shape[3];

	ret->flops = heads * keys_seen(args) * (2 * depths + 4);
	ret->bytes = 0;
	for (unsigned i = Q; i <= O; i++)
		ret->bytes += rules_bytes(&args->views[i]);
}

/* ---- Reference ---- */

#define STRIP 64 /* columns of o that one sweep over the keys sums up */

/* A query: its place, what it sees, and the largest of its scores. */
struct query {
	const struct op_args *args;
	struct attention_rule rule;
	uint64_t at[3];  /* batch, head, row */
	uint64_t shared; /* the head of k and v */
	struct attention_keys keys;
	double peak, error; /* error: the most that the terms of a score add up to in magnitude */
};

static double load(const struct view *v, uint64_t batch, uint64_t head, uint64_t row, uint64_t column)
{
	return half_load(v->data, v->dtype,
	                 (int64_t)batch * v->strides[0] + (int64_t)head * v->strides[1] +
	                     (int64_t)row * v->strides[2] + (int64_t)column * v->strides[3]);
}

static double score_of(const struct query *query, int64_t key, double *ret_size)
{
	const struct view *views = query->args->views;
	const uint64_t *at = query->at;
	double sum = 0, size = 0, more;

	for (uint64_t d = 0; d < views[Q].shape[3]; d++) {
		double term = load(&views[Q], at[0], at[1], at[2], d) *
		              load(&views[K], at[0], query->shared, (uint64_t)key, d);
		sum += term;
		size += fabs(term);
	}
	more = view_is_absent(&views[MASK]) ? 0 : load(&views[MASK], at[0], at[1], at[2], (uint64_t)key);
	*ret_size = fabs(query->rule.scale) * size + (isfinite(more) ? fabs(more) : 0);
	return query->rule.scale * sum + more;
}

static struct query query_at(const struct op_args *args, uint64_t batch, uint64_t head, uint64_t row)
{
	struct query query = {
	    .args = args, .rule = attention_rule_of(args), .at = {batch, head, row}, .peak = -INFINITY};

	query.shared = attention_shared_head(args, head);
	query.keys = attention_keys_of(&query.rule, (int64_t)row);
	for (int64_t key = query.keys.begin; key < query.keys.end; key++) {
		double size, score = score_of(&query, key, &size);

		query.peak = score > query.peak || isnan(score) ? score : query.peak;
		query.error = fmax(query.error, size);
	}
	return query;
}

/* Of n columns from `first` on: sums of v times exponentials, what their terms add up to in magnitude, and what
 * the values do that these are made of. total: of the exponentials. */
struct strip {
	uint64_t first, n;
	double sums[STRIP], sizes[STRIP], values[STRIP], total;
};

static void sum_up(const struct query *query, struct strip *strip)
{
	const struct view *v = &query->args->views[V];
	double size;

	strip->total = 0;
	for (uint64_t c = 0; c < strip->n; c++)
		strip->sums[c] = strip->sizes[c] = strip->values[c] = 0;
	if (query->peak == -INFINITY)
		return; /* nothing is seen */
	for (int64_t key = query->keys.begin; key < query->keys.end; key++) {
		double p = exp(score_of(query, key, &size) - query->peak);

		strip->total += p;
		for (uint64_t c = 0; c < strip->n; c++) {
			double value = load(v, query->at[0], query->shared, (uint64_t)key, strip->first + c);

			strip->sums[c] += p * value;
			strip->sizes[c] += fabs(p * value);
			strip->values[c] += fabs(value);
		}
	}
}

/* What is known of a query: of the keys before a part, or with them. */
struct known {
	double peak, total;
};

static double share_of(const struct known *k, double peak)
{
	return k->total == 0 ? 0 : exp(k->peak - peak);
}

/* Writes columns of a row, and what is carried of them if the query is not seen as a whole. */
static void write_strip(const struct query *query, const struct strip *strip, const struct known *before,
                        double *carried)
{
	const struct view *o = &query->args->views[O];
	const uint64_t *at = query->at;
	int64_t row =
	    (int64_t)at[0] * o->strides[0] + (int64_t)at[1] * o->strides[1] + (int64_t)at[2] * o->strides[2];
	struct known here = {query->peak, strip->total};
	double peak = fmax(before->peak, here.peak);
	double of_before = share_of(before, peak), of_here = share_of(&here, peak);
	double total = before->total * of_before + here.total * of_here;

	for (uint64_t c = 0; c < strip->n; c++) {
		double sum =
		    (of_before == 0 ? 0 : carried[strip->first + c] * of_before) + strip->sums[c] * of_here;

		if (carried)
			carried[strip->first + c] = sum;
		half_store(o->data, o->dtype, row + (int64_t)(strip->first + c) * o->strides[3],
		           total == 0 ? 0 : sum / total);
	}
	if (carried && strip->first + strip->n == o->shape[3]) {
		carried[o->shape[3]] = peak;
		carried[o->shape[3] + 1] = total;
	}
}

static void write_row(const struct query *query)
{
	const bool *flags = query->args->params.plain.flags;
	uint64_t columns = query->args->views[O].shape[3];
	const uint64_t *at = query->at;
	double *carried = flags[ATTENTION_IS_PART] ? attention_carried(query->args, at[0], at[1], at[2]) : NULL;
	struct known before = {-INFINITY, 0};

	if (flags[ATTENTION_GOES_ON])
		before = (struct known){carried[columns], carried[columns + 1]};
	for (uint64_t first = 0; first < columns; first += STRIP) {
		struct strip strip = {.first = first, .n = columns - first};

		strip.n = strip.n < STRIP ? strip.n : STRIP;
		sum_up(query, &strip);
		write_strip(query, &strip, &before, carried);
	}
}

static void reference(const struct op_args *args)
{
	const struct view *o = &args->views[O];

	for (uint64_t b = 0; b < o->shape[0]; b++)
		for (uint64_t h = 0; h < o->shape[1]; h++)
			for (uint64_t i = 0; i < o->shape[2]; i++) {
				struct query query = query_at(args, b, h, i);
				write_row(&query);
			}
}

/* ---- How far correct results may lie from the reference ---- */

/* Whether column c has only finite values: kernels may multiply values of keys that are not seen by 0. */
static bool is_finite(const struct query *query, uint64_t c)
{
	const struct view *v = &query->args->views[V];

	for (uint64_t key = 0; key < v->shape[2]; key++)
		if (!isfinite(load(v, query->at[0], query->shared, key, c)))
			return false;
	return true;
}

/*
 * u: the unit roundoff of the sums, w: of the type that exponentials are rounded to before they are multiplied
 * by values. A score is off by its roundings, in proportion to its terms; so are all exponentials, relative to
 * their size, and their sum. Exponentials that are subnormal may become 0. The second product adds the
 * roundings of a sum of that many keys. Of scores beyond their type's range nothing is known.
 */
static void bounds(const struct op_args *args, uint64_t row, double *ret)
{
	const struct view *o = &args->views[O];
	uint64_t queries = o->shape[2], heads = o->shape[1];
	struct query query = query_at(args, row / queries / heads, row / queries % heads, row % queries);
	kops_dtype dtype = args->views[Q].dtype; /* that of o may be a wider one here */
	double u = dtype == KOPS_F64 ? 0x1p-53 : 0x1p-24;
	double w = dtype == KOPS_F16 ? 0x1p-11 : dtype == KOPS_BF16 ? 0x1p-8 : 0;
	double depth = sqrt((double)args->views[Q].shape[3]), keys = sqrt((double)args->views[K].shape[2]);
	double of_score = u * (8 + 2 * depth) * (query.error + 1);
	double relative = 2 * of_score + u * (32 + 4 * keys) + w;
	double flushed = dtype == KOPS_F16 ? 0x1p-25 : rules_flushed(dtype);

	for (uint64_t first = 0; first < o->shape[3]; first += STRIP) {
		struct strip strip = {.first = first, .n = o->shape[3] - first};

		strip.n = strip.n < STRIP ? strip.n : STRIP;
		sum_up(&query, &strip);
		double by = strip.total == 0 ? 0 : 1 / strip.total;
		for (uint64_t c = 0; c < strip.n; c++)
			ret[first + c] = relative < 1 && is_finite(&query, first + c)
			                     ? (relative * strip.sizes[c] + flushed * strip.values[c]) * by +
			                           rules_flushed(dtype)
			                     : -1;
	}
}

/* ---- Samples ---- */

static bool sample_of(kops_dtype dtype, uint64_t queries, uint64_t keys, uint64_t depth, struct op_args *args)
{
	const uint64_t shapes[][4] = {
	    [Q] = {2, 4, queries, depth}, [K] = {2, 2, keys, depth}, [V] = {2, 2, keys, depth}, [MASK] = {0},
	    [O] = {2, 4, queries, depth},
	};

	if (!op_takes(&op_attention, dtype))
		return false;
	*args = (struct op_args){.op = &op_attention};
	op_set_defaults(args);
	args->params.plain.counts[ATTENTION_DIAGONAL] = ATTENTION_BOTTOM_RIGHT;
	for (unsigned i = Q; i <= O; i++) {
		if (i == MASK)
			continue;
		args->views[i] = (struct view){.dtype = dtype, .rank = 4};
		for (unsigned d = 0; d < 4; d++)
			args->views[i].shape[d] = shapes[i][d];
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
    {{0, 0, 0, 0, 0}, false}, {{1, 1, 1, 1, 1}, false}, {{2, PART_NONE, PART_NONE, 2, 2}, false}};

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

/* Of one head. */
static void of_size(const uint64_t *extents, struct op_args *args)
{
	for (unsigned i = Q; i <= V; i++) {
		struct view *v = &args->views[i];

		v->rank = 2;
		v->shape[0] = extents[i == Q ? 0 : 1];
		v->shape[1] = extents[2];
	}
}

const struct op op_attention = {
    .name = "attention",
    .title = "scaled dot-product attention",
    .about = "o = softmax(scale * q * kT + mask) * v, for each batch and head",
    .notes =
        "kv_heads divides heads: neighbouring heads of q share one of k and v. A query that sees no key, or "
        "only keys whose mask is -Inf, gives zeros. A value of v that is not finite may show in rows whose "
        "queries do not see its key.",
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
    .reference = reference,
    .bounds = bounds,
    .sample = sample,
    .large_sample = large_sample,
    .tolerance = tolerance,
    .size_form = "QUERIESxKEYSxDEPTH",
    .of_size = of_size,
    .last_extent_max = 256,
    .counts_flops = true,
    .bench_shapes = "128x128x64,512x512x64,2048x2048x64,8192x8192x64,8192x8192x128,16384x16384x128,1x65536x128",
};
