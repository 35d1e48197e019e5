/*
 * check_runs: random jobs through the CUDA module against the ops' references.
 *
 *     check_runs --module PATH [--seed N] [--cases N] [--fault]
 *
 * A case is a chain of ops over four buffers (two pinned, one pageable, one RESIDENT), spread over a few
 * runs of one lane that are all out at once. Views overlap, interleave, repeat and run backwards. After it
 * every byte of the buffers is compared: written elements within the tolerance of their type, the others
 * exactly.
 * Kernels whose blocks wait for each other have to end where they do not all find room. A job that finds the
 * device full has to fail and to succeed later. --fault: what a broken context looks like, last. Prints its
 * seed. Exit status 0 only if all is right, 77 where there is no GPU.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "backend.h"
#include "clock.h"
#include "half.h"

enum { BUFFERS = 4, RESIDENT = 3, RUNS_MAX = 3, OPS_MAX = 4, TRIES = 2000, TIMED_OPS = 20 };
#define TIMED_TIMES  4.0 /* of an untimed run, in wall time; held as long as it may be, it takes 10 */
#define BUFFER_BYTES (192u << 10)
#define WAIT_NS      20000000000ull

struct buffer {
	struct memory memory;
	unsigned char *expected, *written; /* written: one byte per byte of the buffer */
	unsigned char *content;            /* a RESIDENT buffer's bytes as read back, else memory.host */
};

struct bench {
	const struct backend *backend;
	struct backend_device *dev;
	struct buffer buffers[BUFFERS];
	uint64_t random;
	unsigned long runs, ops;
};

static uint64_t next_random(struct bench *t)
{
	t->random ^= t->random << 13;
	t->random ^= t->random >> 7;
	t->random ^= t->random << 17;
	return t->random >> 11;
}

static uint64_t below(struct bench *t, uint64_t n)
{
	return next_random(t) % n;
}

static double uniform(struct bench *t)
{
	return (double)below(t, 1u << 24) / (double)(1u << 23) - 1.0;
}

static void die(const char *what, const char *why)
{
	fprintf(stderr, "check_runs: %s: %s\n", what, why);
	exit(1);
}

/* ---- Running ---- */

static int wake_count;

static void on_wake(void *arg)
{
	(void)arg;
	__atomic_add_fetch(&wake_count, 1, __ATOMIC_ACQ_REL);
}

/* Half of the time by polling, half by asking to be woken. */
static void wait_for(struct bench *t, unsigned n)
{
	uint64_t give_up = clock_ns() + WAIT_NS;
	bool sleeping = below(t, 2), asked = false;
	int seen = 0;

	while (n > 0 && clock_ns() < give_up) {
		if (t->backend->poll(t->dev)) {
			n--;
			asked = false;
		} else if (sleeping && !asked) {
			seen = __atomic_load_n(&wake_count, __ATOMIC_ACQUIRE);
			t->backend->notify(t->dev, on_wake, NULL);
			asked = true;
		} else if (asked) {
			while (__atomic_load_n(&wake_count, __ATOMIC_ACQUIRE) == seen && clock_ns() < give_up)
				usleep(20);
		}
	}
	if (n > 0)
		die("wait", "a run did not come back in 20 s");
}

static struct memory resident(struct bench *t, uint64_t bytes)
{
	struct memory m = {.owner = t->dev, .bytes = bytes};

	if (t->backend->alloc(t->dev, bytes, &m.device) < 0)
		die("alloc", "no memory");
	return m;
}

static void check_op(struct op_args *args, const char *what)
{
	char why[WHY_BYTES];

	if (args->op->check(args, why) < 0)
		die(what, why);
}

static void begin(struct bench *t, struct run *run)
{
	if (t->backend->plan(t->dev, run) < 0)
		die("plan", run->error);
	t->backend->start(t->dev, run);
}

static void run_one(struct bench *t, struct run_op *op)
{
	struct run run = {.ops = op, .n_ops = 1, .lane = 77};

	begin(t, &run);
	wait_for(t, 1);
	if (run.status < 0)
		die("run", run.error);
}

static struct view bytes_view(const struct memory *m, uint64_t bytes)
{
	return (struct view){.space = m, .dtype = KOPS_F32, .rank = 1, .shape = {bytes / 4}, .strides = {1}};
}

static void copy_between(struct bench *t, const struct memory *from, const struct memory *to, uint64_t bytes)
{
	struct run_op op = {
	    .args = {.op = op_by_name("copy"), .views = {bytes_view(from, bytes), bytes_view(to, bytes)}},
	    .pinned = ""};

	check_op(&op.args, "copy");
	run_one(t, &op);
}

/* ---- Random views ---- */

static bool fits(const struct view *v)
{
	uint64_t lo, hi;

	return view_extent(v, BUFFER_BYTES, &lo, &hi) == 0;
}

/* Axes in random order of nesting, with gaps, some reversed; inputs may repeat an axis. */
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
		/* Few distinct places, so that views of a case meet. */
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
	return random_view(t, &args->views[0], dtype, rank, a + (3 - rank), true) &&
	       random_view(t, &args->views[1], dtype, rank, b + (3 - rank), true) &&
	       random_view(t, &args->views[2], dtype, rank, c + (3 - rank), false);
}

/* Ops whose views have one shape, but for transpose, whose output has the last two axes exchanged. */
static bool random_uniform(struct bench *t, struct op_args *args, kops_dtype dtype, bool transpose)
{
	uint32_t rank = 1 + (uint32_t)below(t, 4);
	uint64_t shape[KOPS_RANK_MAX];
	unsigned n = args->op->n_inputs;

	if (transpose && rank < 2)
		rank = 2;
	for (uint32_t d = 0; d < rank; d++)
		shape[d] =
		    rank > 2 && d < rank - 2 ? 1 + below(t, 4) : random_extent(t) * (below(t, 6) ? 1 : 5);
	for (unsigned v = 0; v < n; v++)
		if (!random_view(t, &args->views[v], dtype, rank, shape, true))
			return false;
	if (transpose) {
		uint64_t keep = shape[rank - 1];
		shape[rank - 1] = shape[rank - 2];
		shape[rank - 2] = keep;
	}
	if (!transpose && n > 0 && below(t, 4) == 0) {
		args->views[n] = args->views[0]; /* in place, where the op allows it */
		return true;
	}
	return random_view(t, &args->views[n], dtype, rank, shape, false);
}

static bool random_args(struct bench *t, struct op_args *args, kops_dtype dtype)
{
	const struct op *op = ops[dtype == KOPS_F32 ? below(t, OP_COUNT) : below(t, 2) * 4];

	*args = (struct op_args){.op = op};
	if (strcmp(op->name, "gemm") == 0)
		return random_gemm(t, args, dtype);
	if (strcmp(op->name, "softmax") == 0) {
		args->params.softmax.scale = uniform(t) * 2;
		args->params.softmax.log = below(t, 4) == 0;
	}
	return random_uniform(t, args, dtype, strcmp(op->name, "transpose") == 0);
}

/* A valid op, its kernel asked for by name half of the time. */
static void random_op(struct bench *t, struct run_op *ret, kops_dtype dtype)
{
	for (int i = 0; i < TRIES; i++) {
		const struct kernel_list *list;
		struct run probe = {.ops = ret, .n_ops = 1};
		char why[WHY_BYTES];

		*ret = (struct run_op){.pinned = ""};
		if (!random_args(t, &ret->args, dtype) || ret->args.op->check(&ret->args, why) < 0)
			continue;
		list = t->backend->kernels(ret->args.op);
		if (below(t, 2))
			ret->pinned = list->rows[below(t, list->n)].name;
		if (t->backend->plan(t->dev, &probe) == 0)
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

	for (unsigned v = 0; v <= args.op->n_inputs; v++)
		args.views[v].data = buffer_of(t, &args.views[v])->expected + args.views[v].offset;
	args.op->reference(&args);
	mark_written(buffer_of(t, op_output(&args))->written, op_output(&args), 0, 0);
}

static void describe_op(const struct run_op *op)
{
	fprintf(stderr, "  %s by %s (%s)\n", op->args.op->name, op->kernel ? op->kernel->name : "?",
	        op->pinned);
	for (unsigned v = 0; v <= op->args.op->n_inputs; v++) {
		const struct view *x = &op->args.views[v];
		const struct memory *m = x->space;

		fprintf(stderr, "    %s %s %s at %llu:", v < op->args.op->n_inputs ? "in " : "out",
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

/* The first element that is wrong, or -1. */
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

static bool run_case(struct bench *t)
{
	kops_dtype dtype = below(t, 2) ? KOPS_F32 : (kops_dtype)(1 + below(t, 4));
	struct run_op of_run[RUNS_MAX][OPS_MAX];
	struct run runs[RUNS_MAX];
	unsigned n_runs = 1 + (unsigned)below(t, RUNS_MAX);
	bool good = true;

	fill(t, dtype);
	for (unsigned r = 0; r < n_runs; r++) {
		runs[r] = (struct run){.ops = of_run[r],
		                       .n_ops = 1 + (unsigned)below(t, OPS_MAX),
		                       .lane = 5,
		                       .timed = below(t, 2)};
		for (unsigned i = 0; i < runs[r].n_ops; i++)
			random_op(t, &of_run[r][i], dtype);
		if (t->backend->plan(t->dev, &runs[r]) < 0)
			die("plan", runs[r].error);
		t->ops += runs[r].n_ops;
	}
	for (unsigned r = 0; r < n_runs; r++)
		t->backend->start(t->dev, &runs[r]);
	for (unsigned r = 0; r < n_runs; r++)
		for (unsigned i = 0; i < runs[r].n_ops; i++)
			expect(t, &of_run[r][i]);
	wait_for(t, n_runs);
	for (unsigned r = 0; r < n_runs; r++)
		if (runs[r].status < 0)
			die("run", runs[r].error);
	struct memory back = {.host = t->buffers[RESIDENT].content, .bytes = BUFFER_BYTES};
	copy_between(t, &t->buffers[RESIDENT].memory, &back, BUFFER_BYTES);
	good = compare(t, dtype);
	for (unsigned r = 0; !good && r < n_runs; r++)
		for (unsigned i = 0; i < runs[r].n_ops; i++)
			describe_op(&of_run[r][i]);
	t->runs += n_runs;
	return good;
}

/* ---- Memory and failures ---- */

static void check_out_of_memory(struct bench *t)
{
	struct device_info info;
	void *address = NULL, *most = NULL;
	uint64_t bytes = 1ull << 30;
	struct memory big = {.bytes = bytes};
	struct run_op op = {.args = {.op = op_by_name("transpose")}, .pinned = ""};
	struct run run = {.ops = &op, .n_ops = 1};
	struct view *x = &op.args.views[0], *y = &op.args.views[1];
	char why[WHY_BYTES];

	t->backend->describe(t->dev, &info);
	if (t->backend->alloc(t->dev, info.memory_bytes * 2, &address) != KOPS_E_NOMEM)
		die("alloc", "twice the device's memory is not refused with KOPS_E_NOMEM");
	if (t->backend->alloc(t->dev, info.memory_bytes - (256u << 20), &most) < 0)
		die("alloc", "most of the device's memory is not given");
	big.host =
	    mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	*x = (struct view){.space = &big, .dtype = KOPS_F32, .rank = 2, .shape = {8192, 16384}};
	view_make_dense(x);
	*y = (struct view){
	    .space = &big, .offset = bytes / 2, .dtype = KOPS_F32, .rank = 2, .shape = {16384, 8192}};
	view_make_dense(y);
	if (op.args.op->check(&op.args, why) < 0 || t->backend->plan(t->dev, &run) < 0)
		die("plan", why);
	t->backend->start(t->dev, &run);
	wait_for(t, 1);
	if (run.status != KOPS_E_NOMEM || !strstr(run.error, "MiB"))
		die("a job on a full device", run.error);
	t->backend->free(t->dev, most);
	t->backend->start(t->dev, &run);
	wait_for(t, 1);
	if (run.status < 0)
		die("the same job when there is room again", run.error);
	munmap(big.host, bytes);
}

/* The least of three; the first loads the kernel. */
static double least_wall_us(struct bench *t, struct run *run)
{
	double least_us = INFINITY;

	for (unsigned i = 0; i < 3; i++) {
		uint64_t start = clock_ns();

		t->backend->start(t->dev, run);
		wait_for(t, 1);
		if (run->status < 0)
			die("timed", run->error);
		least_us = fmin(least_us, clock_us(start, clock_ns()));
	}
	return least_us;
}

/*
 * Small ops whose launches take the host longer than their kernels the device: a timed run begins as soon as
 * all is enqueued, whatever the memory. On the device's own it shows the kernels alone, its wall time the
 * launches too.
 */
static void check_timed(struct bench *t, unsigned buffer)
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
	if (t->backend->plan(t->dev, &run) < 0)
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
}

enum { CROWD = 3, LONG_ROWS = 61, LONG_COLUMNS = 40003 };
#define LONG_BYTES (LONG_ROWS * LONG_COLUMNS * sizeof(float))

static struct run_op softmax_of_long_rows(const struct memory *x, const struct memory *y)
{
	struct run_op op = {.args = {.op = op_by_name("softmax")}, .pinned = "ring"};
	struct view rows = {.dtype = KOPS_F32, .rank = 2, .shape = {LONG_ROWS, LONG_COLUMNS}};

	view_make_dense(&rows);
	op.args.views[0] = op.args.views[1] = rows;
	op.args.views[0].space = x;
	op.args.views[1].space = y;
	op.args.params.softmax.scale = 1;
	check_op(&op.args, "crowded");
	return op;
}

/* Of a single number; few blocks, for a long time. */
static struct run_op long_product(const struct memory *number, const struct memory *c)
{
	struct run_op op = {.args = {.op = op_by_name("gemm")}, .pinned = "naive"};
	const uint64_t k = 1 << 17, shapes[3][2] = {{128, k}, {k, 128}, {128, 128}};

	for (unsigned v = 0; v < 3; v++) {
		op.args.views[v] = (struct view){.space = v < 2 ? number : c, .dtype = KOPS_F32, .rank = 2};
		memcpy(op.args.views[v].shape, shapes[v], sizeof shapes[v]);
	}
	view_make_dense(&op.args.views[2]);
	op.args.params.gemm.alpha = 1;
	check_op(&op.args, "crowded");
	return op;
}

/* The product and several softmaxes, each in a lane of its own. */
static void run_beside_product(struct bench *t, const struct memory *x, const struct memory y[CROWD])
{
	struct memory c = resident(t, 128 * 128 * sizeof(float));
	struct run_op product = long_product(x, &c), softmax[CROWD];
	struct run first = {.ops = &product, .n_ops = 1, .lane = CROWD}, others[CROWD];
	uint64_t start = clock_ns();

	begin(t, &first);
	for (unsigned i = 0; i < CROWD; i++) {
		softmax[i] = softmax_of_long_rows(i % 2 ? x : &y[i], &y[i]); /* of the same numbers */
		others[i] = (struct run){.ops = &softmax[i], .n_ops = 1, .lane = i};
		begin(t, &others[i]);
	}
	wait_for(t, CROWD + 1);
	printf("crowded: %u softmaxes of long rows beside a product: %.0f µs\n", CROWD,
	       clock_us(start, clock_ns()));
	for (unsigned i = 0; i < CROWD; i++)
		if (others[i].status < 0)
			die("crowded", others[i].error);
	t->backend->free(t->dev, c.device);
}

/*
 * Kernels whose blocks tell each other something, where they do not all find room: beside each other and beside
 * a product that keeps half of the multiprocessors. The results are those that they have alone.
 */
static void check_crowded(struct bench *t)
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
		t->backend->free(t->dev, y[i].device);
	}
	t->backend->free(t->dev, x.device);
	t->backend->free(t->dev, alone.device);
	free(expected.host);
	free(found.host);
}

static bool has_hopper(const struct bench *t)
{
	struct device_info info;

	t->backend->describe(t->dev, &info);
	return strstr(info.description, "compute capability 9.") != NULL;
}

/* A RESIDENT buffer at an address that is none. The context breaks; every run has to say so. */
static void check_fault(struct bench *t)
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
		while (!t->backend->poll(t->dev))
			if (clock_ns() > give_up)
				die("fault", "the run did not come back");
		if (runs[i].status != KOPS_E_FAULT || !strstr(runs[i].error, "illegal memory access"))
			die("fault", runs[i].error);
	}
	if (t->backend->alloc(t->dev, 4096, &address) != KOPS_E_FAULT)
		die("fault", "alloc() on a broken device does not say KOPS_E_FAULT");
	printf("fault: \"%s\"\n", runs[1].error);
}

/* ---- Main ---- */

static void set_up(struct bench *t, const char *module)
{
	void *handle = dlopen(module, RTLD_NOW | RTLD_LOCAL);
	const struct backend *(*entry)(void);
	struct device_info info;
	char why[WHY_BYTES] = "";

	if (!handle)
		die("dlopen", dlerror());
	entry = (const struct backend *(*)(void))dlsym(handle, BACKEND_ENTRY);
	if (!entry)
		die("dlsym", dlerror());
	t->backend = entry();
	if (t->backend->count(why) == 0) {
		printf("skipped: %s\n", why);
		exit(77);
	}
	if (t->backend->open(0, 0, &t->dev, why) < 0)
		die("open", why);
	t->backend->describe(t->dev, &info);
	printf("%s, %llu MiB\n", info.description, (unsigned long long)(info.memory_bytes >> 20));
	for (unsigned b = 0; b < BUFFERS; b++) {
		struct buffer *buffer = &t->buffers[b];
		void *host =
		    mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

		memset(host, 1, BUFFER_BYTES);
		buffer->memory.bytes = BUFFER_BYTES;
		buffer->expected = calloc(1, BUFFER_BYTES);
		buffer->written = calloc(1, BUFFER_BYTES);
		buffer->content = host;
		if (b == RESIDENT) {
			buffer->memory = resident(t, BUFFER_BYTES);
			continue;
		}
		buffer->memory.host = host;
		if (b == 2)
			continue;
		if (t->backend->pin(host, BUFFER_BYTES, false) < 0)
			die("pin", "cannot register memory");
		buffer->memory.pin = MEMORY_PINNED;
	}
}

static void tear_down(struct bench *t)
{
	for (unsigned b = 0; b < BUFFERS; b++) {
		if (t->buffers[b].memory.pin == MEMORY_PINNED)
			t->backend->unpin(t->buffers[b].memory.host);
		if (b == RESIDENT)
			t->backend->free(t->dev, t->buffers[b].memory.device);
		munmap(t->buffers[b].content, BUFFER_BYTES);
		free(t->buffers[b].expected);
		free(t->buffers[b].written);
	}
	t->backend->close(t->dev);
}

int main(int argc, char **argv)
{
	static struct bench t;
	const char *module = NULL;
	unsigned long cases = 2000;
	uint64_t seed = (uint64_t)time(NULL) * 1000003u + (uint64_t)getpid();
	bool fault = false;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--fault") == 0)
			fault = true;
		else if (i + 1 < argc && strcmp(argv[i], "--module") == 0)
			module = argv[++i];
		else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0)
			seed = strtoull(argv[++i], NULL, 0);
		else if (i + 1 < argc && strcmp(argv[i], "--cases") == 0)
			cases = strtoul(argv[++i], NULL, 0);
		else
			die("usage", "check_runs --module PATH [--seed N] [--cases N] [--fault]");
	}
	if (!module)
		die("usage", "--module is missing");
	printf("seed %llu\n", (unsigned long long)seed);
	t.random = seed * 2654435769u + 88172645463325252u;
	set_up(&t, module);
	for (unsigned long i = 0; i < cases; i++) {
		if (!run_case(&t)) {
			fprintf(stderr, "check_runs: case %lu of seed %llu is wrong\n", i,
			        (unsigned long long)seed);
			return 1;
		}
	}
	printf("%lu cases, %lu runs, %lu ops right\n", cases, t.runs, t.ops);
	if (!fault) {
		for (unsigned b = 0; b < BUFFERS; b++)
			check_timed(&t, b);
		if (has_hopper(&t)) /* others have no such kernels */
			check_crowded(&t);
		check_out_of_memory(&t);
	}
	if (fault)
		check_fault(&t);
	tear_down(&t);
	return 0;
}
