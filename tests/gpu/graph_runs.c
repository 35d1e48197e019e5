/* graph_runs.c: repeated runs, whose graphs are refused, forgotten, or meet other data. */
#include "check_runs.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "gemm/gemm.h"
#include "plan/stage.h"

enum { SMALL_FLOATS = 16, FLOATS = 1024, ROUNDS = 3 };

static struct run_op addition(const struct memory *x, const struct memory *y, uint64_t floats)
{
	struct run_op op = {.args = {.op = op_by_name("add")}, .pinned = ""};

	op.args.views[0] = bytes_view(x, floats * sizeof(float));
	op.args.views[1] = op.args.views[2] = bytes_view(y, floats * sizeof(float));
	check_op(&op.args, "graphs");
	return op;
}

static void plan(struct bench *t, struct run *run)
{
	if (plan_run(&t->planner, run) < 0)
		die("graphs", run->error);
}

static void run_again(struct bench *t, struct run *run)
{
	t->driver->start(t->dev, run);
	wait_for(t, 1);
	if (run->status < 0)
		die("graphs", run->error);
	run->repeats = true;
}

static void fill(struct bench *t, const struct memory *m, uint64_t floats, float value)
{
	float *host = t->buffers[0].memory.host;

	for (uint64_t i = 0; i < floats; i++)
		host[i] = value;
	copy_between(t, &t->buffers[0].memory, m, floats * sizeof(float));
}

static void expect(struct bench *t, const struct memory *m, uint64_t floats, float value, const char *what)
{
	const float *host = t->buffers[0].memory.host;

	copy_between(t, m, &t->buffers[0].memory, floats * sizeof(float));
	for (uint64_t i = 0; i < floats; i++)
		if (host[i] != value)
			die("graphs", what);
}

/* ---- A graph that is refused ---- */

enum { TOO_MANY_OPS = 8200 }; /* each op is a node; all graphs of a device have at most 8192 */

void check_refused_graph(struct bench *t)
{
	struct memory x = resident(t, FLOATS * sizeof(float)), y = resident(t, FLOATS * sizeof(float));
	struct run_op *adds = calloc(TOO_MANY_OPS, sizeof(*adds));
	struct run run = {.ops = adds, .n_ops = TOO_MANY_OPS};

	fill(t, &x, FLOATS, 1);
	for (unsigned i = 0; i < TOO_MANY_OPS; i++)
		adds[i] = addition(&x, &y, SMALL_FLOATS);
	plan(t, &run);
	for (unsigned round = 1; round <= ROUNDS; round++) {
		run_again(t, &run);
		if (run.as_graph)
			die("graphs", "a run of too many ops was launched as one");
		expect(t, &y, SMALL_FLOATS, (float)round * TOO_MANY_OPS, "a run of too many ops lacks one");
	}
	run_forget_plan(&run);
	t->driver->free(t->dev, x.device);
	t->driver->free(t->dev, y.device);
	free(adds);
}

/* ---- A graph whose memory is reused by another ---- */

static void run_as_graph(struct bench *t, struct run_op *op)
{
	struct run run = {.ops = op, .n_ops = 1};

	plan(t, &run);
	for (unsigned round = 0; round < ROUNDS; round++) {
		run_again(t, &run);
		if (round > 0 && !run.as_graph)
			die("graphs", "a run that came again was not launched as one");
	}
	run_forget_plan(&run);
}

void check_forgotten_graph(struct bench *t)
{
	struct memory x = resident(t, FLOATS * sizeof(float)), y = resident(t, FLOATS * sizeof(float));
	struct memory other, z = resident(t, FLOATS * sizeof(float));
	struct run_op to_y = addition(&x, &y, FLOATS), to_z = addition(&x, &z, FLOATS), to_other;

	fill(t, &x, FLOATS, 1);
	run_as_graph(t, &to_y);
	expect(t, &y, FLOATS, ROUNDS, "a run that came again lacks a round");
	t->driver->free(t->dev, y.device);
	other = resident(t, FLOATS * sizeof(float));
	if (other.device != y.device)
		die("graphs", "freed memory did not come back at its address, so that this shows nothing");
	fill(t, &other, FLOATS, 7);
	run_as_graph(t, &to_z);
	expect(t, &other, FLOATS, 7, "a forgotten graph wrote into what is another's now");
	to_other = addition(&x, &other, FLOATS);
	run_as_graph(t, &to_other);
	expect(t, &other, FLOATS, 7 + ROUNDS, "a run on memory that was another's is wrong");
	expect(t, &z, FLOATS, ROUNDS, "a run that came again lacks a round");
	t->driver->free(t->dev, x.device);
	t->driver->free(t->dev, other.device);
	t->driver->free(t->dev, z.device);
}

/* ---- Graphs with room for others, and without ---- */

static unsigned count_graphs(const struct run *run)
{
	const struct stage *stage = run->planned;
	unsigned n = 0;

	for (const struct list_link *link = stage->graphs.first; link; link = link->next)
		n++;
	return n;
}

/* A graph keeps the number of multiprocessors that its kernels leave free, so there is one for each. */
void check_graphs_with_room(struct bench *t)
{
	struct memory x = resident(t, FLOATS * sizeof(float)), y = resident(t, FLOATS * sizeof(float));
	struct run_op op = addition(&x, &y, FLOATS);
	struct run run = {.ops = &op, .n_ops = 1};

	fill(t, &x, FLOATS, 1);
	plan(t, &run);
	for (unsigned round = 1; round <= 4 * ROUNDS; round++) {
		run.room = round % 2 ? RUN_IS_CONFINED : RUN_KEEPS_ALL;
		run_again(t, &run);
		expect(t, &y, FLOATS, (float)round, "a run with or without room lacks a round");
	}
	if (!run.as_graph || count_graphs(&run) != 2)
		die("graphs", "a run with room and without does not have a graph for each");
	run_forget_plan(&run);
	t->driver->free(t->dev, x.device);
	t->driver->free(t->dev, y.device);
}

/* ---- A kernel that reads its data ---- */

/* The smallest product that f16x3 takes. */
enum { SIDE = 768, DEPTH = 64 };

struct operands {
	float a[SIDE][DEPTH], b[DEPTH][SIDE], c[SIDE][SIDE];
};

static struct view matrix(const struct memory *m, uint64_t offset, uint64_t rows, uint64_t cols)
{
	struct view v = {.space = m, .offset = offset, .dtype = KOPS_F32, .rank = 2, .shape = {rows, cols}};

	view_make_dense(&v);
	return v;
}

static struct run_op product(const struct memory *m)
{
	struct run_op op = {.args = {.op = op_by_name("gemm")}, .pinned = "f16x3"};

	op.args.views[0] = matrix(m, offsetof(struct operands, a), SIDE, DEPTH);
	op.args.views[1] = matrix(m, offsetof(struct operands, b), DEPTH, SIDE);
	op.args.views[GEMM_C] = matrix(m, offsetof(struct operands, c), SIDE, SIDE);
	op.args.params.gemm.alpha = 1;
	check_op(&op.args, "graphs");
	return op;
}

/* Small integers fit two f16 each. Ones beside 1e15 in a line do not: they would be lost. */
static void fill_operands(struct operands *o, bool fits)
{
	for (unsigned i = 0; i < SIDE; i++)
		for (unsigned k = 0; k < DEPTH; k++) {
			o->a[i][k] = fits ? (float)((7 * i + 3 * k) % 9) - 4 : k == 0 ? 1e15f : 1;
			o->b[k][i] = fits ? (float)((5 * k + 2 * i) % 7) - 3 : k == 0 ? 0 : 1;
		}
	memset(o->c, 0xff, sizeof(o->c));
}

static void check_product(const struct operands *o)
{
	for (unsigned i = 0; i < SIDE; i++)
		for (unsigned j = 0; j < SIDE; j++) {
			float sum = 0;

			for (unsigned k = 0; k < DEPTH; k++)
				sum += o->a[i][k] * o->b[k][j];
			if (o->c[i][j] != sum)
				die("graphs", "f16x3 is wrong where its data changed from round to round");
		}
}

static struct operands *make_operands(struct bench *t, struct memory *ret)
{
	void *host =
	    mmap(NULL, sizeof(struct operands), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (host == MAP_FAILED || t->driver->pin(host, sizeof(struct operands), false) < 0)
		die("graphs", "cannot register memory");
	*ret = (struct memory){.host = host, .bytes = sizeof(struct operands), .pin = MEMORY_PINNED};
	return host;
}

void check_data_in_graph(struct bench *t)
{
	static const bool fits[] = {true, true, true, false, true, false};
	struct memory m;
	struct operands *o = make_operands(t, &m);
	struct run_op op = product(&m);
	struct run run = {.ops = &op, .n_ops = 1};

	plan(t, &run);
	for (unsigned round = 0; round < sizeof(fits) / sizeof(fits[0]); round++) {
		fill_operands(o, fits[round]);
		run_again(t, &run);
		check_product(o);
		if (round > 0 && !run.as_graph)
			die("graphs", "f16x3 was not launched as one");
	}
	run_forget_plan(&run);
	t->driver->unpin(o, sizeof(*o));
	munmap(o, sizeof(*o));
}
