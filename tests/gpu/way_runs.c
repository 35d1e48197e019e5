/* way_runs.c: what a GPU's right of way rests on: nobody waits for a long run, and who makes room loses
 * nothing. */
#include "check_runs.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "common/half.h"

/* Asks a thousand times for a wake-up at the end of one long run: no call may wait for that end. */
void check_notify(struct bench *t)
{
	struct memory x = resident(t, sizeof(float)), c = resident(t, 128 * 128 * sizeof(float));
	struct run_op product = long_product(&x, &c);
	struct run run = {.ops = &product, .n_ops = 1};
	unsigned before = times_woken();
	uint64_t start = clock_ns(), give_up = start + WAIT_NS;
	double asked_us, ended_us;

	begin(t, &run);
	if (t->driver->poll(t->dev)) /* starts what was held back */
		die("notify", "the run ended at once");
	for (unsigned i = 0; i < 1000; i++)
		ask_to_be_woken(t);
	asked_us = clock_us(start, clock_ns());
	while (times_woken() == before && clock_ns() < give_up)
		;
	ended_us = clock_us(start, clock_ns());
	wait_for(t, 1);
	printf("notify: asked 1000 times in %.0f µs of %.0f, woken %u times\n", asked_us, ended_us,
	       times_woken() - before);
	if (times_woken() == before)
		die("notify", "the run's end woke nobody");
	if (asked_us > ended_us / 2)
		die("notify", "calls waited for the end of the run");
	t->driver->free(t->dev, x.device);
	t->driver->free(t->dev, c.device);
}

#define UNPINNED_BYTES (1u << 20)

struct unpinning {
	const struct driver *driver;
	void *host;
};

static void *unpin(void *arg)
{
	const struct unpinning *u = arg;

	u->driver->unpin(u->host, UNPINNED_BYTES);
	return NULL;
}

/* Unpins memory during a long run: another thread must be able to start a short one, and a long one after it.
 */
void check_unpin(struct bench *t)
{
	struct memory x = resident(t, sizeof(float)), c = resident(t, 128 * 128 * sizeof(float));
	struct memory y = resident(t, 1024), z = resident(t, 128 * 128 * sizeof(float));
	struct run_op products[2] = {long_product(&x, &c), long_product(&x, &z)};
	struct run_op copy = {.args = {.op = op_by_name("copy")}, .pinned = ""};
	struct run longs[2] = {{.ops = &products[0], .n_ops = 1, .lane = 1},
	                       {.ops = &products[1], .n_ops = 1, .lane = 2}};
	struct run brief = {.ops = &copy, .n_ops = 1, .lane = 3};
	struct unpinning u = {t->driver, aligned_alloc(4096, UNPINNED_BYTES)};
	pthread_t thread;
	uint64_t give_up = clock_ns() + WAIT_NS;
	const struct run *back = NULL;

	copy.args.views[0] = bytes_view(&y, 512);
	copy.args.views[1] = copy.args.views[0];
	copy.args.views[1].offset += 512;
	check_op(&copy.args, "unpin");
	memset(u.host, 1, UNPINNED_BYTES);
	if (t->driver->pin(u.host, UNPINNED_BYTES, false) < 0)
		die("unpin", "cannot pin memory");
	begin(t, &longs[0]);
	if (t->driver->poll(t->dev) || pthread_create(&thread, NULL, unpin, &u) != 0)
		die("unpin", "cannot begin");
	usleep(1000);
	begin(t, &brief);
	begin(t, &longs[1]);
	while (!back && clock_ns() < give_up)
		back = t->driver->poll(t->dev);
	if (back != &brief)
		die("unpin", "a short run waited for a long one's end");
	wait_for(t, 2);
	pthread_join(thread, NULL);
	printf("unpin: beside a long run, in the gap before the next\n");
	for (unsigned i = 0; i < 4; i++)
		t->driver->free(t->dev, (struct memory[]){x, c, y, z}[i].device);
	free(u.host);
}

/* ---- Room for others ---- */

/* Ops by kernels that leave multiprocessors or are kept off them, with more blocks than an H100 has of these.
 */
static const struct roomy {
	const char *op, *kernel;
	kops_dtype dtype;
	kops_precision precision;
	uint64_t shapes[3][2];
} roomy[] = {
    {"gemm", "f16x3", KOPS_F32, KOPS_PRECISION_F32, {{2000, 700}, {700, 2100}, {2000, 2100}}},
    {"gemm", "bf16x6", KOPS_F32, KOPS_PRECISION_F32, {{2000, 800}, {800, 2100}, {2000, 2100}}},
    {"gemm", "wgmma", KOPS_F16, KOPS_PRECISION_F32, {{3000, 704}, {704, 2200}, {3000, 2200}}},
    {"gemm", "wgmma", KOPS_BF16, KOPS_PRECISION_F32, {{3001, 703}, {703, 2201}, {3001, 2201}}},
    {"gemm", "wgmma", KOPS_F32, KOPS_PRECISION_TF32, {{3000, 704}, {704, 2200}, {3000, 2200}}},
    {"gemm", "ragged", KOPS_BF16, KOPS_PRECISION_F32, {{40, 777}, {777, 30001}, {40, 30001}}},
    {"gemm", "simt", KOPS_F32, KOPS_PRECISION_IEEE, {{3000, 704}, {704, 2200}, {3000, 2200}}},
    {"gemm", "cublas", KOPS_F64, KOPS_PRECISION_F32, {{1000, 704}, {704, 2200}, {1000, 2200}}},
    {"softmax", "ring", KOPS_F32, 0, {{200, 100000}, {200, 100000}}},
};

enum { ROOMY_BYTES = 96 << 20 };

static struct run_op roomy_op(const struct roomy *r, const struct memory *x, const struct memory *y)
{
	struct run_op op = {.args = {.op = op_by_name(r->op)}, .pinned = r->kernel};
	uint64_t at = 0;

	for (unsigned v = 0, given = 0; v < op.args.op->n_operands; v++) {
		struct view *view = &op.args.views[v];
		bool is_output = op_is_output(op.args.op, v);

		if (op.args.op->operands[v].is_optional)
			continue;
		*view = (struct view){
		    .space = is_output ? y : x, .offset = is_output ? 0 : at, .dtype = r->dtype, .rank = 2};
		memcpy(view->shape, r->shapes[given++], sizeof r->shapes[0]);
		view_make_dense(view);
		at += (view_elements(view) * dtype_size(r->dtype) + 255) / 256 * 256;
	}
	op_set_defaults(&op.args);
	if (strcmp(r->op, "gemm") == 0)
		op.args.params.gemm.precision = r->precision;
	check_op(&op.args, "room");
	return op;
}

/* Copies the result to `result`. */
static void run_with_room(struct bench *t, const struct roomy *r, const struct memory *x, enum run_room room,
                          struct memory *result)
{
	struct memory y = resident(t, ROOMY_BYTES);
	struct run_op op = roomy_op(r, x, &y);
	struct run run = {.ops = &op, .n_ops = 1, .lane = 5, .room = room};

	begin(t, &run);
	wait_for(t, 1);
	if (run.status < 0)
		die("room", run.error);
	copy_between(t, &y, result, ROOMY_BYTES);
	t->driver->free(t->dev, y.device);
}

static void fill_roomy(struct bench *t, kops_dtype dtype, struct memory *host, const struct memory *x)
{
	for (uint64_t i = 0; i < ROOMY_BYTES / dtype_size(dtype); i++)
		half_store(host->host, dtype, (int64_t)i, uniform(t));
	copy_between(t, host, x, ROOMY_BYTES);
}

/* Results of kernels that leave multiprocessors to others are those of kernels that keep all, bit for bit. */
void check_room(struct bench *t)
{
	struct memory x = resident(t, ROOMY_BYTES);
	struct memory all = {.host = malloc(ROOMY_BYTES), .bytes = ROOMY_BYTES}, fewer = all;

	fewer.host = malloc(ROOMY_BYTES);
	for (unsigned i = 0; i < sizeof roomy / sizeof roomy[0]; i++) {
		fill_roomy(t, roomy[i].dtype, &all, &x);
		run_with_room(t, &roomy[i], &x, RUN_KEEPS_ALL, &all);
		run_with_room(t, &roomy[i], &x, RUN_IS_CONFINED, &fewer);
		printf("room: %s %s by %s\n", roomy[i].op, dtype_name(roomy[i].dtype), roomy[i].kernel);
		if (memcmp(all.host, fewer.host, ROOMY_BYTES) != 0)
			die("room", "a result differs where multiprocessors are left to others");
	}
	t->driver->free(t->dev, x.device);
	free(all.host);
	free(fewer.host);
}
