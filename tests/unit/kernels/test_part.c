/* Tests cutting ops: the parts together are the whole, for any shape, and a cut is as fine as requested. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "attention/attention.h"
#include "cholesky/cholesky.h"
#include "common/half.h"
#include "common/rules.h"
#include "gemm/gemm.h"
#include "lu/operands.h"
#include "search/search.h"
#include "seed.h"
#include "softmax/operands.h"
#include "top_k/top_k.h"
#include "triangular_solve/operands.h"

#define ELEMENTS (1u << 15) /* in each of the three pieces of memory */

static uint64_t random_state;

static uint64_t pick(uint64_t n)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (random_state >> 33) % n;
}

struct memories {
	double start[OP_OPERANDS_MAX][ELEMENTS], work[OP_OPERANDS_MAX][ELEMENTS];
};

/* Makes an f64 view, dense, with gaps, or with the axes in another order, in the middle of its memory. */
static struct view random_view(const uint64_t *shape, uint32_t rank, unsigned memory)
{
	struct view v = {
	    .dtype = KOPS_F64, .rank = rank, .space = (void *)(uintptr_t)(memory + 1), .offset = 64};

	memcpy(v.shape, shape, rank * sizeof shape[0]);
	view_make_dense(&v);
	if (rank > 2 && pick(3) == 0) /* gaps, so that axes stay apart */
		for (uint32_t d = rank - 1; d-- > 0;)
			v.strides[d] = (int64_t)v.shape[d + 1] * v.strides[d + 1] + 1;
	if (rank >= 2 && pick(3) == 0) { /* the transpose of what lies there */
		v.strides[rank - 1] = (int64_t)v.shape[rank - 2];
		v.strides[rank - 2] = 1;
	}
	return v;
}

static void random_shape(uint64_t *shape, uint32_t rank)
{
	for (uint32_t d = 0; d < rank; d++)
		shape[d] = pick(6) == 0 ? 1 : 1 + pick(rank > 2 ? 9 : 60);
}

static void make_gemm(struct op_args *args)
{
	uint64_t batch = 1 + pick(3), m = 1 + pick(30), n = 1 + pick(30), k = 1 + pick(90);

	args->views[0] = random_view((uint64_t[]){pick(2) ? batch : 1, m, k}, 3, 0);
	args->views[1] = random_view((uint64_t[]){pick(2) ? batch : 1, k, n}, 3, 1);
	args->views[GEMM_C] = random_view((uint64_t[]){batch, m, n}, 3, GEMM_C);
	args->params.gemm = (struct gemm_params){.alpha = 0.5,
	                                         .beta = pick(2) ? 0.25 : 0,
	                                         .activation = (enum unary_function)pick(GEMM_ACTIVATIONS)};
	if (pick(2))
		args->views[GEMM_BIAS] = random_view(
		    (uint64_t[]){pick(2) ? batch : 1, pick(2) ? m : 1, pick(2) ? n : 1}, 3, GEMM_BIAS);
}

/* Adds the operand if it fits. */
static void add_optional(struct op_args *args, unsigned i)
{
	args->views[i].dtype = args->views[0].dtype;
	assert_true(op_fit_optional(args, i, ANY_COUNT));
	args->views[i] = random_view(args->views[i].shape, args->views[i].rank, i);
}

/* Returns true if the op has this output beside its inputs. */
static bool has_output(const struct op_args *args, unsigned i)
{
	struct op_args trial = *args;
	char why[WHY_BYTES];

	return op_result(&trial, why) == 0 && !view_is_absent(&trial.views[i]);
}

static void make_alike(struct op_args *args)
{
	uint64_t shape[4];
	uint32_t rank = 1 + (uint32_t)pick(4);

	random_shape(shape, rank);
	op_set_defaults(args);
	for (unsigned i = 0; i < args->op->n_operands; i++)
		if (!args->op->operands[i].is_optional)
			args->views[i] = random_view(shape, rank, i);
	for (unsigned i = 0; i < op_first_output(args->op); i++)
		if (args->op->operands[i].is_optional && pick(3))
			add_optional(args, i);
	for (unsigned i = op_first_output(args->op); i < args->op->n_operands; i++)
		if (args->op->operands[i].is_optional && has_output(args, i))
			args->views[i] = random_view(shape, rank, i);
	if (args->op == &op_softmax)
		args->params.softmax.scale = 0.5;
}

static void make_transpose(struct op_args *args)
{
	uint64_t shape[4], turned[4];
	uint32_t rank = 2 + (uint32_t)pick(3);

	random_shape(shape, rank);
	memcpy(turned, shape, sizeof shape);
	turned[rank - 1] = shape[rank - 2];
	turned[rank - 2] = shape[rank - 1];
	args->views[0] = random_view(shape, rank, 0);
	args->views[1] = random_view(turned, rank, 1);
}

static void make_reduce(struct op_args *args)
{
	uint64_t shape[4];
	uint32_t rank = 1 + (uint32_t)pick(4);

	random_shape(shape, rank);
	args->views[0] = random_view(shape, rank, 0);
	shape[rank - 1] = 1;
	args->views[1] = random_view(shape, rank, 1);
	op_set_attribute(args, 0, (double)pick(args->op->attributes[0].n_choices));
	if (args->op == &op_arg_reduce)
		args->views[1].dtype = KOPS_I32;
}

static void make_top_k(struct op_args *args)
{
	uint64_t shape[4];
	uint32_t rank = 1 + (uint32_t)pick(4);

	random_shape(shape, rank);
	args->views[TOP_K_X] = random_view(shape, rank, TOP_K_X);
	shape[rank - 1] = 1 + pick(shape[rank - 1]);
	args->params.plain.counts[TOP_K_K] = (uint32_t)shape[rank - 1];
	args->params.plain.counts[TOP_K_KIND] = (uint32_t)pick(2);
	args->params.plain.counts[TOP_K_ORDER] = (uint32_t)pick(2);
	args->views[TOP_K_VALUES] = random_view(shape, rank, TOP_K_VALUES);
	if (pick(3) == 0)
		return;
	args->views[TOP_K_INDICES] = random_view(shape, rank, TOP_K_INDICES);
	args->views[TOP_K_INDICES].dtype = KOPS_I32;
}

static void make_search(struct op_args *args)
{
	uint64_t queries = 1 + pick(20), rows = 1 + pick(60), columns = 1 + pick(9), k = 1 + pick(8);
	uint64_t words = (rows + 31) / 32;

	op_set_defaults(args);
	args->params.plain.counts[SEARCH_K] = (uint32_t)k;
	args->params.plain.counts[SEARCH_METRIC] = (uint32_t)pick(3);
	args->views[SEARCH_QUERIES] = random_view((uint64_t[]){queries, columns}, 2, SEARCH_QUERIES);
	args->views[SEARCH_BASE] = random_view((uint64_t[]){rows, columns}, 2, SEARCH_BASE);
	if (pick(2)) {
		args->views[SEARCH_FILTER] = random_view(&words, 1, SEARCH_FILTER);
		args->views[SEARCH_FILTER].dtype = KOPS_I32;
	}
	args->views[SEARCH_VALUES] = random_view((uint64_t[]){queries, k}, 2, SEARCH_VALUES);
	args->views[SEARCH_INDICES] = random_view((uint64_t[]){queries, k}, 2, SEARCH_INDICES);
	args->views[SEARCH_INDICES].dtype = KOPS_I32;
	for (unsigned v = SEARCH_QUERIES; v <= SEARCH_VALUES; v++)
		if (v != SEARCH_FILTER)
			args->views[v].dtype = KOPS_F32;
}

static void make_cholesky(struct op_args *args)
{
	uint64_t n = 1 + pick(30), shape[4] = {1 + pick(3), 1 + pick(4), n, n}, one = 1;
	uint32_t rank = 2 + (uint32_t)pick(3);

	op_set_defaults(args);
	for (unsigned i = 0; i < args->op->n_attributes; i++)
		op_set_attribute(args, i, (double)pick(2));
	args->views[CHOLESKY_A] = random_view(shape + 4 - rank, rank, CHOLESKY_A);
	args->views[CHOLESKY_FACTOR] = random_view(shape + 4 - rank, rank, CHOLESKY_FACTOR);
	if (pick(4) == 0) {
		args->views[CHOLESKY_FACTOR] = args->views[CHOLESKY_A];
		return;
	}
	args->views[CHOLESKY_INFO] =
	    random_view(rank > 2 ? shape + 4 - rank : &one, rank > 2 ? rank - 2 : 1, CHOLESKY_INFO);
	args->views[CHOLESKY_INFO].dtype = KOPS_I32;
}

static void make_triangular_solve(struct op_args *args)
{
	uint64_t n = 1 + pick(30), columns = 1 + pick(20), shape[4] = {1 + pick(3), 1 + pick(3), n, n};
	uint32_t rank = 2 + (uint32_t)pick(3), fewer = pick(3) ? 0 : rank - 2;

	op_set_defaults(args);
	for (unsigned i = 0; i < args->op->n_attributes; i++)
		op_set_attribute(args, i, (double)pick(2));
	args->views[SOLVE_A] = random_view(shape + 4 - rank + fewer, rank - fewer, SOLVE_A);
	shape[args->params.plain.flags[SOLVE_RIGHT] ? 2 : 3] = columns;
	args->views[SOLVE_B] = random_view(shape + 4 - rank, rank, SOLVE_B);
	args->views[SOLVE_X] = pick(3) ? random_view(shape + 4 - rank, rank, SOLVE_X) : args->views[SOLVE_B];
}

static void make_lu(struct op_args *args)
{
	uint64_t m = 1 + pick(30), n = 1 + pick(30), shape[4] = {1 + pick(3), 1 + pick(4), m, n}, one = 1;
	uint32_t rank = 2 + (uint32_t)pick(3);

	args->views[LU_A] = random_view(shape + 4 - rank, rank, LU_A);
	args->views[LU_LU] = pick(3) ? random_view(shape + 4 - rank, rank, LU_LU) : args->views[LU_A];
	shape[2] = m < n ? m : n;
	args->views[LU_PIVOTS] = random_view(shape + 4 - rank, rank - 1, LU_PIVOTS);
	args->views[LU_INFO] =
	    random_view(rank > 2 ? shape + 4 - rank : &one, rank > 2 ? rank - 2 : 1, LU_INFO);
	args->views[LU_PIVOTS].dtype = args->views[LU_INFO].dtype = KOPS_I32;
}

static void make_gather(struct op_args *args)
{
	uint64_t shape[3];
	uint32_t axes = 1 + (uint32_t)pick(2);

	random_shape(shape, 3);
	args->views[0] = random_view((uint64_t[]){1 + pick(60), shape[axes]}, 2, 0);
	args->views[1] = random_view(shape, axes, 1);
	args->views[1].dtype = KOPS_I32;
	args->views[2] = random_view(shape, axes + 1, 2);
}

static void make_attention(struct op_args *args)
{
	uint64_t batch = 1 + pick(3), shared = 1 + pick(2), heads = shared * (1 + pick(2));
	uint64_t queries = 1 + pick(20), keys = 1 + pick(20), depth = 1 + pick(5);

	op_set_defaults(args);
	args->views[ATTENTION_Q] = random_view((uint64_t[]){batch, heads, queries, depth}, 4, ATTENTION_Q);
	args->views[ATTENTION_K] = random_view((uint64_t[]){batch, shared, keys, depth}, 4, ATTENTION_K);
	args->views[ATTENTION_V] = random_view((uint64_t[]){batch, shared, keys, depth}, 4, ATTENTION_V);
	args->views[ATTENTION_O] = random_view((uint64_t[]){batch, heads, queries, depth}, 4, ATTENTION_O);
	if (pick(2))
		args->views[ATTENTION_MASK] = random_view((uint64_t[]){queries, keys}, 2, ATTENTION_MASK);
	if (pick(2)) {
		args->views[ATTENTION_LENGTHS] = random_view(&batch, 1, ATTENTION_LENGTHS);
		args->views[ATTENTION_LENGTHS].dtype = KOPS_I32;
	}
	if (pick(2))
		args->views[ATTENTION_LSE] = random_view((uint64_t[]){batch, heads, queries}, 3, ATTENTION_LSE);
	args->params.plain.counts[ATTENTION_DIAGONAL] = (uint32_t)pick(3);
	args->params.plain.counts[ATTENTION_WINDOW] = pick(2) ? 0 : 1 + (uint32_t)pick(9);
}

/* Makes add, softmax and reduce in f32, in the same memory. */
static void make(const struct op *op, struct op_args *args)
{
	char why[WHY_BYTES];

	*args = (struct op_args){.op = op};
	if (op == &op_gemm)
		make_gemm(args);
	else if (op == &op_transpose)
		make_transpose(args);
	else if (op == &op_reduce || op == &op_arg_reduce)
		make_reduce(args);
	else if (op == &op_attention)
		make_attention(args);
	else if (op == &op_top_k)
		make_top_k(args);
	else if (op == &op_search)
		make_search(args);
	else if (op == &op_gather)
		make_gather(args);
	else if (op == &op_cholesky)
		make_cholesky(args);
	else if (op == &op_lu)
		make_lu(args);
	else if (op == &op_triangular_solve)
		make_triangular_solve(args);
	else
		make_alike(args);
	for (unsigned i = 0; i < op->n_operands; i++)
		if ((op == &op_add || op == &op_softmax || op == &op_reduce) &&
		    !view_is_absent(&args->views[i]))
			args->views[i].dtype = KOPS_F32;
	if (op_check(args, why) < 0)
		fail_msg("%s: %s", op->name, why);
}

/* Of 60 indices two or more are out of range. */
static void fill_indices(struct memories *m, const struct op_args *args)
{
	for (unsigned v = 0; v < args->op->n_operands; v++)
		for (unsigned e = 0; op_index_limit(args, v) > 0 && e < ELEMENTS; e++)
			((int32_t *)m->start[v])[e] = (int32_t)pick(op_index_limit(args, v) + 2) - 1;
}

static void fill(struct memories *m, kops_dtype dtype)
{
	for (unsigned i = 0; i < OP_OPERANDS_MAX; i++)
		for (unsigned e = 0; e < ELEMENTS; e++) {
			double v = (double)pick(2000) / 1000 - 1;
			if (dtype == KOPS_F64)
				m->start[i][e] = v;
			else
				((float *)m->start[i])[e] = (float)v;
		}
}

static void enlarge_diagonals(struct memories *m, const struct op_args *args)
{
	for (unsigned v = 0; v < args->op->n_operands; v++) {
		struct view view = args->views[v];

		view.data = (char *)m->start[v] + view.offset;
		if (args->op->operands[v].has_large_diagonal && pick(8))
			op_enlarge_diagonals(&view);
	}
}

static void point(struct op_args *args, struct memories *m)
{
	memcpy(m->work, m->start, sizeof m->work);
	for (unsigned i = 0; i < args->op->n_operands; i++) {
		if (view_is_absent(&args->views[i]))
			continue;
		unsigned memory = (unsigned)(uintptr_t)args->views[i].space - 1;
		args->views[i].data = (char *)m->work[memory] + args->views[i].offset;
	}
}

static double at(const struct memories *m, unsigned memory, unsigned element, kops_dtype dtype)
{
	return dtype == KOPS_F64 ? m->work[memory][element] : (double)((const float *)m->work[memory])[element];
}

/* Infinities and other types than this one are right if they have the same bits. */
static bool is_near(const struct memories *a, const struct memories *b, unsigned memory, unsigned element,
                    kops_dtype dtype, double tolerance)
{
	size_t size = dtype_size(dtype);

	return memcmp((const char *)a->work[memory] + element * size,
	              (const char *)b->work[memory] + element * size, size) == 0 ||
	       fabs(at(a, memory, element, dtype) - at(b, memory, element, dtype)) <= tolerance;
}

static bool is_index(const struct op_args *args, unsigned memory)
{
	return memory < args->op->n_operands && args->op->operands[memory].is_index;
}

static void compare(const struct op_args *args, const struct memories *whole, const struct memories *parts,
                    double tolerance)
{
	kops_dtype dtype = args->views[0].dtype;

	for (unsigned i = 0; i < OP_OPERANDS_MAX; i++)
		for (unsigned e = 0; e < ELEMENTS && !is_index(args, i); e++)
			if (!is_near(whole, parts, i, e, dtype, tolerance))
				fail_msg("%s: element %u of memory %u is %g in parts, %g as a whole",
				         args->op->name, e, i, at(parts, i, e, dtype), at(whole, i, e, dtype));
}

static bool takes_all(const struct op_args *args, const char **ret_why_not)
{
	(void)args;
	(void)ret_why_not;
	return true;
}

/* Every element takes equally long. */
static double work_ns(const struct op_args *args)
{
	struct cost cost;

	args->op->cost(args, &cost);
	return cost.flops + cost.bytes / 1e3;
}

static int run_reference(const struct op_args *args, const struct launch *launch)
{
	(void)launch;
	args->op->reference(args);
	return 0;
}

static const struct kernel carrying = {
    .supports = takes_all, .time_ns = work_ns, .launch = run_reference, .carries = true};
static const struct kernel forgetful = {.supports = takes_all, .time_ns = work_ns, .launch = run_reference};

#define CARRIED_MAX 4096

static double kernel_ns(const void *on, const struct kernel *kernel, const struct op_args *args)
{
	(void)on;
	return kernel->time_ns(args);
}

/* Cuts into parts of a share of the op's time. */
static double cut_by(const struct kernel *kernel, const struct op_args *args, double wanted,
                     uint64_t carried_max, struct op_cut *ret)
{
	const struct part_limits limits = {kernel_ns, NULL, kernel->time_ns(args) / wanted, carried_max};

	return kernel_cut(kernel, args, &limits, ret);
}

/* Checks that data is where offsets say. */
static void check_places(const struct op_args *args, const struct op_cut *cut, uint32_t i)
{
	struct op_args part;

	op_part(args, cut, i, &part);
	for (unsigned v = 0; v < args->op->n_operands; v++)
		if (part.views[v].space == args->views[v].space)
			assert_int_equal((char *)part.views[v].data - (char *)args->views[v].data,
			                 part.views[v].offset - args->views[v].offset);
}

static int never(const struct view *from, const struct view *to, const struct launch *launch)
{
	(void)from;
	(void)to;
	(void)launch;
	fail_msg("an f32 output is converted");
	return -1;
}

/* Cuts into some number of parts, whatever the time. */
static void cut_anyhow(const struct op_args *args, struct op_cut *cut)
{
	cut_by(&carrying, args, (double)(1 + pick(40)), pick(2) ? CARRIED_MAX : 64, cut);
}

static void test_the_parts_are_the_whole(void **state)
{
	static struct memories whole, parts;
	static _Alignas(64) char carried[CARRIED_MAX];
	const struct launch launch = {0};
	unsigned in_steps = 0, both_ways = 0;

	(void)state;
	random_state = seed_of_run();
	for (int round = 0; round < 600; round++) {
		struct op_args args;
		struct op_cut cut;

		make(ops[round % OP_COUNT], &args);
		fill(&whole, args.views[0].dtype);
		fill_indices(&whole, &args);
		enlarge_diagonals(&whole, &args);
		memcpy(parts.start, whole.start, sizeof whole.start);
		cut_anyhow(&args, &cut);
		in_steps += cut.n_steps > 1;
		both_ways += cut.n_steps > 1 && cut.n_parts > cut.n_steps;
		point(&args, &whole);
		args.op->reference(&args);
		point(&args, &parts);
		args.carried = carried;
		for (uint32_t i = 0; i < cut.n_parts; i++) {
			check_places(&args, &cut, i);
			assert_int_equal(kernel_launch_part(&carrying, &args, &cut, i, &launch, never), 0);
		}
		/* Along K sums are rounded once more for each part; those of reduce are rounded to f32. */
		compare(&args, &whole, &parts,
		        args.op == &op_gemm                               ? 1e-13
		        : args.op == &op_reduce || args.op == &op_softmax ? 1e-5
		        : args.op->bounds || args.op->residual            ? 1e-12
		                                                          : 0);
	}
	assert_true(in_steps > 50 && both_ways > 5);
}

/* ---- Parts that grow ---- */

/* Returns the offset of element i, in row-major order, from the start of the view's memory. */
static size_t element_at(const struct view *v, uint64_t i)
{
	int64_t at = (int64_t)v->offset;

	for (uint32_t d = v->rank; d-- > 0; i /= v->shape[d])
		at += (int64_t)(i % v->shape[d]) * v->strides[d] * (int64_t)dtype_size(v->dtype);
	return (size_t)at;
}

static uint64_t copy_elements(const struct view *v, const struct memories *from, struct memories *to)
{
	unsigned memory = (unsigned)(uintptr_t)v->space - 1;
	uint64_t n = view_elements(v);

	for (uint64_t i = 0; i < n; i++)
		memcpy((char *)to->work[memory] + element_at(v, i),
		       (const char *)from->start[memory] + element_at(v, i), dtype_size(v->dtype));
	return n;
}

/* in_steps: sums are rounded once more for each of them. */
static void compare_outputs(const struct op_args *args, const struct memories *whole,
                            const struct memories *parts, bool in_steps)
{
	const struct view *y = op_output_const(args);
	unsigned memory = (unsigned)(uintptr_t)y->space - 1;

	for (uint64_t i = 0; i < view_elements(y); i++) {
		size_t offset = element_at(y, i), size = dtype_size(y->dtype);
		unsigned e = (unsigned)(offset / size);

		if (in_steps)
			assert_true(
			    is_near(whole, parts, memory, e, y->dtype, y->dtype == KOPS_F64 ? 1e-13 : 1e-4));
		else
			assert_memory_equal((const char *)whole->work[memory] + offset,
			                    (const char *)parts->work[memory] + offset, size);
	}
}

/* Gives a part what is fresh, and checks that then all of its inputs are there. */
static void take_fresh(const struct op_args *args, const struct op_cut *cut, uint32_t i,
                       const struct memories *whole, struct memories *kept)
{
	struct op_args part, fresh;

	assert_int_equal(op_part_fresh(args, cut, i, &fresh), i >= cut->first_parts);
	if (i < cut->first_parts)
		return;
	op_part(args, cut, i, &part);
	for (unsigned v = 0; v < args->op->n_operands; v++) {
		assert_true(view_is_absent(&fresh.views[v]) || !op_is_output(args->op, v));
		if (!view_is_absent(&fresh.views[v]))
			copy_elements(&fresh.views[v], whole, kept);
	}
	for (unsigned v = 0; v < op_first_output(args->op); v++) {
		const struct view *view = &part.views[v];
		unsigned memory = (unsigned)(uintptr_t)view->space - 1;

		for (uint64_t e = 0; !view_is_absent(view) && e < view_elements(view); e++)
			assert_memory_equal((const char *)kept->work[memory] + element_at(view, e),
			                    (const char *)whole->start[memory] + element_at(view, e),
			                    dtype_size(view->dtype));
	}
}

/* With nothing in its operands but what is new in each part: that is all that the parts need. */
static void test_parts_that_grow_need_what_is_new(void **state)
{
	static struct memories whole, parts, kept;
	bool grew[OP_COUNT] = {false};
	unsigned two_axes = 0, in_steps = 0;

	(void)state;
	random_state = seed_of_run();
	for (int round = 0; round < 800; round++) {
		struct op_args args, part;
		struct op_cut cut;
		uint64_t written = 0;

		make(ops[round % OP_COUNT], &args);
		const struct growth how = {2 + (unsigned)pick(20), pow(4, (double)pick(5) - 2),
		                           (double)(pick(2) * pick(10)) / 10, (double)(pick(2) * pick(10)) / 10,
		                           (unsigned)pick(6)};
		if (!op_cut_growing(&args, &how, &cut))
			continue;
		assert_true(cut.n_parts > 1 && cut.n_parts <= GROWING_PARTS_MAX && cut.n_steps == 1);
		grew[round % OP_COUNT] = true;
		two_axes += cut.axes[1].n > 1 && cut.axes[2].n > 1;
		fill(&whole, args.views[0].dtype);
		fill_indices(&whole, &args);
		enlarge_diagonals(&whole, &args);
		point(&args, &whole);
		args.op->reference(&args);
		point(&args, &parts);
		memset(parts.work, 0xff, sizeof parts.work); /* NaN */
		memset(kept.work, 0xff, sizeof kept.work);
		for (uint32_t i = 0; i < cut.n_parts; i++) {
			unsigned news = op_part_news(&args, &cut, i);

			take_fresh(&args, &cut, i, &whole, &kept);

			op_part(&args, &cut, i, &part);
			for (unsigned v = 0; v < args.op->n_operands; v++)
				if (news >> v & 1 && op_reads(&args, v))
					copy_elements(&part.views[v], &whole, &parts);
			args.op->reference(&part);
			if (op_part_results(&args, &cut, i))
				written += view_elements(op_output_const(&part));
			check_places(&args, &cut, i);
		}
		assert_int_equal(written, view_elements(op_output_const(&args)));
		compare_outputs(&args, &whole, &parts, cut.first_parts > 1);
		in_steps += cut.first_parts > 1;
	}
	for (unsigned op = 0; op < OP_COUNT; op++)
		assert_true(grew[op] && ops[op]->n_part_axes <= PART_AXES_MAX);
	assert_true(two_axes > 20 && in_steps > 20);
}

/* Returns true if each axis of each op was cut. */
static bool all_were_cut(const bool cuts[OP_COUNT][KOPS_RANK_MAX])
{
	for (unsigned index = 0; index < OP_COUNT; index++)
		for (unsigned axis = 0; axis < ops[index]->n_part_axes; axis++)
			if (!cuts[index][axis])
				return false;
	return true;
}

/* Makes every axis the longest now and then, since only the longest is cut. */
static void test_any_axis_may_be_cut(void **state)
{
	static struct memories whole, parts;
	bool cuts[OP_COUNT][KOPS_RANK_MAX] = {{false}};
	unsigned round;

	(void)state;
	random_state = seed_of_run();
	for (round = 0; round < 5000 && !all_were_cut(cuts); round++) {
		unsigned index = round % OP_COUNT;
		struct op_args args, part;

		make(ops[index], &args);
		fill(&whole, args.views[0].dtype);
		fill_indices(&whole, &args);
		enlarge_diagonals(&whole, &args);
		memcpy(parts.start, whole.start, sizeof whole.start);
		point(&args, &whole);
		args.op->reference(&args);
		for (unsigned axis = 0; axis < args.op->n_part_axes; axis++) {
			unsigned output = op_first_output(args.op);
			uint64_t extent = args.views[output].shape[args.op->part_axes[axis].axis[output]];
			uint64_t chunk = 1 + pick(extent);
			struct op_cut cut = {.n_parts = (uint32_t)((extent + chunk - 1) / chunk), .n_steps = 1};

			cut.axes[axis].n = cut.n_parts;
			cut.axes[axis].chunk = chunk;

			point(&args, &parts);
			for (uint32_t i = 0; i < cut.n_parts; i++) {
				op_part(&args, &cut, i, &part);
				args.op->reference(&part);
			}
			compare(&args, &whole, &parts, 0);
			cuts[index][axis] |= cut.n_parts > 1;
		}
	}
	assert_true(round < 5000);
}

static struct op_args dense(const struct op *op, uint64_t rows, uint64_t cols)
{
	struct op_args args = {.op = op};
	char why[WHY_BYTES];

	for (unsigned i = 0; i < op->n_operands; i++)
		args.views[i] = random_view((uint64_t[]){rows, cols}, 2, i), view_make_dense(&args.views[i]);
	assert_int_equal(op_check(&args, why), 0);
	return args;
}

static struct op_args product(kops_dtype dtype, uint64_t m, uint64_t n, uint64_t k)
{
	const uint64_t shapes[][2] = {[GEMM_A] = {m, k}, [GEMM_B] = {k, n}, [GEMM_C] = {m, n}};
	struct op_args args = {.op = &op_gemm, .params.gemm.alpha = 1};
	char why[WHY_BYTES];

	for (unsigned v = 0; v <= GEMM_C; v++) {
		if (v == GEMM_BIAS)
			continue;
		args.views[v] = random_view(shapes[v], 2, v);
		args.views[v].dtype = dtype;
		view_make_dense(&args.views[v]);
	}
	assert_int_equal(op_check(&args, why), 0);
	return args;
}

/* After check() gemm's views have three axes. */
static struct op_args batch_of(uint64_t n, struct op_args one)
{
	for (unsigned v = 0; v <= GEMM_C; v++) {
		if (v == GEMM_BIAS)
			continue;
		one.views[v].shape[0] = n;
		view_make_dense(&one.views[v]);
	}
	return one;
}

static void test_how_cuts_grow(void **state)
{
	const struct growth even = {.wanted = 16, .skew = 1}, skewed = {.wanted = 16, .skew = 3},
	                    in_steps = {8, 1, 0.5, 0.75, 8};
	struct op_args args = product(KOPS_F32, 8192, 8192, 8192), part;
	struct op_cut cut;

	(void)state;
	/* A square product: rows of A and columns of B by turns. */
	assert_true(op_cut_growing(&args, &even, &cut));
	assert_true(cut.axes[0].n <= 1 && cut.axes[1].n == 8 && cut.axes[2].n == 8);
	assert_int_equal(cut.n_parts, 15);
	assert_int_equal(op_part_news(&args, &cut, 0),
	                 1 << GEMM_A | 1 << GEMM_B | 1 << GEMM_BIAS | 1 << GEMM_C);
	assert_int_equal(op_part_news(&args, &cut, 1), 1 << GEMM_A | 1 << GEMM_C);
	assert_int_equal(op_part_news(&args, &cut, 2), 1 << GEMM_B | 1 << GEMM_C);
	op_part(&args, &cut, 13, &part);
	assert_int_equal(part.views[GEMM_C].shape[1], 1024);
	assert_int_equal(part.views[GEMM_C].shape[2], 7 * 1024);
	op_part(&args, &cut, 14, &part);
	assert_int_equal(part.views[GEMM_C].shape[1], 8192);
	assert_int_equal(part.views[GEMM_C].shape[2], 1024);
	assert_true(op_cut_growing(&args, &skewed, &cut));
	assert_true(cut.axes[1].n == 11 && cut.axes[2].n == 4);
	/* Half of the rows and three quarters of the columns first, in steps of K; then chunks of the rest. */
	assert_true(op_cut_growing(&args, &in_steps, &cut));
	assert_true(cut.axes[1].n == 5 && cut.axes[1].first == 4096 && cut.axes[1].chunk == 1024);
	assert_true(cut.axes[2].n == 5 && cut.axes[2].first == 6144 && cut.axes[2].chunk == 512);
	assert_true(cut.first_parts == 8 && cut.n_parts == 16);
	assert_int_equal(op_part_news(&args, &cut, 0), 1 << GEMM_A | 1 << GEMM_B | 1 << GEMM_C);
	assert_int_equal(op_part_news(&args, &cut, 7), 1 << GEMM_A | 1 << GEMM_B);
	assert_int_equal(op_part_results(&args, &cut, 6), 0);
	assert_true(op_part_results(&args, &cut, 7) >> GEMM_C & 1);
	op_part(&args, &cut, 7, &part);
	assert_int_equal(part.views[GEMM_A].shape[1], 4096);
	assert_int_equal(part.views[GEMM_A].shape[2], 1024);
	op_part(&args, &cut, 8, &part);
	assert_int_equal(part.views[GEMM_A].shape[1], 1024);
	assert_int_equal(part.views[GEMM_A].shape[2], 8192);
	assert_int_equal(part.views[GEMM_C].shape[2], 6144);
	/* Of a batch, products by products. */
	args = batch_of(64, product(KOPS_F32, 256, 256, 256));
	assert_true(op_cut_growing(&args, &even, &cut));
	assert_true(cut.axes[0].n == 16 && cut.axes[1].n <= 1 && cut.axes[2].n <= 1);
	/* With one matrix for all of the batch, that comes in parts too, small as it is. */
	args.views[1].strides[0] = 0;
	assert_true(op_cut_growing(&args, &even, &cut));
	assert_true(cut.axes[0].n > 10 && cut.axes[1].n <= 1);
	/* Of one element there are no parts. */
	args = dense(&op_copy, 1, 1);
	assert_false(op_cut_growing(&args, &even, &cut));
}

static void cut_into(const struct op_args *args, double wanted, struct op_cut *ret)
{
	cut_by(&carrying, args, wanted, CARRIED_MAX, ret);
}

/* Of the axis that is cut; 0 where none is. */
static uint64_t chunk_of(const struct op_cut *cut)
{
	for (unsigned axis = 0; axis < PART_AXES_MAX; axis++)
		if (cut->axes[axis].n > 1)
			return cut->axes[axis].chunk;
	return 0;
}

static void test_how_finely(void **state)
{
	struct op_args args = dense(&op_copy, 4096, 4096), one = product(KOPS_F64, 1, 1, 1ull << 31),
	               empty = dense(&op_copy, 0, 7);
	struct op_cut cut;

	(void)state;
	cut_into(&args, 1, &cut);
	assert_int_equal(cut.n_parts, 1);
	cut_into(&args, 0.01, &cut);
	assert_int_equal(cut.n_parts, 1);
	cut_into(&args, (double)NAN, &cut);
	assert_int_equal(cut.n_parts, 1);
	cut_into(&args, 1.5, &cut);
	assert_int_equal(cut.n_parts, 2);
	assert_int_equal(chunk_of(&cut), 4096 * 4096 / 2);
	cut_into(&args, 10, &cut);
	assert_true(cut.n_parts >= 10 && cut.n_parts <= 11 && cut.share <= 0.1);
	assert_int_equal(chunk_of(&cut) % 256, 0);
	cut_into(&empty, 1e9, &cut);
	assert_int_equal(cut.n_parts, 1);
	/* The steps of a single product follow each other. */
	cut_into(&one, 360, &cut);
	assert_int_equal(chunk_of(&cut), 0);
	assert_true(cut.n_steps == cut.n_parts && cut.n_parts >= 360 && cut.n_parts <= 380);
	cut_into(&one, 1e300, &cut);
	assert_true(cut.n_parts > 1);
}

/* With chunks of 512, a rest of up to an eighth joins the last one. */
static void test_a_small_rest_is_no_part(void **state)
{
	struct op_args small = dense(&op_copy, 1, 4 * 512 + 64), large = dense(&op_copy, 1, 4 * 512 + 65), part;
	struct op_cut cut;

	(void)state;
	cut_into(&small, 3.6, &cut);
	assert_int_equal(chunk_of(&cut), 512);
	assert_int_equal(cut.n_parts, 4);
	op_part(&small, &cut, 3, &part);
	assert_int_equal(view_elements(&part.views[0]), 512 + 64);
	cut_into(&large, 3.6, &cut);
	assert_int_equal(chunk_of(&cut), 512);
	assert_int_equal(cut.n_parts, 5);
	op_part(&large, &cut, 4, &part);
	assert_int_equal(view_elements(&part.views[0]), 65);
}

/* With few rows the axis alone is too short. */
static void test_blocks_are_cut_along_their_steps(void **state)
{
	struct op_args args = product(KOPS_F64, 16, 1, 1000);
	struct op_cut cut;

	(void)state;
	cut_into(&args, 5000, &cut);
	assert_int_equal(cut.n_parts, 16 * cut.n_steps);
	assert_true(cut.share <= 1 / 5000.0);
}

/* Works in tiles of 128 rows: fewer rows take as long. */
static double tiles_ns(const struct op_args *args)
{
	const uint64_t *shape = op_output_const(args)->shape;

	return ceil((double)shape[1] / 128) * (double)shape[2] * (double)args->views[0].shape[2] + 1;
}

/* 300 rows are not cut one by one but along K. */
static void test_parts_are_as_short_as_the_kernel_says(void **state)
{
	static const struct kernel tiled = {.supports = takes_all, .time_ns = tiles_ns, .carries = true};
	struct op_args args = product(KOPS_F16, 300, 1, 1 << 20);
	struct op_cut cut;
	double times = cut_by(&tiled, &args, 200, CARRIED_MAX, &cut);

	(void)state;
	assert_true(cut.n_steps >= 200 && cut.share <= 1 / 200.0);
	assert_int_equal(cut.carried_bytes, 300 * sizeof(float));
	assert_true(times >= 1 && times < 1.1);
}

#define ONES 3000u /* f16 has no 2049: added one by one they would make 2048 */

/* Computes the sum of ONES ones, by a product or a reduction. */
static struct op_args sum_of_ones(const struct op *op)
{
	static _Alignas(16) uint16_t ones[ONES], y;
	struct op_args args = {.op = op};
	char why[WHY_BYTES];

	for (unsigned i = 0; i < ONES; i++)
		half_store(ones, KOPS_F16, i, 1);
	for (unsigned v = 0; v < op->n_operands; v++)
		args.views[v] = (struct view){.dtype = KOPS_F16, .rank = 2, .shape = {1, 1}, .data = ones};
	args.views[0].shape[1] = ONES;
	op_output(&args)->data = &y;
	op_output(&args)->space = &y;
	if (op == &op_gemm)
		args.views[1].shape[0] = ONES;
	args.params.gemm.alpha = op == &op_gemm;
	for (unsigned v = 0; v < op->n_operands; v++)
		view_make_dense(&args.views[v]);
	assert_int_equal(op_check(&args, why), 0);
	return args;
}

static unsigned conversions;

static int convert_one(const struct view *from, const struct view *to, const struct launch *launch)
{
	(void)launch;
	conversions++;
	half_store(to->data, to->dtype, 0, half_load(from->data, from->dtype, 0));
	return 0;
}

/* beta: a factor of the output, which holds 2. */
static double sum_in_parts(const struct op *op, double beta)
{
	struct op_args args = sum_of_ones(op);
	struct view *y = op_output(&args);
	const struct launch launch = {0};
	struct op_cut cut;
	float sum = NAN;

	if (op == &op_gemm)
		args.params.gemm.beta = beta;
	half_store(y->data, y->dtype, 0, 2);
	cut_into(&args, ONES / 10, &cut);
	assert_true(cut.n_parts >= ONES / 10);
	assert_int_equal(cut.carried_bytes, sizeof sum);
	args.carried = &sum;
	conversions = 0;
	for (uint32_t p = 0; p < cut.n_parts; p++)
		assert_int_equal(kernel_launch_part(&carrying, &args, &cut, p, &launch, convert_one), 0);
	assert_int_equal(conversions, beta != 0 ? 2 : 1);
	return half_load(y->data, y->dtype, 0);
}

static void test_16_bit_sums_are_not_rounded_between_parts(void **state)
{
	(void)state;
	assert_true(sum_in_parts(&op_gemm, 0) == ONES);
	assert_true(sum_in_parts(&op_gemm, 500) == ONES + 1000);
	assert_true(sum_in_parts(&op_reduce, 0) == ONES);
}

static void test_kernels_that_do_not_carry_are_left_whole(void **state)
{
	struct op_args args = sum_of_ones(&op_gemm);
	struct op_cut cut;

	(void)state;
	cut_by(&forgetful, &args, 100, CARRIED_MAX, &cut);
	assert_int_equal(cut.n_parts, 1);
	assert_true(cut.share == 1);
	cut_by(&carrying, &args, 100, sizeof(float) - 1, &cut);
	assert_int_equal(cut.n_parts, 1);
}

static bool takes_one_type(const struct op_args *args, const char **ret_why_not)
{
	(void)ret_why_not;
	return op_output_const(args)->dtype == args->views[0].dtype;
}

/* A kernel whose parts may be wide, but not these: the op is cut by rows instead. */
static void test_where_parts_cannot_be_wide_they_are_narrow(void **state)
{
	const struct kernel narrow = {.supports = takes_one_type, .time_ns = work_ns, .carries = true};
	struct op_args args = sum_of_ones(&op_gemm);
	struct op_cut cut;

	(void)state;
	args.views[0].shape[0] = op_output(&args)->shape[0] = 64;
	args.views[0].strides[0] = 0;
	cut_into(&args, 1000, &cut);
	assert_true(cut.n_steps > 1);
	cut_by(&narrow, &args, 1000, CARRIED_MAX, &cut);
	assert_int_equal(cut.n_steps, 1);
	assert_int_equal(cut.n_parts, 64);
}

/* The largest number needs no rounding, so nothing is carried. */
static void test_16_bit_maxima_carry_nothing(void **state)
{
	struct op_args args = sum_of_ones(&op_reduce);
	struct op_cut cut;

	(void)state;
	args.params.reduce.kind = KOPS_MAX;
	cut_into(&args, 100, &cut);
	assert_true(cut.n_parts >= 100 && cut.carried_bytes == 0);
}

/* Carrying everything for all rows and columns would be too much, so blocks of rows follow each other. */
static void test_what_parts_carry_is_bounded(void **state)
{
	static const struct kernel tiled = {.supports = takes_all, .time_ns = tiles_ns, .carries = true};
	struct op_args args = product(KOPS_BF16, 128, 64, 1 << 20);
	struct op_cut cut;

	(void)state;
	cut_by(&tiled, &args, 1000, CARRIED_MAX, &cut);
	assert_true(cut.n_parts > cut.n_steps && cut.n_steps > 1 && cut.carried_bytes <= CARRIED_MAX);
}

/* The last block may be larger than the others. */
static void test_the_last_block_has_room_for_what_it_carries(void **state)
{
	static const struct kernel tiled = {.supports = takes_all, .time_ns = tiles_ns, .carries = true};
	struct op_args args = product(KOPS_F16, 17, 7, 1 << 16), block;
	struct op_cut cut;

	(void)state;
	cut_by(&tiled, &args, 10, 256, &cut);
	assert_true(cut.n_parts > cut.n_steps && cut.n_steps > 1);
	for (uint32_t i = 0; i < cut.n_parts; i++) {
		op_tile(&args, &cut, i, &block);
		assert_true(view_elements(op_output_const(&block)) * sizeof(float) <= cut.carried_bytes);
	}
}

/* A row of a softmax is cut into sums, then results. */
static void test_a_row_is_cut_in_two_passes(void **state)
{
	struct view row = random_view((uint64_t[]){1, 1 << 14}, 2, 0);
	struct op_args args = {.op = &op_softmax, .params.softmax.scale = 1}, part;
	char why[WHY_BYTES];
	struct op_cut cut;

	(void)state;
	row.dtype = KOPS_F16;
	view_make_dense(&row);
	args.views[SOFTMAX_X] = args.views[SOFTMAX_Y] = row;
	assert_int_equal(op_check(&args, why), 0);
	cut_into(&args, 10, &cut);
	assert_true(cut.n_parts >= 10 && cut.n_parts % 2 == 0);
	assert_int_equal(cut.carried_bytes, sizeof(struct softmax_partial));
	for (uint32_t i = 0; i < cut.n_parts; i++) {
		op_part(&args, &cut, i, &part);
		assert_int_equal(part.params.softmax.pass, i < cut.n_parts / 2 ? SOFTMAX_SUM : SOFTMAX_WRITE);
		assert_true(part.params.softmax.goes_on == (i > 0 && i < cut.n_parts / 2));
	}
}

static double flat_ns(const struct op_args *args)
{
	(void)args;
	return 500;
}

/* Takes the slower of two kernels if only that can be cut; none if neither can. */
static void test_kernels_that_can_be_cut_are_preferred(void **state)
{
	static const struct kernel kernels[] = {
	    {.name = "fast", .supports = takes_all, .time_ns = flat_ns},
	    {.name = "cuttable", .supports = takes_all, .time_ns = work_ns, .carries = true}};
	const struct kernel_list both = {kernels, 2}, one = {kernels, 1};
	const struct part_limits limits = {kernel_ns, NULL, 100, CARRIED_MAX};
	struct op_args args = sum_of_ones(&op_gemm);
	struct preference preference;

	(void)state;
	kernel_prefer_cut(&both, &args, 0, &limits, &preference);
	assert_int_equal(preference.n, 1);
	assert_int_equal(preference.kernels[0], 1);
	kernel_prefer_cut(&one, &args, 0, &limits, &preference);
	assert_int_equal(preference.n, 0);
}

static void make_dense(struct view *v, uint64_t rows, uint64_t columns, uint64_t offset)
{
	*v =
	    (struct view){.dtype = KOPS_F32, .rank = 2, .shape = {rows, columns}, .space = v, .offset = offset};
	view_make_dense(v);
}

/*
 * An operand whose rows overlap: the last chunk of a row, of one column, begins where the next rows' first
 * chunk does.
 */
static void test_parts_of_overlapping_rows_are_told_apart(void **state)
{
	struct op_args args = {.op = op_by_name("add")}, before, part;
	const uint32_t wanted[PART_AXES_MAX] = {1, 1, 4, 4};
	struct op_cut cut;
	char why[WHY_BYTES];

	(void)state;
	for (unsigned v = 0; v < 3; v++)
		make_dense(&args.views[v], 1024, 1025, 0);
	args.views[0].strides[0] = 4;
	assert_int_equal(op_check(&args, why), 0);
	assert_true(op_cut_grid(&args, wanted, 1, &cut) && cut.n_parts > 4);
	for (uint32_t i = 1; i < cut.n_parts; i++) {
		op_part(&args, &cut, i - 1, &before);
		op_part(&args, &cut, i, &part);
		if (memcmp(before.views[0].shape, part.views[0].shape, sizeof part.views[0].shape) != 0)
			assert_true(op_part_moves(&args, &cut, i) & 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_the_parts_are_the_whole),
	    cmocka_unit_test(test_any_axis_may_be_cut),
	    cmocka_unit_test(test_parts_that_grow_need_what_is_new),
	    cmocka_unit_test(test_how_cuts_grow),
	    cmocka_unit_test(test_how_finely),
	    cmocka_unit_test(test_a_small_rest_is_no_part),
	    cmocka_unit_test(test_blocks_are_cut_along_their_steps),
	    cmocka_unit_test(test_parts_are_as_short_as_the_kernel_says),
	    cmocka_unit_test(test_16_bit_sums_are_not_rounded_between_parts),
	    cmocka_unit_test(test_kernels_that_do_not_carry_are_left_whole),
	    cmocka_unit_test(test_where_parts_cannot_be_wide_they_are_narrow),
	    cmocka_unit_test(test_16_bit_maxima_carry_nothing),
	    cmocka_unit_test(test_what_parts_carry_is_bounded),
	    cmocka_unit_test(test_the_last_block_has_room_for_what_it_carries),
	    cmocka_unit_test(test_a_row_is_cut_in_two_passes),
	    cmocka_unit_test(test_parts_of_overlapping_rows_are_told_apart),
	    cmocka_unit_test(test_kernels_that_can_be_cut_are_preferred),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
