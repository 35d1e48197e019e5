/* Tests kops-bench without a daemon: requested shapes, tables and kernels, figures, CSV. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cases.h"
#include "cli.h"
#include "report/csv.h"
#include "report/table.h"

static void assert_says(const char *why, const char *what)
{
	if (strstr(why, what) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", why, what);
}

/* ---- requests ---- */

static void shapes_are_read(void **state)
{
	const struct operation *gemm = operation_by_name("gemm"), *add = operation_by_name("add");
	char why[CLI_WHY_BYTES];
	struct bench_shapes s;

	(void)state;
	assert_int_equal(bench_shapes_read(gemm, "128x256x1024,7", &s, why), 0);
	assert_int_equal(s.n, 2);
	assert_int_equal(s.list[0].extents[0], 128);
	assert_int_equal(s.list[0].extents[1], 256);
	assert_int_equal(s.list[0].extents[2], 1024);
	assert_string_equal(s.list[1].text, "7x7x7");
	assert_int_equal(bench_shapes_read(add, "1099511627776x1,5x9", &s, why), 0);
	assert_int_equal(s.list[0].extents[0], 1ull << 40);
	assert_string_equal(s.list[1].text, "5x9");
	assert_int_equal(bench_shapes_read(add, "1099511627777x1", &s, why), KOPS_E_INVALID);
}

static void assert_extents(const struct bench_shape *shape, const uint64_t (*extents)[6])
{
	assert_memory_equal(shape->extents, extents, sizeof(*extents));
}

/* What follows a slash is as what is before it, where it is left out. */
static void shapes_of_heads_are_read(void **state)
{
	static const char *const bad[] = {"64",          "2x16x64",        "2x16x64x32x8", "2/3x16x64x32",
	                                  "2x16/x64x32", "2x16/8/4x64x32", "2x16x64/32",   "2x16x64x32/8",
	                                  "2x0x64x32",   "2x16x64x"};
	const struct operation *attention = operation_by_name("attention");
	char why[CLI_WHY_BYTES];
	struct bench_shapes s;
	struct step step;

	(void)state;
	assert_int_equal(bench_shapes_read(attention, "2x16x4096x128,8x32/8x1/8192x64,1x6/6x7/7x8", &s, why),
	                 0);
	assert_int_equal(s.n, 3);
	assert_extents(&s.list[0], &(const uint64_t[6]){2, 16, 16, 4096, 4096, 128});
	assert_extents(&s.list[1], &(const uint64_t[6]){8, 32, 8, 1, 8192, 64});
	assert_string_equal(s.list[0].text, "2x16x4096x128");
	assert_string_equal(s.list[1].text, "8x32/8x1/8192x64");
	assert_string_equal(s.list[2].text, "1x6x7x8");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		if (bench_shapes_read(attention, bad[i], &s, why) == 0)
			fail_msg("'%s' was taken", bad[i]);
		assert_says(why, "write BATCHxHEADS/KV_HEADSxQUERIES/KEYSxHEAD_DIM, or without");
	}
	assert_int_equal(bench_shapes_read(attention, "2x6/4x64x32", &s, why), 0);
	assert_int_equal(bench_shape_step(attention, KOPS_F16, &s.list[0], NULL, &step, why), KOPS_E_INVALID);
	assert_says(why, "k's heads must divide q's");
}

static void assert_shape(const kops_view *v, uint32_t rank, const uint64_t *shape)
{
	assert_int_equal(v->rank, rank);
	assert_memory_equal(v->shape, shape, rank * sizeof(*shape));
}

/* Of one head the check needs all keys, and of causal ones all queries, as those of a part would see others. */
static void heads_are_cut(void **state)
{
	const struct operation *attention = operation_by_name("attention");
	struct bench_shape shape = {.extents = {2, 4, 4, 10, 20, 8}};
	char why[CLI_WHY_BYTES];
	struct step step;

	(void)state;
	assert_int_equal(bench_shape_step(attention, KOPS_F16, &shape, NULL, &step, why), 0);
	assert_true(step_flops(&step) == 2 * 4 * 10 * 20 * 4 * 8);
	assert_int_equal(bench_shape_optional(&step, 3, KOPS_F16, &shape), 0);
	assert_shape(&step.in[3], 2, (uint64_t[]){10, 20});
	assert_true(step_cut(&step, 0, 1, 1) && step_cut(&step, 1, 3, 1) && step_cut(&step, 2, 4, 5));
	assert_false(step_cut(&step, 3, 0, 4));
	assert_shape(&step.in[0], 4, (uint64_t[]){1, 1, 5, 8});
	assert_shape(&step.in[2], 4, (uint64_t[]){1, 1, 20, 8});
	assert_shape(&step.in[3], 2, (uint64_t[]){5, 20});
	assert_shape(&step.out, 4, (uint64_t[]){1, 1, 5, 8});
	assert_int_equal(step.in[0].offset, 2 * 8 * (10 * (4 + 3) + 4));
	assert_int_equal(step.in[1].offset, 2 * 8 * 20 * (4 + 3));
	assert_int_equal(step.in[3].offset, 2 * 20 * 4);

	assert_int_equal(bench_shape_step(attention, KOPS_F16, &shape, NULL, &step, why), 0);
	step.set.attributes[1].choice = 2; /* causal */
	assert_false(step_cut(&step, 2, 0, 5));
	assert_true(step_cut(&step, 1, 2, 1));

	shape.extents[2] = 2; /* two heads share each of k and v */
	assert_int_equal(bench_shape_step(attention, KOPS_F16, &shape, NULL, &step, why), 0);
	assert_false(step_cut(&step, 1, 0, 1));
}

static bool is_special(uint64_t n)
{
	return n > 16 && (n & (n - 1)) == 0;
}

/* As of matrices in LAPACK's sense: powers of two are what people have. */
static bool has_usual_sizes(const struct operation *operation)
{
	return operation->bench.random.usual[0] && operation->bench.random.usual[1];
}

/* Half of the products on a GPU: each operand fits into memory, whatever is long. */
static void some_random_products_are_long_and_thin(void **state)
{
	static struct bench_shapes s;
	size_t thin = 0, deep = 0, aligned = 0;

	(void)state;
	bench_shapes_random(operation_at(0), "gpu", 200, 5, &s);
	for (size_t i = 0; i < s.n; i++) {
		const uint64_t *e = s.list[i].extents;

		if (i % 4 < 2) {
			assert_true(e[0] >= 32 && e[0] <= 8192);
			continue;
		}
		for (size_t d = 0; d < 3; d++) {
			assert_in_range(e[d], 1, 1000000);
			assert_in_range(e[d] * e[(d + 1) % 3], 1, 1 << 27);
		}
		thin += e[0] <= 64 || e[1] <= 64;
		deep += e[2] > 100000;
		aligned += e[0] % 16 == 0 && e[1] % 16 == 0;
	}
	assert_true(thin > 20 && deep > 0 && aligned > 5);
}

static void random_shapes_are_of_no_special_size(void **state)
{
	static struct bench_shapes s, again;
	char why[CLI_WHY_BYTES];
	struct step step;

	(void)state;
	for (size_t op = 0; op < OPERATIONS; op++) {
		const struct operation *operation = operation_at(op);
		size_t n_extents = op == 0 ? 3 : 2, small = 0;
		bench_shapes_random(operation, op % 2 ? "cpu" : "gpu", 200, 5 + op, &s);
		assert_int_equal(s.n, 200);
		for (size_t i = 0; i < s.n; i++) {
			assert_int_equal(bench_shape_step(operation, KOPS_F32, &s.list[i], NULL, &step, why),
			                 0);
			for (size_t d = 0; d < n_extents && !has_usual_sizes(operation); d++)
				assert_false(is_special(s.list[i].extents[d]));
			if (op == 0 && i % 2 && s.list[i].extents[0] >= 16)
				assert_int_equal(s.list[i].extents[0] % 16, 0);
			if (op == 0 && i % 4 < 2)
				small += s.list[i].extents[0] < 512; /* half of the range, on a log scale */
		}
		assert_true(op > 0 || (small > 30 && small < 70));
		bench_shapes_random(operation, op % 2 ? "cpu" : "gpu", 200, 5 + op, &again);
		assert_memory_equal(&s, &again, sizeof(s));
		bench_shapes_random(operation, op % 2 ? "cpu" : "gpu", 200, 6 + op, &again);
		assert_memory_not_equal(&s, &again, sizeof(s));
	}
}

static void bad_shapes_are_named(void **state)
{
	static const char *const bad[] = {
	    "",     "x",     "0x4",  "4x",   "4x4x4",         "4,",
	    ",4",   "4 x4",  "-1x4", "4x4a", "1099511627777", "99999999999999999999x1",
	    "4x,4", "4x4,x4"};
	const struct operation *add = operation_by_name("add");
	char why[CLI_WHY_BYTES], many[4 * BENCH_SHAPES_MAX] = "";
	struct bench_shapes s;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		if (bench_shapes_read(add, bad[i], &s, why) == 0)
			fail_msg("'%s' was taken", bad[i]);
		assert_says(why, "is not a valid shape for add: write ROWSxCOLUMNS");
	}
	assert_int_equal(bench_shapes_read(operation_by_name("gemm"), "4x4", &s, why), KOPS_E_INVALID);
	assert_says(why, "'4x4' is not a valid shape for gemm: write MxNxK");
	for (size_t i = 0; i < BENCH_SHAPES_MAX; i++)
		strcat(many, i ? ",9" : "9");
	assert_int_equal(bench_shapes_read(add, many, &s, why), 0);
	assert_int_equal(s.n, BENCH_SHAPES_MAX);
	strcat(many, ",9");
	assert_int_equal(bench_shapes_read(add, many, &s, why), KOPS_E_INVALID);
	assert_says(why, "more than 1024 shapes");
}

static void every_op_has_the_seed_table(void **state)
{
	char why[CLI_WHY_BYTES];
	struct bench_shapes s;
	struct step step;

	(void)state;
	for (size_t i = 0; i < OPERATIONS; i++) {
		const struct operation *op = operation_at(i);
		assert_int_equal(bench_shapes_table(op, "seed", &s, why), 0);
		assert_int_equal(bench_shape_step(op, KOPS_F32, &s.list[s.n - 1], NULL, &step, why), 0);
		uint64_t largest = bench_footprint(&step);
		assert_int_equal(bench_shape_step(op, KOPS_F32, &s.list[0], NULL, &step, why), 0);
		uint64_t smallest = bench_footprint(&step);
		if (!op->bench.counts_flops)
			assert_in_range(largest, 4000000000, 4400000000);
		assert_true(smallest < 64 << 20 && smallest <= largest);
	}
	assert_int_equal(bench_shapes_table(operation_by_name("gemm"), "sed", &s, why), KOPS_E_INVALID);
	assert_says(why, "there is no table 'sed'; --table takes seed");
}

static void operands_follow_from_the_shape(void **state)
{
	struct bench_shape shape = {.extents = {2, 3, 5}};
	char why[CLI_WHY_BYTES];
	struct step step;

	(void)state;
	assert_int_equal(bench_shape_step(operation_by_name("gemm"), KOPS_F16, &shape, NULL, &step, why), 0);
	assert_true(step.in[0].shape[0] == 2 && step.in[0].shape[1] == 5);
	assert_true(step.in[1].shape[0] == 5 && step.in[1].shape[1] == 3);
	assert_true(step.out.shape[0] == 2 && step.out.shape[1] == 3);
	assert_int_equal(bench_footprint(&step), 2 * (10 + 15 + 6)); /* without a bias */
	assert_int_equal(bench_shape_step(operation_by_name("transpose"), KOPS_F32, &shape, NULL, &step, why),
	                 0);
	assert_true(step.out.shape[0] == 3 && step.out.shape[1] == 2);
	assert_int_equal(bench_shape_step(operation_by_name("reduce"), KOPS_F32, &shape, NULL, &step, why), 0);
	assert_true(step.in[0].shape[1] == 3 && step.out.shape[0] == 2 && step.out.shape[1] == 1);
	assert_int_equal(bench_footprint(&step), 4 * (6 + 2));
	shape.extents[0] = shape.extents[1] = 1ull << 40;
	assert_int_equal(bench_shape_step(operation_by_name("add"), KOPS_F32, &shape, NULL, &step, why),
	                 KOPS_E_INVALID);
}

static const kops_kernel_info some_kernels[] = {
    {.op = "gemm", .name = "cublas", .device_kind = "gpu"},
    {.op = "gemm", .name = "tile", .device_kind = "gpu"},
    {.op = "gemm", .name = "naive", .device_kind = "gpu"},
    {.op = "gemm", .name = "loops", .device_kind = "cpu"},
    {.op = "add", .name = "float4", .device_kind = "gpu"},
};

const kops_kernel_info *__wrap_kops_info_kernel(const kops_info *info, size_t i);
const kops_kernel_info *__wrap_kops_info_kernel(const kops_info *info, size_t i)
{
	return i < info->n_kernels ? &some_kernels[i] : NULL;
}

static void kernels_are_found_by_name(void **state)
{
	kops_info info = {.n_kernels = sizeof(some_kernels) / sizeof(some_kernels[0])};
	struct bench_kernels k;
	char why[CLI_WHY_BYTES];

	(void)state;
	assert_int_equal(bench_kernels_read(&info, "gpu", "gemm", NULL, &k, why), 0);
	assert_true(k.n == 1 && k.names[0] == NULL);
	assert_int_equal(bench_kernels_read(&info, "gpu", "gemm", "all", &k, why), 0);
	assert_int_equal(k.n, 3); /* the ladder: slowest first */
	assert_string_equal(k.names[0], "naive");
	assert_string_equal(k.names[2], "cublas");
	assert_int_equal(bench_kernels_read(&info, "gpu", "gemm", "tile,cublas", &k, why), 0);
	assert_int_equal(k.n, 2);
	assert_string_equal(k.names[0], "tile");
	assert_int_equal(bench_kernels_read(&info, "gpu", "gemm", "tile,loops", &k, why), KOPS_E_INVALID);
	assert_says(why, "gemm has no kernel 'loops' on this device; it has naive, tile, cublas, and 'all'");
	assert_int_equal(bench_kernels_read(&info, "gpu", "gemm", "tile,", &k, why), KOPS_E_INVALID);
	assert_int_equal(bench_kernels_read(&info, "cpu", "add", "all", &k, why), KOPS_E_INVALID);
	assert_string_equal(bench_kernel_find(&info, "gpu", "gemm", NULL), "cublas");
	assert_null(bench_kernel_find(&info, "cpu", "gemm", "tile"));
}

/* ---- results ---- */

static struct bench_head some_head(const char *op)
{
	struct bench_head head = bench_head_blank();

	bench_put(head.op, sizeof(head.op), op);
	head.counts_flops = operation_by_name(op)->bench.counts_flops;
	bench_put(head.dtype, sizeof(head.dtype), "f32");
	bench_put(head.precision, sizeof(head.precision), "f32");
	bench_put(head.device, sizeof(head.device), "gpu0");
	bench_put(head.description, sizeof(head.description), "A \"GPU\", <large> & fast");
	head.seed = 7;
	head.fma_gflops = 60000;
	head.memory_gbytes = 4000;
	head.cache_gbytes = 8000;
	return head;
}

static struct bench_row some_row(const char *shape, const char *kernel, enum bench_mode mode, double us)
{
	struct bench_row row = bench_row_blank();

	bench_put(row.shape, sizeof(row.shape), shape);
	bench_put(row.kernel, sizeof(row.kernel), kernel);
	row.mode = mode;
	row.flops = 1e9;
	row.bytes = 1e8 / 3;
	row.footprint_bytes = 1 << 20;
	row.min_us = us - 1;
	row.median_us = us;
	row.max_us = us + 0.125;
	return row;
}

static void the_ceiling_is_what_the_device_allows(void **state)
{
	struct bench_head gemm = some_head("gemm"), add = some_head("add");
	struct bench_row row = some_row("1x1", "k", BENCH_COLD, 100);

	(void)state;
	/* 30 FLOP per byte: copies feed 120 TFLOP/s, so the FMA units are the ceiling. */
	assert_float_equal(bench_row_ceiling(&gemm, &row), 60000, 1e-6);
	assert_float_equal(bench_row_speed(&gemm, &row), 10000, 1e-6);
	assert_float_equal(bench_row_ceiling_percent(&gemm, &row), 100.0 / 6, 1e-6);
	row.flops = 1e8; /* 3 FLOP per byte: now memory is the ceiling, and the cache if it is warm. */
	assert_float_equal(bench_row_ceiling(&gemm, &row), 12000, 1e-6);
	assert_float_equal(bench_row_ceiling(&add, &row), 4000, 1e-6);
	assert_float_equal(bench_row_speed(&add, &row), 1000.0 / 3, 1e-6);
	row.mode = BENCH_WARM;
	assert_float_equal(bench_row_ceiling(&gemm, &row), 24000, 1e-6);
	assert_float_equal(bench_row_ceiling(&add, &row), 8000, 1e-6);
	row.mode = BENCH_HOST;
	assert_true(isnan(bench_row_ceiling(&add, &row)));
	row.mode = BENCH_COLD;
	row.tensor_cores = true; /* nothing to compare with */
	assert_true(isnan(bench_row_ceiling_percent(&gemm, &row)));
	row.tensor_cores = false;
	gemm.fma_gflops = (double)NAN; /* nor with f16 */
	assert_true(isnan(bench_row_ceiling_percent(&gemm, &row)));
	row.peer_us = 50;
	assert_float_equal(bench_row_peer_percent(&add, &row), 50, 1e-9);
	row = bench_row_blank();
	assert_false(bench_row_measured(&row));
	assert_true(isnan(bench_row_speed(&add, &row)));
}

/* Returns the table as CSV, to be freed. */
static char *to_csv(const struct bench_table *table)
{
	static char *text;
	static size_t n;
	FILE *out = open_memstream(&text, &n);

	bench_csv_head(out);
	for (size_t i = 0; i < table->n; i++)
		bench_csv_row(out, &table->head, &table->rows[i]);
	fclose(out);
	return text;
}

static void make_table(struct bench_table *table, const char *op)
{
	static const char *const kernels[] = {"naive", "tiled", "best"};
	static const char *const shapes[] = {"128x128x1024", "256x256x1024", "512x512x1024"};

	*table = (struct bench_table){.head = some_head(op)};
	for (size_t s = 0; s < 3; s++)
		for (size_t k = 0; k < 3; k++) {
			struct bench_row row = some_row(shapes[s], kernels[k], BENCH_COLD,
			                                1000.0 / (1 << (2 * k)) * (double)(s + 1) / 3);
			assert_int_equal(bench_table_add(table, &row), 0);
		}
	struct bench_row refused = bench_row_blank();
	bench_put(refused.shape, sizeof(refused.shape), "512x512x1024");
	bench_put(refused.kernel, sizeof(refused.kernel), "serial");
	bench_put(refused.note, sizeof(refused.note), "no, \"not\" this");
	assert_int_equal(bench_table_add(table, &refused), 0);
	for (size_t k = 0; k < 2; k++) {
		struct bench_row warm = some_row(shapes[k], "best", BENCH_WARM, 7);
		assert_int_equal(bench_table_add(table, &warm), 0);
	}
}

/* Returns line `index` without its newline, to be freed. */
static char *line_of(const char *text, size_t index)
{
	for (; index > 0; index--)
		text = strchr(text, '\n') + 1;
	return strndup(text, strcspn(text, "\n"));
}

static void csv_has_a_line_for_each_row(void **state)
{
	struct bench_table table;
	size_t lines = 0;

	(void)state;
	make_table(&table, "gemm");
	table.rows[0].wrong = table.rows[0].tensor_cores = true;
	table.rows[0].max_error = (double)INFINITY;
	char *text = to_csv(&table);
	for (const char *c = text; *c; c++)
		lines += *c == '\n';
	assert_int_equal(lines, table.n + 1);
	char *names = line_of(text, 0), *first = line_of(text, 1), *refused = line_of(text, 10);
	assert_says(names, "op,dtype,precision,input,device,description,seed,cache_bytes,fma_gflops_per_s,");
	assert_says(names, ",wrong,tensor_cores,note");
	assert_says(first, "gemm,f32,");
	assert_says(first, ",\"A \"\"GPU");
	assert_says(first, ",7,");
	assert_says(first, ",128x128x1024,naive,cold,");
	assert_says(first, ",inf,");
	assert_says(first, ",yes,yes,");
	assert_says(refused, "serial,cold,0,0,0,,,0,,,,,,,,,,,,no,no,\"no, \"\"not\"\" this\"");
	free(names);
	free(first);
	free(refused);
	free(text);
	bench_table_free(&table);
}

static void text_is_cut_between_characters(void **state)
{
	char text[5];

	(void)state;
	bench_put(text, sizeof(text), "abµs");
	assert_string_equal(text, "abµ");
	bench_put(text, sizeof(text), "abcµs");
	assert_string_equal(text, "abc");
	bench_put(text, sizeof(text), "µs");
	assert_string_equal(text, "µs");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(shapes_are_read),
	    cmocka_unit_test(shapes_of_heads_are_read),
	    cmocka_unit_test(heads_are_cut),
	    cmocka_unit_test(random_shapes_are_of_no_special_size),
	    cmocka_unit_test(some_random_products_are_long_and_thin),
	    cmocka_unit_test(bad_shapes_are_named),
	    cmocka_unit_test(every_op_has_the_seed_table),
	    cmocka_unit_test(operands_follow_from_the_shape),
	    cmocka_unit_test(kernels_are_found_by_name),
	    cmocka_unit_test(the_ceiling_is_what_the_device_allows),
	    cmocka_unit_test(csv_has_a_line_for_each_row),
	    cmocka_unit_test(text_is_cut_between_characters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
