/*
 * Tests the CPU kernels of search at special values, with filters and in parts, and what the op refuses. And
 * how the kernel wgmma divides its work and shared memory.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/cpu.h"
#include "common/half.h"
#include "common/threads.h"
#include "run_kernel.h"
#include "search/refine.h"
#include "search/search.h"
#include "search/wgmma_plan.h"

#define QUERIES 6
#define ROWS    300
#define COLUMNS 5
#define K       4

static const kops_dtype dtypes[] = {KOPS_F32, KOPS_F16, KOPS_BF16};
static double queries[QUERIES * COLUMNS], base[ROWS * COLUMNS]; /* any type fits */
static uint32_t filter[(ROWS + 31) / 32];
static float values[QUERIES * K];
static int32_t indices[QUERIES * K];

static struct view view_of(void *data, kops_dtype dtype, uint64_t rows, uint64_t columns)
{
	struct view v = {.space = data, .data = data, .dtype = dtype, .rank = 2, .shape = {rows, columns}};

	view_make_dense(&v);
	return v;
}

static struct op_args args_of(kops_dtype dtype, enum search_metric metric)
{
	struct op_args args = {.op = op_by_name("search")};

	op_set_defaults(&args);
	args.params.plain.counts[SEARCH_K] = K;
	args.params.plain.counts[SEARCH_METRIC] = metric;
	args.views[SEARCH_QUERIES] = view_of(queries, dtype, QUERIES, COLUMNS);
	args.views[SEARCH_BASE] = view_of(base, dtype, ROWS, COLUMNS);
	args.views[SEARCH_VALUES] = view_of(values, KOPS_F32, QUERIES, K);
	args.views[SEARCH_INDICES] = view_of(indices, KOPS_I32, QUERIES, K);
	return args;
}

static void with_filter(struct op_args *args)
{
	args->views[SEARCH_FILTER] = (struct view){.space = filter,
	                                           .data = filter,
	                                           .dtype = KOPS_I32,
	                                           .rank = 1,
	                                           .shape = {sizeof filter / sizeof *filter},
	                                           .strides = {1}};
}

/* All queries are (1, 0, 0, 0, 0). Row i of the base is (i % 7, 1, 0, 0, 0). */
static void fill(kops_dtype dtype)
{
	memset(queries, 0, sizeof queries);
	memset(base, 0, sizeof base);
	for (int64_t i = 0; i < QUERIES; i++)
		half_store(queries, dtype, i * COLUMNS, 1);
	for (int64_t i = 0; i < ROWS; i++) {
		half_store(base, dtype, i * COLUMNS, (double)(i % 7));
		half_store(base, dtype, i * COLUMNS + 1, 1);
	}
}

static void run(const struct kernel *kernel, struct op_args args)
{
	memset(indices, 0x77, sizeof indices);
	run_kernel(kernel, args);
}

static void finds(const int32_t rows[K], const float scores[K])
{
	for (int i = 0; i < QUERIES * K; i++) {
		assert_int_equal(indices[i], rows[i % K]);
		assert_true(values[i] == scores[i % K]);
	}
}

typedef void each_case(const struct kernel *kernel, kops_dtype dtype);

static void of_each(each_case *check)
{
	for (unsigned threads = 1; threads <= 3; threads += 2) {
		threads_set(threads);
		for (size_t k = 0; k < search_cpu_kernels.n; k++)
			for (unsigned d = 0; d < 3; d++) {
				fill(dtypes[d]);
				check(&search_cpu_kernels.kernels[k], dtypes[d]);
			}
	}
	threads_stop();
}

static void check_metrics(const struct kernel *kernel, kops_dtype dtype)
{
	run(kernel, args_of(dtype, SEARCH_IP));
	finds((int32_t[]){6, 13, 20, 27}, (float[]){6, 6, 6, 6});
	run(kernel, args_of(dtype, SEARCH_L2));
	finds((int32_t[]){1, 8, 15, 22}, (float[]){1, 1, 1, 1});
	for (int64_t i = 0; i < 2; i++)
		half_store(base, dtype, 250 * COLUMNS + i, i ? 0 : 3);
	run(kernel, args_of(dtype, SEARCH_COSINE));
	assert_int_equal(indices[0], 250);
	assert_true(values[0] == 1);
	assert_int_equal(indices[1], 6);
}

static void ties_go_to_the_lower_index(void **state)
{
	(void)state;
	of_each(check_metrics);
}

/* Row 6 is zeros, row 13 has NaN, row 20 an infinity. */
static void check_special(const struct kernel *kernel, kops_dtype dtype)
{
	memset(filter, 0, sizeof filter);
	filter[0] = 1u << 6 | 1u << 13 | 1u << 20;
	for (int64_t i = 0; i < 2; i++)
		half_store(base, dtype, 6 * COLUMNS + i, 0);
	half_store(base, dtype, 13 * COLUMNS + 3, (double)NAN);
	half_store(base, dtype, 20 * COLUMNS, (double)INFINITY);
	for (int metric = SEARCH_IP; metric <= SEARCH_L2; metric++) {
		struct op_args args = args_of(dtype, (enum search_metric)metric);
		float infinity = INFINITY, none = search_nothing((enum search_metric)metric);

		with_filter(&args);
		run(kernel, args);
		if (metric == SEARCH_IP)
			finds((int32_t[]){20, 6, -1, -1}, (float[]){infinity, 0, none, none});
		else
			finds((int32_t[]){6, 20, -1, -1}, (float[]){1, infinity, none, none});
	}
	struct op_args args = args_of(dtype, SEARCH_COSINE);
	with_filter(&args);
	filter[0] = 1u << 6;
	run(kernel, args);
	finds((int32_t[]){6, -1, -1, -1}, (float[]){0, -INFINITY, -INFINITY, -INFINITY});
}

static void rows_left_out_nan_and_zeros(void **state)
{
	(void)state;
	of_each(check_special);
}

static void check_parts(const struct kernel *kernel, kops_dtype dtype)
{
	struct search_found carried[QUERIES * K];
	struct launch launch = {.workspace = aligned_alloc(256, 1 << 20)};
	char why[WHY_BYTES];

	for (int metric = SEARCH_IP; metric <= SEARCH_COSINE; metric++) {
		struct op_args args = args_of(dtype, (enum search_metric)metric);
		float want_values[QUERIES * K];
		int32_t want[QUERIES * K];

		memset(filter, 0xb6, sizeof filter);
		with_filter(&args);
		run(kernel, args);
		memcpy(want, indices, sizeof want);
		memcpy(want_values, values, sizeof want_values);
		assert_int_equal(op_check(&args, why), 0);
		assert_int_equal(args.op->carried_bytes(&args), sizeof carried);
		args.carried = carried;
		for (uint64_t first = 0, n = 2; first < ROWS; first += n, n = 77) {
			struct op_args part = args;
			part.op->step_part(&part, 0, first, ROWS - first < n ? ROWS - first : n);
			assert_int_equal(kernel->launch(&part, &launch), 0);
		}
		assert_memory_equal(indices, want, sizeof want);
		assert_memory_equal(values, want_values, sizeof want_values);
	}
	free(launch.workspace);
}

static void parts_find_what_the_whole_does(void **state)
{
	(void)state;
	of_each(check_parts);
}

/* Without rows nothing is found; without columns all rows are alike. */
static void check_empty(const struct kernel *kernel, kops_dtype dtype)
{
	struct op_args args = args_of(dtype, SEARCH_COSINE);

	args.views[SEARCH_BASE].shape[0] = 0;
	run(kernel, args);
	finds((int32_t[]){-1, -1, -1, -1}, (float[]){-INFINITY, -INFINITY, -INFINITY, -INFINITY});
	args = args_of(dtype, SEARCH_L2);
	args.views[SEARCH_QUERIES].shape[1] = args.views[SEARCH_BASE].shape[1] = 0;
	run(kernel, args);
	finds((int32_t[]){0, 1, 2, 3}, (float[]){0, 0, 0, 0});
}

static void a_base_may_be_empty(void **state)
{
	(void)state;
	of_each(check_empty);
}

static void refuses(const struct op_args *wrong, int code, const char *words)
{
	struct op_args args = *wrong;
	char why[WHY_BYTES] = "";

	assert_int_equal(op_check(&args, why), code);
	if (!strstr(why, words))
		fail_msg("'%s' does not say '%s'", why, words);
}

static void what_does_not_fit_is_refused(void **state)
{
	struct op_args args = args_of(KOPS_F32, SEARCH_IP), good = args;

	(void)state;
	args.params.plain.counts[SEARCH_K] = 0;
	refuses(&args, KOPS_E_INVALID, "k");
	args.params.plain.counts[SEARCH_K] = SEARCH_MAX + 1;
	refuses(&args, KOPS_E_INVALID, "k");
	args.params.plain.counts[SEARCH_K] = K + 1;
	refuses(&args, KOPS_E_SHAPE, "values is 6x4; for these queries and this k it is 6x5");
	args = good;
	args.views[SEARCH_BASE].shape[1]--;
	refuses(&args, KOPS_E_SHAPE, "queries have 5 columns and base 4");
	args = good;
	for (unsigned v = SEARCH_QUERIES; v <= SEARCH_BASE; v++) {
		args.views[v].shape[1] = SEARCH_COLUMNS_MAX + 1;
		args.views[v].strides[1] = 0;
	}
	refuses(&args, KOPS_E_SHAPE, "queries have 65537 columns; search takes up to 65536");
	args = good;
	args.views[SEARCH_BASE].shape[0] = (uint64_t)INT32_MAX + 1;
	args.views[SEARCH_BASE].strides[0] = 0;
	refuses(&args, KOPS_E_SHAPE, "indices are i32");
	args = good;
	with_filter(&args);
	args.views[SEARCH_FILTER].shape[0]--;
	refuses(&args, KOPS_E_SHAPE, "for 6 queries and 300 rows it has 10 words of 32 bits");
	args = good;
	args.views[SEARCH_BASE].dtype = KOPS_F16;
	refuses(&args, KOPS_E_DTYPE, "");
	args = good;
	args.views[SEARCH_VALUES].space = base;
	refuses(&args, KOPS_E_OVERLAP, "output values overlaps input base");
}

/* ---- wgmma ---- */

static struct search_wgmma_plan plan_of_type(kops_dtype dtype, uint64_t n, uint64_t rows, uint64_t columns,
                                             uint32_t k)
{
	struct op_args args = {.op = op_by_name("search")};

	args.params.plain.counts[SEARCH_K] = k;
	args.views[SEARCH_QUERIES] = (struct view){.dtype = dtype, .rank = 2, .shape = {n, columns}};
	args.views[SEARCH_BASE] = (struct view){.dtype = dtype, .rank = 2, .shape = {rows, columns}};
	return search_wgmma_plan_of(&args, 132);
}

static struct search_wgmma_plan plan_of(uint64_t n, uint64_t rows, uint64_t columns, uint32_t k)
{
	return plan_of_type(KOPS_F16, n, rows, columns, k);
}

/* Whatever it is asked for, a block's shared memory is enough, and lists have room for k and as many more. */
static void there_is_room(void **state)
{
	static const uint64_t numbers[] = {1, 64, 65, 128, 129, 512, 5000, SEARCH_QUERIES_MAX},
	                      rows[] = {1, 256, 257, 1000000, INT32_MAX}, columns[] = {1, 64, 768, 1500, 4096};
	static const uint32_t ks[] = {1, 16, 17, 32, 33, SEARCH_WGMMA_MOST};

	(void)state;
	for (unsigned i = 0; i < 8 * 5 * 5 * 6 * 2; i++) {
		uint64_t n = numbers[i % 8], all = rows[i / 8 % 5];
		uint32_t k = ks[i / 200 % 6];
		bool is_f32 = i / 1200;
		struct search_wgmma_plan p = plan_of_type(is_f32 ? KOPS_F32 : KOPS_F16, n, all,
		                                          columns[i / 40 % 5] / (is_f32 ? 2 : 1), k);
		struct search_wgmma_room room = search_wgmma_room_of(&p);

		if (is_f32 && k > REFINE_MOST)
			continue;
		assert_in_range(p.stages, 2, SEARCH_STAGES_MAX);
		assert_true(p.capacity >= (is_f32 ? 4 : 2) * k);
		assert_in_range(p.shared_bytes, room.end + 1024, SEARCH_SHARED_MAX);
		assert_int_equal(room.stages % 1024, 0);
		assert_int_equal(room.stage_bytes % 1024, 0);
		assert_int_equal(room.barriers % 8, 0);
		assert_true((uint64_t)p.groups * p.teams * p.sharers * SEARCH_TEAM >= n);
		assert_true((uint64_t)p.tiles * SEARCH_ROWS >= all);
		assert_in_range(p.pieces, 1, p.tiles);
		assert_in_range(p.clusters, 1, 132 / p.sharers);
		assert_true((uint64_t)p.clusters <= (uint64_t)p.groups * p.pieces);
	}
}

static void few_queries_stay_in_shared_memory(void **state)
{
	struct search_wgmma_plan few = plan_of(64, 1000000, 768, 10), many = plan_of(512, 1000000, 768, 10);

	(void)state;
	assert_int_equal(few.kept, 64);
	assert_int_equal(few.teams, 1);
	assert_int_equal(few.clusters, 131); /* 30 tiles each, as with 132 */
	assert_int_equal(few.pieces, 131);
	assert_int_equal(few.stages, 3);
	assert_int_equal(plan_of(64, 1000000, 4096, 10).kept, 0);
	assert_int_equal(many.kept, 0);
	assert_int_equal(many.sharers, 2);
	assert_int_equal(many.groups, 2);
	assert_int_equal(many.pieces, 33);
	assert_int_equal(many.stages, 4);
	assert_int_equal(plan_of(100, 1000000, 768, 10).sharers, 1);
}

/* Of f32, two teams take turns with tiles where they have the same queries. */
static void f32_takes_turns(void **state)
{
	struct search_wgmma_plan few = plan_of_type(KOPS_F32, 8, 1000000, 768, 10),
	                         more = plan_of_type(KOPS_F32, 9, 1000000, 768, 10),
	                         many = plan_of_type(KOPS_F32, 65, 1000000, 768, 10);

	(void)state;
	assert_int_equal(few.kept, SEARCH_FEW);
	assert_int_equal(few.turns, 2);
	assert_int_equal(more.kept, 0);
	assert_int_equal(more.teams, 1);
	assert_int_equal(more.turns, 2);
	assert_int_equal(many.teams, 2);
	assert_int_equal(many.turns, 1);
	assert_int_equal(plan_of(8, 1000000, 768, 10).turns, 1);
}

static void pieces_fill_the_last_round(void **state)
{
	(void)state;
	assert_int_equal(search_wgmma_pieces(1, 1, 132), 1);
	assert_int_equal(search_wgmma_pieces(1, 100, 132), 100);
	assert_int_equal(search_wgmma_pieces(1, 4000, 132), 130); /* 31 tiles each, as with 132 */
	assert_int_equal(search_wgmma_pieces(66, 4000, 66), 1);
	assert_int_equal(search_wgmma_pieces(40, 4000, 66), 3); /* 2 rounds of 1334 tiles */
	assert_int_equal(search_wgmma_pieces(1u << 17, 1u << 23, 66), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(ties_go_to_the_lower_index),
	    cmocka_unit_test(rows_left_out_nan_and_zeros),
	    cmocka_unit_test(a_base_may_be_empty),
	    cmocka_unit_test(parts_find_what_the_whole_does),
	    cmocka_unit_test(what_does_not_fit_is_refused),
	    cmocka_unit_test(there_is_room),
	    cmocka_unit_test(few_queries_stay_in_shared_memory),
	    cmocka_unit_test(f32_takes_turns),
	    cmocka_unit_test(pieces_fill_the_last_round),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
