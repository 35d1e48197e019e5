/* stream_runs.c: runs whose operands move while parts of them are computed give what they give in one piece,
 * also two that exchange operands (plan/exchange.h). */
#include "check_runs.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "common/half.h"
#include "plan/exchange.h"

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

/* ---- Two devices that exchange operands ---- */

struct tile {
	struct bench *bench;
	struct device_state *dev;
	struct planner planner;
	struct run_op op;
	struct run run;
	unsigned late_us;
};

/* The thread of its device. */
static void *run_tile(void *arg)
{
	struct tile *tile = arg;
	uint64_t give_up = clock_ns() + WAIT_NS;

	if (tile->late_us > 0)
		usleep(tile->late_us);
	tile->bench->driver->start(tile->dev, &tile->run);
	while (tile->bench->driver->poll(tile->dev) != &tile->run)
		if (clock_ns() > give_up)
			die("exchange", "a tile did not come back in 20 s");
	if (tile->run.status < 0)
		die("exchange", tile->run.error);
	return NULL;
}

static unsigned same_inputs(const struct op_args *a, const struct op_args *b)
{
	unsigned same = 0;

	for (unsigned v = 0; v < op_first_output(a->op); v++)
		if (!view_is_absent(&a->views[v]) && a->views[v].offset == b->views[v].offset &&
		    memcmp(a->views[v].shape, b->views[v].shape, sizeof a->views[v].shape) == 0)
			same |= 1u << v;
	return same;
}

/* Halves along an axis of C. NULL: they are not streamed, or not alike. */
static struct exchange *plan_tiles(struct tile tiles[2], const struct run_op *whole, unsigned axis)
{
	uint32_t wanted[PART_AXES_MAX] = {0};
	struct op_cut halves;

	wanted[axis] = 2;
	if (!op_cut_grid(&whole->args, wanted, 1, &halves) || halves.n_parts != 2)
		return NULL;
	for (unsigned i = 0; i < 2; i++) {
		tiles[i].op = (struct run_op){.pinned = whole->pinned};
		tiles[i].run = (struct run){.ops = &tiles[i].op, .n_ops = 1, .lane = 5};
		op_part(&whole->args, &halves, i, &tiles[i].op.args);
	}
	for (unsigned i = 0; i < 2; i++) {
		tiles[i].op.shared.operands = same_inputs(&tiles[0].op.args, &tiles[1].op.args);
		tiles[i].op.shared.rate = 300e3;
		if (plan_run(&tiles[i].planner, &tiles[i].run) < 0)
			die("exchange", tiles[i].run.error);
	}
	return exchange_new(&tiles[0].run, &tiles[1].run);
}

/* How both threads are, round by round: the first is as a new job, the others as one that comes again. */
enum round { AT_ONCE, AT_ONCE_AGAIN, ALONE, SECOND_IS_LATE, FIRST_IS_LATE, AT_ONCE_AT_LAST, ROUNDS };
static const char *const round_names[] = {"at once", "at once", "alone", "late", "late", "at once"};

static void run_round(struct tile tiles[2], enum round round)
{
	pthread_t threads[2];

	exchange_begin(tiles[0].run.exchange, round != ALONE);
	for (unsigned i = 0; i < 2; i++) {
		tiles[i].late_us = round == (i ? SECOND_IS_LATE : FIRST_IS_LATE) ? 4000 : 0;
		tiles[i].run.repeats = round > AT_ONCE;
		if (pthread_create(&threads[i], NULL, run_tile, &tiles[i]))
			die("exchange", "no thread");
	}
	for (unsigned i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	printf("exchange: %s, %u parts: planned %.0f us, took %.0f, %.0f\n", round_names[round],
	       tiles[0].op.cut.n_parts, tiles[0].run.plan_us, tiles[0].run.compute_us, tiles[1].run.compute_us);
}

/* Returns true if it could be exchanged. whole: its result. */
static bool exchange_case(struct tile tiles[2], const struct streamed *s, struct memory *m, const char *whole,
                          unsigned axis)
{
	struct run_op op;
	const struct view *y;
	struct exchange *x;

	m->pin = MEMORY_PINNED;
	op = op_of(s, m);
	y = op_output(&op.args);
	x = plan_tiles(tiles, &op, axis);
	for (enum round round = 0; x && round < ROUNDS; round++) {
		char *result = (char *)m->host + y->offset;

		memset(result, s->beta != 0 ? 0x3c : 0xff, view_elements(y) * dtype_size(y->dtype));
		run_round(tiles, round);
		compare(s, y, whole, result);
	}
	for (unsigned i = 0; i < 2; i++)
		run_forget_plan(&tiles[i].run);
	exchange_free(x);
	return x;
}

/* The first device is the bench's; the second another GPU, or the same one once more. */
static void open_two(struct bench *t, struct tile tiles[2])
{
	char why[WHY_BYTES];
	unsigned second = t->driver->count(why) > 1;

	for (unsigned i = 0; i < 2; i++) {
		tiles[i] = (struct tile){.bench = t, .dev = t->dev};
		if (i > 0 && t->driver->open(second, &(struct driver_limits){0}, &tiles[i].dev, why) < 0)
			die("exchange", why);
		driver_planner(t->driver, tiles[i].dev, &tiles[i].planner);
	}
	printf("exchange: with GPU %u, from which come %.1f GB/s\n", second,
	       t->driver->peer_rate(t->dev, tiles[1].dev) * 1e-3);
}

void check_streamed(struct bench *t, unsigned long n)
{
	unsigned exchanged = 0;
	struct tile tiles[2];

	struct memory m = {.bytes = MEMORY_BYTES};
	char *whole = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	m.host = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (whole == MAP_FAILED || m.host == MAP_FAILED || t->driver->pin(m.host, m.bytes, false) < 0)
		die("streamed", "cannot register memory");
	if (t->driver->peer_rate)
		open_two(t, tiles);
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
		for (unsigned axis = 1; t->driver->peer_rate && axis < 3 && strcmp(s->op, "gemm") == 0; axis++)
			exchanged += exchange_case(tiles, s, &m, whole, axis);
	}
	if (t->driver->peer_rate) {
		if (exchanged == 0 && n > 0)
			die("exchange", "no run could exchange its operands");
		t->driver->close(tiles[1].dev);
	}
	t->driver->unpin(m.host, MEMORY_BYTES);
	munmap(m.host, MEMORY_BYTES);
	munmap(whole, MEMORY_BYTES);
}
