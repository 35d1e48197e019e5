/* special_runs.c: an idle device, timed runs, runs that do not find room, a broken context. */
#include "check_runs.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include "base/clock.h"
#include "common/half.h"
#include "gemm/gemm.h"
#include "softmax/operands.h"

enum { TIMED_OPS = 20 };
#define TIMED_TIMES 4.0 /* times an untimed run's wall time; held for as long as allowed, it takes 10 */

/* Returns how often threads of this process woke up while this one slept for half a second. */
static long wake_ups_while_idle(void)
{
	const struct timespec half = {.tv_nsec = 500000000};
	struct rusage before, after;

	getrusage(RUSAGE_SELF, &before);
	nanosleep(&half, NULL);
	getrusage(RUSAGE_SELF, &after);
	return after.ru_nvcsw - before.ru_nvcsw - 1;
}

/*
 * If other programs keep the CPUs awake, the driver's threads may wake up too. In one of several looks they
 * must not.
 */
void check_idle(void)
{
	long least = LONG_MAX;

	for (int i = 0; i < 10 && least > 1; i++) {
		long n = wake_ups_while_idle();

		least = n < least ? n : least;
	}
	printf("idle: %ld wake-ups in half a second\n", least);
	if (least > 1)
		die("idle", "threads of the driver's wake up for nothing");
}

void check_out_of_memory(struct bench *t)
{
	struct device_info info;
	void *address = NULL, *most = NULL;
	uint64_t bytes = 1ull << 30;
	struct memory big = {.bytes = bytes};
	struct run_op op = {.args = {.op = op_by_name("transpose")}, .pinned = ""};
	struct run run = {.ops = &op, .n_ops = 1};
	struct view *x = &op.args.views[0], *y = &op.args.views[1];

	t->driver->describe(t->dev, &info);
	if (t->driver->alloc(t->dev, info.memory_bytes * 2, &address) != KOPS_E_NOMEM)
		die("alloc", "twice the device's memory is not refused with KOPS_E_NOMEM");
	if (t->driver->alloc(t->dev, info.memory_bytes - (256u << 20), &most) < 0)
		die("alloc", "most of the device's memory is not given");
	big.host =
	    mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	*x = (struct view){.space = &big, .dtype = KOPS_F32, .rank = 2, .shape = {8192, 16384}};
	view_make_dense(x);
	*y = (struct view){
	    .space = &big, .offset = bytes / 2, .dtype = KOPS_F32, .rank = 2, .shape = {16384, 8192}};
	view_make_dense(y);
	check_op(&op.args, "a job on a full device");
	begin(t, &run);
	wait_for(t, 1);
	if (run.status != KOPS_E_NOMEM || !strstr(run.error, "MiB"))
		die("a job on a full device", run.error);
	t->driver->free(t->dev, most);
	t->driver->start(t->dev, &run);
	wait_for(t, 1);
	if (run.status < 0)
		die("the same job when there is room again", run.error);
	run_forget_plan(&run);
	munmap(big.host, bytes);
}

/* Returns the least of three times; the first loads the kernel. */
static double least_wall_us(struct bench *t, struct run *run)
{
	double least_us = INFINITY;

	for (unsigned i = 0; i < 3; i++) {
		uint64_t start = clock_ns();

		t->driver->start(t->dev, run);
		wait_for(t, 1);
		if (run->status < 0)
			die("timed", run->error);
		least_us = fmin(least_us, clock_us(start, clock_ns()));
	}
	return least_us;
}

/*
 * Runs small ops whose launches take the host longer than their kernels take the device. A timed run begins
 * once all is enqueued, in any memory. The device's time shows the kernels alone, the wall time the launches
 * too.
 */
void check_timed(struct bench *t, unsigned buffer)
{
	struct run_op adds[TIMED_OPS];
	struct run run = {.ops = adds, .n_ops = TIMED_OPS};
	const struct memory *m = &t->buffers[buffer].memory;
	double wall_us, untimed_us;

	for (unsigned i = 0; i < TIMED_OPS; i++) {
		adds[i] = (struct run_op){.args = {.op = op_by_name("add")}, .pinned = ""};
		for (unsigned v = 0; v < 3; v++)
			adds[i].args.views[v] = bytes_view(m, 4096);
		check_op(&adds[i].args, "timed");
	}
	if (plan_run(&t->planner, &run) < 0)
		die("timed", run.error);
	untimed_us = least_wall_us(t, &run);
	run.timed = true;
	wall_us = least_wall_us(t, &run);
	printf("timed: %d adds of 1024 elements in buffer %u take %.1f µs on the device, %.1f µs of wall time, "
	       "%.1f µs untimed\n",
	       TIMED_OPS, buffer, run.compute_us, wall_us, untimed_us);
	if (buffer == RESIDENT && (run.compute_us < TIMED_OPS * 0.5 || run.compute_us > wall_us - TIMED_OPS))
		die("timed", "the ops' time on the device is not told from the time of their launches");
	if (wall_us > untimed_us * TIMED_TIMES)
		die("timed", "the stream was held for longer than it took to enqueue the ops");
	run_forget_plan(&run);
}

enum { GRAPHS = 600, GRAPH_OPS = 20, GRAPH_ROUNDS = 3, GRAPH_FLOATS = 1024 };

/*
 * Repeats more runs than graphs are kept. Each adds ones to the same numbers, GRAPH_OPS times, so every op of
 * every run shows.
 */
void check_many_graphs(struct bench *t)
{
	struct memory x = resident(t, GRAPH_FLOATS * 4), *y = &t->buffers[0].memory;
	struct run_op *adds = calloc(GRAPHS * GRAPH_OPS, sizeof(*adds));
	struct run *runs = calloc(GRAPHS, sizeof(*runs));
	struct view ones = bytes_view(&x, GRAPH_FLOATS * 4);
	float *content = y->host;
	unsigned as_graph = 0;

	for (unsigned i = 0; i < GRAPH_FLOATS; i++)
		content[i] = 1;
	copy_between(t, y, &x, GRAPH_FLOATS * 4);
	for (unsigned i = 0; i < GRAPH_FLOATS; i++)
		content[i] = 0;
	for (unsigned i = 0; i < GRAPHS * GRAPH_OPS; i++) {
		adds[i] = (struct run_op){.args = {.op = op_by_name("add")}, .pinned = ""};
		adds[i].args.views[0] = ones;
		adds[i].args.views[1] = adds[i].args.views[2] = bytes_view(y, GRAPH_FLOATS * 4);
		check_op(&adds[i].args, "graphs");
	}
	for (unsigned round = 0; round < GRAPH_ROUNDS; round++)
		for (unsigned r = 0; r < GRAPHS; r++) {
			runs[r].ops = &adds[r * GRAPH_OPS];
			runs[r].n_ops = GRAPH_OPS;
			runs[r].repeats = round > 0;
			if (round == 0 && plan_run(&t->planner, &runs[r]) < 0)
				die("graphs", runs[r].error);
			t->driver->start(t->dev, &runs[r]);
			wait_for(t, 1);
			if (runs[r].status < 0)
				die("graphs", runs[r].error);
			as_graph += runs[r].as_graph;
		}
	for (unsigned i = 0; i < GRAPH_FLOATS; i++)
		if (content[i] != GRAPHS * GRAPH_OPS * GRAPH_ROUNDS)
			die("graphs", "a run that was launched as a graph lacks an op");
	printf("graphs: %u of %u runs\n", as_graph, GRAPHS * GRAPH_ROUNDS);
	if (as_graph != GRAPHS * (GRAPH_ROUNDS - 1))
		die("graphs", "some run that came again was not launched as one");
	for (unsigned r = 0; r < GRAPHS; r++)
		run_forget_plan(&runs[r]);
	t->driver->free(t->dev, x.device);
	free(runs);
	free(adds);
}

enum { ALIKE = 20, ALIKE_ROUNDS = 3, WITH_NAN = 7 };
/*
 * Crowds of 2 to 16 are recorded, even where those of other ops were before. Up to 4 find an idle stream each.
 */
enum { CROWD_MIN = 5, CROWD_MAX = 16, CROWD_ROUNDS = 70 };
#define ALIKE_BYTES 8192ull /* bytes of one op's operands */

/* Ops that go together; there are ALIKE of each. */
static const struct alike {
	const char *op;
	kops_dtype dtype;
	uint64_t shapes[OP_OPERANDS_MAX][2];
	bool in_host;      /* in pinned memory; otherwise RESIDENT */
	bool needs_hopper; /* other GPUs have no kernel for several of them */
} alike[] = {
    {"gemm", KOPS_F32, {{24, 40}, {40, 16}, {24, 16}}, true, true},
    {"gemm", KOPS_F32, {{36, 24}, {24, 16}, {36, 16}}, true, true},
    {"gemm", KOPS_F32, {{16, 24}, {24, 36}, {16, 36}}, true, true},
    {"gemm", KOPS_F32, {{24, 40}, {40, 16}, {24, 16}}, false, true},
    {"gemm", KOPS_F16, {{24, 40}, {40, 16}, {24, 16}}, false, true},
    {"gemm", KOPS_BF16, {{25, 39}, {39, 17}, {25, 17}}, false, true},
    {"softmax", KOPS_F32, {{24, 40}, {24, 40}}, false, false},
    {"softmax", KOPS_F16, {{1, 2000}, {1, 2000}}, false, false},
    {"softmax", KOPS_BF16, {{30, 64}, {30, 64}}, false, false},
    {"transpose", KOPS_F32, {{24, 40}, {40, 24}}, false, false},
    {"transpose", KOPS_F16, {{32, 64}, {64, 32}}, false, false},
    {"add", KOPS_F32, {{16, 40}, {16, 40}, {16, 40}}, false, false},
    {"add", KOPS_BF16, {{16, 41}, {16, 41}, {16, 41}}, false, false},
    {"copy", KOPS_F32, {{24, 40}, {24, 40}}, false, false},
    {"copy", KOPS_F64, {{12, 40}, {12, 40}}, false, false},
};

static struct run_op alike_op(const struct alike *a, const struct memory *m, unsigned which)
{
	struct run_op op = {.args = {.op = op_by_name(a->op)}, .pinned = ""};
	uint64_t at = which * ALIKE_BYTES;

	for (unsigned v = 0, given = 0; v < op.args.op->n_operands; v++) {
		struct view *view = &op.args.views[v];

		if (op.args.op->operands[v].is_optional)
			continue;
		*view = (struct view){.space = m, .offset = at, .dtype = a->dtype, .rank = 2};
		memcpy(view->shape, a->shapes[given++], sizeof(a->shapes[0]));
		view_make_dense(view);
		at += (view_elements(view) * dtype_size(a->dtype) + 15) / 16 * 16;
	}
	if (strcmp(a->op, "gemm") == 0)
		op.args.params.gemm.alpha = 1;
	if (strcmp(a->op, "softmax") == 0)
		op.args.params.softmax.scale = 1;
	check_op(&op.args, "together");
	return op;
}

/* Copies the content of all ops' memory to the device or from it. */
static void move_content(struct bench *t, const struct memory *m, unsigned char *content, bool to_device)
{
	struct memory host = {.host = content, .bytes = ALIKE * ALIKE_BYTES};

	if (m->host && to_device)
		memcpy(m->host, content, host.bytes);
	else if (m->host)
		memcpy(content, m->host, host.bytes);
	else
		copy_between(t, to_device ? &host : m, to_device ? m : &host, host.bytes);
}

/*
 * Checks that the outputs of n ops from `from` on are the expected ones, bit for bit, and the others 0xff. Then
 * makes all 0xff.
 */
static void compare_some(struct bench *t, struct run_op *each, const unsigned char *expected, unsigned from,
                         unsigned n, const char *how)
{
	unsigned char *content = malloc(ALIKE * ALIKE_BYTES);
	const struct memory *m = op_output(&each[0].args)->space;

	move_content(t, m, content, false);
	for (unsigned i = 0; i < ALIKE; i++) {
		const struct view *y = op_output(&each[i].args);
		uint64_t bytes = view_elements(y) * dtype_size(y->dtype);
		bool was_run = (i + ALIKE - from) % ALIKE < n;

		if (was_run && memcmp(content + y->offset, expected + y->offset, bytes) != 0)
			die(how, "an op's result is not what it is alone");
		for (uint64_t b = 0; !was_run && b < bytes; b++)
			if (content[y->offset + b] != 0xff)
				die(how, "an op that was not run has a result");
		memset(content + y->offset, 0xff, bytes);
	}
	move_content(t, m, content, true);
	free(content);
}

static void compare_outputs(struct bench *t, struct run_op *each, const unsigned char *expected,
                            const char *how)
{
	compare_some(t, each, expected, 0, ALIKE, how);
}

/* Checks the ops in one run. */
static void check_in_run(struct bench *t, struct run_op *each, const unsigned char *expected)
{
	struct run run = {.ops = each, .n_ops = ALIKE};

	if (plan_run(&t->planner, &run) < 0)
		die("together", run.error);
	for (unsigned round = 0; round < ALIKE_ROUNDS; round++) {
		run.repeats = round > 0;
		t->driver->start(t->dev, &run);
		wait_for(t, 1);
		if (run.status < 0)
			die("together", run.error);
		compare_outputs(t, each, expected, "together, in a run");
	}
	run_forget_plan(&run);
}

/* Starts these runs before polling for any. Returns how many shared a launch that was no graph. */
static unsigned run_crowd(struct bench *t, struct run *runs, unsigned from, unsigned n)
{
	unsigned together = 0;

	for (unsigned i = 0; i < n; i++)
		t->driver->start(t->dev, &runs[(from + i) % ALIKE]);
	wait_for(t, n);
	for (unsigned i = 0; i < n; i++) {
		const struct run *run = &runs[(from + i) % ALIKE];

		if (run->status < 0)
			die("together", run->error);
		together += !run->as_graph;
	}
	return together;
}

/* Uses other runs each time, so that one crowd's recording serves others. */
static void check_crowds(struct bench *t, struct run_op *each, struct run *runs, const unsigned char *expected)
{
	for (unsigned n = 2; n < ALIKE; n++) {
		unsigned not_as_graphs = 0;

		for (unsigned round = 0; round < CROWD_ROUNDS; round++) {
			unsigned from = (round * 7 + n) % ALIKE;

			not_as_graphs = run_crowd(t, runs, from, n);
			compare_some(t, each, expected, from, n, "together, of some runs");
		}
		if (n >= CROWD_MIN && n <= CROWD_MAX && not_as_graphs > 0)
			die("together", "a crowd that came again and again was not launched as a graph");
	}
}

/* Checks as many runs that are repeated, then some of them. Returns how many of the first shared a launch. */
static unsigned check_of_runs(struct bench *t, struct run_op *each, const unsigned char *expected)
{
	struct run runs[ALIKE] = {0};
	unsigned together = 0;

	for (unsigned i = 0; i < ALIKE; i++) {
		runs[i].ops = &each[i];
		runs[i].n_ops = 1;
		runs[i].lane = i;
		if (plan_run(&t->planner, &runs[i]) < 0)
			die("together", runs[i].error);
	}
	for (unsigned round = 0; round < ALIKE_ROUNDS; round++) {
		unsigned shared = run_crowd(t, runs, 0, ALIKE);

		together += round > 0 ? shared : 0;
		compare_outputs(t, each, expected, "together, of several runs");
		for (unsigned i = 0; i < ALIKE; i++)
			runs[i].repeats = true;
	}
	check_crowds(t, each, runs, expected);
	for (unsigned i = 0; i < ALIKE; i++)
		run_forget_plan(&runs[i]);
	return together;
}

/* Fills with numbers, and one NaN in an input of one op. */
static void fill_content(struct bench *t, const struct run_op *each, unsigned char *content)
{
	memset(content, 0xff, ALIKE * ALIKE_BYTES);
	for (unsigned i = 0; i < ALIKE; i++)
		for (unsigned v = 0; v < op_first_output(each[i].args.op); v++) {
			const struct view *x = &each[i].args.views[v];

			for (uint64_t e = 0; e < view_elements(x); e++)
				half_store(content + x->offset, x->dtype, (int64_t)e,
				           i == WITH_NAN && v == 0 && e == 5 ? NAN : uniform(t));
		}
}

static void check_alike(struct bench *t, const struct alike *a)
{
	unsigned char *content = malloc(ALIKE * ALIKE_BYTES), *expected = malloc(ALIKE * ALIKE_BYTES);
	struct memory own = a->in_host ? (struct memory){0} : resident(t, ALIKE * ALIKE_BYTES);
	const struct memory *m = a->in_host ? &t->buffers[0].memory : &own;
	struct run_op each[ALIKE];
	unsigned together;

	for (unsigned i = 0; i < ALIKE; i++)
		each[i] = alike_op(a, m, i);
	fill_content(t, each, content);
	move_content(t, m, content, true);
	for (unsigned i = 0; i < ALIKE; i++)
		run_one(t, &each[i]);
	move_content(t, m, expected, false);
	move_content(t, m, content, true);
	check_in_run(t, each, expected);
	together = check_of_runs(t, each, expected);
	printf("together: %s %s%s by %s: %u of %u runs\n", a->op, dtype_name(a->dtype),
	       a->in_host ? " in host memory" : "", each[0].kernel->name, together, ALIKE * (ALIKE_ROUNDS - 1));
	if ((has_hopper(t) || !a->needs_hopper) && together != ALIKE * (ALIKE_ROUNDS - 1))
		die("together", "some run had a launch of its own");
	if (own.device)
		t->driver->free(t->dev, own.device);
	free(content);
	free(expected);
}

/* Checks small ops that wait at the same time: each result is the same as alone, bit for bit. */
void check_together(struct bench *t)
{
	for (unsigned i = 0; i < sizeof(alike) / sizeof(alike[0]); i++)
		check_alike(t, &alike[i]);
}

#define SLICED_US     1e6
#define BESIDE_US_MAX 150e3       /* the current slice, the next one, and the plans' errors */
#define SLICED_SIDE   4096u       /* extent of a product that takes the whole device */
#define SLICED_BYTES  (64u << 20) /* bytes of that product, and of both its operands */

/* Makes a product whose operands' rows lie 16 bytes apart, so that little memory serves any K. */
static struct run_op wide_product(const struct memory *x, const struct memory *y, uint64_t k)
{
	struct run_op op = {.args = {.op = op_by_name("gemm")}, .pinned = ""};

	op.args.views[0] = (struct view){
	    .space = x, .dtype = KOPS_F32, .rank = 2, .shape = {SLICED_SIDE, k}, .strides = {4, 1}};
	op.args.views[1] = (struct view){
	    .space = x, .dtype = KOPS_F32, .rank = 2, .shape = {k, SLICED_SIDE}, .strides = {1, 4}};
	op.args.views[GEMM_C] = bytes_view(y, SLICED_BYTES);
	op.args.views[GEMM_C].rank = 2;
	op.args.views[GEMM_C].shape[0] = op.args.views[GEMM_C].shape[1] = SLICED_SIDE;
	view_make_dense(&op.args.views[GEMM_C]);
	op.args.params.gemm = (struct gemm_params){.alpha = 1, .precision = KOPS_PRECISION_IEEE};
	check_op(&op.args, "slices");
	return op;
}

/* Makes a run that is planned to take a second. */
static struct run_op second_of_work(struct bench *t, const struct memory *x, const struct memory *y)
{
	const uint64_t k = 1u << 20, most = SLICED_BYTES / sizeof(float) - 4 * SLICED_SIDE;
	struct run_op op = wide_product(x, y, k);
	struct run run = {.ops = &op, .n_ops = 1};

	if (plan_run(&t->planner, &run) < 0)
		die("slices", run.error);
	run_forget_plan(&run);
	return wide_product(x, y, (uint64_t)fmin((double)k * SLICED_US / op.plan_us, (double)most));
}

/*
 * Starts a run in slices, and another when the first slice is in flight. The other must be back long before the
 * first run.
 */
void check_slices(struct bench *t)
{
	struct memory x = resident(t, SLICED_BYTES), y = resident(t, SLICED_BYTES), z = resident(t, 4096);
	struct run_op large = second_of_work(t, &x, &y),
	              small = {.args = {.op = op_by_name("add")}, .pinned = ""};
	struct run sliced = {.ops = &large, .n_ops = 1, .lane = 1},
	           beside = {.ops = &small, .n_ops = 1, .lane = 2};
	double beside_us = INFINITY, sliced_us = INFINITY;
	uint64_t start;

	for (unsigned v = 0; v < 3; v++)
		small.args.views[v] = bytes_view(&z, 4096);
	check_op(&small.args, "slices");
	run_one(t, &small); /* loads its kernel */
	begin(t, &sliced);
	start = clock_ns();
	begin(t, &beside);
	while (isinf(sliced_us) && clock_ns() < start + WAIT_NS) {
		struct run *back = t->driver->poll(t->dev);

		if (back && back->status < 0)
			die("slices", back->error);
		if (back == &beside)
			beside_us = clock_us(start, clock_ns());
		else if (back && run_is_through(back))
			sliced_us = clock_us(start, clock_ns());
		else if (back)
			t->driver->start(t->dev, back);
	}
	if (isinf(sliced_us) || isinf(beside_us))
		die("slices", "the small run was not back first");
	printf("slices: a run of %.0f ms in %u parts; one beside it took %.1f ms\n", sliced_us / 1e3,
	       large.cut.n_parts, beside_us / 1e3);
	if (large.cut.n_parts < SLICED_US / PART_US / 2 || sliced_us < 2 * BESIDE_US_MAX)
		die("slices", "the long run was not in slices, or not long");
	if (beside_us > BESIDE_US_MAX)
		die("slices", "the small run waited for more than a slice");
	run_forget_plan(&sliced);
	run_forget_plan(&beside);
	t->driver->free(t->dev, x.device);
	t->driver->free(t->dev, y.device);
	t->driver->free(t->dev, z.device);
}

/* Runs until the end, slice by slice. */
static void run_slices(struct bench *t, struct run *run)
{
	uint64_t start = clock_ns();

	t->driver->start(t->dev, run);
	while (clock_ns() < start + WAIT_NS) {
		struct run *back = t->driver->poll(t->dev);

		if (back && (back->status < 0 || run_is_through(back)))
			return;
		if (back)
			t->driver->start(t->dev, back);
	}
	die("long sums", "the run did not come back");
}

/* A sum of a power of two of ones, all the same number in memory: it takes long with little memory. */
struct long_sum {
	const char *op, *kernel;
	unsigned log2_terms;
	bool needs_hopper;
};

static struct run_op long_sum_op(const struct long_sum *s, const struct memory *m)
{
	struct run_op op = {.args = {.op = op_by_name(s->op)}, .pinned = s->kernel};
	const uint64_t terms = 1ull << s->log2_terms;

	for (unsigned v = 0; v < op.args.op->n_operands; v++)
		if (!op.args.op->operands[v].is_optional)
			op.args.views[v] =
			    (struct view){.space = m, .dtype = KOPS_BF16, .rank = 2, .shape = {1, 1}};
	op.args.views[0].shape[1] = terms;
	if (strcmp(op.args.op->name, "gemm") == 0) {
		op.args.views[1].shape[0] = terms;
		op.args.params.gemm.alpha = 1;
	}
	op_output(&op.args)->offset = 256;
	check_op(&op.args, "long sums");
	return op;
}

static void check_long_sum(struct bench *t, const struct long_sum *s)
{
	struct memory m = resident(t, 4096), *host = &t->buffers[0].memory;
	struct run_op op = long_sum_op(s, &m);
	struct run run = {.ops = &op, .n_ops = 1};
	double sum;

	half_store(host->host, KOPS_BF16, 0, 1);
	copy_between(t, host, &m, 512);
	if (plan_run(&t->planner, &run) < 0)
		die("long sums", run.error);
	if (op.cut.n_steps <= 1 || op.cut.carried_bytes == 0)
		die("long sums", "the op is not cut along its steps");
	run_slices(t, &run);
	if (run.status < 0)
		die("long sums", run.error);
	copy_between(t, &m, host, 512);
	sum = half_load((char *)host->host + 256, KOPS_BF16, 0);
	printf("long sums: %s by %s in %u parts, planned to take %.0f ms, took %.0f: %g ones\n", s->op,
	       s->kernel, op.cut.n_parts, op.plan_us / 1e3, run.compute_us / 1e3, sum);
	if (sum != ldexp(1, (int)s->log2_terms))
		die("long sums", "the sum is wrong");
	if (run.compute_us > BESIDE_US_MAX * op.cut.n_parts)
		die("long sums", "its parts take much longer than PART_US");
	run_forget_plan(&run);
	t->driver->free(t->dev, m.device);
}

/* Checks 16-bit sums of single rows and products, whose parts hand on f32. */
void check_long_sums(struct bench *t)
{
	static const struct long_sum sums[] = {
	    {"gemm", "naive", 24, false}, {"gemm", "small", 27, true}, {"reduce", "strided", 37, false}};

	for (unsigned i = 0; i < sizeof(sums) / sizeof(sums[0]); i++)
		if (has_hopper(t) || !sums[i].needs_hopper)
			check_long_sum(t, &sums[i]);
}

enum { CROWD = 3, LONG_ROWS = 61, LONG_COLUMNS = 40003 };
#define LONG_BYTES (LONG_ROWS * LONG_COLUMNS * sizeof(float))

static struct run_op softmax_of_long_rows(const struct memory *x, const struct memory *y)
{
	struct run_op op = {.args = {.op = op_by_name("softmax")}, .pinned = "ring"};
	struct view rows = {.dtype = KOPS_F32, .rank = 2, .shape = {LONG_ROWS, LONG_COLUMNS}};

	view_make_dense(&rows);
	op.args.views[SOFTMAX_X] = op.args.views[SOFTMAX_Y] = rows;
	op.args.views[SOFTMAX_X].space = x;
	op.args.views[SOFTMAX_Y].space = y;
	op.args.params.softmax.scale = 1;
	check_op(&op.args, "crowded");
	return op;
}

struct run_op long_product(const struct memory *number, const struct memory *c)
{
	struct run_op op = {.args = {.op = op_by_name("gemm")}, .pinned = "naive"};
	const uint64_t k = 1 << 17;

	op.args.views[GEMM_A] = (struct view){.space = number, .dtype = KOPS_F32, .rank = 2, .shape = {128, k}};
	op.args.views[GEMM_B] = (struct view){.space = number, .dtype = KOPS_F32, .rank = 2, .shape = {k, 128}};
	op.args.views[GEMM_C] = (struct view){.space = c, .dtype = KOPS_F32, .rank = 2, .shape = {128, 128}};
	view_make_dense(&op.args.views[GEMM_C]);
	op.args.params.gemm.alpha = 1;
	check_op(&op.args, "crowded");
	return op;
}

/* Runs the product and several softmaxes, each in its own lane. */
static void run_beside_product(struct bench *t, const struct memory *x, const struct memory y[CROWD])
{
	struct memory c = resident(t, 128 * 128 * sizeof(float));
	struct run_op product = long_product(x, &c), softmax[CROWD];
	struct run first = {.ops = &product, .n_ops = 1, .lane = CROWD}, others[CROWD];
	uint64_t start = clock_ns();

	begin(t, &first);
	for (unsigned i = 0; i < CROWD; i++) {
		softmax[i] = softmax_of_long_rows(i % 2 ? x : &y[i], &y[i]); /* on the same numbers */
		others[i] = (struct run){.ops = &softmax[i], .n_ops = 1, .lane = i};
		begin(t, &others[i]);
	}
	wait_for(t, CROWD + 1);
	printf("crowded: %u softmaxes of long rows beside a product: %.0f µs\n", CROWD,
	       clock_us(start, clock_ns()));
	for (unsigned i = 0; i < CROWD; i++)
		if (others[i].status < 0)
			die("crowded", others[i].error);
	t->driver->free(t->dev, c.device);
}

/*
 * Runs kernels whose blocks communicate, where not all blocks find room: beside each other, and beside a
 * product that keeps half of the multiprocessors. The results must be those that they have alone.
 */
void check_crowded(struct bench *t)
{
	struct memory x = resident(t, LONG_BYTES), alone = resident(t, LONG_BYTES), y[CROWD];
	struct memory expected = {.host = malloc(LONG_BYTES), .bytes = LONG_BYTES}, found = expected;
	struct run_op softmax = softmax_of_long_rows(&x, &alone);
	float *values = expected.host;

	found.host = malloc(LONG_BYTES);
	for (uint64_t i = 0; i < LONG_BYTES / sizeof(float); i++)
		values[i] = (float)(8 * uniform(t));
	copy_between(t, &expected, &x, LONG_BYTES);
	run_one(t, &softmax);
	copy_between(t, &alone, &expected, LONG_BYTES);
	for (unsigned i = 0; i < CROWD; i++) {
		y[i] = resident(t, LONG_BYTES);
		copy_between(t, &x, &y[i], LONG_BYTES);
	}
	run_beside_product(t, &x, y);
	for (unsigned i = 0; i < CROWD; i++) {
		copy_between(t, &y[i], &found, LONG_BYTES);
		if (memcmp(found.host, expected.host, LONG_BYTES) != 0)
			die("crowded", "a softmax's result is not what it is alone");
		t->driver->free(t->dev, y[i].device);
	}
	t->driver->free(t->dev, x.device);
	t->driver->free(t->dev, alone.device);
	free(expected.host);
	free(found.host);
}

bool has_hopper(const struct bench *t)
{
	struct device_info info;

	t->driver->describe(t->dev, &info);
	return strstr(info.description, "compute capability 9.") != NULL;
}

/* Uses a RESIDENT buffer at an invalid address. The context breaks, and every run must report it. */
void check_fault(struct bench *t)
{
	struct memory nowhere = {.device = (void *)0x7000000, .owner = t->dev, .bytes = 4096};
	struct run_op op = {.args = {.op = op_by_name("add")}, .pinned = "scalar"};
	struct run runs[2] = {{.ops = &op, .n_ops = 1, .lane = 1}, {.ops = &op, .n_ops = 1, .lane = 2}};
	void *address;

	for (unsigned v = 0; v < 3; v++)
		op.args.views[v] = bytes_view(&nowhere, 4096);
	check_op(&op.args, "fault");
	for (unsigned i = 0; i < 2; i++) {
		uint64_t give_up = clock_ns() + WAIT_NS;

		begin(t, &runs[i]);
		while (!t->driver->poll(t->dev))
			if (clock_ns() > give_up)
				die("fault", "the run did not come back");
		if (runs[i].status != KOPS_E_FAULT || !strstr(runs[i].error, "illegal memory access"))
			die("fault", runs[i].error);
	}
	if (t->driver->alloc(t->dev, 4096, &address) != KOPS_E_FAULT)
		die("fault", "alloc() on a broken device does not say KOPS_E_FAULT");
	printf("fault: \"%s\"\n", runs[1].error);
}
