/*
 * Streamed runs: whatever order a device takes what is on its streams in, as far as they do not wait for each
 * other, the result is right, and each element is moved once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <unistd.h>

#include "common/cpu.h"
#include "common/rules.h"
#include "gemm/gemm.h"
#include "plan/exchange.h"
#include "plan/plan.h"
#include "seed.h"
#include "streams.h"

#define ELEMENTS 4096 /* of all operands */

/* ---- A run ---- */

struct fixture {
	float host[ELEMENTS], expected[ELEMENTS];
	struct memory memory;
	struct run_op ops[2]; /* of the run: the first, or both */
	struct run run;
	uint64_t used; /* elements of the memory */
};

static const struct kernel *reference_of(const struct kernel_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		if (strcmp(list->kernels[i].name, "reference") == 0)
			return &list->kernels[i];
	return NULL;
}

static void set_up(struct fixture *f, const struct op *op, const struct kernel_list *list)
{
	*f = (struct fixture){.memory = {.bytes = sizeof f->host, .pin = MEMORY_PINNED}};
	f->ops[0] = (struct run_op){.args.op = op, .kernel = reference_of(list)};
	f->run = (struct run){.ops = f->ops, .n_ops = 1};
	f->memory.host = f->host;
	for (unsigned i = 0; i < ELEMENTS; i++)
		f->host[i] = f->expected[i] = (float)pick(16);
}

/* Rows may have gaps, lie one behind the other the other way round, or be columns. */
static void place(struct fixture *f, unsigned v, uint64_t rows, uint64_t cols)
{
	struct view *view = &f->ops[0].args.views[v];
	uint64_t pitch = cols + pick(2) * pick(4), lines = rows;

	*view = (struct view){.dtype = KOPS_F32, .rank = 2, .shape = {rows, cols}, .space = &f->memory};
	view->strides[0] = (int64_t)pitch;
	view->strides[1] = 1;
	if (pick(4) == 0) {
		pitch = rows + pick(3);
		lines = cols;
		view->strides[0] = 1;
		view->strides[1] = (int64_t)pitch;
	}
	view->offset = f->used * sizeof(float);
	if (pick(4) == 0) {
		view->offset += (rows - 1) * (uint64_t)view->strides[0] * sizeof(float);
		view->strides[0] *= -1;
	}
	f->used += pitch * lines;
	assert_true(f->used <= ELEMENTS);
}

/* Gives the product a bias that is repeated along some axes, or an activation that keeps numbers exact. */
static void finish_product(struct fixture *f, uint64_t m, uint64_t n)
{
	if (pick(2))
		place(f, GEMM_BIAS, pick(2) ? m : 1, pick(2) ? n : 1);
	if (pick(2))
		f->ops[0].args.params.gemm.activation = UNARY_RELU;
}

static uint64_t bytes_of(const struct fixture *f, unsigned v)
{
	return (uint64_t)rules_bytes(&f->ops[0].args.views[v]);
}

static void enqueue_part(struct stage *stage)
{
	const struct run *run = stage->run;
	struct op_args args;
	struct task *t;

	assert_int_equal(stage_begin_part(stage, run->next_op, run->next_part, &args), 0);
	t = add_task(stage->stream, RUN_PART);
	t->args = args;
	t->op = &run->ops[run->next_op];
	t->part = run->next_part;
	t->kept = stage_kept(stage);
	assert_int_equal(stage_end_part(stage, run->next_op, run->next_part), 0);
}

static void use_a_lane(struct stage *stage)
{
	use_lane(stage, (unsigned)pick(LANES));
}

/* As a driver does it, in slices of some parts, each on any lane once the one before is computed. */
static void enqueue(struct fixture *f, struct stage *stage)
{
	bool begins = true;

	assert_true(stage->streams != stage->has_windows);
	do {
		uint32_t left = 1 + (uint32_t)pick(f->ops[0].cut.n_parts);

		assert_int_equal(stage_begin_slice(stage), 0);
		if (begins)
			assert_int_equal(stage_upload_all(stage), 0);
		begins = false;
		while (left-- > 0 && !run_is_through(&f->run)) {
			enqueue_part(stage);
			run_advance(&f->run);
		}
		if (run_is_through(&f->run))
			assert_int_equal(stage_download_all(stage), 0);
		assert_int_equal(stage_end_slice(stage, run_is_through(&f->run)), 0);
		if (run_is_through(&f->run))
			continue;
		run_streams(stage->stream);
		use_a_lane(stage);
	} while (!run_is_through(&f->run));
}

static const struct direct_limits no_direct;

/* With scratch memory. */
static struct stage *new_stage(const struct run *run)
{
	struct stage *stage;

	assert_int_equal(stage_new(run, &stage), 0);
	stage_begin(stage, &no_direct);
	stage->scratch = malloc(stage_scratch_bytes(stage) + 1);
	assert_non_null(stage->scratch);
	return stage;
}

static struct stage *begin(struct fixture *f)
{
	struct stage *stage;

	memset(streams, 0, sizeof streams);
	stage = new_stage(&f->run);
	use_a_lane(stage);
	return stage;
}

static void end(struct stage *stage)
{
	free(stage->scratch);
	stage_free(stage);
}

/* Computes what all memory holds at the end. */
static void expect(struct fixture *f)
{
	for (unsigned i = 0; i < f->run.n_ops; i++) {
		struct op_args args = f->run.ops[i].args;

		for (unsigned v = 0; v < args.op->n_operands; v++)
			args.views[v].data = (char *)f->expected + args.views[v].offset;
		args.op->reference(&args);
	}
}

static void compare_at_end_of(struct stream *stream, struct fixture *f)
{
	struct task *t = add_task(stream, COMPARE);

	t->to = (char *)f->host;
	t->from = (const char *)f->expected;
	t->n = sizeof f->host;
}

/* What had the scratch memory before, or has it next, writes to it. */
static void poison(struct stage *stage)
{
	struct task *t = add_task(stage->stream, POISON);

	t->to = stage->scratch;
	t->n = stage_scratch_bytes(stage);
}

static void check(struct fixture *f)
{
	struct stage *stage;

	expect(f);
	stage = begin(f);
	poison(stage);
	enqueue(f, stage);
	compare_at_end_of(stage->stream, f);
	run_streams(NULL);
	end(stage);
}

static struct growth some_growth(void)
{
	return (struct growth){2 + (unsigned)pick(12), pick(2) ? 1 : 3, (double)pick(10) / 10,
	                       (double)pick(10) / 10, (unsigned)pick(6)};
}

static bool cut(struct fixture *f)
{
	const struct growth how = some_growth();
	char why[WHY_BYTES];

	assert_int_equal(op_check(&f->ops[0].args, why), 0);
	return op_cut_growing(&f->ops[0].args, &how, &f->ops[0].cut);
}

static void products_are_right(void **state)
{
	static struct fixture f;

	(void)state;
	random_state = seed_of_run();
	for (unsigned round = 0; round < 2000; round++) {
		uint64_t m = 1 + pick(20), n = 1 + pick(20), k = 1 + pick(20);

		set_up(&f, op_by_name("gemm"), &gemm_cpu_kernels);
		f.ops[0].args.params.gemm = (struct gemm_params){.alpha = 1, .beta = (double)pick(2)};
		place(&f, 0, m, k);
		place(&f, 1, k, n);
		place(&f, GEMM_C, m, n);
		finish_product(&f, m, n);
		if (!cut(&f))
			continue;
		check(&f);
		assert_int_equal(bytes_of_streams(UP),
		                 bytes_of(&f, 0) + bytes_of(&f, 1) + bytes_of(&f, GEMM_BIAS) +
		                     (f.ops[0].args.params.gemm.beta != 0 ? bytes_of(&f, GEMM_C) : 0));
		assert_int_equal(bytes_of_streams(DOWN), bytes_of(&f, GEMM_C));
	}
}

/* Its memory is given back then. */
static void abandoned_runs_leave_nothing_under_way(void **state)
{
	static struct fixture f;

	(void)state;
	random_state = seed_of_run();
	may_settle = true;
	for (unsigned round = 0; round < 200; round++) {
		struct stage *stage;

		set_up(&f, op_by_name("gemm"), &gemm_cpu_kernels);
		f.ops[0].args.params.gemm.alpha = 1;
		place(&f, 0, 16, 8);
		place(&f, 1, 8, 16);
		place(&f, GEMM_C, 16, 16);
		if (!cut(&f))
			continue;
		stage = begin(&f);
		assert_int_equal(stage_begin_slice(stage), 0);
		assert_int_equal(stage_upload_all(stage), 0);
		enqueue_part(stage);
		assert_int_equal(stage_end_slice(stage, false), 0);
		run_streams(stage->stream);
		use_a_lane(stage);
		assert_int_equal(stage_abandon(stage), 0);
		assert_true(all_are_done());
		end(stage);
	}
	may_settle = false;
}

/* ---- A kernel that keeps what it makes of A and B ---- */

static uint64_t n_made, n_made_in_steps; /* elements */

/* The bytes from the lowest element of a view to the end of the highest; *ret_low: from its data to the lowest.
 */
static uint64_t span_of(const struct view *v, int64_t *ret_low)
{
	uint64_t bytes = sizeof(float);

	*ret_low = 0;
	for (uint32_t d = 0; d < v->rank; d++) {
		int64_t reach = (int64_t)(v->shape[d] - 1) * v->strides[d] * (int64_t)sizeof(float);

		bytes += stride_magnitude(reach);
		*ret_low += reach < 0 ? reach : 0;
	}
	return bytes;
}

static uint64_t kept_bytes(const struct op_args *whole, const struct op_cut *cut)
{
	int64_t low;

	assert_true(cut->grows);
	return span_of(&whole->views[0], &low) + span_of(&whole->views[1], &low);
}

/* Where operand v of the launch lies in the memory that is kept. */
static void *kept_at(const struct launch *launch, unsigned v, const void *data)
{
	const struct view *views = launch->kept.whole->views;
	int64_t low[2];
	uint64_t bytes_a = span_of(&views[0], &low[0]);

	span_of(&views[1], &low[1]);
	int64_t at = (const char *)data - (const char *)views[v].data - low[v];

	return (char *)launch->kept.memory + at + (v == 0 ? 0 : (int64_t)bytes_a);
}

static void keep(const struct launch *launch, unsigned v)
{
	const struct view *fresh = &launch->kept.fresh->views[v];
	struct view to = *fresh;

	if (view_is_absent(fresh))
		return;
	to.data = kept_at(launch, v, fresh->data);
	cpu_convert(fresh, &to, launch);
	n_made += view_elements(fresh);
}

static int launch_keeping(const struct op_args *args, const struct launch *launch)
{
	struct op_args from_kept = *args;

	if (launch->kept.memory && launch->kept.begins)
		memset(launch->kept.memory, 0xff,
		       kept_bytes(launch->kept.whole, &(struct op_cut){.grows = true}));
	for (unsigned v = 0; v < 2; v++) {
		if (!launch->kept.memory) {
			n_made_in_steps += view_elements(&args->views[v]);
			continue;
		}
		keep(launch, v);
		from_kept.views[v].data = kept_at(launch, v, args->views[v].data);
	}
	args->op->reference(&from_kept);
	return 0;
}

/* Each element once, and once more if the first tile had it in steps. */
static void products_of_kept_operands_are_right(void **state)
{
	static const struct kernel keeping = {.name = "keeping",
	                                      .kept_bytes = kept_bytes,
	                                      .launch = launch_keeping,
	                                      .supports = cpu_reference_supports};
	static struct fixture f;
	unsigned in_steps = 0;

	(void)state;
	random_state = seed_of_run();
	for (unsigned round = 0; round < 2000; round++) {
		uint64_t m = 1 + pick(20), n = 1 + pick(20), k = 1 + pick(20);

		set_up(&f, op_by_name("gemm"), &gemm_cpu_kernels);
		f.ops[0].kernel = &keeping;
		f.ops[0].args.params.gemm.alpha = 1;
		place(&f, 0, m, k);
		place(&f, 1, k, n);
		place(&f, GEMM_C, m, n);
		if (!cut(&f))
			continue;
		n_made = n_made_in_steps = 0;
		check(&f);
		assert_true(n_made + n_made_in_steps >= m * k + k * n && n_made <= m * k + k * n);
		if (f.ops[0].cut.first_parts == 0)
			assert_int_equal(n_made, m * k + k * n);
		assert_int_equal(n_made_in_steps > 0, f.ops[0].cut.first_parts > 0);
		in_steps += n_made_in_steps > 0;
	}
	assert_true(in_steps > 20);
}

/* In place, too. */
static void sums_are_right(void **state)
{
	static struct fixture f;

	(void)state;
	random_state = seed_of_run();
	for (unsigned round = 0; round < 2000; round++) {
		uint64_t rows = 1 + pick(20), cols = 1 + pick(20);
		bool in_place = pick(2);

		set_up(&f, op_by_name("add"), &add_cpu_kernels);
		for (unsigned v = 0; v < 3; v++)
			place(&f, v, rows, cols);
		if (in_place)
			f.ops[0].args.views[2] = f.ops[0].args.views[0];
		if (!cut(&f))
			continue;
		check(&f);
		assert_int_equal(bytes_of_streams(DOWN), bytes_of(&f, 2));
	}
}

/* A cut of the op with windows, as fine as any. */
static bool cut_to_windows(struct run_op *op)
{
	uint32_t counts[PART_AXES_MAX];
	char why[WHY_BYTES];

	assert_int_equal(op_check(&op->args, why), 0);
	for (unsigned axis = 0; axis < PART_AXES_MAX; axis++)
		counts[axis] = 1 + (uint32_t)pick(5);
	if (!op_cut_grid(&op->args, counts, 1 + (uint32_t)pick(4), &op->cut) || op->cut.n_parts > 60)
		return false;
	op->cut.has_windows = true;
	return true;
}

static double bytes_moved(const struct fixture *f, unsigned v)
{
	return op_cut_moves(&f->ops[0].args, &f->ops[0].cut, v) * (double)bytes_of(f, v);
}

/* Then their sum with the first operand, in place, if that has its shape. */
static void products_by_windows_are_right(void **state)
{
	static struct fixture f;

	(void)state;
	random_state = seed_of_run();
	for (unsigned round = 0; round < 3000; round++) {
		uint64_t m = 1 + pick(12), n = 1 + pick(12), k = pick(2) ? n : 1 + pick(12);

		set_up(&f, op_by_name("gemm"), &gemm_cpu_kernels);
		f.ops[0].args.params.gemm = (struct gemm_params){.alpha = 1, .beta = (double)pick(2)};
		place(&f, 0, m, k);
		place(&f, 1, k, n);
		place(&f, GEMM_C, m, n);
		finish_product(&f, m, n);
		f.ops[1] =
		    (struct run_op){.args = {.op = op_by_name("add"),
		                             .views = {f.ops[0].args.views[GEMM_C], f.ops[0].args.views[GEMM_A],
		                                       f.ops[0].args.views[GEMM_C]}},
		                    .kernel = reference_of(&add_cpu_kernels)};
		if (!cut_to_windows(&f.ops[0]) || (k == n && !cut_to_windows(&f.ops[1])))
			continue;
		f.run.n_ops = k == n ? 2 : 1;
		check(&f);
		if (f.run.n_ops > 1)
			continue;
		/* What chunks share is moved again for each of them, and nothing else. */
		assert_true((double)bytes_of_streams(UP) <=
		            bytes_moved(&f, 0) + bytes_moved(&f, 1) + bytes_moved(&f, GEMM_BIAS) +
		                f.ops[0].args.params.gemm.beta * (double)bytes_of(&f, GEMM_C));
		assert_int_equal(bytes_of_streams(DOWN), bytes_of(&f, GEMM_C));
	}
}

/* ---- Tiles that exchange operands ---- */

struct tile {
	struct run_op op;
	struct run run;
	struct stage *stage;
	unsigned late_us; /* its thread */
};

/* As a driver does it. Then the memory is another run's. */
static void *start_tile(void *arg)
{
	struct tile *tile = arg;

	if (tile->late_us > 0)
		usleep(tile->late_us);
	assert_int_equal(stage_begin_slice(tile->stage), 0);
	assert_int_equal(stage_upload_all(tile->stage), 0);
	while (!run_is_through(&tile->run)) {
		enqueue_part(tile->stage);
		run_advance(&tile->run);
	}
	assert_int_equal(stage_end_slice(tile->stage, true), 0);
	poison(tile->stage);
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

/* Halves of C. Returns false if they, or their parts, are not alike. */
static struct exchange *make_tiles(const struct fixture *f, struct tile tiles[2])
{
	const struct growth how = some_growth();
	uint32_t wanted[PART_AXES_MAX] = {0};
	struct op_cut halves;

	wanted[pick(3)] = 2;
	if (!op_cut_grid(&f->ops[0].args, wanted, 1, &halves) || halves.n_parts != 2)
		return NULL;
	for (unsigned i = 0; i < 2; i++) {
		tiles[i] = (struct tile){.op = f->ops[0], .late_us = pick(4) > 0 ? 0 : (unsigned)pick(2000)};
		tiles[i].run = (struct run){.ops = &tiles[i].op, .n_ops = 1};
		op_part(&f->ops[0].args, &halves, i, &tiles[i].op.args);
		if (!op_cut_growing(&tiles[i].op.args, &how, &tiles[i].op.cut))
			return NULL;
	}
	for (unsigned i = 0; i < 2; i++)
		tiles[i].op.shared.operands = same_inputs(&tiles[0].op.args, &tiles[1].op.args);
	return exchange_new(&tiles[0].run, &tiles[1].run);
}

/* fails: the first time that the second starts nothing of it is enqueued, and nobody tells the first. */
static void run_tiles(struct exchange *x, struct tile tiles[2], bool fails)
{
	pthread_t threads[2];

	memset(streams, 0, sizeof streams);
	for (unsigned i = 0; i < 2; i++) {
		tiles[i].stage = new_stage(&tiles[i].run);
		use_lane(tiles[i].stage, i);
		poison(tiles[i].stage);
	}
	for (unsigned i = 0; i < 2u - fails; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, start_tile, &tiles[i]), 0);
	for (unsigned i = 0; i < 2u - fails; i++)
		pthread_join(threads[i], NULL);
	if (!fails)
		return;
	exchange_begin(x, false);
	stage_begin(tiles[1].stage, &no_direct);
	start_tile(&tiles[1]);
}

/* By both tiles, from wherever. */
static double bytes_needed(const struct tile tiles[2])
{
	double bytes = 0;

	for (unsigned i = 0; i < 2; i++)
		for (unsigned v = 0; v <= GEMM_C; v++)
			if (op_reads(&tiles[i].op.args, v))
				bytes += rules_bytes(&tiles[i].op.args.views[v]);
	return bytes;
}

/* Whatever one does while the other waits for it. */
static void exchanges_are_right(void **state)
{
	static struct fixture f;
	static struct tile tiles[2];
	unsigned exchanged = 0, alone = 0;

	(void)state;
	random_state = seed_of_run();
	for (unsigned round = 0; round < 500; round++) {
		uint64_t m = 2 + pick(20), n = 2 + pick(20), k = 1 + pick(20);
		bool is_on = pick(8) > 0, fails = pick(8) == 0;
		char why[WHY_BYTES];
		struct exchange *x;

		set_up(&f, op_by_name("gemm"), &gemm_cpu_kernels);
		f.ops[0].args.params.gemm = (struct gemm_params){.alpha = 1, .beta = (double)pick(2)};
		place(&f, 0, m, k);
		place(&f, 1, k, n);
		place(&f, GEMM_C, m, n);
		finish_product(&f, m, n);
		assert_int_equal(op_check(&f.ops[0].args, why), 0);
		x = make_tiles(&f, tiles);
		if (!x)
			continue;
		expect(&f);
		exchange_begin(x, is_on);
		run_tiles(x, tiles, fails);
		assert_int_equal(bytes_of_streams(UP) + bytes_of_streams(ACROSS),
		                 (uint64_t)bytes_needed(tiles));
		assert_int_equal(bytes_of_streams(DOWN), bytes_of(&f, GEMM_C));
		exchanged += bytes_of_streams(ACROSS) > 0;
		alone += bytes_of_streams(ACROSS) == 0;
		assert_true(bytes_of_streams(ACROSS) == 0 || (is_on && !fails));
		run_streams(NULL);
		assert_memory_equal(f.host, f.expected, sizeof f.host);
		end(tiles[0].stage);
		end(tiles[1].stage);
		exchange_free(x);
	}
	assert_true(exchanged > 20 && alone > 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(products_are_right),
	    cmocka_unit_test(abandoned_runs_leave_nothing_under_way),
	    cmocka_unit_test(products_of_kept_operands_are_right),
	    cmocka_unit_test(sums_are_right),
	    cmocka_unit_test(products_by_windows_are_right),
	    cmocka_unit_test(exchanges_are_right),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
