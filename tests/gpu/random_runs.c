/* random_runs.c: compares chains of random ops with their references. */
#include "check_runs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/half.h"
#include "gemm/gemm.h"

enum { RUNS_MAX = 3, OPS_MAX = 4, TRIES = 2000 };

/* ---- Random views ---- */

static bool fits(const struct view *v)
{
	uint64_t lo, hi;

	return view_extent(v, BUFFER_BYTES, &lo, &hi) == 0;
}

/* Nests axes in random order, with gaps, some reversed; inputs may repeat an axis. */
static void random_strides(struct bench *t, struct view *v, bool input)
{
	uint32_t order[KOPS_RANK_MAX];
	uint64_t step = below(t, 4) ? 1 : 1 + below(t, 3);

	for (uint32_t d = 0; d < v->rank; d++)
		order[d] = v->rank - 1 - d;
	for (uint32_t d = 0; d < v->rank && below(t, 3) == 0; d++) {
		uint32_t e = (uint32_t)below(t, v->rank), keep = order[d];
		order[d] = order[e];
		order[e] = keep;
	}
	for (uint32_t i = 0; i < v->rank; i++) {
		uint32_t d = order[i];

		v->strides[d] = (int64_t)step;
		step = step * (v->shape[d] ? v->shape[d] : 1) + (below(t, 2) ? 0 : below(t, 9));
		if (below(t, 8) == 0)
			v->strides[d] = -v->strides[d];
		if (input && below(t, 12) == 0)
			v->strides[d] = 0;
	}
}

static bool random_view(struct bench *t, struct view *v, kops_dtype dtype, uint32_t rank, const uint64_t *shape,
                        bool input)
{
	size_t size = dtype_size(dtype);

	*v = (struct view){.space = &t->buffers[below(t, BUFFERS)].memory, .dtype = dtype, .rank = rank};
	memcpy(v->shape, shape, rank * sizeof(*shape));
	for (int i = 0; i < 30; i++) {
		random_strides(t, v, input);
		/* Uses few distinct places, so that views of a case meet. */
		v->offset = below(t, 2) ? below(t, BUFFER_BYTES / size) * size : below(t, 3) * 16384;
		if (fits(v))
			return true;
	}
	return false;
}

static uint64_t random_extent(struct bench *t)
{
	switch (below(t, 8)) {
	case 0:
		return 1;
	case 1:
		return below(t, 40) == 0 ? 0 : 2;
	case 2:
		return 32;
	default:
		return 1 + below(t, 70);
	}
}

static bool random_gemm(struct bench *t, struct op_args *args, kops_dtype dtype)
{
	uint64_t batch = below(t, 3) ? 1 : 1 + below(t, 3);
	uint64_t m = random_extent(t), n = random_extent(t), k = below(t, 30) ? random_extent(t) : 0;
	uint64_t a[3] = {below(t, 3) ? batch : 1, m, k}, b[3] = {below(t, 3) ? batch : 1, k, n},
	         c[3] = {batch, m, n};
	uint32_t rank = batch > 1 || below(t, 3) == 0 ? 3 : 2;

	args->params.gemm.alpha = below(t, 12) ? 1.0 / (1.0 + (double)k) : 0;
	args->params.gemm.beta = below(t, 2) ? 0 : 0.5;
	args->params.gemm.precision = below(t, 2) ? KOPS_PRECISION_F32 : KOPS_PRECISION_IEEE;
	args->params.gemm.activation = (enum unary_function)(below(t, 2) ? below(t, GEMM_ACTIVATIONS) : 0);
	if (below(t, 3) == 0 && !random_view(t, &args->views[GEMM_BIAS], dtype, 1, &n, true))
		return false;
	return random_view(t, &args->views[GEMM_A], dtype, rank, a + (3 - rank), true) &&
	       random_view(t, &args->views[GEMM_B], dtype, rank, b + (3 - rank), true) &&
	       random_view(t, &args->views[GEMM_C], dtype, rank, c + (3 - rank), false);
}

/* Makes ops whose views have one shape. The output of a transpose has the last two axes exchanged. */
static bool random_uniform(struct bench *t, struct op_args *args, kops_dtype dtype, bool transpose)
{
	uint32_t rank = 1 + (uint32_t)below(t, 4);
	uint64_t shape[KOPS_RANK_MAX];
	unsigned n = op_first_output(args->op);

	if (transpose && rank < 2)
		rank = 2;
	for (uint32_t d = 0; d < rank; d++)
		shape[d] =
		    rank > 2 && d < rank - 2 ? 1 + below(t, 4) : random_extent(t) * (below(t, 6) ? 1 : 5);
	for (unsigned v = 0; v < n; v++)
		if ((!args->op->operands[v].is_optional || below(t, 2)) &&
		    !random_view(t, &args->views[v], dtype, rank, shape, true))
			return false;
	if (transpose) {
		uint64_t keep = shape[rank - 1];
		shape[rank - 1] = shape[rank - 2];
		shape[rank - 2] = keep;
	}
	if (!transpose && n > 0 && below(t, 4) == 0) {
		args->views[n] = args->views[0]; /* in place, if the op allows it */
		return true;
	}
	return random_view(t, &args->views[n], dtype, rank, shape, false);
}

static bool random_args(struct bench *t, struct op_args *args, kops_dtype dtype)
{
	const struct op *op;

	do
		op = ops[dtype == KOPS_F32 ? below(t, OP_COUNT) : below(t, 2) * 4];
	while (op->residual); /* has many right results */
	*args = (struct op_args){.op = op};
	if (strcmp(op->name, "gemm") == 0)
		return random_gemm(t, args, dtype);
	if (strcmp(op->name, "softmax") == 0) {
		args->params.softmax.scale = uniform(t) * 2;
		args->params.softmax.log = below(t, 4) == 0;
	}
	return random_uniform(t, args, dtype, strcmp(op->name, "transpose") == 0);
}

/* Makes a valid op, which names its kernel half of the time. */
static void random_op(struct bench *t, struct run_op *ret, kops_dtype dtype)
{
	for (int i = 0; i < TRIES; i++) {
		const struct kernel_list *list;
		struct run probe = {.ops = ret, .n_ops = 1};
		char why[WHY_BYTES];

		*ret = (struct run_op){.pinned = ""};
		if (!random_args(t, &ret->args, dtype) || op_check(&ret->args, why) < 0)
			continue;
		list = t->driver->kernels(ret->args.op);
		if (below(t, 2))
			ret->pinned = list->kernels[below(t, list->n)].name;
		int rc = plan_run(&t->planner, &probe);

		run_forget_plan(&probe);
		if (rc == 0)
			return;
	}
	die("random_op", "found no op that its rules allow");
}

/* ---- One case ---- */

static void fill(struct bench *t, kops_dtype dtype)
{
	for (unsigned b = 0; b < BUFFERS; b++) {
		struct buffer *buffer = &t->buffers[b];

		for (uint64_t i = 0; i < BUFFER_BYTES / dtype_size(dtype); i++)
			half_store(buffer->expected, dtype, (int64_t)i, uniform(t));
		memset(buffer->written, 0, BUFFER_BYTES);
		if (b != RESIDENT) {
			memcpy(buffer->memory.host, buffer->expected, BUFFER_BYTES);
			continue;
		}
		memcpy(t->buffers[0].memory.host, buffer->expected, BUFFER_BYTES);
		copy_between(t, &t->buffers[0].memory, &buffer->memory, BUFFER_BYTES);
		memcpy(t->buffers[0].memory.host, t->buffers[0].expected, BUFFER_BYTES);
	}
}

static struct buffer *buffer_of(struct bench *t, const struct view *v)
{
	for (unsigned b = 0; b < BUFFERS; b++)
		if (v->space == &t->buffers[b].memory)
			return &t->buffers[b];
	die("buffer_of", "a view of no buffer");
	return NULL;
}

static void mark_written(unsigned char *written, const struct view *v, uint32_t d, int64_t at)
{
	size_t size = dtype_size(v->dtype);

	if (d == v->rank) {
		memset(written + (int64_t)v->offset + at * (int64_t)size, 1, size);
		return;
	}
	for (uint64_t i = 0; i < v->shape[d]; i++)
		mark_written(written, v, d + 1, at + (int64_t)i * v->strides[d]);
}

static void expect(struct bench *t, const struct run_op *op)
{
	struct op_args args = op->args;

	for (unsigned v = 0; v < args.op->n_operands; v++)
		if (!view_is_absent(&args.views[v]))
			args.views[v].data = buffer_of(t, &args.views[v])->expected + args.views[v].offset;
	args.op->reference(&args);
	mark_written(buffer_of(t, op_output(&args))->written, op_output(&args), 0, 0);
}

static void describe_op(const struct run_op *op)
{
	fprintf(stderr, "  %s by %s (%s)\n", op->args.op->name, op->kernel ? op->kernel->name : "?",
	        op->pinned);
	for (unsigned v = 0; v < op->args.op->n_operands; v++) {
		const struct view *x = &op->args.views[v];
		const struct memory *m = x->space;

		if (view_is_absent(x))
			continue;
		fprintf(stderr, "    %s %s %s at %llu:", op_is_output(op->args.op, v) ? "out" : "in ",
		        dtype_name(x->dtype),
		        !m->host                  ? "resident"
		        : m->pin == MEMORY_PINNED ? "pinned"
		                                  : "pageable",
		        (unsigned long long)x->offset);
		for (uint32_t d = 0; d < x->rank; d++)
			fprintf(stderr, " %llu/%lld", (unsigned long long)x->shape[d],
			        (long long)x->strides[d]);
		fprintf(stderr, " space %p\n", x->space);
	}
}

static double tolerance_of(kops_dtype dtype)
{
	switch (dtype) {
	case KOPS_F64:
		return 1e-11;
	case KOPS_F16:
		return 8e-3;
	case KOPS_BF16:
		return 6e-2;
	default:
		return 2e-4;
	}
}

static bool close_to(double got, double want, double tolerance)
{
	if (isnan(want) || isinf(want))
		return isnan(want) ? isnan(got) : got == want;
	return fabs(got - want) <= tolerance * fmax(1.0, fabs(want));
}

/* Returns the first element that is wrong, or -1. */
static int64_t first_wrong(const struct buffer *b, kops_dtype dtype)
{
	size_t size = dtype_size(dtype);

	for (uint64_t i = 0; i < BUFFER_BYTES / size; i++) {
		if (!b->written[i * size]) {
			if (memcmp(b->content + i * size, b->expected + i * size, size) != 0)
				return (int64_t)i;
		} else if (!close_to(half_load(b->content, dtype, (int64_t)i),
		                     half_load(b->expected, dtype, (int64_t)i), tolerance_of(dtype))) {
			return (int64_t)i;
		}
	}
	return -1;
}

static bool compare(struct bench *t, kops_dtype dtype)
{
	for (unsigned b = 0; b < BUFFERS; b++) {
		const struct buffer *buffer = &t->buffers[b];
		int64_t i = first_wrong(buffer, dtype);

		if (i < 0)
			continue;
		fprintf(stderr, "buffer %u (%p), %s element %lld, %s: got %.9g, want %.9g\n", b,
		        (const void *)&buffer->memory, dtype_name(dtype), (long long)i,
		        buffer->written[(uint64_t)i * dtype_size(dtype)] ? "written" : "not to be touched",
		        half_load(buffer->content, dtype, i), half_load(buffer->expected, dtype, i));
		return false;
	}
	return true;
}

struct chain {
	kops_dtype dtype;
	struct run_op ops[RUNS_MAX][OPS_MAX];
	struct run runs[RUNS_MAX];
	unsigned n_runs;
};

static void make_chain(struct bench *t, struct chain *c)
{
	c->dtype = below(t, 2) ? KOPS_F32 : (kops_dtype)(1 + below(t, 4));
	c->n_runs = 1 + (unsigned)below(t, RUNS_MAX);
	for (unsigned r = 0; r < c->n_runs; r++) {
		struct run *run = &c->runs[r];

		*run = (struct run){.ops = c->ops[r],
		                    .n_ops = 1 + (unsigned)below(t, OPS_MAX),
		                    .lane = 5,
		                    .room_bytes = below(t, 2) ? 256ull << below(t, 14) : 0,
		                    .timed = below(t, 3) == 0};
		for (unsigned i = 0; i < run->n_ops; i++)
			random_op(t, &run->ops[i], c->dtype);
		if (plan_run(&t->planner, run) < 0)
			die("plan", run->error);
		t->windowed += run->ops[0].cut.has_windows;
	}
}

/* Uses new content each time: a graph recorded at the second run must serve the third. */
static bool run_chain(struct bench *t, struct chain *c)
{
	struct memory back = {.host = t->buffers[RESIDENT].content, .bytes = BUFFER_BYTES};

	fill(t, c->dtype);
	for (unsigned r = 0; r < c->n_runs; r++)
		t->driver->start(t->dev, &c->runs[r]);
	for (unsigned r = 0; r < c->n_runs; r++)
		for (unsigned i = 0; i < c->runs[r].n_ops; i++)
			expect(t, &c->ops[r][i]);
	wait_for(t, c->n_runs);
	for (unsigned r = 0; r < c->n_runs; r++) {
		if (c->runs[r].status < 0)
			die("run", c->runs[r].error);
		t->ops += c->runs[r].n_ops;
		t->graphs += c->runs[r].as_graph;
		c->runs[r].repeats = true;
	}
	t->runs += c->n_runs;
	copy_between(t, &t->buffers[RESIDENT].memory, &back, BUFFER_BYTES);
	return compare(t, c->dtype);
}

bool run_case(struct bench *t)
{
	struct chain c;
	bool good = true;

	make_chain(t, &c);
	for (int i = 0; i < 3 && good; i++)
		good = run_chain(t, &c);
	for (unsigned r = 0; r < c.n_runs; r++) {
		for (unsigned i = 0; !good && i < c.runs[r].n_ops; i++)
			describe_op(&c.ops[r][i]);
		run_forget_plan(&c.runs[r]);
	}
	return good;
}
