/* stream_runs.c: runs whose operands move while parts of them are computed give what they give in one piece. */
#include "check_runs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "common/half.h"

#define MEMORY_BYTES (160ull << 20)

struct streamed {
	const char *op, *kernel;
	kops_dtype dtype;
	uint64_t shapes[2][3]; /* of the inputs */
	bool turned;           /* the first is a transposed view */
	bool uneven;           /* some of its rows have numbers far below the others */
	double beta, tolerance;
};

/* Large enough not to be used where they are. Products sum up in another order where a library chooses by
 * shape; 16-bit results may be rounded apart. */
static const struct streamed cases[] = {
    {"gemm", "", KOPS_F32, {{1, 2048, 1536}, {1, 1536, 2304}}, false, false, 0, 1e-5},
    {"gemm", "", KOPS_F32, {{1, 1999, 1501}, {1, 1501, 2301}}, true, false, 0.5, 1e-5},
    {"gemm", "f16x3", KOPS_F32, {{1, 2048, 1536}, {1, 1536, 2304}}, false, true, 0, 1e-5},
    {"gemm", "simt", KOPS_F32, {{1, 2048, 1024}, {1, 1024, 2048}}, false, false, 1, 1e-5},
    {"gemm", "", KOPS_F32, {{48, 256, 384}, {48, 384, 320}}, false, false, 0, 1e-5},
    {"gemm", "", KOPS_F64, {{1, 1536, 1024}, {1, 1024, 1280}}, false, false, 0, 1e-13},
    {"gemm", "", KOPS_F16, {{1, 3072, 2048}, {1, 2048, 3072}}, false, false, 0, 2e-3},
    {"gemm", "", KOPS_BF16, {{1, 3001, 2049}, {1, 2049, 3003}}, true, false, 0.5, 1.6e-2},
    {"add", "", KOPS_F32, {{1, 4999, 1999}, {1, 4999, 1999}}, true, false, 0, 0},
    {"multiply", "", KOPS_F16, {{3, 4111, 1999}, {1, 1, 1999}}, false, false, 0, 0},
    {"softmax", "", KOPS_F32, {{1, 6111, 1999}}, false, false, 0, 1e-6},
    {"layer_norm", "", KOPS_BF16, {{1, 12111, 1999}}, false, false, 0, 1.6e-2},
    {"transpose", "", KOPS_F32, {{1, 6111, 1999}}, false, false, 0, 0},
    {"copy", "", KOPS_F64, {{1, 3511, 1999}}, true, false, 0, 0},
};

/* Behind what is there already. */
static void place(struct view *v, const struct memory *m, uint64_t *used)
{
	v->space = m;
	v->offset = *used;
	*used += (view_elements(v) * dtype_size(v->dtype) + 511) / 256 * 256;
	if (*used > m->bytes)
		die("streamed", "the memory is too small");
}

static struct run_op op_of(const struct streamed *s, const struct memory *m)
{
	struct run_op op = {.args = {.op = op_by_name(s->op)}, .pinned = s->kernel};
	struct view *v = op.args.views;
	char why[WHY_BYTES];
	uint64_t used = 64;

	op_set_defaults(&op.args);
	for (unsigned i = 0; i < 2 && s->shapes[i][0] > 0; i++) {
		v[i] = (struct view){.dtype = s->dtype, .rank = 3};
		memcpy(v[i].shape, s->shapes[i], sizeof s->shapes[i]);
		view_make_dense(&v[i]);
		place(&v[i], m, &used);
	}
	if (s->turned) {
		v[0].strides[1] = 1;
		v[0].strides[2] = (int64_t)v[0].shape[1];
	}
	if (strcmp(s->op, "gemm") == 0)
		op.args.params.gemm = (struct gemm_params){.alpha = 1, .beta = s->beta};
	if (strcmp(s->op, "softmax") == 0)
		op.args.params.softmax.scale = 1;
	if (op_result(&op.args, why) < 0)
		die("streamed", why);
	view_make_dense(op_output(&op.args));
	place(op_output(&op.args), m, &used);
	check_op(&op.args, "streamed");
	return op;
}

static void fill(struct bench *t, const struct view *v, char *bytes)
{
	for (uint64_t i = 0; i < view_elements(v); i++)
		half_store(bytes, v->dtype, (int64_t)i, uniform(t));
}

/* Too far for pairs of f16, not for triples of bf16; in some regions of rows. */
static void make_uneven(const struct view *v, char *bytes)
{
	for (uint64_t row = 100; row < v->shape[1]; row += 450)
		for (uint64_t k = 0; k < v->shape[2]; k += 8)
			((float *)bytes)[row * v->shape[2] + k] *= 1e-12f;
}

static void run_once(struct bench *t, struct run *run)
{
	do {
		t->driver->start(t->dev, run);
		wait_for(t, 1);
	} while (run->status == 0 && !run_is_through(run));
	if (run->status < 0)
		die("streamed", run->error);
}

/* How the operands reach the GPU. */
enum way { WHOLE, GROWING, WINDOWS, WINDOWS_OF_PAGEABLE, WAYS };

/* A third of what the operands of the cases take; workspace comes in addition. */
static uint64_t room_for(const struct run_op *op)
{
	uint64_t bytes = 0;

	for (unsigned v = 0; v < op->args.op->n_operands; v++)
		if (!view_is_absent(&op->args.views[v]))
			bytes += view_elements(&op->args.views[v]) * dtype_size(op->args.views[v].dtype);
	return bytes / 3;
}

/* Three times: the second run is recorded as a graph. */
static void run_with(struct bench *t, const struct streamed *s, struct memory *m, enum way way)
{
	struct run_op op;
	struct run run = {.ops = &op, .n_ops = 1};

	m->pin = way == GROWING || way == WINDOWS ? MEMORY_PINNED : MEMORY_PAGEABLE;
	op = op_of(s, m);
	run.room_bytes = way >= WINDOWS ? room_for(&op) : 0;
	if (plan_run(&t->planner, &run) < 0)
		die("streamed", run.error);
	for (unsigned round = 0; round < 3; round++) {
		const struct view *y = op_output(&op.args);

		/* About 0.01, and 1 of f16; or NaN */
		memset((char *)m->host + y->offset, s->beta != 0 ? 0x3c : 0xff,
		       view_elements(y) * dtype_size(y->dtype));
		run.repeats = round > 0;
		run_once(t, &run);
	}
	if (op.cut.grows != (way == GROWING) || op.cut.has_windows != (way >= WINDOWS))
		die(s->op, "was not planned as it should be");
	if (way != WHOLE)
		printf("streamed: %s %s by %s in %u parts%s%s: planned %.0f us, took %.0f\n", s->op,
		       dtype_name(s->dtype), op.kernel->name, op.cut.n_parts,
		       way >= WINDOWS ? " with windows" : "", run.as_graph ? " as a graph" : "", run.plan_us,
		       run.upload_us + run.compute_us + run.download_us);
	run_forget_plan(&run);
}

static void compare(const struct streamed *s, const struct view *y, const char *whole, const char *parts)
{
	double worst = 0, largest = 0;

	for (uint64_t i = 0; i < view_elements(y); i++) {
		double a = half_load(whole, y->dtype, (int64_t)i), b = half_load(parts, y->dtype, (int64_t)i);

		worst = fmax(worst, fabs(a - b));
		largest = fmax(largest, fabs(a));
		if (isnan(a) || isnan(b))
			die(s->op, "an element of a streamed run was not computed");
	}
	if (!(worst <= s->tolerance * largest))
		die(s->op, "a streamed run gives something else than one in one piece");
}

void check_streamed(struct bench *t, unsigned long n)
{
	struct memory m = {.bytes = MEMORY_BYTES};
	char *whole = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	m.host = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (whole == MAP_FAILED || m.host == MAP_FAILED || t->driver->pin(m.host, m.bytes, false) < 0)
		die("streamed", "cannot register memory");
	for (unsigned i = 0; i < n && i < sizeof cases / sizeof cases[0]; i++) {
		const struct streamed *s = &cases[i];
		struct run_op op = op_of(s, &m);
		const struct view *y = op_output(&op.args);
		char *result = (char *)m.host + y->offset;
		uint64_t bytes = view_elements(y) * dtype_size(y->dtype);

		for (unsigned v = 0; v < op_first_output(op.args.op); v++)
			if (!view_is_absent(&op.args.views[v]))
				fill(t, &op.args.views[v], (char *)m.host + op.args.views[v].offset);
		if (s->uneven)
			make_uneven(&op.args.views[0], (char *)m.host + op.args.views[0].offset);
		for (enum way way = WHOLE; way < WAYS; way++) {
			run_with(t, s, &m, way);
			if (way == WHOLE)
				memcpy(whole, result, bytes);
			compare(s, y, whole, result);
		}
	}
	t->driver->unpin(m.host, MEMORY_BYTES);
	munmap(m.host, MEMORY_BYTES);
	munmap(whole, MEMORY_BYTES);
}
