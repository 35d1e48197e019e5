/* tune without a daemon: what is measured in which order, and how the table is written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "files/sink.h"
#include "tune/grid.h"
#include "tune/table.h"

#define HEAD "kops tuning table 1\n"
#define OURS "[kopsd 1 on G, 1]\n"

/* ---- The grid ---- */

static void sweeps_go_from_the_most_valuable_on(void **state)
{
	const struct operation *ops[] = {operation_by_name("gemm"), operation_by_name("add")};
	struct sweep s;
	char name[64];
	size_t n = 0;

	(void)state;
	assert_true(tune_sweep(ops, 2, 0, &s));
	assert_string_equal(tune_sweep_name(&s, name), "gemm f32 f32 NN");
	assert_true(tune_sweep(ops, 2, 1, &s));
	assert_string_equal(tune_sweep_name(&s, name), "add f32");
	assert_true(tune_sweep(ops, 2, 2, &s));
	assert_string_equal(tune_sweep_name(&s, name), "gemm f32 ieee NN");
	for (; tune_sweep(ops, 2, n, &s); n++) {
		if (s.op == ops[0])
			continue;
		assert_int_equal(s.precision, KOPS_PRECISION_F32);
		assert_false(s.unaligned || s.transposed[0] || s.transposed[1] || s.dtype == KOPS_F64);
	}
	assert_int_equal(n, 10 * 7 + 2 * 3); /* stages and types of gemm; coarse and fine, three types of add */
	assert_true(tune_sweep(ops, 2, n - 1, &s));
	assert_string_equal(tune_sweep_name(&s, name), "gemm f64 TT fine");
}

static void every_grid_has_room(void **state)
{
	static struct bench_shape shapes[TUNE_SHAPES_MAX];
	struct sweep s;
	char names[128];

	(void)state;
	for (size_t i = 0; i < OPERATIONS; i++) {
		const struct operation *op = operation_at(i);
		if (!tune_takes(op))
			continue;
		assert_true(tune_sweep(&op, 1, 0, &s));
		size_t coarse = tune_shapes(&s, shapes);
		s.fine = true;
		size_t all = coarse + tune_shapes(&s, shapes);
		assert_true(coarse > 0 && all <= TUNE_SHAPES_MAX);
	}
	assert_string_equal(operation_names(tune_takes, names, sizeof(names)),
	                    "gemm, softmax, transpose, add or reduce");
}

static void shapes_come_by_their_work(void **state)
{
	static struct bench_shape shapes[TUNE_SHAPES_MAX];
	const struct operation *gemm = operation_by_name("gemm");
	struct sweep s;
	size_t n;

	(void)state;
	tune_sweep(&gemm, 1, 0, &s);
	n = tune_shapes(&s, shapes);
	assert_int_equal(n, 125);
	assert_string_equal(shapes[0].text, "64x64x64");
	assert_string_equal(shapes[n - 1].text, "16384x16384x16384");
	for (size_t i = 1; i < n; i++)
		assert_true(shapes[i - 1].extents[0] * shapes[i - 1].extents[1] * shapes[i - 1].extents[2] <=
		            shapes[i].extents[0] * shapes[i].extents[1] * shapes[i].extents[2]);
	s.unaligned = true;
	assert_int_equal(tune_shapes(&s, shapes), 125);
	assert_string_equal(shapes[0].text, "63x63x63");
	s.fine = true;
	assert_int_equal(tune_shapes(&s, shapes), 604);
}

/* A single line is aligned whatever its length: its class has been measured by then. */
static void no_single_line_is_unaligned(void **state)
{
	static struct bench_shape shapes[TUNE_SHAPES_MAX];
	const struct operation *softmax = operation_by_name("softmax");
	struct sweep s;

	(void)state;
	tune_sweep(&softmax, 1, 0, &s);
	assert_int_equal(tune_shapes(&s, shapes), 11 * 8);
	assert_string_equal(shapes[0].text, "1x64");
	s.unaligned = true;
	assert_int_equal(tune_shapes(&s, shapes), 10 * 8);
	assert_string_equal(shapes[0].text, "3x63");
	s.fine = true;
	size_t n = tune_shapes(&s, shapes);
	assert_int_equal(n, 20 * 15 - 10 * 8);
	for (size_t i = 0; i < n; i++)
		assert_true(shapes[i].extents[0] > 1);
}

static void layouts_are_strides(void **state)
{
	const struct operation *gemm = operation_by_name("gemm");
	struct sweep s = {.op = gemm, .dtype = KOPS_F16, .transposed = {false, true}};
	struct bench_shape shape = {.extents = {2, 3, 5}};
	char why[CLI_WHY_BYTES];
	struct step step;

	(void)state;
	assert_int_equal(tune_step(&s, &shape, &step, why), 0);
	assert_int_equal(step.in[0].shape[0], 2);
	assert_int_equal(step.in[0].strides[0], 5);
	assert_int_equal(step.in[0].strides[1], 1);
	assert_int_equal(step.in[1].shape[0], 5);
	assert_int_equal(step.in[1].shape[1], 3);
	assert_int_equal(step.in[1].strides[0], 1);
	assert_int_equal(step.in[1].strides[1], 5);
	assert_int_equal(step.in[1].dtype, KOPS_F16);
}

/* ---- The table ---- */

static char *written(const char *old, const char *const *list)
{
	struct tune_lines lines = {.n = 0};
	char *text;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	for (; *list; list++)
		assert_int_equal(tune_lines_add(&lines, strdup(*list)), 0);
	tune_table_write(out, old, "kopsd 1", "G, 1", "today", &lines);
	fclose(out);
	tune_lines_free(&lines);
	return text;
}

static void sections_and_classes_that_were_not_measured_stay(void **state)
{
	static const char *const list[] = {"b/8 x 2", "c/8 x 1", "b/8 y 3", NULL};
	static const struct {
		const char *old, *want;
	} cases[] = {
	    {NULL, HEAD OURS "# measured today\nb/8 y 3\nc/8 x 1\n"},
	    {HEAD, HEAD OURS "# measured today\nb/8 y 3\nc/8 x 1\n"},
	    {HEAD "# hand\n[kopsd 1 on G2, 1]\n\nb/8 x 9\n" OURS
	          "# measured before\n\nb/8 x 1\na/8 x 1\nb/80 x 1\n[kopsd 1 on H]\nb/8 x 1",
	     HEAD "# hand\n[kopsd 1 on G2, 1]\n\nb/8 x 9\n[kopsd 1 on H]\nb/8 x 1\n" OURS
	          "# measured today\nb/8 y 3\nc/8 x 1\na/8 x 1\nb/80 x 1\n"},
	    {HEAD "[kopsd 1 on G, 1]", HEAD OURS "# measured today\nb/8 y 3\nc/8 x 1\n"},
	    {HEAD
	     "[kopsd 0 on G, 1]\na/8 x 1\n[kopsd 1 on G, 2]\na/8 x 1\n[kopsd 1 on G]\na/8 x 1\n[G, 1]\nz\n",
	     HEAD "[G, 1]\nz\n" OURS "# measured today\nb/8 y 3\nc/8 x 1\n"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *text = written(cases[i].old, list);
		assert_string_equal(text, cases[i].want);
		char *again = written(text, list);
		assert_string_equal(again, text);
		free(text);
		free(again);
	}
}

/* kopsd reads no more classes: what was measured last goes before what was measured before. */
static void a_section_has_room_for_so_many_classes(void **state)
{
	static const char *const list[] = {"a/8 x 1", "1/8 x 1", NULL};
	char *old, *text;
	size_t bytes, n = 0;
	FILE *out = open_memstream(&old, &bytes);

	(void)state;
	fputs(HEAD OURS, out);
	for (size_t i = 0; i < TUNING_CLASSES_MAX; i++)
		fprintf(out, "%zu/8 x 9\n", i);
	fclose(out);
	text = written(old, list);
	for (const char *c = strstr(text, "today\n"); c; c = strchr(c + 1, '\n'))
		n += c[1] >= '0' && c[1] <= 'a';
	assert_int_equal(n, TUNING_CLASSES_MAX);
	assert_non_null(strstr(text, "today\na/8 x 1\n1/8 x 1\n0/8 x 9\n2/8 x 9\n"));
	assert_non_null(strstr(text, "\n16382/8 x 9\n"));
	assert_null(strstr(text, "\n16383/8 x 9\n"));
	free(text);
	free(old);
}

/* In time that grows with its length alone. */
static void a_table_of_titles_is_read_fast(void **state)
{
	static const char *const list[] = {"a/8 x 1", NULL};
	size_t head = strlen(HEAD);
	char *old = malloc(TUNING_BYTES_MAX + 1), *text;

	(void)state;
	assert_non_null(old);
	for (size_t i = 0; i < TUNING_BYTES_MAX; i++)
		old[i] = i < head ? HEAD[i] : (i - head) % 2 ? '\n' : '[';
	old[TUNING_BYTES_MAX] = '\0';
	alarm(60); /* it took hours when each title was looked for beyond its end */
	text = written(old, list);
	alarm(0);
	assert_true(strlen(text) > TUNING_BYTES_MAX);
	free(text);
	free(old);
}

static void stand_in_the_way(const char *path, bool link)
{
	if (link) {
		assert_int_equal(symlink("victim", path), 0);
		return;
	}
	fclose(fopen(path, "w"));
	assert_int_equal(chmod(path, 04777), 0);
}

/* Whatever it was: a link is not followed, and neither the old mode nor the umask tell the new one. */
static void a_table_takes_the_place_of_what_was_there(void **state)
{
	char folder[] = "/tmp/kops-tune-XXXXXX", path[64], victim[64], why[CLI_WHY_BYTES];
	struct stat st;
	mode_t mask;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/t", folder);
	snprintf(victim, sizeof(victim), "%s/victim", folder);
	fclose(fopen(victim, "w"));
	for (int round = 0; round < 4; round++) { /* a link or a file of another mode, at first or at last */
		unlink(path);
		if (round < 2)
			stand_in_the_way(path, round % 2);
		mask = umask(077);
		struct sink *sink = sink_replace(path, why);
		umask(mask);
		assert_non_null(sink);
		if (round >= 2)
			stand_in_the_way(path, round % 2);
		assert_int_equal(sink_write_bytes(sink, "new", 3, why), 0);
		sink_close(sink);
		assert_int_equal(lstat(path, &st), 0);
		assert_true(S_ISREG(st.st_mode));
		assert_int_equal(st.st_mode & 07777, 0644);
		assert_int_equal(st.st_size, 3);
		assert_int_equal(stat(victim, &st), 0);
		assert_int_equal(st.st_size, 0);
	}
	unlink(path);
	unlink(victim);
	assert_int_equal(rmdir(folder), 0); /* nothing else was left in it */
}

static void only_a_table_is_read(void **state)
{
	char folder[] = "/tmp/kops-tune-XXXXXX", path[64], why[CLI_WHY_BYTES], *text;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/t", folder);
	assert_int_equal(tune_table_read(path, &text, why), 0);
	assert_null(text);
	assert_int_equal(symlink("/dev/null", path), 0);
	assert_int_equal(tune_table_read(path, &text, why), KOPS_E_INVALID);
	assert_null(text);
	assert_non_null(strstr(why, "is a symbolic link"));
	unlink(path);
	for (int good = 0; good < 2; good++) {
		FILE *f = fopen(path, "w");
		fputs(good ? HEAD "x\n" : "kops tuning table 12\n", f);
		fclose(f);
		assert_int_equal(tune_table_read(path, &text, why), good ? 0 : KOPS_E_INVALID);
		if (good)
			assert_string_equal(text, HEAD "x\n");
		else
			assert_non_null(strstr(why, "is no tuning table"));
		free(text);
	}
	unlink(path);
	rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(sweeps_go_from_the_most_valuable_on),
	    cmocka_unit_test(every_grid_has_room),
	    cmocka_unit_test(shapes_come_by_their_work),
	    cmocka_unit_test(no_single_line_is_unaligned),
	    cmocka_unit_test(layouts_are_strides),
	    cmocka_unit_test(sections_and_classes_that_were_not_measured_stay),
	    cmocka_unit_test(a_section_has_room_for_so_many_classes),
	    cmocka_unit_test(a_table_of_titles_is_read_fast),
	    cmocka_unit_test(a_table_takes_the_place_of_what_was_there),
	    cmocka_unit_test(only_a_table_is_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
