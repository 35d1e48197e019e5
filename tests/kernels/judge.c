/*
 * judge.c: decides whether results are right.
 *
 * gemm: with T = |alpha| |A| |B| + |beta| |C| + |bias| and C64 the product in float64 of the very same
 * operands,
 *
 *     |C - C64| <= T * ((8 + 2 R) u + 2.5 v) + w (|C64| + |alpha A B|) + smallest
 *
 *   u         unit roundoff of the accumulation (2^-24, f64 2^-53). A sum of K rounded terms may err by K u T,
 *             but independent roundings add up like R = sqrt(K). If one term is added K times the roundings are
 *             alike, and R = K. 8 allows for small K.
 *   v         roundoff of operands if the precision lets a kernel round them (tf32 2^-11, bf16 2^-8)
 *   w         roundoff of a 16-bit result. cuBLAS may round the product to it before it adds beta C; otherwise
 *             |alpha A B| is left out.
 *   smallest  K + 2 of the smallest normal numbers, for kernels that flush subnormals
 *
 * If C64 is NaN or infinite, C must be the same. Elements for which T comes near the largest number are not
 * judged: there the order of summing decides. The parts of complex numbers are judged one by one, with |x| the
 * sum of the parts of x, except where T is not finite: which part then becomes NaN depends on how a product is
 * written.
 *
 * search: judge_search.c.
 *
 * Ops with bounds() or further_bounds() (kernel.h): these bounds, the roundoff w of a 16-bit result, and half
 * the distance of f16's subnormals. Results near the end of the type's range may be infinite or finite, and are
 * not judged.
 *
 * Ops with residual(): what that says of each row.
 *
 * transpose, copy, gather, arg_reduce and top_k: the same bits. Any other op: the correctly rounded result,
 * which the reference computes. A sum or product in f32 rounded to f16 or bf16 is that too (add/op.c,
 * multiply/op.c).
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "common/half.h"
#include "gemm/gemm.h"

/* Element `at`, or its imaginary part (1). */
static double load_part(const void *data, kops_dtype dtype, int64_t at, unsigned part)
{
	return half_load(data, dtype_component(dtype), at * dtype_components(dtype) + part);
}

/* ---- Images of spaces ---- */

struct op_args judge_images(const struct problem *p, bool expected)
{
	struct op_args args = p->args;

	for (unsigned i = 0; i < args.op->n_operands; i++)
		args.views[i].data =
		    view_is_absent(&args.views[i])
		        ? NULL
		        : (expected ? p->spaces[i]->expected : p->spaces[i]->before) + args.views[i].offset;
	return args;
}

static void patch(unsigned char *to, const unsigned char *from, const struct view *v)
{
	uint64_t index[KOPS_RANK_MAX] = {0}, size = dtype_size(v->dtype);

	if (view_elements(v) == 0)
		return;
	do {
		int64_t at = (int64_t)v->offset + view_at(v, index) * (int64_t)size;
		memcpy(to + at, from + at, size);
	} while (view_step(v, index));
}

static bool equal_images(const unsigned char *got, const unsigned char *want, uint64_t bytes,
                         char why[CHECK_TEXT_BYTES])
{
	uint64_t i = 0;

	if (memcmp(got, want, bytes) == 0)
		return true;
	while (got[i] == want[i])
		i++;
	snprintf(why, CHECK_TEXT_BYTES, "byte %llu of %llu, outside the output, became 0x%02x; it was 0x%02x",
	         (unsigned long long)i, (unsigned long long)bytes, got[i], want[i]);
	return false;
}

bool judge_surroundings(struct space *s, const struct view *const views[], unsigned n,
                        char why[CHECK_TEXT_BYTES])
{
	for (unsigned i = 0; i < n; i++)
		if (views[i]->space == &s->memory)
			patch(s->host, s->expected, views[i]);
	return equal_images(s->host, s->expected, s->bytes, why);
}

/* Checks that the reference wrote only outputs. */
static bool wrote_outputs_only(const struct problem *p, struct space *s, char why[CHECK_TEXT_BYTES])
{
	const struct op *op = p->args.op;

	memcpy(s->host, s->before, s->bytes);
	for (unsigned v = op_first_output(op); v < op->n_operands; v++)
		if (p->spaces[v] == s)
			patch(s->host, s->expected, &p->args.views[v]);
	return equal_images(s->expected, s->host, s->bytes, why);
}

static bool run_reference(struct problem *p, char why[CHECK_TEXT_BYTES])
{
	struct op_args args = judge_images(p, true);

	for (unsigned i = 0; i < p->n_storage; i++)
		memcpy(p->storage[i].expected, p->storage[i].before, p->storage[i].bytes);
	args.op->reference(&args);
	for (unsigned i = 0; i < p->n_storage; i++)
		if (!wrote_outputs_only(p, &p->storage[i], why))
			return false;
	return true;
}

/* ---- gemm ---- */

/* Real and complex numbers in float64, of complex ones both parts, or their absolute values, of complex ones
 * the sum of those of both parts. Integers are copied as they are. */
static double *dense_copy(const struct view *v, bool absolute)
{
	uint64_t n = view_elements(v), index[KOPS_RANK_MAX] = {0}, size = dtype_size(v->dtype);
	unsigned parts = dtype_components(v->dtype);
	double *copy = calloc(n * parts + 1, sizeof *copy), *to = copy;

	if (!copy || n == 0)
		return copy;
	if (dtype_kind(v->dtype) == DTYPE_INTEGER) {
		for (char *raw = (char *)copy; n > 0; n--, raw += size, view_step(v, index))
			memcpy(raw, (char *)v->data + view_at(v, index) * (int64_t)size, size);
		return copy;
	}
	do {
		for (unsigned part = 0; part < parts; part++) {
			double x = load_part(v->data, v->dtype, view_at(v, index), part);
			if (absolute)
				to[0] += fabs(x);
			else
				to[part] = x; /* and -0 stays -0 */
		}
		to += absolute ? 1 : parts;
	} while (view_step(v, index));
	return copy;
}

static kops_dtype wide_dtype(kops_dtype dtype, bool absolute)
{
	if (dtype_kind(dtype) == DTYPE_INTEGER)
		return dtype;
	return dtype_kind(dtype) == DTYPE_COMPLEX && !absolute ? KOPS_C128 : KOPS_F64;
}

/*
 * Runs the op on dense copies of its operands, numbers in float64, or of their absolute values.
 * Returns output `out`; NULL if out of memory.
 */
static double *run_wide(const struct op_args *args, unsigned out, bool absolute)
{
	struct op_args wide = *args;
	unsigned n = args->op->n_operands;
	double *copies[OP_OPERANDS_MAX] = {NULL};
	bool complete = true;

	for (unsigned i = 0; i < n; i++) {
		if (view_is_absent(&args->views[i]))
			continue;
		copies[i] = dense_copy(&args->views[i], absolute);
		complete = complete && copies[i];
		wide.views[i].dtype = wide_dtype(args->views[i].dtype, absolute);
		wide.views[i].data = copies[i];
		view_make_dense(&wide.views[i]);
	}
	if (complete)
		wide.op->reference(&wide);
	for (unsigned i = 0; i < n; i++)
		if (i != out || !complete)
			free(copies[i]);
	return complete ? copies[out] : NULL;
}

/* Computes |alpha| |A| |B| + |beta| |C| + |bias| in float64. */
static double *gemm_total(const struct op_args *args)
{
	struct op_args absolute = *args;
	struct gemm_params *p = &absolute.params.gemm;

	p->alpha = fabs(p->alpha) + fabs(p->alpha_imag);
	p->beta = fabs(p->beta) + fabs(p->beta_imag);
	p->alpha_imag = p->beta_imag = 0;
	p->activation = UNARY_NONE;
	return run_wide(&absolute, GEMM_C, true);
}

struct rounding {
	double accumulate, operand, result, smallest, largest;
};

static struct rounding rounding_of(const struct op_args *args)
{
	struct rounding r = {0x1p-24, 0, 0, (double)FLT_MIN, (double)FLT_MAX / 64};
	kops_precision precision = args->op->precision ? args->op->precision(args) : KOPS_PRECISION_F32;

	switch (op_output_const(args)->dtype) {
	case KOPS_F64:
	case KOPS_C128:
		return (struct rounding){0x1p-53, 0, 0, DBL_MIN, DBL_MAX / 64};
	case KOPS_F32:
		r.operand = precision == KOPS_PRECISION_TF32   ? 0x1p-11
		            : precision == KOPS_PRECISION_BF16 ? 0x1p-8
		                                               : 0;
		break;
	case KOPS_F16:
		r.result = 0x1p-11;
		r.smallest = 0x1p-25;
		r.largest = 65504 / 1.1;
		break;
	case KOPS_BF16:
		r.result = 0x1p-8;
		break;
	default:
		break;
	}
	return r;
}

/* Returns R of the comment above. */
static double roundings_of_sum(const struct op_args *args)
{
	double k = (double)args->views[0].shape[2] * dtype_components(args->views[0].dtype);

	return args->views[0].strides[2] == 0 && args->views[1].strides[1] == 0 ? k : sqrt(k);
}

/* No activation is steeper than gelu, and each is computed with few roundings. */
#define SLOPE_MAX            1.13
#define ROUNDINGS_OF_BENDING 4

/* rounded: the sum of what is rounded to the result's type. */
static double gemm_bound(const struct rounding *r, double exact, double total, double rounded, double k,
                         double roundings, bool huge)
{
	/* If tf32 or bf16 operands round a denormal to 0, Inf times it is NaN instead of Inf. */
	if (!isfinite(total) || !isfinite(exact))
		return huge || r->operand > 0 ? -1 : 0;
	if (total > r->largest)
		return -1;
	return total * ((8 + 2 * roundings) * r->accumulate + 2.5 * r->operand) + 1.01 * r->result * rounded +
	       (k + 2) * r->smallest;
}

/* Computes alpha A B in float64. */
static double *gemm_product(const struct op_args *args)
{
	struct op_args product = *args;

	product.params.gemm.beta = product.params.gemm.beta_imag = 0;
	product.params.gemm.activation = UNARY_NONE;
	product.views[GEMM_BIAS] = (struct view){.rank = 0};
	return run_wide(&product, GEMM_C, false);
}

/* What an activation makes of the bound of what goes into it. */
static double bent_bound(const struct rounding *r, double bound, double total)
{
	return bound <= 0 ? bound : SLOPE_MAX * bound + ROUNDINGS_OF_BENDING * r->accumulate * total;
}

static bool oracle_gemm(struct oracle *o, const struct problem *p)
{
	struct op_args args = judge_images(p, false);
	struct rounding rounding = rounding_of(&args);
	unsigned parts = dtype_components(args.views[0].dtype);
	double k = (double)args.views[0].shape[2] * parts, *product = gemm_product(&args);
	double roundings = roundings_of_sum(&args);
	bool sums = gemm_reads_old(&args), bends = args.params.gemm.activation != UNARY_NONE;

	o->exact = run_wide(&args, GEMM_C, false);
	double *totals = gemm_total(&args);
	o->bound = malloc((o->n + 1) * sizeof *o->bound);
	bool complete = o->exact && o->bound && product && totals;
	for (uint64_t i = 0; complete && i < o->n; i++) {
		double rounded = fabs(o->exact[i]) + (sums ? fabs(product[i]) : 0), total = totals[i / parts];
		double bound = gemm_bound(&rounding, o->exact[i], total, rounded, k, roundings, p->huge);
		o->bound[i] = parts > 1 && !isfinite(total) ? -1
		              : bends                       ? bent_bound(&rounding, bound, total)
		                                            : bound;
	}
	free(product);
	free(totals);
	return complete;
}

/* ---- Ops that say themselves how far results may lie off ---- */

/* Returns half the distance from 1 to the next number, for types to which f32 is rounded. */
static double result_roundoff(kops_dtype dtype)
{
	return dtype == KOPS_F16 ? 0x1p-11 : dtype == KOPS_BF16 ? 0x1p-8 : 0;
}

static double largest_finite(kops_dtype dtype)
{
	if (dtype == KOPS_F64)
		return DBL_MAX;
	return dtype == KOPS_F16 ? 65504 : dtype == KOPS_BF16 ? 0x1.fep127 : (double)FLT_MAX;
}

/*
 * A result beyond the type's range is infinite. At the very end of the range it may be either, and is not
 * judged.
 */
static void settle_overflow(double *exact, double *bound, kops_dtype dtype)
{
	double largest = largest_finite(dtype);

	if (!isfinite(*exact) || fabs(*exact) + *bound <= largest)
		return;
	if (fabs(*exact) - *bound > largest * (1 + result_roundoff(dtype))) {
		*exact = copysign(INFINITY, *exact);
		*bound = 0;
	} else {
		*bound = -1;
	}
}

/* Writes what the reference wrote to output v. Returns the end. */
static double *copy_expected(const struct problem *p, unsigned v, double *to)
{
	struct op_args args = judge_images(p, true);
	const struct view *y = &args.views[v];
	uint64_t index[KOPS_RANK_MAX] = {0};

	for (uint64_t n = view_elements(y); n > 0; n--, view_step(y, index))
		for (unsigned part = 0; part < dtype_components(y->dtype); part++)
			*to++ = load_part(y->data, y->dtype, view_at(y, index), part);
	return to;
}

/* Sets what output v should be, and the bounds that the op gives. False: out of memory. */
static bool bound_output(const struct op_args *args, unsigned v, double *exact, double *bound)
{
	const struct view *y = &args->views[v];
	uint64_t columns = y->shape[y->rank - 1], n = view_elements(y);
	double *wide = run_wide(args, v, false);

	if (!wide)
		return false;
	memcpy(exact, wide, n * sizeof *exact);
	free(wide);
	for (uint64_t i = 0; i < n; i++) {
		if (i % columns == 0 && v == op_first_output(args->op))
			args->op->bounds(args, i / columns, &bound[i]);
		else if (i % columns == 0)
			args->op->further_bounds(args, v, i / columns, &bound[i]);
		if (bound[i] > 0 && isfinite(exact[i]))
			bound[i] += 1.01 * result_roundoff(y->dtype) * fabs(exact[i]) +
			            (y->dtype == KOPS_F16 ? 0x1.02p-25 : 0);
		if (bound[i] >= 0)
			settle_overflow(&exact[i], &bound[i], y->dtype);
	}
	return true;
}

static bool has_bounds(const struct op *op, unsigned v)
{
	return v == op_first_output(op) ? op->bounds != NULL : op->further_bounds != NULL;
}

/* Outputs without bounds are what the reference wrote. */
static bool oracle_bounded(struct oracle *o, const struct problem *p)
{
	struct op_args args = judge_images(p, false);
	uint64_t first = 0;

	o->exact = calloc(o->n + 1, sizeof *o->exact);
	o->bound = calloc(o->n + 1, sizeof *o->bound);
	if (!o->exact || !o->bound)
		return false;
	for (unsigned v = op_first_output(args.op); v < args.op->n_operands; v++) {
		if (view_is_absent(&args.views[v]))
			continue;
		if (!has_bounds(args.op, v))
			copy_expected(p, v, o->exact + first);
		else if (!bound_output(&args, v, o->exact + first, o->bound + first))
			return false;
		first += view_elements(&args.views[v]) * dtype_components(args.views[v].dtype);
	}
	return true;
}

/* ---- Oracles ---- */

/* Expects what the reference wrote, and nothing else. */
static bool oracle_expected(struct oracle *o, const struct problem *p)
{
	o->exact = calloc(o->n + 1, sizeof *o->exact);
	o->bound = calloc(o->n + 1, sizeof *o->bound);
	if (!o->exact || !o->bound)
		return false;
	double *to = o->exact;
	for (unsigned v = op_first_output(p->args.op); v < p->args.op->n_operands; v++)
		to = copy_expected(p, v, to);
	return true;
}

/* How ops are judged; the last line is for all others, which may have bounds(). */
static const struct rule {
	const char *op;
	bool (*oracle)(struct oracle *o, const struct problem *p); /* NULL: the same bits as the reference */
	bool (*further)(const struct problem *p,
	                struct verdict *ret); /* of outputs after the first; NULL: alike */
} rules[] = {

    {"gemm", oracle_gemm, NULL},
    {"transpose", NULL, NULL},
    {"copy", NULL, NULL},
    {"gather", NULL, NULL},
    {"arg_reduce", NULL, NULL},
    {"top_k", NULL, NULL},
    {"search", oracle_bounded, judge_search},
    {NULL, oracle_expected, NULL},
};

static const struct rule *rule_of(const struct op *op)
{
	static const struct rule bounded = {NULL, oracle_bounded, NULL};
	const struct rule *rule = rules;

	while (rule->op && strcmp(rule->op, op->name) != 0)
		rule++;
	return !rule->op && op->bounds ? &bounded : rule;
}

/* Of ops with residual(): what was computed, or what the reference expects. */
static bool judge_rows(const struct problem *p, bool expected, struct verdict *ret)
{
	struct op_args before = judge_images(p, false), after = before;
	const struct view *y = op_output_const(&before);
	uint64_t columns = y->shape[y->rank - 1], n = view_elements(y);

	for (unsigned v = 0; v < after.op->n_operands; v++)
		if (!view_is_absent(&after.views[v]))
			after.views[v].data =
			    (expected ? p->spaces[v]->expected : p->spaces[v]->host) + after.views[v].offset;
	for (uint64_t row = 0; n > 0 && row < n / columns; row++) {
		double weight = after.op->residual(&before, &after, row);

		ret->worst = fmax(ret->worst, weight);
		if (weight <= 1)
			continue;
		snprintf(ret->why, sizeof ret->why, "row %llu is %g times as far off as it may be",
		         (unsigned long long)row, weight);
		return false;
	}
	return true;
}

bool oracle_make(struct oracle *o, struct problem *p, char why[CHECK_TEXT_BYTES])
{
	const struct rule *rule = rule_of(p->args.op);

	*o = (struct oracle){0};
	for (unsigned v = op_first_output(p->args.op); v < p->args.op->n_operands; v++)
		o->n += view_elements(&p->args.views[v]) * dtype_components(p->args.views[v].dtype);
	if (!run_reference(p, why))
		return false;
	if (p->args.op->residual) {
		struct verdict verdict = {0};
		bool right = judge_rows(p, true, &verdict);

		memcpy(why, verdict.why, CHECK_TEXT_BYTES);
		return right;
	}
	snprintf(why, CHECK_TEXT_BYTES, "out of memory");
	return !rule->oracle || rule->oracle(o, p);
}

void oracle_free(struct oracle *o)
{
	free(o->exact);
	free(o->bound);
	*o = (struct oracle){0};
}

/* ---- Verdicts ---- */

/* Returns the error relative to the bound; above 1: wrong. */
static double weigh(double got, double exact, double bound)
{
	if (bound < 0)
		return 0;
	if (isnan(exact))
		return isnan(got) ? 0 : INFINITY;
	if (isinf(exact) || bound == 0)
		return got == exact && signbit(got) == signbit(exact) ? 0 : INFINITY;
	double part = fabs(got - exact) / bound;
	return isnan(part) ? INFINITY : part;
}

static bool judge_bits(const struct problem *p, unsigned out, struct verdict *ret)
{
	const struct view *y = &p->args.views[out];
	const struct space *s = p->spaces[out];
	uint64_t index[KOPS_RANK_MAX] = {0}, size = dtype_size(y->dtype);

	if (view_elements(y) == 0)
		return true;
	do {
		int64_t at = (int64_t)y->offset + view_at(y, index) * (int64_t)size;
		if (memcmp(s->host + at, s->expected + at, size) == 0)
			continue;
		snprintf(ret->why, sizeof ret->why,
		         "element (%llu %llu %llu %llu) has other bits than its source",
		         (unsigned long long)index[0], (unsigned long long)index[1],
		         (unsigned long long)index[2], (unsigned long long)index[3]);
		return false;
	} while (view_step(y, index));
	return true;
}

/* first: the output's first number among those of all outputs. Complex elements have two. */
static bool judge_values(const struct oracle *o, uint64_t first, const struct problem *p, unsigned out,
                         struct verdict *ret)
{
	const struct view *y = &p->args.views[out];
	const unsigned char *base = p->spaces[out]->host + y->offset;
	uint64_t index[KOPS_RANK_MAX] = {0};
	unsigned parts = dtype_components(y->dtype), part = 0;

	for (uint64_t i = first, end = first + view_elements(y) * parts; i < end; i++) {
		double got = load_part(base, y->dtype, view_at(y, index), part);
		double weight = weigh(got, o->exact[i], o->bound[i]);
		ret->worst = weight > ret->worst ? weight : ret->worst;
		part = (part + 1) % parts;
		if (weight <= 1 && part == 0)
			view_step(y, index);
		if (weight <= 1)
			continue;
		snprintf(ret->why, sizeof ret->why,
		         "number %llu (%llu %llu %llu %llu) is %.9g, should be %.9g within %g",
		         (unsigned long long)(i - first), (unsigned long long)index[0],
		         (unsigned long long)index[1], (unsigned long long)index[2],
		         (unsigned long long)index[3], got, o->exact[i], o->bound[i]);
		return false;
	}
	return true;
}

void judge(const struct oracle *o, const struct problem *p, struct verdict *ret)
{
	const struct op *op = p->args.op;
	const struct view *outputs[OP_OPERANDS_MAX];
	unsigned n = 0;
	uint64_t first = 0;

	*ret = (struct verdict){0};
	if (op->residual && !judge_rows(p, false, ret))
		return;
	for (unsigned v = op_first_output(op); v < op->n_operands; v++) {
		const struct view *y = &p->args.views[v];

		if (view_is_absent(y))
			continue;
		if (op->residual) {
			outputs[n++] = y;
			continue;
		}
		if (v > op_first_output(op) && rule_of(op)->further ? !rule_of(op)->further(p, ret)
		    : rule_of(op)->oracle                           ? !judge_values(o, first, p, v, ret)
		                                                    : !judge_bits(p, v, ret))
			return;
		first += view_elements(y) * dtype_components(y->dtype);
		outputs[n++] = y;
	}
	for (unsigned i = 0; i < p->n_storage; i++) {
		struct space *s = (struct space *)&p->storage[i];
		if (!judge_surroundings(s, outputs, n, ret->why))
			return;
	}
	ret->right = true;
}
