#include "attention/reference.h"

#include "common/half.h"
#include "common/rules.h"

enum {
	Q = ATTENTION_Q,
	K = ATTENTION_K,
	V = ATTENTION_V,
	MASK = ATTENTION_MASK,
	O = ATTENTION_O,
	LSE = ATTENTION_LSE,
};

/* A query: its place, what it sees, and the largest of its scores. */
struct query {
	const struct op_args *args;
	struct attention_rule rule;
	uint64_t at[3];  /* batch, head, row */
	uint64_t shared; /* the head of k and v */
	struct attention_keys keys;
	double elements[ATTENTION_DEPTH_MAX];
	double peak, error; /* error: the most that the terms of a score add up to in magnitude */
};

/* The index of the first element of a row. */
static int64_t row_of(const struct view *v, uint64_t batch, uint64_t head, uint64_t row)
{
	return (int64_t)batch * v->strides[0] + (int64_t)head * v->strides[1] + (int64_t)row * v->strides[2];
}

static double score_of(const struct query *query, int64_t key, double *ret_size)
{
	const struct view *k = &query->args->views[K], *mask = &query->args->views[MASK];
	const uint64_t *at = query->at;
	int64_t row = row_of(k, at[0], query->shared, (uint64_t)key);
	double sum = 0, size = 0, more = 0;

	for (uint64_t d = 0; d < k->shape[3]; d++) {
		double term =
		    query->elements[d] * half_load(k->data, k->dtype, row + (int64_t)d * k->strides[3]);
		sum += term;
		size += fabs(term);
	}
	if (!view_is_absent(mask))
		more = half_load(mask->data, mask->dtype,
		                 row_of(mask, at[0], at[1], at[2]) + key * mask->strides[3]);
	*ret_size = fabs(query->rule.scale) * size + (isfinite(more) ? fabs(more) : 0);
	return query->rule.scale * sum + more;
}

static void find_query(struct query *query, const struct op_args *args, uint64_t batch, uint64_t head,
                       uint64_t row)
{
	const struct view *q = &args->views[Q];
	int64_t first = row_of(q, batch, head, row);

	*query = (struct query){
	    .args = args, .rule = attention_rule_at(args, batch), .at = {batch, head, row}, .peak = -INFINITY};
	for (uint64_t d = 0; d < q->shape[3]; d++)
		query->elements[d] = half_load(q->data, q->dtype, first + (int64_t)d * q->strides[3]);
	query->shared = attention_shared_head(args, head);
	query->keys = attention_keys_of(&query->rule, (int64_t)row);
	for (int64_t key = query->keys.begin; key < query->keys.end; key++) {
		double size, score = score_of(query, key, &size);

		query->peak = score > query->peak || isnan(score) ? score : query->peak;
		query->error = fmax(query->error, size);
	}
}

/* Of each column: the sum of v times exponentials, what its terms add up to in magnitude, and what the values
 * do that these are made of. total: of the exponentials. */
struct sums {
	double sums[ATTENTION_DEPTH_MAX], sizes[ATTENTION_DEPTH_MAX], values[ATTENTION_DEPTH_MAX], total;
};

static void sum_up(const struct query *query, struct sums *ret)
{
	const struct view *v = &query->args->views[V];
	double size;

	*ret = (struct sums){.total = 0};
	if (query->peak == -INFINITY)
		return; /* nothing is seen */
	for (int64_t key = query->keys.begin; key < query->keys.end; key++) {
		int64_t row = row_of(v, query->at[0], query->shared, (uint64_t)key);
		double p = exp(score_of(query, key, &size) - query->peak);

		ret->total += p;
		for (uint64_t c = 0; c < v->shape[3]; c++) {
			double value = half_load(v->data, v->dtype, row + (int64_t)c * v->strides[3]);

			ret->sums[c] += p * value;
			ret->sizes[c] += fabs(p * value);
			ret->values[c] += fabs(value);
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

/* The logarithm of a sum of exponentials relative to peak. */
static double lse_of(double peak, double total)
{
	return total == 0 ? -INFINITY : peak + log(total);
}

/* Writes a row, and what is carried of it if the query is not seen as a whole. */
static void write_row(const struct query *query, const struct sums *sums)
{
	const struct view *o = &query->args->views[O], *lse = &query->args->views[LSE];
	const uint64_t *at = query->at;
	const bool *flags = query->args->params.plain.flags;
	uint64_t columns = o->shape[3];
	double *carried = flags[ATTENTION_IS_PART] ? attention_carried(query->args, at[0], at[1], at[2]) : NULL;
	int64_t row = row_of(o, at[0], at[1], at[2]);
	struct known before = {-INFINITY, 0}, here = {query->peak, sums->total};

	if (flags[ATTENTION_GOES_ON])
		before = (struct known){carried[columns], carried[columns + 1]};
	double peak = fmax(before.peak, here.peak);
	double of_before = share_of(&before, peak), of_here = share_of(&here, peak);
	double total = before.total * of_before + here.total * of_here;
	for (uint64_t c = 0; c < columns; c++) {
		double sum = (of_before == 0 ? 0 : carried[c] * of_before) + sums->sums[c] * of_here;

		if (carried)
			carried[c] = sum;
		half_store(o->data, o->dtype, row + (int64_t)c * o->strides[3], total == 0 ? 0 : sum / total);
	}
	if (carried) {
		carried[columns] = peak;
		carried[columns + 1] = total;
	}
	if (!view_is_absent(lse))
		half_store(lse->data, lse->dtype,
		           (int64_t)at[0] * lse->strides[0] + (int64_t)at[1] * lse->strides[1] +
		               (int64_t)at[2] * lse->strides[2],
		           lse_of(peak, total));
}

void attention_reference(const struct op_args *args)
{
	const struct view *o = &args->views[O];
	struct query query;
	struct sums sums;

	for (uint64_t b = 0; b < o->shape[0]; b++)
		for (uint64_t h = 0; h < o->shape[1]; h++)
			for (uint64_t i = 0; i < o->shape[2]; i++) {
				find_query(&query, args, b, h, i);
				sum_up(&query, &sums);
				write_row(&query, &sums);
			}
}

/* ---- How far correct results may lie from the reference ---- */

/* Whether column c has only finite values: kernels may multiply values of keys that are not seen by 0. */
static bool is_finite(const struct query *query, uint64_t c)
{
	const struct view *v = &query->args->views[V];

	for (uint64_t key = 0; key < v->shape[2]; key++)
		if (!isfinite(
		        half_load(v->data, v->dtype,
		                  row_of(v, query->at[0], query->shared, key) + (int64_t)c * v->strides[3])))
			return false;
	return true;
}

/* What kernels round in proportion to the unit roundoff of their arithmetic. */
struct roundings {
	double of_exponentials, of_sum; /* relative */
};

static kops_dtype dtype_of(const struct op_args *args)
{
	return args->views[Q].dtype; /* that of outputs may be a wider one here */
}

static double unit_of(const struct op_args *args)
{
	return dtype_of(args) == KOPS_F64 ? 0x1p-53 : 0x1p-24;
}

/*
 * A score is off by its roundings, in proportion to its terms; so are all exponentials, relative to their size,
 * and their sum, which adds the roundings of a sum of that many keys.
 */
static struct roundings roundings_of(const struct query *query)
{
	const struct view *views = query->args->views;
	double u = unit_of(query->args);
	double depth = sqrt((double)views[Q].shape[3]), keys = sqrt((double)views[K].shape[2]);

	return (struct roundings){.of_exponentials = 2 * u * (8 + 2 * depth) * (query->error + 1),
	                          .of_sum = u * (32 + 4 * keys)};
}

/*
 * w: the unit roundoff of the type that exponentials are rounded to before they are multiplied by values. Those
 * that are subnormal may become 0. Of scores beyond their type's range nothing is known.
 */
void attention_bounds(const struct op_args *args, uint64_t row, double *ret)
{
	const struct view *o = &args->views[O];
	uint64_t queries = o->shape[2], heads = o->shape[1];
	kops_dtype dtype = dtype_of(args);
	double w = dtype == KOPS_F16 ? 0x1p-11 : dtype == KOPS_BF16 ? 0x1p-8 : 0;
	double flushed = dtype == KOPS_F16 ? 0x1p-25 : rules_flushed(dtype);
	struct query query;
	struct sums sums;

	find_query(&query, args, row / queries / heads, row / queries % heads, row % queries);
	sum_up(&query, &sums);
	struct roundings r = roundings_of(&query);
	double relative = r.of_exponentials + r.of_sum + w, by = sums.total == 0 ? 0 : 1 / sums.total;
	for (uint64_t c = 0; c < o->shape[3]; c++)
		ret[c] = relative < 1 && is_finite(&query, c)
		             ? (relative * sums.sizes[c] + flushed * sums.values[c]) * by + rules_flushed(dtype)
		             : -1;
}

/* Of lse: its row are the queries of a head. An error of a sum, relative to its size, is one of its logarithm.
 */
void attention_further_bounds(const struct op_args *args, unsigned v, uint64_t row, double *ret)
{
	const struct view *lse = &args->views[v];
	double u = unit_of(args);
	struct query query;
	struct sums sums;

	for (uint64_t i = 0; i < lse->shape[2]; i++) {
		find_query(&query, args, row / lse->shape[1], row % lse->shape[1], i);
		sum_up(&query, &sums);
		struct roundings r = roundings_of(&query);
		double relative = r.of_exponentials + r.of_sum;
		double size = fabs(query.peak) + fabs(lse_of(query.peak, sums.total));
		ret[i] = relative >= 1     ? -1
		         : sums.total == 0 ? 0
		                           : 2 * relative + 8 * u * (isfinite(size) ? size : 0);
	}
}
