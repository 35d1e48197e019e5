/*
 * Tests copies of operands on a device with memory of its own, which here is this process's. Random chains of
 * ops between overlapping views give the results of host memory, and nothing is moved needlessly.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/cpu.h"
#include "host_mover.h"
#include "seed.h"

#define ELEMENTS 48 /* few, so that views meet */
#define OPS_MAX  5

static uint64_t random_state;

static uint64_t pick(uint64_t n)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (random_state >> 33) % n;
}

/* ---- The device ---- */

static unsigned uploads, downloads;

static int upload(const struct layout *l, const void *host, bool pinned, void *image, struct stream *stream)
{
	uploads++;
	return host_upload(l, host, pinned, image, stream);
}

static int download(const struct layout *l, void *host, bool pinned, const void *image, struct stream *stream)
{
	downloads++;
	return host_download(l, host, pinned, image, stream);
}

static const struct stage_mover mover = {
    .upload = upload, .download = download, .settle = host_settle, .follow = host_follow};

/* ---- A run ---- */

struct fixture {
	float host[ELEMENTS], expected[ELEMENTS];
	struct memory memory;
	struct run_op ops[OPS_MAX];
	struct run run;
};

static void set_up(struct fixture *f, bool pinned)
{
	*f = (struct fixture){
	    .memory = {.bytes = sizeof f->host, .pin = pinned ? MEMORY_PINNED : MEMORY_PAGEABLE},
	    .run = {.ops = f->ops}};
	f->memory.host = f->host;
	for (unsigned i = 0; i < ELEMENTS; i++)
		f->host[i] = f->expected[i] = (float)i;
	uploads = downloads = 0;
}

static const struct kernel *reference_of(const struct kernel_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		if (strcmp(list->kernels[i].name, "reference") == 0)
			return &list->kernels[i];
	return NULL;
}

/*
 * Adds the next op of the run. Returns false, without adding it, if it would read what it writes, or leave its
 * memory.
 */
static bool add_op(struct fixture *f, const char *name, const struct kernel_list *list,
                   const struct view *views)
{
	struct run_op *op = &f->ops[f->run.n_ops];
	char why[WHY_BYTES];

	*op = (struct run_op){.args.op = op_by_name(name),
	                      .kernel = reference_of(list),
	                      .cut = {.n_parts = 1, .n_steps = 1, .share = 1}};
	for (unsigned v = 0; v < op->args.op->n_operands; v++) {
		uint64_t lo, hi;

		op->args.views[v] = views[v];
		op->args.views[v].space = &f->memory;
		op->args.views[v].dtype = KOPS_F32;
		if (view_extent(&op->args.views[v], f->memory.bytes, &lo, &hi) < 0)
			return false;
	}
	if (op_check(&op->args, why) < 0)
		return false;
	f->run.n_ops++;
	return true;
}

static bool add_copy(struct fixture *f, struct view from, struct view to)
{
	const struct view views[] = {from, to};

	return add_op(f, "copy", &copy_cpu_kernels, views);
}

static bool add_sum(struct fixture *f, struct view a, struct view b, struct view to)
{
	const struct view views[] = {a, b, to};

	return add_op(f, "add", &add_cpu_kernels, views);
}

static void compute_expected(struct fixture *f)
{
	for (unsigned i = 0; i < f->run.n_ops; i++) {
		struct op_args args = f->ops[i].args;

		for (unsigned v = 0; v < args.op->n_operands; v++)
			args.views[v].data = (char *)f->expected + args.views[v].offset;
		assert_int_equal(f->ops[i].kernel->launch(&args, &(struct launch){0}), 0);
	}
}

static void compute_staged(struct fixture *f, const struct direct_limits *direct)
{
	struct stage *stage;
	uint64_t bytes;

	assert_int_equal(stage_new(&f->run, &stage), 0);
	stage_begin(stage, direct);
	bytes = stage_scratch_bytes(stage);
	stage->mover = &mover;
	stage->scratch = malloc(bytes + 1);
	memset(stage->scratch, 0xff, bytes + 1); /* NaN */
	assert_int_equal(stage_upload_all(stage), 0);
	for (unsigned i = 0; i < f->run.n_ops; i++) {
		struct op_args args;

		assert_int_equal(stage_begin_part(stage, i, 0, &args), 0);
		assert_int_equal(f->ops[i].kernel->launch(&args, &(struct launch){0}), 0);
		assert_int_equal(stage_end_part(stage, i, 0), 0);
		assert_true(stage_is_sound(stage));
	}
	assert_int_equal(stage_download_all(stage), 0);
	free(stage->scratch);
	stage_free(stage);
}

static void check(struct fixture *f, uint64_t direct_bytes)
{
	compute_expected(f);
	compute_staged(f, &(struct direct_limits){direct_bytes, direct_bytes});
	assert_memory_equal(f->host, f->expected, sizeof f->host);
}

/* Returns a view of n elements from `at` on, `step` apart. */
static struct view line(uint64_t at, uint64_t n, int64_t step)
{
	return (struct view){.rank = 1, .offset = at * sizeof(float), .shape = {n}, .strides = {step}};
}

/* ---- Random chains ---- */

static struct view random_view(const uint64_t shape[2])
{
	struct view v = {.rank = 2, .shape = {shape[0], shape[1]}};
	int64_t inner = 1 + (int64_t)pick(3), outer = pick(2) ? inner * (int64_t)shape[1] : (int64_t)pick(12);

	v.strides[0] = outer;
	v.strides[1] = inner;
	if (pick(4) == 0) {
		v.strides[0] = inner;
		v.strides[1] = inner * (int64_t)shape[0];
	}
	for (unsigned d = 0; d < 2; d++)
		if (pick(5) == 0)
			v.strides[d] = -v.strides[d];
	v.offset = pick(ELEMENTS) * sizeof(float);
	return v;
}

static void random_chains_are_right(void **state)
{
	(void)state;
	random_state = seed_of_run();
	for (unsigned n = 0; n < 20000; n++) {
		unsigned n_ops = 1 + (unsigned)pick(OPS_MAX);
		struct fixture f;

		set_up(&f, pick(2));
		for (unsigned tries = 0; f.run.n_ops < n_ops && tries < 200; tries++) {
			const uint64_t shape[2] = {1 + pick(4), 1 + pick(5)};
			struct view a = random_view(shape), b = random_view(shape), y = random_view(shape);

			if (pick(2))
				add_copy(&f, a, y);
			else
				add_sum(&f, a, pick(2) ? b : y, y);
		}
		check(&f, pick(3) == 0 ? 64 : 0);
	}
}

/* ---- Transfers ---- */

static void expect_moves(struct fixture *f, unsigned up, unsigned down)
{
	check(f, 0);
	assert_int_equal(uploads, up);
	assert_int_equal(downloads, down);
}

static void each_operand_is_moved_once(void **state)
{
	struct fixture f;

	(void)state;
	set_up(&f, true);
	add_sum(&f, line(0, 8, 1), line(8, 8, 1), line(16, 8, 1));
	add_sum(&f, line(16, 8, 1), line(0, 8, 1), line(24, 8, 1)); /* both are there already */
	expect_moves(&f, 2, 2);
}

/* In place, a small one would be read over the link again for each piece of the others. */
static void a_small_operand_beside_large_ones_is_uploaded(void **state)
{
	struct fixture f;

	(void)state;
	set_up(&f, true);
	add_sum(&f, line(0, 8, 1), line(8, 8, 0), line(16, 8, 1));
	check(&f, 4 * sizeof(float));
	assert_int_equal(uploads, 2);
	set_up(&f, true);
	add_sum(&f, line(0, 8, 1), line(8, 8, 0), line(16, 8, 1));
	check(&f, 8 * sizeof(float));
	assert_int_equal(uploads, 0);
}

static void what_is_overwritten_is_not_uploaded(void **state)
{
	struct fixture f;

	(void)state;
	set_up(&f, true);
	add_copy(&f, line(0, 8, 1), line(8, 8, 1));
	add_copy(&f, line(16, 8, 1), line(8, 8, 1));
	expect_moves(&f, 2, 1);
}

/* Reversed views have the same elements. */
static void views_of_the_same_elements_share_a_copy(void **state)
{
	struct fixture f;

	(void)state;
	set_up(&f, true);
	add_copy(&f, line(0, 8, 1), line(8, 8, 1));
	add_copy(&f, line(7, 8, -1), line(16, 8, 1));
	expect_moves(&f, 1, 2);
}

/* What is written and then read by other views goes through host memory. */
static void what_overlaps_is_brought_up_to_date(void **state)
{
	struct fixture f;

	(void)state;
	set_up(&f, true);
	add_copy(&f, line(0, 8, 1), line(8, 8, 1));
	add_copy(&f, line(8, 4, 2), line(16, 4, 1));
	expect_moves(&f, 2, 2);
}

static void what_was_read_before_it_was_written_is_read_again(void **state)
{
	struct fixture f;

	(void)state;
	set_up(&f, true);
	add_copy(&f, line(8, 4, 2), line(16, 4, 1));
	add_copy(&f, line(0, 8, 1), line(8, 8, 1));
	add_copy(&f, line(8, 4, 2), line(20, 4, 1));
	expect_moves(&f, 3, 3);
}

static void small_pinned_memory_is_used_where_it_is(void **state)
{
	struct fixture f;

	(void)state;
	for (int pinned = 0; pinned < 2; pinned++) {
		set_up(&f, pinned);
		add_copy(&f, line(0, 8, 1), line(8, 8, 1));
		check(&f, 32);
		assert_int_equal(uploads + downloads, pinned ? 0 : 2);
		set_up(&f, pinned);
		add_copy(&f, line(0, 8, 1), line(8, 8, 1));
		check(&f, 31);
		assert_int_equal(uploads + downloads, 2);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(random_chains_are_right),
	    cmocka_unit_test(each_operand_is_moved_once),
	    cmocka_unit_test(a_small_operand_beside_large_ones_is_uploaded),
	    cmocka_unit_test(what_is_overwritten_is_not_uploaded),
	    cmocka_unit_test(views_of_the_same_elements_share_a_copy),
	    cmocka_unit_test(what_overlaps_is_brought_up_to_date),
	    cmocka_unit_test(what_was_read_before_it_was_written_is_read_again),
	    cmocka_unit_test(small_pinned_memory_is_used_where_it_is),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
