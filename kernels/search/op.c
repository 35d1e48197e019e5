/*
 * search: for each query, the k rows of a base that are nearest to it by inner product, squared distance or
 * cosine. queries and base may be f32, f16 or bf16; scores are f32.
 *
 * The result is exact but for rounding: it is the order of scores that are computed in f32, each of which lies
 * within search_score()'s bound of the true one. Of equal scores the lower index comes first. A row whose score
 * is NaN never comes, nor does one whose bit in the filter is 0. Where fewer than k rows remain, the index is
 * -1.
 *
 * After check() queries, base, values and indices have rank 2. So has the filter, with a stride of 0 if all
 * queries share it.
 *
 * A part of an op sees some rows of the base. Each query hands on its best k in args->carried, and writes them
 * too.
 */
#include <float.h>
#include <string.h>

#include "common/half.h"
#include "common/rules.h"
#include "search/search.h"

enum {
	QUERIES = SEARCH_QUERIES,
	BASE = SEARCH_BASE,
	FILTER = SEARCH_FILTER,
	VALUES = SEARCH_VALUES,
	INDICES = SEARCH_INDICES
};

#define SEARCHED (DTYPE_BIT(KOPS_F32) | DTYPE_BIT(KOPS_F16) | DTYPE_BIT(KOPS_BF16))

static const struct op_operand operands[] = {
    [QUERIES] = {.name = "queries",
                 .dtypes = SEARCHED,
                 .dtype_of = OWN_DTYPE,
                 .about = "[queries, columns]; up to 65536 columns"},
    [BASE] = {.name = "base", .dtypes = SEARCHED, .dtype_of = QUERIES, .about = "[rows, columns]"},
    [FILTER] =
        {.name = "filter",
         .is_optional = true,
         .is_extra = true,
         .dtypes = DTYPE_BIT(KOPS_I32),
         .dtype_of = OWN_DTYPE,
         .about = "[words] or [queries, words], words = rows / 32 rounded up; row i may come if bit i % 32 of "
                  "word i / 32 is 1; all if absent"},
    [VALUES] = {.name = "values",
                .role = OPERAND_OUTPUT,
                .dtypes = DTYPE_BIT(KOPS_F32),
                .dtype_of = OWN_DTYPE,
                .about = "[queries, k], the scores"},
    [INDICES] = {.name = "indices",
                 .role = OPERAND_OUTPUT,
                 .is_optional = true,
                 .is_result = true,
                 .dtypes = DTYPE_BIT(KOPS_I32),
                 .dtype_of = OWN_DTYPE,
                 .about = "[queries, k], rows of base, if wanted"},
};

static const char *const metrics[] = {[SEARCH_IP] = "ip", [SEARCH_L2] = "l2", [SEARCH_COSINE] = "cosine"};

static const struct op_attribute attributes[] = {
    {.name = "k",
     .type = ATTRIBUTE_COUNT,
     .offset = offsetof(struct plain_params, counts[SEARCH_K]),
     .min = 1,
     .max = SEARCH_MAX,
     .otherwise = 10,
     .about = "how many rows for each query"},
    {.name = "metric",
     .type = ATTRIBUTE_CHOICE,
     .offset = offsetof(struct plain_params, counts[SEARCH_METRIC]),
     .otherwise = SEARCH_IP,
     .choices = metrics,
     .n_choices = sizeof metrics / sizeof metrics[0],
     .about = "the inner product, largest first; the squared distance, smallest first; or the cosine, largest "
              "first"},
};

static uint64_t words_of(const struct view *base)
{
	return base->shape[0] / 32 + (base->shape[0] % 32 != 0);
}

static int check_filter(const struct op_args *args, char why[WHY_BYTES])
{
	const struct view *q = &args->views[QUERIES], *base = &args->views[BASE], *f = &args->views[FILTER];
	char text[RULES_SHAPE_BYTES];

	if (view_is_absent(f))
		return 0;
	if ((f->rank == 1 || (f->rank == 2 && f->shape[0] == q->shape[0])) &&
	    f->shape[f->rank - 1] == words_of(base))
		return 0;
	return rules_refuse(
	    why, KOPS_E_SHAPE,
	    "filter is %s; for %llu queries and %llu rows it has %llu words of 32 bits, once or for each "
	    "query",
	    rules_shape(f, text), (unsigned long long)q->shape[0], (unsigned long long)base->shape[0],
	    (unsigned long long)words_of(base));
}

static int check_inputs(const struct op_args *args, char why[WHY_BYTES])
{
	const struct view *q = &args->views[QUERIES], *base = &args->views[BASE];
	uint32_t k = search_count(args);
	int rc;

	if ((rc = rules_rank(q, "queries", 2, 2, why)) < 0 || (rc = rules_rank(base, "base", 2, 2, why)) < 0)
		return rc;
	if (q->shape[1] != base->shape[1])
		return rules_refuse(why, KOPS_E_SHAPE,
		                    "queries have %llu columns and base %llu; they need as many",
		                    (unsigned long long)q->shape[1], (unsigned long long)base->shape[1]);
	if (q->shape[1] > SEARCH_COLUMNS_MAX)
		return rules_refuse(why, KOPS_E_SHAPE, "queries have %llu columns; search takes up to %d",
		                    (unsigned long long)q->shape[1], SEARCH_COLUMNS_MAX);
	if (base->shape[0] > INT32_MAX)
		return rules_refuse(why, KOPS_E_SHAPE, "base has %llu rows; indices are i32, so it may have %d",
		                    (unsigned long long)base->shape[0], INT32_MAX);
	if (k < 1 || k > SEARCH_MAX)
		return rules_refuse(why, KOPS_E_INVALID, "k is %u; it may be from 1 to %d", k, SEARCH_MAX);
	return check_filter(args, why);
}

/* Sets rank and shape. */
static void shape_outputs(const struct op_args *args, struct view *y)
{
	y->rank = 2;
	y->shape[0] = args->views[QUERIES].shape[0];
	y->shape[1] = search_count(args);
}

static int result(struct op_args *args, char why[WHY_BYTES])
{
	int rc = check_inputs(args, why);

	if (rc < 0)
		return rc;
	shape_outputs(args, &args->views[VALUES]);
	shape_outputs(args, &args->views[INDICES]);
	return 0;
}

static int check_output(const struct op_args *args, unsigned v, char why[WHY_BYTES])
{
	const struct view *y = &args->views[v];
	struct view want = {.rank = 0};
	char ty[RULES_SHAPE_BYTES], tw[RULES_SHAPE_BYTES];

	shape_outputs(args, &want);
	if (view_is_absent(y) || (y->rank == 2 && y->shape[0] == want.shape[0] && y->shape[1] == want.shape[1]))
		return 0;
	return rules_refuse(why, KOPS_E_SHAPE, "%s is %s; for these queries and this k it is %s",
	                    operands[v].name, rules_shape(y, ty), rules_shape(&want, tw));
}

static int check(struct op_args *args, char why[WHY_BYTES])
{
	struct view *f = &args->views[FILTER];
	int rc;

	if ((rc = check_inputs(args, why)) < 0 || (rc = check_output(args, VALUES, why)) < 0 ||
	    (rc = check_output(args, INDICES, why)) < 0 || (rc = rules_outputs(args, why)) < 0)
		return rc;
	for (unsigned v = QUERIES; v <= INDICES; v++)
		if (!view_is_absent(&args->views[v]))
			rules_pad_rank(&args->views[v], 2);
	if (!view_is_absent(f) && f->shape[0] != args->views[QUERIES].shape[0]) {
		f->shape[0] = args->views[QUERIES].shape[0];
		f->strides[0] = 0;
	}
	memset(args->params.plain.flags, 0, sizeof args->params.plain.flags);
	args->params.plain.counts[SEARCH_FIRST] = 0;
	return 0;
}

/* "512×1000000×768" */
static void shape(const struct op_args *args, struct op_shape *ret)
{
	const struct view *q = &args->views[QUERIES], *base = &args->views[BASE];

	if (q->rank != 2 || base->rank != 2)
		return;
	*ret = (struct op_shape){
	    .dtype = q->dtype, .rank = 3, .extents = {q->shape[0], base->shape[0], base->shape[1]}};
}

static void cost(const struct op_args *args, struct cost *ret)
{
	const struct view *q = &args->views[QUERIES];

	ret->flops = 2 * (double)q->shape[0] * (double)args->views[BASE].shape[0] * (double)q->shape[1];
	ret->bytes = 0;
	for (unsigned v = QUERIES; v <= INDICES; v++)
		ret->bytes += rules_bytes(&args->views[v]);
}

/* ---- Scores ---- */

/* Sums over the columns of a query and a row. */
struct sums {
	double product, magnitudes, query, row, distance;
};

static struct sums sums_of(const struct op_args *args, uint64_t query, uint64_t row)
{
	const struct view *q = &args->views[QUERIES], *base = &args->views[BASE];
	struct sums s = {0};

	for (int64_t i = 0; i < (int64_t)q->shape[1]; i++) {
		double a = half_load(q->data, q->dtype, (int64_t)query * q->strides[0] + i * q->strides[1]);
		double b =
		    half_load(base->data, base->dtype, (int64_t)row * base->strides[0] + i * base->strides[1]);

		s.product += a * b;
		s.magnitudes += fabs(a * b);
		s.query += a * a;
		s.row += b * b;
		s.distance += (a - b) * (a - b);
	}
	return s;
}

static double score_of(const struct sums *s, enum search_metric metric)
{
	if (metric == SEARCH_L2)
		return s->distance;
	if (metric == SEARCH_IP)
		return s->product;
	return s->query == 0 || s->row == 0 ? 0 : s->product / (sqrt(s->query) * sqrt(s->row));
}

/*
 * A sum of n products in f32, by up to 2 √n roundings of independent parts and a few more. Squared distances
 * may be computed as |q|² - 2 q·b + |b|².
 */
struct search_score search_score(const struct op_args *args, uint64_t query, uint64_t row)
{
	const double unit = 0x1p-24, largest = (double)FLT_MAX / 64, smallest = 0x1p-100;
	double n = (double)args->views[QUERIES].shape[1], growth = (8 + 4 * sqrt(n)) * unit;
	struct sums s = sums_of(args, query, row);
	struct search_score ret = {score_of(&s, search_metric_of(args)), 0};
	double lengths = s.query + s.row;

	/* NaN too. In f32, squares of small or large numbers say nothing of the cosine. */
	if (!(s.magnitudes <= largest && lengths <= largest))
		ret.bound = -1;
	else if (search_metric_of(args) == SEARCH_IP)
		ret.bound = growth * s.magnitudes + (n + 2) * (double)FLT_MIN;
	else if (search_metric_of(args) == SEARCH_L2)
		ret.bound = growth * (2 * s.magnitudes + lengths) + (n + 2) * (double)FLT_MIN;
	else if (s.query == 0 || s.row == 0)
		ret.bound = 0;
	else if (s.query < smallest || s.row < smallest)
		ret.bound = -1;
	else
		ret.bound = 2 * growth * (1 + s.magnitudes / sqrt(s.query * s.row));
	return ret;
}

/* ---- The reference ---- */

static bool comes_before(enum search_metric metric, double value, double other)
{
	return metric == SEARCH_L2 ? value < other : value > other;
}

struct scored {
	double value;
	int64_t index;
};

/* Puts it among n that are sorted, behind equal ones; the last of `most` falls off. Returns how many there are.
 */
static uint32_t insert(enum search_metric metric, struct scored *sorted, uint32_t n, uint32_t most,
                       struct scored next)
{
	uint32_t at = n;

	while (at > 0 && comes_before(metric, next.value, sorted[at - 1].value))
		at--;
	if (at == most)
		return n;
	n -= n == most;
	memmove(sorted + at + 1, sorted + at, (n - at) * sizeof *sorted);
	sorted[at] = next;
	return n + 1;
}

static void store(const struct op_args *args, uint64_t query, const struct scored *found, uint32_t n)
{
	const struct view *values = &args->views[VALUES], *indices = &args->views[INDICES];
	struct search_found *carried = search_carried(args, query);

	for (uint32_t i = 0; i < search_count(args); i++) {
		struct search_found f = {search_nothing(search_metric_of(args)), -1};

		if (i < n)
			f = (struct search_found){(float)found[i].value, (int32_t)found[i].index};
		half_store(values->data, values->dtype,
		           (int64_t)query * values->strides[0] + i * values->strides[1],
		           i < n ? found[i].value : (double)f.value);
		if (!view_is_absent(indices))
			((int32_t *)
			     indices->data)[(int64_t)query * indices->strides[0] + i * indices->strides[1]] =
			    f.index;
		if (carried)
			carried[i] = f;
	}
}

/* Rounded as the results are, so that the lower index comes first of equal ones. */
static double rounded(const struct op_args *args, double score)
{
	return args->views[VALUES].dtype == KOPS_F32 ? (double)(float)score : score;
}

static void reference(const struct op_args *args)
{
	enum search_metric metric = search_metric_of(args);
	uint32_t k = search_count(args);

	for (uint64_t query = 0; query < args->views[QUERIES].shape[0]; query++) {
		const struct search_found *carried = search_carried(args, query);
		struct scored found[SEARCH_MAX + 1];
		uint32_t n = 0;

		for (; carried && args->params.plain.flags[SEARCH_GOES_ON] && n < k && carried[n].index >= 0;
		     n++)
			found[n] = (struct scored){(double)carried[n].value, carried[n].index};
		for (uint64_t row = 0; row < args->views[BASE].shape[0]; row++) {
			struct sums s = sums_of(args, query, row);
			double score = rounded(args, score_of(&s, metric));
			uint64_t index = search_first(args) + row;

			if (!isnan(score) && search_allows(args, query, index))
				n = insert(metric, found, n, k, (struct scored){score, (int64_t)index});
		}
		store(args, query, found, n);
	}
}

/* No value is further from that of its place in the true order than the score that is furthest from its own. */
static void bounds(const struct op_args *args, uint64_t query, double *ret)
{
	double bound = 0;

	for (uint64_t row = 0; row < args->views[BASE].shape[0] && bound >= 0; row++) {
		struct search_score s = search_score(args, query, row);

		if (search_allows(args, query, row))
			bound = s.bound < 0 ? -1 : fmax(bound, s.bound);
	}
	for (uint32_t i = 0; i < search_count(args); i++)
		ret[i] = bound;
}

/* ---- Samples ---- */

static bool sample(kops_dtype dtype, struct op_args *args)
{
	const uint64_t queries = 29, rows = 700, columns = 48, k = 10;

	if (!op_takes(&op_search, dtype))
		return false;
	*args = (struct op_args){.op = &op_search};
	op_set_defaults(args);
	args->params.plain.counts[SEARCH_K] = (uint32_t)k;
	args->views[QUERIES] = (struct view){.dtype = dtype, .rank = 2, .shape = {queries, columns}};
	args->views[BASE] = (struct view){.dtype = dtype, .rank = 2, .shape = {rows, columns}};
	args->views[VALUES] = (struct view){.dtype = KOPS_F32, .rank = 2, .shape = {queries, k}};
	args->views[INDICES] = (struct view){.dtype = KOPS_I32, .rank = 2, .shape = {queries, k}};
	for (unsigned v = QUERIES; v <= INDICES; v++)
		if (v != FILTER)
			view_make_dense(&args->views[v]);
	return true;
}

static double tolerance(const struct op_args *args)
{
	return (double)args->views[QUERIES].shape[1] * 0x1p-22;
}

static const struct size_span size_spans[] = {{1, 8192, NULL}, {32, 8192, NULL}, {32, 2048, NULL}};

static void of_size(const uint64_t *extents, struct op_args *args)
{
	args->views[QUERIES].rank = args->views[BASE].rank = 2;
	args->views[QUERIES].shape[0] = extents[0];
	args->views[BASE].shape[0] = extents[1];
	args->views[QUERIES].shape[1] = args->views[BASE].shape[1] = extents[2];
}

/* ---- Parts ---- */

static uint64_t steps(const struct op_args *args)
{
	return args->views[BASE].shape[0];
}

static uint64_t carried_bytes(const struct op_args *args)
{
	uint64_t bytes;

	return __builtin_mul_overflow(args->views[QUERIES].shape[0],
	                              search_count(args) * sizeof(struct search_found), &bytes)
	           ? UINT64_MAX
	           : bytes;
}

static void step_part(struct op_args *args, unsigned pass, uint64_t first, uint64_t n)
{
	view_narrow(&args->views[BASE], 0, first, n);
	args->params.plain.flags[SEARCH_IS_PART] = true;
	args->params.plain.flags[SEARCH_GOES_ON] = first > 0;
	args->params.plain.counts[SEARCH_FIRST] = (uint32_t)first;
	(void)pass;
}

static const struct part_axis part_axes[] = {{{0, PART_NONE, 0, 0, 0}, false}};

const struct op op_search = {
    .name = "search",
    .title = "the k nearest rows of a base for each query",
    .about = "values = the k best scores of each query with rows of base, indices = these rows",
    .notes =
        "Scores are computed in f32, and their order is the result; of equal ones the lower index comes first. "
        "The cosine with a vector of zeros is 0. A row whose score is NaN, or whose bit in the filter is 0, "
        "never "
        "comes. Where fewer than k rows remain, the index is -1 and the value -Inf, or Inf for l2.",
    .operands = operands,
    .n_operands = sizeof operands / sizeof operands[0],
    .attributes = attributes,
    .n_attributes = sizeof attributes / sizeof attributes[0],
    .part_axes = part_axes,
    .n_part_axes = sizeof part_axes / sizeof part_axes[0],
    .passes = 1,
    .steps = steps,
    .step_part = step_part,
    .carried_bytes = carried_bytes,
    .check = check,
    .result = result,
    .shape = shape,
    .cost = cost,
    .reference = reference,
    .bounds = bounds,
    .sample = sample,
    .tolerance = tolerance,
    .size_form = "QUERIESxROWSxCOLUMNS",
    .of_size = of_size,
    .size_spans = size_spans,
    .counts_flops = true,
    .bench_shapes = "1x10000x128,1x1000000x768,8x1000000x768,64x1000000x768,512x1000000x768,64x100000x128",
};
