/* jobs.c: makes random jobs. See jobs.h. */
#include <stdio.h>
#include <string.h>

#include "jobs.h"

#include "attention/attention.h"
#include "cholesky/cholesky.h"
#include "gemm/gemm.h"
#include "lu/operands.h"
#include "search/search.h"
#include "top_k/top_k.h"
#include "triangular_solve/operands.h"

#define BUFFER_BITS 47 /* an address space's worth */

static uint64_t around(uint64_t n, struct random *r)
{
	return n + random_below(r, 3) - 1;
}

/* Returns 0, 1, an extent at the end of tiles, vectors or a 32-bit number, or more than there is memory. */
static uint64_t random_extent(struct random *r)
{
	switch (random_below(r, 10)) {
	case 0:
		return 0;
	case 1:
	case 2:
		return 1;
	case 3:
		return 1 + random_below(r, 40);
	case 4:
	case 5:
		return around((uint64_t)1 << (1 + random_below(r, 12)), r);
	case 6:
	case 7:
		return 1 + random_below(r, (uint64_t)1 << (4 + random_below(r, 14)));
	case 8:
		return around((uint64_t)1 << (12 + random_below(r, 22)), r);
	default:
		return around((uint64_t)1 << random_below(r, 64), r);
	}
}

/* ---- Views ---- */

static void shuffle(uint32_t *axes, uint32_t n, struct random *r)
{
	for (uint32_t i = n; i > 1; i--) {
		uint32_t at = (uint32_t)random_below(r, i), was = axes[i - 1];
		axes[i - 1] = axes[at];
		axes[at] = was;
	}
}

/* Orders axes row-major in most cases, else at random. */
static void order_axes(uint32_t *axes, uint32_t rank, struct random *r)
{
	for (uint32_t d = 0; d < rank; d++)
		axes[d] = rank - 1 - d;
	if (random_chance(r, 40))
		shuffle(axes, rank, r);
}

/* Returns the step to the next index of an axis whose finer axes span `span` elements. */
static uint64_t random_step(uint64_t span, struct random *r)
{
	static const uint64_t units[] = {4, 8, 16, 32, 1024};
	uint64_t unit = units[random_below(r, 5)];

	if (random_chance(r, 70))
		return span;
	if (random_chance(r, 50))
		return (span + unit - 1) / unit * unit;
	return span + random_below(r, 5000);
}

/* Lays out a view without elements: it touches nothing, so strides and the offset in the buffer may be any. */
static void lay_out_empty(struct view *v, uint64_t bytes, struct random *r)
{
	uint64_t size = dtype_size(v->dtype);

	view_make_dense(v);
	for (uint32_t d = 0; d < v->rank && random_chance(r, 70); d++)
		v->strides[d] = (int64_t)(random_next(r) << random_below(r, 64));
	v->offset = random_chance(r, 50) ? 0 : random_below(r, bytes / size + 1) * size;
}

/*
 * Lays out v->shape within a buffer of `bytes`: strides and an offset. An axis without room is repeated (stride
 * 0) if it may be. Returns false if an output does not fit.
 */
static bool lay_out(struct view *v, uint64_t bytes, bool output, struct random *r)
{
	uint64_t size = dtype_size(v->dtype), span = 1, below = 0, most = bytes / size;
	uint32_t axes[KOPS_RANK_MAX];
	bool gaps = random_chance(r, 40), repeats = !output && random_chance(r, 30);

	if (view_is_empty(v)) {
		lay_out_empty(v, bytes, r);
		return true;
	}
	order_axes(axes, v->rank, r);
	for (uint32_t i = 0; i < v->rank; i++) {
		uint64_t n = v->shape[axes[i]], step = gaps ? random_step(span, r) : span, all;
		bool room = !__builtin_mul_overflow(n, step, &all) && all <= most;

		if (!room && output)
			return false;
		if (!room || (repeats && random_chance(r, 40))) {
			v->strides[axes[i]] = 0;
			continue;
		}
		bool back = random_chance(r, 10);
		v->strides[axes[i]] = back ? -(int64_t)step : (int64_t)step;
		if (back)
			below += (n - 1) * step;
		span += (n - 1) * step;
		if (span > most)
			return false;
	}
	uint64_t slack = most - span;
	v->offset =
	    (below + (random_chance(r, 70) ? 0 : random_below(r, slack < 100 ? slack + 1 : 100))) * size;
	return true;
}

static kops_dtype random_dtype(struct random *r)
{
	return (kops_dtype)(KOPS_F32 + random_below(r, 4));
}

/* Returns any type that the op takes. */
static kops_dtype random_dtype_of(const struct op *op, struct random *r)
{
	kops_dtype dtype;

	do
		dtype = (kops_dtype)(DTYPE_FIRST + random_below(r, DTYPE_COUNT));
	while (!op_takes(op, dtype));
	return dtype;
}

static void set_view(struct view *v, kops_dtype dtype, uint32_t rank, const uint64_t *shape)
{
	*v = (struct view){.dtype = dtype, .rank = rank};
	memcpy(v->shape, shape, rank * sizeof *shape);
}

/* ---- Ops ---- */

static double random_factor(struct random *r)
{
	static const double some[] = {0, 1, -1, 0.5, 1e-30, 1e38, 3};

	return some[random_below(r, sizeof some / sizeof some[0])];
}

static void shape_gemm(struct op_args *args, struct random *r)
{
	uint64_t batch = random_chance(r, 60) ? 1 : random_extent(r);
	bool large = random_chance(r, 20);
	uint64_t m = random_extent(r), n = random_extent(r), k = random_extent(r);
	kops_dtype dtype = random_chance(r, 40) ? KOPS_F32 : random_dtype(r);
	uint64_t a[] = {random_chance(r, 50) ? 1 : batch, m, k}, b[] = {random_chance(r, 50) ? 1 : batch, k, n};
	uint64_t c[] = {batch, m, n};
	if (large)
		a[1] = c[1] = 8 * (1 + random_below(r, 600)), b[2] = c[2] = 8 * (1 + random_below(r, 600));
	bool flat_a = a[0] == 1 && random_chance(r, 50), flat_b = b[0] == 1 && random_chance(r, 50);
	bool flat_c = batch == 1 && random_chance(r, 50);

	set_view(&args->views[0], dtype, 3 - flat_a, a + flat_a);
	set_view(&args->views[1], dtype, 3 - flat_b, b + flat_b);
	set_view(&args->views[GEMM_C], dtype, 3 - flat_c, c + flat_c);
	args->params.gemm =
	    (struct gemm_params){.alpha = random_factor(r),
	                         .beta = random_factor(r),
	                         .precision = (kops_precision)random_below(r, 4),
	                         .activation = (enum unary_function)random_below(r, GEMM_ACTIVATIONS)};
	if (random_chance(r, 50)) {
		args->views[GEMM_BIAS].dtype = dtype;
		op_fit_optional(args, GEMM_BIAS, ANY_COUNT);
	}
}

/* Adds those that the op has beside its inputs. */
static void add_optional_outputs(struct op_args *args, struct random *r)
{
	struct op_args trial = *args;
	char why[WHY_BYTES];

	if (op_result(&trial, why) < 0)
		return;
	for (unsigned v = op_first_output(args->op); v < args->op->n_operands; v++)
		if (args->op->operands[v].is_optional && random_chance(r, 70))
			args->views[v] = trial.views[v];
}

/* Gives all views one shape, or its last axes. x of a transpose has the last two axes exchanged. */
static void shape_alike(struct op_args *args, struct random *r)
{
	bool turned = strcmp(args->op->name, "transpose") == 0;
	uint32_t least = turned ? 2 : 1, rank = least + (uint32_t)random_below(r, 5 - least);
	kops_dtype dtype = random_dtype_of(args->op, r);
	uint64_t shape[4];

	for (uint32_t d = 0; d < rank; d++)
		shape[d] = random_extent(r);
	for (unsigned v = 0; v < args->op->n_operands; v++)
		if (!args->op->operands[v].is_optional)
			set_view(&args->views[v], dtype, rank, shape);
	for (unsigned v = 0; v < op_first_output(args->op); v++)
		if (args->op->operands[v].is_optional && random_chance(r, 70)) {
			args->views[v].dtype = dtype;
			op_fit_optional(args, v, ANY_COUNT);
		}
	add_optional_outputs(args, r);
	if (turned) {
		args->views[0].shape[rank - 2] = shape[rank - 1];
		args->views[0].shape[rank - 1] = shape[rank - 2];
	}
}

/* Gives an input axes of one index if its op repeats them. */
static void broadcast(struct op_args *args, unsigned v, struct random *r)
{
	struct op_args trial = *args;
	const struct view *y = op_output_const(&trial);
	struct view before = *y, *x = &trial.views[v];
	char why[WHY_BYTES];

	for (uint32_t d = 0; d < x->rank; d++)
		if (random_chance(r, 20))
			x->shape[d] = 1;
	if (op_result(&trial, why) == 0 && y->rank == before.rank &&
	    memcmp(y->shape, before.shape, y->rank * sizeof y->shape[0]) == 0)
		args->views[v] = *x;
}

/* Makes y without the last axis, or with one index there. */
static void shape_reduce(struct op_args *args, struct random *r)
{
	struct view *y = &args->views[1];

	y->dtype = strcmp(args->op->name, "arg_reduce") == 0 ? KOPS_I32 : y->dtype;
	y->shape[y->rank - 1] = 1;
	if (y->rank > 1 && random_chance(r, 50))
		y->rank--;
	op_set_attribute(args, 0, (double)random_below(r, args->op->attributes[0].n_choices));
}

/* Of all elements of a row, or fewer. Others than top_k takes are refused. */
static void shape_top_k(struct op_args *args, struct random *r)
{
	const struct view *x = &args->views[TOP_K_X];
	uint64_t n = x->shape[x->rank - 1], k = n < TOP_K_MAX ? n : TOP_K_MAX;

	k = k > 0 && random_chance(r, 70) ? 1 + random_below(r, k) : k;
	op_set_attribute(args, 0, (double)k);
	for (unsigned v = TOP_K_VALUES; v <= TOP_K_INDICES; v++)
		if (!view_is_absent(&args->views[v]))
			args->views[v].shape[x->rank - 1] = k;
}

static void shape_search(struct op_args *args, struct random *r)
{
	uint64_t queries = random_extent(r), rows = random_extent(r),
	         columns = random_below(r, SEARCH_COLUMNS_MAX + 1), k = 1 + random_below(r, SEARCH_MAX),
	         words = rows / 32 + (rows % 32 != 0);
	kops_dtype dtype = random_dtype_of(args->op, r);

	op_set_defaults(args);
	set_view(&args->views[SEARCH_QUERIES], dtype, 2, (uint64_t[]){queries, columns});
	set_view(&args->views[SEARCH_BASE], dtype, 2, (uint64_t[]){rows, columns});
	if (random_chance(r, 30))
		set_view(&args->views[SEARCH_FILTER], KOPS_I32, 1, &words);
	set_view(&args->views[SEARCH_VALUES], KOPS_F32, 2, (uint64_t[]){queries, k});
	if (random_chance(r, 70))
		set_view(&args->views[SEARCH_INDICES], KOPS_I32, 2, (uint64_t[]){queries, k});
	args->params.plain.counts[SEARCH_K] = (uint32_t)k;
	args->params.plain.counts[SEARCH_METRIC] = (uint32_t)random_below(r, 3);
}

static void shape_gather(struct op_args *args, struct random *r)
{
	uint64_t shape[] = {random_extent(r), random_extent(r), random_extent(r)};
	uint32_t axes = 1 + (uint32_t)random_below(r, 2);
	kops_dtype dtype = random_dtype_of(args->op, r);

	set_view(&args->views[0], dtype, 2, (uint64_t[]){random_extent(r), shape[axes]});
	set_view(&args->views[1], KOPS_I32, axes, shape);
	set_view(&args->views[2], dtype, axes + 1, shape);
}

static uint64_t random_depth(struct random *r)
{
	uint64_t depth = random_extent(r);

	return depth < ATTENTION_DEPTH_MAX ? depth : ATTENTION_DEPTH_MAX;
}

static void shape_attention(struct op_args *args, struct random *r)
{
	uint64_t batch = random_chance(r, 50) ? 1 : random_extent(r), shared = random_extent(r);
	uint64_t group = random_chance(r, 50) ? 1 : 1 + random_below(r, 9), heads;
	uint64_t queries = random_extent(r), keys = random_chance(r, 30) ? queries : random_extent(r);
	uint64_t depth = random_depth(r), values = random_chance(r, 50) ? depth : random_depth(r);
	uint32_t from = (uint32_t)random_below(r, 3); /* the axes that are there: all, no batch, no heads */
	kops_dtype dtype = random_dtype(r);

	if (__builtin_mul_overflow(shared, group, &heads))
		heads = shared;
	const uint64_t shapes[][4] = {[ATTENTION_Q] = {batch, heads, queries, depth},
	                              [ATTENTION_K] = {batch, shared, keys, depth},
	                              [ATTENTION_V] = {batch, shared, keys, values},
	                              [ATTENTION_MASK] = {batch, heads, queries, keys},
	                              [ATTENTION_LENGTHS] = {batch},
	                              [ATTENTION_LSE] = {batch, heads, queries},
	                              [ATTENTION_O] = {batch, heads, queries, values}};
	op_set_defaults(args);
	for (unsigned v = ATTENTION_Q; v <= ATTENTION_O; v++)
		if (v != ATTENTION_LENGTHS && (v != ATTENTION_MASK || random_chance(r, 30)))
			set_view(&args->views[v], dtype, 4 - from, shapes[v] + from);
	if (random_chance(r, 30))
		set_view(&args->views[ATTENTION_LENGTHS], KOPS_I32, 1,
		         from == 0 ? shapes[ATTENTION_LENGTHS] : (uint64_t[]){1});
	if (random_chance(r, 30))
		set_view(&args->views[ATTENTION_LSE], dtype == KOPS_F64 ? KOPS_F64 : KOPS_F32, 3 - from,
		         shapes[ATTENTION_LSE] + from);
	args->params.plain.numbers[ATTENTION_SCALE] = random_factor(r);
	args->params.plain.counts[ATTENTION_DIAGONAL] = (uint32_t)random_below(r, 3);
	args->params.plain.counts[ATTENTION_WINDOW] = random_chance(r, 30) ? (uint32_t)random_depth(r) : 0;
}

static void shape_cholesky(struct op_args *args, struct random *r)
{
	uint64_t n = random_extent(r), shape[4] = {random_extent(r), random_extent(r), n, n}, one = 1;
	uint32_t rank = 2 + (uint32_t)random_below(r, 3);
	kops_dtype dtype = random_chance(r, 50) ? KOPS_F32 : random_chance(r, 50) ? KOPS_F64 : KOPS_C128;

	set_view(&args->views[CHOLESKY_A], dtype, rank, shape + 4 - rank);
	set_view(&args->views[CHOLESKY_FACTOR], dtype, rank, shape + 4 - rank);
	if (random_chance(r, 70))
		set_view(&args->views[CHOLESKY_INFO], KOPS_I32, rank > 2 ? rank - 2 : 1,
		         rank > 2 ? shape + 4 - rank : &one);
	args->params.plain.flags[CHOLESKY_UPPER] = random_chance(r, 50);
	args->params.plain.flags[CHOLESKY_KEEP] = random_chance(r, 50);
}

static void shape_triangular_solve(struct op_args *args, struct random *r)
{
	uint64_t n = random_extent(r), shape[4] = {random_extent(r), random_extent(r), n, n};
	uint32_t rank = 2 + (uint32_t)random_below(r, 3), fewer = random_chance(r, 30) ? rank - 2 : 0;
	kops_dtype dtype = random_chance(r, 50) ? KOPS_F32 : random_chance(r, 50) ? KOPS_F64 : KOPS_C128;

	for (unsigned flag = SOLVE_UPPER; flag <= SOLVE_RIGHT; flag++)
		args->params.plain.flags[flag] = random_chance(r, 50);
	set_view(&args->views[SOLVE_A], dtype, rank - fewer, shape + 4 - rank + fewer);
	shape[args->params.plain.flags[SOLVE_RIGHT] ? 2 : 3] = random_extent(r);
	set_view(&args->views[SOLVE_B], dtype, rank, shape + 4 - rank);
	set_view(&args->views[SOLVE_X], dtype, rank, shape + 4 - rank);
}

static void shape_lu(struct op_args *args, struct random *r)
{
	uint64_t shape[4] = {random_extent(r), random_extent(r), random_extent(r), random_extent(r)}, one = 1;
	uint32_t rank = 2 + (uint32_t)random_below(r, 3);
	kops_dtype dtype = random_chance(r, 50) ? KOPS_F32 : random_chance(r, 50) ? KOPS_F64 : KOPS_C128;

	set_view(&args->views[LU_A], dtype, rank, shape + 4 - rank);
	set_view(&args->views[LU_LU], dtype, rank, shape + 4 - rank);
	shape[2] = shape[2] < shape[3] ? shape[2] : shape[3];
	if (random_chance(r, 70))
		set_view(&args->views[LU_PIVOTS], KOPS_I32, rank - 1, shape + 4 - rank);
	if (random_chance(r, 70))
		set_view(&args->views[LU_INFO], KOPS_I32, rank > 2 ? rank - 2 : 1,
		         rank > 2 ? shape + 4 - rank : &one);
}

static void shape_op(struct op_args *args, struct random *r)
{
	if (strcmp(args->op->name, "attention") == 0) {
		shape_attention(args, r);
		return;
	}
	if (strcmp(args->op->name, "gemm") == 0) {
		shape_gemm(args, r);
		return;
	}
	if (strcmp(args->op->name, "search") == 0) {
		shape_search(args, r);
		return;
	}
	if (strcmp(args->op->name, "gather") == 0) {
		shape_gather(args, r);
		return;
	}
	if (strcmp(args->op->name, "triangular_solve") == 0) {
		shape_triangular_solve(args, r);
		return;
	}
	if (strcmp(args->op->name, "lu") == 0) {
		shape_lu(args, r);
		return;
	}
	if (strcmp(args->op->name, "cholesky") == 0) {
		shape_cholesky(args, r);
		return;
	}
	op_set_defaults(args);
	shape_alike(args, r);
	if (strcmp(args->op->name, "softmax") == 0)
		args->params.softmax =
		    (struct softmax_params){.scale = random_factor(r), .log = random_chance(r, 50)};
	if (strcmp(args->op->name, "reduce") == 0 || strcmp(args->op->name, "arg_reduce") == 0)
		shape_reduce(args, r);
	if (strcmp(args->op->name, "top_k") == 0)
		shape_top_k(args, r);
	for (unsigned v = 0; v < op_first_output(args->op); v++)
		if (!view_is_absent(&args->views[v]) && random_chance(r, 30))
			broadcast(args, v, r);
}

/* ---- Jobs ---- */

static void random_buffer(struct memory *m, unsigned number, const void *owner, struct random *r)
{
	bool resident = random_chance(r, 30);

	*m = (struct memory){.bytes = (uint64_t)1 << (12 + random_below(r, BUFFER_BITS - 11))};
	m->bytes += random_chance(r, 50) ? 0 : random_below(r, 4096);
	m->owner = resident ? owner : NULL;
	m->pin = random_chance(r, 50) ? MEMORY_PINNED : MEMORY_PAGEABLE;
	m->missing_bytes = resident || random_chance(r, 50) ? 0 : random_below(r, m->bytes + 1);
	m->reached_bytes = resident || random_chance(r, 50) ? 0 : random_below(r, m->bytes + 1);
	if (!resident)
		m->host = (void *)((uintptr_t)(number + 1) << (BUFFER_BITS + 1));
}

static bool is_inside(const struct view *v, const struct memory *m)
{
	uint64_t lo, hi;

	return view_extent(v, m->bytes, &lo, &hi) == 0;
}

/* Tries once to make an op. buffers: OP_OPERANDS_MAX of its own. */
static bool random_op(struct op_args *args, struct memory *buffers, const void *owner, struct random *r)
{
	char why[WHY_BYTES];

	*args =
	    (struct op_args){.op = random_chance(r, 30) ? op_by_name("gemm") : ops[random_below(r, OP_COUNT)]};
	shape_op(args, r);
	for (unsigned v = 0; v < args->op->n_operands; v++) {
		if (view_is_absent(&args->views[v]))
			continue;
		random_buffer(&buffers[v], (unsigned)random_below(r, 100), owner, r);
		args->views[v].space = &buffers[v];
		if (!lay_out(&args->views[v], buffers[v].bytes, op_is_output(args->op, v), r) ||
		    !is_inside(&args->views[v], &buffers[v]))
			return false;
	}
	return op_check(args, why) == 0;
}

void plan_job_random(struct plan_job *job, const void *owner, struct random *r)
{
	unsigned n = random_chance(r, 80) ? 1 : 1 + (unsigned)random_below(r, JOB_OPS);

	*job = (struct plan_job){.run = {.ops = job->ops, .n_ops = n}};
	for (unsigned i = 0; i < n; i++) {
		job->ops[i].pinned = "";
		while (!random_op(&job->ops[i].args, &job->buffers[i * OP_OPERANDS_MAX], owner, r))
			;
	}
}

static size_t describe_view(const struct view *v, char *text, size_t size)
{
	const struct memory *m = v->space;
	if (view_is_absent(v))
		return (size_t)snprintf(text, size, " absent;");
	size_t used = (size_t)snprintf(text, size, " %s%s", m->owner ? "resident " : "", dtype_name(v->dtype));

	for (uint32_t d = 0; d < v->rank && used < size; d++)
		used += (size_t)snprintf(text + used, size - used, "%s%llu:%lld", d ? " x " : " ",
		                         (unsigned long long)v->shape[d], (long long)v->strides[d]);
	if (used < size)
		used += (size_t)snprintf(text + used, size - used, " at %llu of %llu;",
		                         (unsigned long long)v->offset, (unsigned long long)m->bytes);
	return used;
}

void plan_job_describe(const struct plan_job *job, unsigned i, char *text, size_t size)
{
	const struct op_args *args = &job->ops[i].args;
	size_t used = (size_t)snprintf(text, size, "%s", args->op->name);

	for (unsigned v = 0; v < args->op->n_operands && used < size; v++)
		used += describe_view(&args->views[v], text + used, size - used);
	if (used < size && strcmp(args->op->name, "gemm") == 0)
		snprintf(text + used, size - used, " alpha %g beta %g precision %d", args->params.gemm.alpha,
		         args->params.gemm.beta, (int)args->params.gemm.precision);
	if (used < size && strcmp(args->op->name, "reduce") == 0)
		snprintf(text + used, size - used, " kind %d", (int)args->params.reduce.kind);
}
