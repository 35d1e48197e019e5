/*
 * Tests marks of jobs that were running when the daemon died: counted, suspected, refused, forgiven, forgotten;
 * and a file that cannot be trusted.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/rules.h"
#include "device/marks.h"

static char folder[] = "/tmp/kops-marks-XXXXXX", path[64];

static int set_up(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/kops-marks-XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/running", folder);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(folder);
}

static struct marks *open_marks(void)
{
	char why[WHY_BYTES];
	struct marks *marks = marks_open(path, why);

	assert_non_null(marks);
	return marks;
}

/* Simulates a kill, which leaves the file as it is. */
static struct marks *killed(struct marks *marks)
{
	char copy[80], command[256];
	struct marks *next;

	snprintf(copy, sizeof copy, "%s.copy", path);
	snprintf(command, sizeof command, "cp %s %s", path, copy);
	assert_int_equal(system(command), 0);
	marks_close(marks);
	assert_int_equal(rename(copy, path), 0);
	next = open_marks();
	return next;
}

/* Simulates a crash, which leaves a note of itself. */
static struct marks *die(struct marks *marks)
{
	marks_note_crash(marks);
	return killed(marks);
}

/* An administrator's kill counts only for jobs that had been running for some time. */
static void test_killed_from_outside(void **state)
{
	struct marks *m;

	(void)state;
	m = open_marks();
	marks_set(m, 1, 7);
	marks_set(m, 1, 8);
	marks_set_lasting(m, 1, 8);
	marks_set_lasting(m, 1, 9);
	m = killed(m);
	assert_int_equal(marks_deaths(m, 1, 7), 0);
	assert_int_equal(marks_deaths(m, 1, 8), 1);
	assert_int_equal(marks_deaths(m, 1, 9), 0);
	marks_set(m, 1, 8);
	marks_set_lasting(m, 1, 8);
	marks_unset(m, 1, 8, false); /* paused, and started again shortly before */
	marks_set(m, 1, 8);
	m = killed(m);
	assert_int_equal(marks_deaths(m, 1, 8), 1);
	marks_close(m);
}

static void test_two_deaths(void **state)
{
	struct marks *m;

	(void)state;
	m = open_marks();
	assert_int_equal(marks_deaths(m, 1, 7), 0);
	marks_set(m, 1, 7);
	marks_set(m, 2, 8);
	marks_set(m, 3, 9);
	marks_unset(m, 3, 9, false);
	m = die(m);
	assert_int_equal(marks_deaths(m, 1, 7), 1);
	assert_int_equal(marks_deaths(m, 2, 8), 1);
	assert_int_equal(marks_deaths(m, 3, 9), 0);
	assert_int_equal(marks_deaths(m, 2, 7), 0);
	marks_set(m, 2, 8); /* runs alone, and ends well */
	marks_unset(m, 2, 8, true);
	assert_int_equal(marks_deaths(m, 2, 8), 0);
	marks_set(m, 1, 7);
	m = die(m);
	assert_int_equal(marks_deaths(m, 1, 7), MARKS_DEATHS_MAX);
	m = die(m); /* the job was not running */
	assert_int_equal(marks_deaths(m, 1, 7), MARKS_DEATHS_MAX);
	marks_close(m);
}

static void test_an_orderly_end_is_no_death(void **state)
{
	struct marks *m;

	(void)state;
	m = open_marks();
	marks_set(m, 1, 7);
	marks_close(m);
	m = open_marks();
	assert_int_equal(marks_deaths(m, 1, 7), 0);
	marks_close(m);
}

static void test_more_jobs_than_marks(void **state)
{
	struct marks *m;
	unsigned known = 0;

	(void)state;
	m = open_marks();
	for (uint64_t shape = 1; shape <= 5000; shape++)
		marks_set(m, 1, shape);
	m = die(m);
	for (uint64_t shape = 1; shape <= 5000; shape++)
		known += marks_deaths(m, 1, shape);
	assert_in_range(known, 900, 1024);
	for (uint64_t shape = 1; shape <= 5000; shape++)
		marks_unset(m, 1, shape, true);
	marks_set(m, 2, 4711);
	m = die(m);
	assert_int_equal(marks_deaths(m, 2, 4711), 1);
	marks_close(m);
}

static void put(const void *data, size_t n)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	assert_int_equal(fwrite(data, 1, n, file), n);
	fclose(file);
}

static void test_files_of_no_use(void **state)
{
	char noise[40000], why[WHY_BYTES];
	struct marks *m;

	(void)state;
	memset(noise, 0x5a, sizeof noise);
	for (size_t n = 0; n < sizeof noise; n += 7777) {
		put(noise, n);
		m = open_marks();
		assert_int_equal(marks_deaths(m, 0x5a5a5a5a, 0x5a5a5a5a5a5a5a5a), 0);
		marks_set(m, 1, 7);
		marks_close(m);
		unlink(path);
	}
	assert_int_equal(symlink("/etc/passwd", path), 0);
	assert_null(marks_open(path, why));
	assert_non_null(strstr(why, path));
	unlink(path);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_null(marks_open(path, why));
	rmdir(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_null(marks_open(path, why));
	/* Without marks everything else works. */
	marks_set(NULL, 1, 7);
	marks_unset(NULL, 1, 7, true);
	assert_int_equal(marks_deaths(NULL, 1, 7), 0);
	marks_close(NULL);
}

/* A full disk behaves the same. */
static void test_there_is_no_room_for_the_file(void **state)
{
	struct rlimit before, tight;
	char why[WHY_BYTES];

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	tight = before;
	tight.rlim_cur = 100;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
	assert_null(marks_open(path, why));
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_non_null(strstr(why, strerror(EFBIG)));
}

static struct run_op op_of(const struct kernel *kernel, uint64_t rows, uint64_t cols)
{
	struct run_op op = {.args.op = &op_copy, .kernel = kernel};

	for (int i = 0; i < 2; i++) {
		op.args.views[i] = (struct view){.dtype = KOPS_F32, .rank = 2, .shape = {rows, cols}};
		view_make_dense(&op.args.views[i]);
	}
	return op;
}

static void test_shapes(void **state)
{
	static const struct kernel one = {.name = "one"}, other = {.name = "other"};
	struct run_op ops_a[] = {op_of(&one, 2, 3), op_of(&one, 4, 5)},
	              ops_b[] = {op_of(&one, 2, 3), op_of(&one, 4, 5)};
	struct run a = {.ops = ops_a, .n_ops = 2}, b = {.ops = ops_b, .n_ops = 2};

	(void)state;
	assert_int_equal(marks_shape(&a), marks_shape(&b));
	ops_b[1].args.views[0].offset = 64; /* alignment does not matter */
	assert_int_equal(marks_shape(&a), marks_shape(&b));
	b.n_ops = 1;
	assert_int_not_equal(marks_shape(&a), marks_shape(&b));
	b.n_ops = 2;
	ops_b[1].kernel = &other;
	assert_int_not_equal(marks_shape(&a), marks_shape(&b));
	ops_b[1] = op_of(&one, 5, 4);
	assert_int_not_equal(marks_shape(&a), marks_shape(&b));
	ops_b[1] = op_of(&one, 4, 5);
	ops_b[1].args.views[1].strides[0] = 6;
	assert_int_not_equal(marks_shape(&a), marks_shape(&b));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_two_deaths, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_killed_from_outside, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_an_orderly_end_is_no_death, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_more_jobs_than_marks, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_files_of_no_use, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_there_is_no_room_for_the_file, set_up, tear_down),
	    cmocka_unit_test(test_shapes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
