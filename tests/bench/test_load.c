/* Tests the loads of `kops-bench beside`: what words mean, what is refused, and the shapes of jobs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "beside/load.h"
#include "cases.h"

static struct load read_load(const char *text)
{
	char why[CLI_WHY_BYTES] = "";
	struct load load;

	if (load_read(text, &load, why) != 0)
		fail_msg("'%s' was refused: %s", text, why);
	assert_string_equal(load.text, text);
	return load;
}

static void assert_refused(const char *text, const char *sentence)
{
	char why[CLI_WHY_BYTES] = "";
	struct load load = {.ops = 77};

	if (load_read(text, &load, why) != KOPS_E_INVALID)
		fail_msg("'%s' was taken", text);
	if (strstr(why, sentence) == NULL)
		fail_msg("'%s': \"%s\" does not say \"%s\"", text, why, sentence);
	assert_int_equal(load.ops, 77);
}

static void words_are_read(void **state)
{
	struct load load = read_load("gemm:f16:30x20x10:x64:host:anew");

	(void)state;
	assert_string_equal(load.op->name, "gemm");
	assert_int_equal(load.dtype, KOPS_F16);
	assert_string_equal(load.shape.text, "30x20x10");
	assert_true(load.ops == 64 && load.host && load.anew && !load.has_precision);
	load = read_load("gemm:f32:tf32:8192");
	assert_string_equal(load.shape.text, "8192x8192x8192");
	assert_true(load.has_precision && load.precision == KOPS_PRECISION_TF32);
	assert_true(load.ops == 1 && !load.host && !load.anew);
	load = read_load("softmax:5x7:anew:x3"); /* f32 is what is meant where no type is given */
	assert_true(load.dtype == KOPS_F32 && load.ops == 3 && load.anew);
	load = read_load("gemm:bf16:64"); /* a type before it is a precision */
	assert_true(load.dtype == KOPS_BF16 && !load.has_precision);
	load = read_load("gemm:f32:bf16:64");
	assert_true(load.dtype == KOPS_F32 && load.precision == KOPS_PRECISION_BF16);
}

static void mistakes_are_named(void **state)
{
	static const struct {
		const char *text, *sentence;
	} bad[] = {
	    {"", "write OP[:DTYPE"},
	    {":", "write OP[:DTYPE"},
	    {"gem:64", "did you mean 'gemm'?"},
	    {"gemm", "needs one shape: write OP[:DTYPE"},
	    {"gemm:f32:tf32", "needs one shape"},
	    {"gemm:8,9", "needs one shape"},
	    {"gemm:f31:64", "'f31' in 'gemm:f31:64' is neither a type nor a shape for gemm: write MxNxK"},
	    {"gemm:", "'' in 'gemm:' is neither"},
	    {"gemm:0", "'0' in"},
	    {"add:4x4x4", "write ROWSxCOLUMNS"},
	    {"add:1099511627777x1", "write ROWSxCOLUMNS"},
	    {"add:f64:1099511627776x1099511627776", "exceeds any memory"},
	    {"softmax:i32:64", "softmax takes f32"},
	    {"gemm:f64:tf32:64", "only products of f32 have"},
	    {"softmax:f32:tf32:64", "only products of f32 have"},
	    {"gemm:64:x0", "write x1 to x64"},
	    {"gemm:64:x65", "write x1 to x64"},
	    {"gemm:64:x99999999999999999999", "write x1 to x64"},
	    {"gemm:64:x-1", "write x1 to x64"},
	    {"gemm:64:x2x", "write x1 to x64"},
	    {"gemm:64:hosts", "after the shape come xN, host and anew"},
	    {"gemm:64:", "after the shape come"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_refused(bad[i].text, bad[i].sentence);
}

static void long_words_are_refused(void **state)
{
	char text[LOAD_TEXT_BYTES + 1] = "add:";

	(void)state;
	memset(text + 4, '0', LOAD_TEXT_BYTES - 4);
	text[LOAD_TEXT_BYTES - 2] = '7';
	text[LOAD_TEXT_BYTES - 1] = '\0';
	assert_int_equal(read_load(text).shape.extents[0], 7);
	text[LOAD_TEXT_BYTES - 1] = '1';
	assert_refused(text, "longer than 79 characters");
}

static void there_is_a_list_for_each_kind_of_device(void **state)
{
	char *none[] = {NULL}, *many[LOADS_MAX + 2] = {NULL}, why[CLI_WHY_BYTES];
	struct loads cpu, gpu;
	struct step step;

	(void)state;
	assert_int_equal(loads_read(none, "cpu", &cpu, why), 0);
	assert_int_equal(loads_read(none, "gpu", &gpu, why), 0);
	assert_true(cpu.n > 5 && gpu.n > cpu.n);
	for (size_t i = 0; i < cpu.n; i++) {
		assert_int_equal(load_step(&cpu.list[i], 0, &step, why), 0);
		assert_true(bench_footprint(&step) * cpu.list[i].ops <= 400 << 20);
	}
	for (size_t i = 0; i < LOADS_MAX; i++)
		many[i] = "add:8";
	assert_int_equal(loads_read(many, "gpu", &gpu, why), 0);
	assert_int_equal(gpu.n, LOADS_MAX);
	many[LOADS_MAX] = "add:9";
	assert_int_equal(loads_read(many, "gpu", &gpu, why), KOPS_E_INVALID);
	assert_non_null(strstr(why, "more than 64 loads"));
}

static void every_job_has_another_shape_within_the_first(void **state)
{
	const struct load load = read_load("gemm:200x90x3:anew"), same = read_load("gemm:200x90x3");
	bool seen[64][45][2] = {{{false}}};
	char why[CLI_WHY_BYTES];
	struct step step;

	(void)state;
	for (uint64_t n = 0; n < sizeof(seen); n++) {
		assert_int_equal(load_step(&load, n, &step, why), 0);
		uint64_t m = 200 - step.out.shape[0], c = 90 - step.out.shape[1], k = 3 - step.in[0].shape[1];
		assert_true(m < 64 && c < 45 && k < 2);
		assert_false(seen[m][c][k]);
		seen[m][c][k] = true;
	}
	assert_int_equal(load_step(&same, 5, &step, why), 0);
	assert_true(step.out.shape[0] == 200 && step.out.shape[1] == 90 && step.in[0].shape[1] == 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(words_are_read),
	    cmocka_unit_test(mistakes_are_named),
	    cmocka_unit_test(long_words_are_refused),
	    cmocka_unit_test(there_is_a_list_for_each_kind_of_device),
	    cmocka_unit_test(every_job_has_another_shape_within_the_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
