/* Tests how a job's op is cut into tiles over devices, and what the job's run shows of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "job/spread.h"
#include "plan/exchange.h"
#include "plan/plan.h"

enum { DEVICES = 6, ROWS = 600, COLUMNS = 500, DEPTH = 700 };

/* A kernel that takes 1 ns for each element of the output, and at least so long. */
static double least_us;
static unsigned least_elements; /* that it takes */
static unsigned timed;          /* how often its time was asked for */

static bool supports(const struct op_args *args, const char **ret_why_not)
{
	*ret_why_not = "needs more";
	return view_elements(op_output_const(args)) >= least_elements;
}

static double time_ns(const struct op_args *args)
{
	double ns = (double)view_elements(op_output_const(args));

	timed++;

	return ns < least_us * 1e3 ? least_us * 1e3 : ns;
}

static uint64_t workspace(const struct op_args *args)
{
	return view_elements(op_output_const(args));
}

static const struct kernel_list *kernels_of(const struct op *op)
{
	static const struct kernel kernel = {
	    .name = "even", .supports = supports, .time_ns = time_ns, .workspace = workspace};
	static const struct kernel_list list = {&kernel, 1};

	(void)op;
	return &list;
}

struct place {
	struct planner planner;
	struct driver driver;
	struct device devices[DEVICES];
	struct engine engine;
	struct account account;
	struct job_queues queues;
	struct memory memory[OP_OPERANDS_MAX];
	struct job *job;
};

static void begin(struct place *p, const struct op_args *args)
{
	char why[WHY_BYTES];

	least_us = 0;
	least_elements = 0;
	*p = (struct place){.planner = {.kernels = kernels_of, .info.memory_bytes = 1 << 30},
	                    .driver = {.kind = "gpu"},
	                    .account = {.refs = 1}};
	for (unsigned i = 0; i < DEVICES; i++) {
		p->devices[i] =
		    (struct device){.driver = &p->driver, .planner = &p->planner, .info = &p->planner.info};
		snprintf(p->devices[i].name, sizeof p->devices[i].name, "gpu%u", i);
		p->engine.devices[i].device = &p->devices[i];
	}
	p->engine.n_devices = DEVICES;
	p->job = job_new(&p->engine, &p->account, &p->queues, 0, 1, 0);
	assert_non_null(p->job);
	p->job->ops[0] = (struct run_op){.args = *args, .pinned = ""};
	for (unsigned v = 0; v < args->op->n_operands; v++) {
		p->memory[v].bytes = p->memory[v].reached_bytes = 1 << 30;
		if (!view_is_absent(&args->views[v]))
			p->job->ops[0].args.views[v].space = &p->memory[v];
	}
	assert_int_equal(op_check(&p->job->ops[0].args, why), 0);
	assert_int_equal(plan_run(&p->planner, &p->job->run), 0);
}

static void end(struct place *p)
{
	job_free(p->job);
	job_queues_forget(&p->queues);
}

static struct view matrix(uint64_t rows, uint64_t columns)
{
	struct view v = {.dtype = KOPS_F32, .rank = 2, .shape = {rows, columns}};

	view_make_dense(&v);
	return v;
}

static struct op_args product(uint64_t m, uint64_t n, uint64_t k)
{
	struct op_args args = {.op = op_by_name("gemm"), .params.gemm.alpha = 1};

	args.views[0] = matrix(m, k);
	args.views[1] = matrix(k, n);
	*op_output(&args) = matrix(m, n);
	return args;
}

/* Fails if some element of the output is in no tile, or in two. */
static void assert_covered(const struct place *p, const struct spread *s)
{
	const struct view *whole = op_output_const(&p->job->ops[0].args);
	unsigned char *seen = calloc(1, view_elements(whole));
	uint64_t all = 0;

	assert_non_null(seen);
	for (unsigned t = 0; t < s->n_tiles; t++) {
		const struct view *v = op_output_const(&s->tiles[t].op.args);
		uint64_t first = (v->offset - whole->offset) / 4;

		assert_int_equal(v->rank, 3); /* of one matrix */
		for (uint64_t i = 0; i < v->shape[1]; i++)
			for (uint64_t j = 0; j < v->shape[2]; j++) {
				uint64_t at = first + i * whole->shape[2] + j;

				assert_true(at < view_elements(whole));
				assert_int_equal(seen[at]++, 0);
				all++;
			}
	}
	assert_int_equal(all, view_elements(whole));
	free(seen);
}

static void tiles_cover_the_output(void **state)
{
	static const unsigned owners[DEVICES] = {0, 3, 1, 5, 4, 2};
	const struct op_args args = product(ROWS, COLUMNS, DEPTH);

	(void)state;
	for (unsigned n = 2; n <= DEVICES; n++) {
		struct place p;
		struct spread *s;

		begin(&p, &args);
		s = spread_new(p.job, owners, n);
		assert_non_null(s);
		assert_int_equal(s->n_tiles, n);
		for (unsigned i = 0; i < n; i++)
			assert_int_equal(s->tiles[i].owner, owners[i]);
		assert_covered(&p, s);
		p.job->spread = s; /* job_free() frees it */
		end(&p);
	}
}

/* Four tiles of a square product have half of A and half of B each; a row of tiles would have all of B. */
static void tiles_have_few_bytes(void **state)
{
	static const unsigned owners[] = {0, 1, 2, 3};
	const struct op_args square = product(512, 512, 512), tall = product(4096, 64, 512);
	struct place p;

	(void)state;
	begin(&p, &square);
	p.job->spread = spread_new(p.job, owners, 4);
	assert_non_null(p.job->spread);
	assert_int_equal(op_output_const(&p.job->spread->tiles[0].op.args)->shape[1], 256);
	assert_int_equal(op_output_const(&p.job->spread->tiles[0].op.args)->shape[2], 256);
	end(&p);
	begin(&p, &tall);
	p.job->spread = spread_new(p.job, owners, 4);
	assert_non_null(p.job->spread);
	assert_int_equal(op_output_const(&p.job->spread->tiles[0].op.args)->shape[1], 1024);
	assert_int_equal(op_output_const(&p.job->spread->tiles[0].op.args)->shape[2], 64);
	end(&p);
}

static void what_does_not_pay_is_left_whole(void **state)
{
	static const unsigned owners[] = {0, 1};
	const struct op_args args = product(ROWS, COLUMNS, DEPTH), one = product(1, 1, DEPTH);
	struct place p;

	(void)state;
	begin(&p, &args);
	least_us = 200; /* of 300 */
	assert_null(spread_new(p.job, owners, 2));
	least_us = 0;
	least_elements = ROWS * COLUMNS;
	assert_null(spread_new(p.job, owners, 2));
	least_elements = 0;
	p.engine.devices[1].bytes_out = (1 << 30) - 1000; /* the tile's workspace does not fit */
	assert_null(spread_new(p.job, owners, 2));
	p.engine.devices[1].bytes_out = 0;
	p.job->spread = spread_new(p.job, owners, 2);
	assert_non_null(p.job->spread);
	end(&p);
	begin(&p, &one);
	assert_null(spread_new(p.job, owners, 2));
	end(&p);
}

static void set(struct tile *tile, int status, bool through, double us)
{
	tile->run.status = status;
	tile->run.next_op = through ? 1 : 0;
	tile->run.compute_us = us;
	if (status < 0)
		snprintf(tile->run.error, WHY_BYTES, "tile of %u", tile->owner);
}

/* The job goes on as long as one tile is unfinished; what failed is told at the end. */
static void the_run_shows_all_tiles(void **state)
{
	static const unsigned owners[] = {0, 1, 2};
	const struct op_args args = product(ROWS, COLUMNS, DEPTH);
	struct place p;
	struct spread *s;
	uint32_t parts, done;

	(void)state;
	begin(&p, &args);
	s = p.job->spread = spread_new(p.job, owners, 3);
	assert_non_null(s);
	spread_reset(s);
	assert_true(spread_left_us(s) > 90);
	set(&s->tiles[0], 0, true, 10);
	set(&s->tiles[1], 0, false, 20);
	set(&s->tiles[2], KOPS_E_NOMEM, false, 0);
	spread_gather(s);
	assert_false(run_is_through(&p.job->run));
	assert_int_equal(p.job->run.status, 0);
	assert_true(spread_left_us(s) > 90);
	set(&s->tiles[1], 0, true, 30);
	assert_true(spread_left_us(s) < 1);
	spread_gather(s);
	assert_true(run_is_through(&p.job->run));
	assert_int_equal(p.job->run.status, KOPS_E_NOMEM);
	assert_string_equal(p.job->run.error, "tile of 2");
	assert_true(p.job->run.compute_us > 29 && p.job->run.compute_us < 31);
	s->tiles[0].run.parts_done = 1;
	spread_count_parts(s, &parts, &done);
	assert_int_equal(parts, 3);
	assert_int_equal(done, 1);
	p.job->run.repeats = true;
	spread_reset(s);
	for (unsigned i = 0; i < 3; i++) {
		assert_false(tile_has_ended(&s->tiles[i]));
		assert_true(s->tiles[i].run.repeats);
	}
	spread_count_parts(s, &parts, &done);
	assert_int_equal(done, 0);
	end(&p);
}

/* The loop plans them while others wait. */
static void alike_tiles_are_planned_once(void **state)
{
	static const unsigned owners[DEVICES] = {0, 1, 2, 3, 4, 5};
	const struct op_args args = product(1536, 1536, 64);
	unsigned of_two = 0;

	(void)state;
	for (unsigned n = 2; n <= DEVICES; n += 4) {
		struct place p;

		begin(&p, &args);
		timed = 0;
		p.job->spread = spread_new(p.job, owners, n);
		assert_non_null(p.job->spread);
		assert_covered(&p, p.job->spread);
		for (unsigned i = 1; i < n; i++)
			assert_true(p.job->spread->tiles[i].run.plan_us > 0);
		if (n == 2)
			of_two = timed;
		end(&p);
	}
	assert_true(timed <= of_two + 4 * 2);
}

static void the_receipt_says_where(void **state)
{
	static const unsigned owners[] = {4, 1};
	const struct op_args args = product(ROWS, COLUMNS, DEPTH);
	struct place p;

	(void)state;
	begin(&p, &args);
	p.job->sched.device = 4;
	snprintf(p.job->ops[0].why, WHY_BYTES, "the only one; in 7 parts, while others' operands move");
	p.job->ops[0].cut = (struct op_cut){.n_parts = 7, .grows = true};
	p.job->spread = spread_new(p.job, owners, 2);
	assert_non_null(p.job->spread);
	assert_string_equal(p.job->spread->tiles[0].op.why, "the only one; 2 tiles at once, on gpu4, gpu1");
	end(&p);
}

/* ---- Operands that both tiles need ---- */

static double rates[DEVICES]; /* at which devices copy from others */

static double peer_rate(const struct device_state *dev, const struct device_state *from)
{
	size_t i = (size_t)((const char *)dev - (const char *)rates);

	assert_true(dev != from);
	return rates[i];
}

/* GPUs with memory of their own, by links of 50 GB/s; each copies 300 GB/s from the others. */
static void begin_on_gpus(struct place *p, const struct op_args *args)
{
	begin(p, args);
	p->planner.info.memory_bytes = 1ull << 40;
	p->planner.info.link_rate = p->planner.info.pageable_rate = 50e3;
	p->planner.info.stream_min_bytes = 2 << 20;
	p->planner.info.kept_workspace_max_bytes = UINT64_MAX;
	p->driver.peer_rate = peer_rate;
	for (unsigned i = 0; i < DEVICES; i++) {
		rates[i] = 300e3;
		p->devices[i].dev = (struct device_state *)((char *)rates + i);
	}
	for (unsigned v = 0; v < OP_OPERANDS_MAX; v++)
		p->memory[v].pin = MEMORY_PINNED;
	run_forget_plan(&p->job->run);
	assert_int_equal(plan_run(&p->planner, &p->job->run), 0);
	assert_true(p->job->run.ops[0].cut.grows);
}

static struct spread *spread_over(struct place *p, unsigned n)
{
	static const unsigned owners[DEVICES] = {0, 1, 2, 3, 4, 5};

	spread_free(p->job->spread);
	p->job->spread = spread_new(p->job, owners, n);
	assert_non_null(p->job->spread);
	return p->job->spread;
}

/* Its uploads take longer than computing it. */
static struct op_args deep_product(uint64_t m, uint64_t n)
{
	return product(m, n, 32768);
}

static void tiles_exchange_what_both_need(void **state)
{
	const struct op_args args = deep_product(2048, 2048);
	struct spread *s;
	struct place p;
	double with_us;

	(void)state;
	begin_on_gpus(&p, &args);
	s = spread_over(&p, 2);
	with_us = s->tiles[0].run.plan_us;
	assert_non_null(s->exchange);
	for (unsigned i = 0; i < 2; i++) {
		const struct run *run = &s->tiles[i].run;
		const struct op_args *tile = &s->tiles[i].op.args;

		assert_ptr_equal(run->exchange, s->exchange);
		assert_int_equal(run->side, i);
		/* The one that the cut does not divide. */
		assert_int_equal(run->ops[0].shared.operands,
		                 tile->views[0].shape[1] == 2048 ? 1u << 0 : 1u << 1);
		assert_true(run->ops[0].shared.rate > 299e3 && run->ops[0].shared.rate < 301e3);
	}
	assert_non_null(strstr(s->tiles[0].op.why, "on gpu0, gpu1, which exchange operands"));
	assert_covered(&p, s);
	p.driver.peer_rate = NULL;
	s = spread_over(&p, 2);
	assert_null(s->exchange);
	assert_null(s->tiles[0].run.exchange);
	assert_int_equal(s->tiles[0].op.shared.operands | s->tiles[1].op.shared.operands, 0);
	assert_null(strstr(s->tiles[0].op.why, "exchange"));
	assert_true(with_us < 0.8 * s->tiles[0].run.plan_us);
	end(&p);
}

/* Because devices do not reach each other both ways, or by the link itself; and three of them never. */
static void devices_that_are_too_far_exchange_nothing(void **state)
{
	const struct op_args args = deep_product(2048, 2048);
	struct place p;

	(void)state;
	begin_on_gpus(&p, &args);
	assert_non_null(spread_over(&p, 2)->exchange);
	rates[1] = 0;
	assert_null(spread_over(&p, 2)->exchange);
	rates[1] = 99e3;
	assert_null(spread_over(&p, 2)->exchange);
	rates[1] = 101e3;
	assert_non_null(spread_over(&p, 2)->exchange);
	assert_null(spread_over(&p, 3)->exchange);
	end(&p);
}

/* It would not pay, or there is nothing that both need, or is worth it. */
static void other_tiles_exchange_nothing(void **state)
{
	const struct op_args slow = product(8192, 8192, 128), deep = deep_product(2048, 2048);
	struct op_args sum = {.op = op_by_name("add")};
	struct spread *s;
	struct place p;

	(void)state;
	for (unsigned v = 0; v < 3; v++)
		sum.views[v] = matrix(4096, 4096);
	begin_on_gpus(&p, &sum);
	assert_null(spread_over(&p, 2)->exchange);
	end(&p);
	begin_on_gpus(&p, &slow);
	assert_null(spread_over(&p, 2)->exchange);
	end(&p);
	begin_on_gpus(&p, &deep); /* in pageable memory nothing is streamed */
	for (unsigned v = 0; v < OP_OPERANDS_MAX; v++)
		p.memory[v].pin = MEMORY_PAGEABLE;
	run_forget_plan(&p.job->run);
	assert_int_equal(plan_run(&p.planner, &p.job->run), 0);
	s = spread_over(&p, 2);
	assert_null(s->exchange);
	assert_int_equal(s->tiles[0].op.shared.operands, 0);
	end(&p);
}

/* Whatever the sizes: tiles that are planned to exchange do. */
static void tiles_of_odd_sizes_exchange_or_do_not(void **state)
{
	unsigned exchanged = 0;

	(void)state;
	for (uint64_t m = 1500; m < 2600; m += 77) {
		const struct op_args args = deep_product(m, 3700 - m);
		struct spread *s;
		struct place p;

		begin_on_gpus(&p, &args);
		s = spread_over(&p, 2);
		for (unsigned i = 0; i < 2; i++) {
			assert_ptr_equal(s->tiles[i].run.exchange, s->exchange);
			assert_int_equal(s->tiles[i].op.shared.operands != 0, s->exchange != NULL);
		}
		exchanged += s->exchange != NULL;
		end(&p);
	}
	assert_true(exchanged > 3);
}

/* Nobody waits for a device that has other work, or for a tile that has ended. */
static void tiles_exchange_if_all_start(void **state)
{
	const struct op_args args = deep_product(2048, 2048);
	struct spread *s;
	struct place p;

	(void)state;
	begin_on_gpus(&p, &args);
	s = spread_over(&p, 2);
	spread_reset(s);
	spread_begin_exchange(s);
	assert_true(exchange_is_on(&s->tiles[0].run) && exchange_is_on(&s->tiles[1].run));
	p.devices[0].work_out = 1;
	spread_begin_exchange(s);
	assert_false(exchange_is_on(&s->tiles[0].run) || exchange_is_on(&s->tiles[1].run));
	p.devices[0].work_out = 0;
	spread_begin_exchange(s);
	assert_true(exchange_is_on(&s->tiles[1].run));
	set(&s->tiles[1], 0, true, 1);
	spread_begin_exchange(s);
	assert_false(exchange_is_on(&s->tiles[0].run));
	p.driver.peer_rate = NULL;
	spread_begin_exchange(spread_over(&p, 2)); /* there is none */
	end(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(tiles_cover_the_output),
	    cmocka_unit_test(tiles_have_few_bytes),
	    cmocka_unit_test(what_does_not_pay_is_left_whole),
	    cmocka_unit_test(the_run_shows_all_tiles),
	    cmocka_unit_test(alike_tiles_are_planned_once),
	    cmocka_unit_test(the_receipt_says_where),
	    cmocka_unit_test(tiles_exchange_what_both_need),
	    cmocka_unit_test(devices_that_are_too_far_exchange_nothing),
	    cmocka_unit_test(other_tiles_exchange_nothing),
	    cmocka_unit_test(tiles_of_odd_sizes_exchange_or_do_not),
	    cmocka_unit_test(tiles_exchange_if_all_start),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
