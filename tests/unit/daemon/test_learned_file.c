/* Tests learned_file.c: a file of what jobs showed, which cannot be trusted. */
#include <fcntl.h>
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

#include "device/learned_file.h"
#include "log.h"

#define HEAD "kops learned 1\nkopsd 1.2.3 on Some GPU, driver 5\n"
#define LINE "gemm 00000000000000a1 quick 0 61.5 5 brown 33 35.1 3 fox 49 0 0\n"

static bool takes_all(const struct op_args *args, const char **ret_why_not)
{
	(void)args;
	(void)ret_why_not;
	return true;
}

static const struct kernel kernels[] = {{.name = "quick", .supports = takes_all},
                                        {.name = "brown", .supports = takes_all},
                                        {.name = "fox", .supports = takes_all}};

static const struct kernel_list *kernels_of(const struct op *op)
{
	static const struct kernel_list list = {kernels, 3}, none;

	return strcmp(op->name, "gemm") == 0 ? &list : &none;
}

static unsigned no_rivals(const struct planner *planner, const struct op_args *args,
                          struct rival ret[RIVALS_MAX])
{
	(void)planner;
	(void)args;
	(void)ret;
	return 0;
}

static const struct learned_owner owner = {kernels_of, no_rivals, NULL};
static char folder[] = "/tmp/kops-learned-XXXXXX", path[64];
static struct learned_file file = {.path = path,
                                   .device = "gpu0",
                                   .daemon = "kopsd 1.2.3",
                                   .description = "Some GPU, driver 5",
                                   .kernels = kernels_of};

static int set_up(void **state)
{
	(void)state;
	log_set_level(LOG_LEVEL_ERROR);
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof path, "%s/learned-gpu0", folder);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	return rmdir(folder);
}

/*
 * Returns the number of shapes in a text's table; -1 with a sentence if it is invalid, -2 if it is another
 * device's.
 */
static int parse(const char *text, size_t bytes, char why[WHY_BYTES])
{
	struct learned *learned = learned_new(&owner);
	int rc = learned_file_parse(&file, text, bytes, learned, why);
	struct learned_shape *shapes = NULL;
	size_t n = 0;

	assert_int_equal(learned_export(learned, &shapes, &n), 0);
	free(shapes);
	learned_free(learned);
	return rc < 0 ? -1 : rc == 0 ? -2 : (int)n;
}

static void a_file_of_this_daemon_and_device_counts(void **state)
{
	char why[WHY_BYTES];

	(void)state;
	assert_int_equal(parse(HEAD, strlen(HEAD), why), 0);
	assert_int_equal(parse(HEAD LINE, strlen(HEAD LINE), why), 1);
	static const char other_driver[] = "kops learned 1\nkopsd 1.2.3 on Some GPU, driver 6\n" LINE;
	assert_int_equal(parse(other_driver, strlen(other_driver), why), -2);
	static const char other_version[] = "kops learned 1\nkopsd 1.2.4 on Some GPU, driver 5\nwhat it says\n";
	assert_int_equal(parse(other_version, strlen(other_version), why), -2);
}

static void what_looks_otherwise_is_void(void **state)
{
	static const struct {
		const char *text, *words;
	} bad[] = {
	    {"", "line 1 has no newline"},
	    {"kops learned 2\n", "line 1 is not \"kops learned 1\""},
	    {"kops learned 1\n", "line 2 has no newline"},
	    {HEAD "gemm 00000000000000a1 quick 0 61.5 5 brown 33 35.1 3", "line 3 has no newline"},
	    {HEAD "\n", "line 3 does not begin with an op and a shape"},
	    {HEAD "gem 00000000000000a1 quick 0 1 1 brown 0 1 1\n", "line 3 does not begin with an op"},
	    {HEAD "gemm a1 quick 0 1 1 brown 0 1 1\n", "line 3 does not begin with an op"},
	    {HEAD "gemm 00000000000000A1 quick 0 1 1 brown 0 1 1\n", "line 3 does not begin with an op"},
	    {HEAD LINE "gemm 00000000000000a2 quick 0 1 1 dodo 0 1 1\n",
	     "line 4 names a kernel \"dodo\" that gemm does not have"},
	    {HEAD "add 00000000000000a1 quick 0 1 1 brown 0 1 1\n", "line 3 names a kernel \"quick\""},
	    {HEAD "gemm 00000000000000a1 quick 0 1 1 brown 0 1\n", "line 3 is truncated"},
	    {HEAD "gemm 00000000000000a1 quick 0 -1 1 brown 0 1 1\n", "line 3 needs two times"},
	    {HEAD "gemm 00000000000000a1 quick 0 nan 1 brown 0 1 1\n", "line 3 needs two times"},
	    {HEAD "gemm 00000000000000a1 quick 0 0x1 1 brown 0 1 1\n", "line 3 needs two times"},
	    {HEAD "gemm 00000000000000a1 quick 0 1 17 brown 0 1 1\n", "line 3 needs two times"},
	    {HEAD "gemm 00000000000000a1 quick 0 1e13 1 brown 0 1 1\n", "line 3 is invalid"},
	    {HEAD "gemm 00000000000000a1 quick 0 1 6 brown 0 1 1\n", "line 3 is invalid"},
	    {HEAD "gemm 00000000000000a1 quick 0 1 1 quick 0 1 1\n", "line 3 is invalid"},
	    {HEAD "gemm 00000000000000a1 quick 0 1 1\n", "line 3 is invalid"},
	};
	char why[WHY_BYTES], large[4096];

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		assert_int_equal(parse(bad[i].text, strlen(bad[i].text), why), -1);
		if (strncmp(why, bad[i].words, strlen(bad[i].words)) != 0)
			fail_msg("%s", why);
	}
	memset(large, 'x', sizeof large);
	large[sizeof large - 1] = '\n';
	assert_int_equal(parse(large, sizeof large, why), -1);
	assert_string_equal(why, "line 1 is longer than 2047 bytes");
	assert_int_equal(parse("kops\0 learned 1\n", 16, why), -1);
	assert_string_equal(why, "line 1 holds a NUL byte");
}

static void what_is_saved_is_loaded(void **state)
{
	struct learned_shape shapes[2] = {{.op = op_by_name("gemm"), .hash = 0xfedcba9876543210, .n = 2},
	                                  {.op = op_by_name("gemm"), .hash = 1, .n = 3}},
	                     *again;
	char why[WHY_BYTES];
	struct stat st;
	size_t n;

	(void)state;
	for (unsigned i = 0; i < 3; i++)
		shapes[1].candidates[i] = (struct learned_candidate){2 - i, i * 1e-3, i * 1.5e6, i};
	memcpy(shapes[0].candidates, shapes[1].candidates, sizeof shapes[0].candidates);
	for (unsigned i = 0; i < 2; i++) /* the second replaces the first */
		assert_int_equal(learned_file_save(&file, shapes, 2, why), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0644 & ~umask(umask(0)));
	struct learned *learned = learned_file_load(&file, &owner);
	assert_int_equal(learned_export(learned, &again, &n), 0);
	assert_int_equal(n, 2);
	const struct learned_shape *first = again[0].hash == 1 ? &again[1] : &again[0];
	assert_int_equal(first->hash, shapes[0].hash);
	assert_int_equal(first->n, 2);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(first->candidates[i].kernel, 2 - i);
		assert_true(first->candidates[i].expected_us == i * 1e-3);
		assert_true(first->candidates[i].least_us == i * 1.5e6);
		assert_int_equal(first->candidates[i].trials, i);
	}
	learned_free(learned);
	free(again);
	assert_int_equal(unlink(path), 0);
}

static void expect_nothing(void)
{
	struct learned *learned = learned_file_load(&file, &owner);
	struct learned_shape *shapes;
	size_t n;

	assert_non_null(learned);
	assert_int_equal(learned_export(learned, &shapes, &n), 0);
	assert_int_equal(n, 0);
	learned_free(learned);
}

static void write_text(const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void what_cannot_be_read_is_an_empty_table(void **state)
{
	(void)state;
	expect_nothing();
	write_text(HEAD LINE "what\n");
	expect_nothing(); /* not even the valid line */
	assert_int_equal(truncate(path, LEARNED_FILE_BYTES_MAX + 1), 0);
	expect_nothing();
	unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	expect_nothing();
	unlink(path);
	assert_int_equal(mkdir(path, 0700), 0);
	expect_nothing();
	rmdir(path);
	assert_int_equal(symlink("/etc/passwd", path), 0);
	expect_nothing();
	unlink(path);
}

static void a_folder_that_is_not_there_is_a_sentence(void **state)
{
	struct learned_file nowhere = file;
	char why[WHY_BYTES];

	(void)state;
	nowhere.path = "/nonexistent/learned-gpu0";
	assert_int_equal(learned_file_save(&nowhere, NULL, 0, why), KOPS_E_SYSTEM);
	assert_string_equal(
	    why, "cannot save measured kernel times to /nonexistent/learned-gpu0: No such file or directory");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_file_of_this_daemon_and_device_counts),
	    cmocka_unit_test(what_looks_otherwise_is_void),
	    cmocka_unit_test(what_is_saved_is_loaded),
	    cmocka_unit_test(what_cannot_be_read_is_an_empty_table),
	    cmocka_unit_test(a_folder_that_is_not_there_is_a_sentence),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
