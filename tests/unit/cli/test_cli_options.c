/* The command line: options of every kind, their errors, and JSON that any parser takes. */
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

#include "json.h"
#include "kernel.h"
#include "nearest.h"
#include "op/operation.h"
#include "program.h"
#include "verb/commands.h"
#include "verb/op.h"

/* ---- options ---- */

/* Parses "sgemm" and up to 6 words. */
static int parse(struct flags *flags, char *why, int *ret_argc, char ***ret_argv, const char *const words[])
{
	const struct command *sgemm = commands_program()->commands[0];
	static char *argv[8];
	int argc = 1;

	argv[0] = (char *)"sgemm";
	for (; words[argc - 1]; argc++)
		argv[argc] = (char *)(uintptr_t)words[argc - 1];
	argv[argc] = NULL;
	*flags = (struct flags){0};
	return options_parse(sgemm->options, argc, argv, flags, ret_argc, ret_argv, why);
}
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void options_and_files_may_be_mixed(void **state)
{
	char why[CLI_WHY_BYTES], **args;
	struct flags f;
	int n;

	(void)state;
	assert_int_equal(parse(&f, why, &n, &args, WORDS("a.bin", "-o", "c.bin", "--check", "b.bin", "-m12")),
	                 0);
	assert_int_equal(n, 2);
	assert_string_equal(args[0], "a.bin");
	assert_string_equal(args[1], "b.bin");
	assert_string_equal(f.output, "c.bin");
	assert_true(f.check);
	assert_true(f.m.set && f.m.value == 12 && !f.n.set);
	assert_int_equal(parse(&f, why, &n, &args, WORDS("--alpha", "-1.5", "--priority=low", "--", "-o")), 0);
	assert_true(f.op.attributes[0].number.set && f.op.attributes[0].number.value == -1.5);
	assert_int_equal(f.priority, KOPS_LOW);
	assert_string_equal(args[0], "-o");
}

static void times_have_units(void **state)
{
	static const struct {
		const char *text;
		uint32_t ms;
	} good[] = {{"2", 2000}, {"0.5", 500}, {"500ms", 500}, {"3s", 3000}, {"2min", 120000}, {"0.1ms", 1}};
	static const char *const bad[] = {"", "0", "-1", "soon", "3 s", "1h", "nan", "1e30", "3sx"};
	uint32_t ms;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_true(options_time.parse(good[i].text, &ms));
		assert_int_equal(ms, good[i].ms);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(options_time.parse(bad[i], &ms));
}

static void wrong_options_are_named(void **state)
{
	static const struct {
		const char *words[3], *reason;
	} cases[] = {
	    {{"--nonsense"}, "unknown option '--nonsense'; -h lists"},
	    {{"--alhpa", "1"}, "unknown option '--alhpa'; did you mean '--alpha'?"},
	    {{"--outputs=c.npy"}, "unknown option '--outputs=c.npy'; did you mean '--output'?"},
	    {{"--check=yes"}, "--check takes no value"},
	    {{"-x"}, "unknown option '-x'"},
	    {{"a", "-o"}, "option '-o' needs a value, FILE"},
	    {{"--alpha"}, "option '--alpha' needs a value, X"},
	    {{"--alpha", "inf"}, "--alpha takes a number, not 'inf'"},
	    {{"-m", "-3"}, "-m takes a whole number below 2^64, not '-3'"},
	    {{"-m", "99999999999999999999"}, "-m takes a whole number below 2^64, not '9999"},
	    {{"--precision", "f64"}, "--precision takes f32, ieee, tf32 or bf16, not 'f64'"},
	    {{"--dtype", "f32"}, "unknown option '--dtype'"}, /* sgemm's is fixed */
	    {{"--output", ""}, "--output takes a file's name, not ''"},
	    {{"--timeout", "soon"}, "--timeout takes a time above 0 such as 2 (seconds), 500ms or 1min, not"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char why[CLI_WHY_BYTES], **args;
		struct flags f;
		int n;
		const char *const words[] = {cases[i].words[0], cases[i].words[1], NULL};
		assert_int_equal(parse(&f, why, &n, &args, words), KOPS_E_INVALID);
		if (strstr(why, cases[i].reason) == NULL)
			fail_msg("\"%s\" does not say \"%s\"", why, cases[i].reason);
	}
}

static void mistyped_words_find_the_nearest(void **state)
{
	static const struct {
		const char *word, *best;
	} cases[] = {{"gem", "gemm"},
	             {"gemmm", "gemm"},
	             {"sofmtax", "softmax"},
	             {"trnspse", "transpose"},
	             {"adn", "add"},
	             {"frobnicate", ""},
	             {"x", ""},
	             {"", ""},
	             {"trspos", ""},
	             {"ad", "add"},
	             {"zz", ""}};
	char text[96];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct nearest n = nearest_to(cases[i].word, strlen(cases[i].word));
		for (size_t k = 0; k < OPERATIONS; k++)
			nearest_offer(&n, operation_at(k)->name);
		nearest_offer(&n, NULL);
		assert_string_equal(n.best ? n.best : "", cases[i].best);
		if (n.best == NULL)
			assert_string_equal(nearest_hint(&n, "--", "none", text), "none");
	}
	char *endless = calloc(1, 100000);
	memset(endless, 'a', 99999);
	struct nearest n = nearest_to(endless, 99999);
	nearest_offer(&n, "add");
	nearest_offer(&n, endless);
	assert_null(n.best);
	free(endless);
}

static void the_ops_are_those_of_the_list(void **state)
{
	char text[192], small[8], last[64];

	(void)state;
	assert_string_equal(operation_at(0)->name, "gemm");
	for (size_t i = 0; i < OPERATIONS; i++)
		assert_ptr_equal(operation_by_name(operation_at(i)->name), operation_at(i));
	assert_null(operation_by_name("gem"));
	assert_int_equal(strncmp(operation_names(text, sizeof(text)), "gemm, softmax, ", 15), 0);
	snprintf(last, sizeof(last), " or %s", operation_at(OPERATIONS - 1)->name);
	assert_string_equal(text + strlen(text) - strlen(last), last);
	assert_string_equal(operation_names(small, sizeof(small)), "gemm, s");
}

static void every_verb_has_what_help_needs(void **state)
{
	const struct command *const *all = commands_program()->commands;
	const struct program program = {.commands = all};
	size_t n = 0;

	(void)state;
	for (; all[n]; n++) {
		const struct command *c = all[n];
		assert_ptr_equal(program_command(&program, c->name), c);
		assert_non_null(strstr(c->help, "\nExamples:\n  "));
		assert_true(c->min_args <= c->max_args);
		for (const struct option_row *row = c->options; row->name || row->letter; row++)
			assert_true(row->help[0] != '\0' && (row->type->parse || row->type->words));
	}
	assert_true(n > OPERATIONS);
	assert_null(program_command(&program, "gem"));
}

/* ---- JSON ---- */

static void json_is_escaped_and_nested(void **state)
{
	struct json json;
	char *text;
	size_t n;
	FILE *out = open_memstream(&text, &n);

	(void)state;
	json_begin(&json, out, "x");
	json_text(&json, "a\"b", "q\"\\\n\x01 µ \xff\xc0\xaf\x7f\xc2\x9b\xe2\x80\xae.");
	json_text(&json, "none", NULL);
	json_array(&json, "list");
	json_real(&json, NULL, 0.1);
	json_real(&json, NULL, 1.0 / 3);
	json_real(&json, NULL, -1e300);
	json_real(&json, NULL, (double)NAN);
	json_real(&json, NULL, -(double)INFINITY);
	json_count(&json, NULL, UINT64_MAX);
	json_object(&json, NULL);
	json_close_object(&json);
	json_close_array(&json);
	json_bool(&json, "yes", true);
	json_end(&json);
	fclose(out);
	assert_string_equal(
	    text, "{\n  \"schema\": 1,\n  \"verb\": \"x\",\n"
	          "  \"a\\\"b\": \"q\\\"\\\\\\u000a\\u0001 µ ???\\u007f\\u009b\\u202e.\",\n  \"none\": null,\n"
	          "  \"list\": [\n    0.1,\n    0.3333333333333333,\n    -1e+300,\n    null,\n    null,\n"
	          "    18446744073709551615,\n    {}\n  ],\n  \"yes\": true\n}\n");
	free(text);
}

static void set(struct flags *flags, const char *op, const char *name, const char *text)
{
	const struct option_row *row = options_find(operation_by_name(op)->settings, name);
	char why[CLI_WHY_BYTES];

	*flags = (struct flags){.help = false};
	assert_int_equal(options_set(row, name, text, flags, why), 0);
}

/* beta is a factor of the old C; what other ops have at its place in their descriptions is not. */
static void a_setting_means_what_its_op_says(void **state)
{
	const struct operation *gemm = operation_by_name("gemm"), *softmax = operation_by_name("softmax");
	char nowhere[] = "/nowhere/x.npy", *files[] = {nowhere, nowhere, NULL};
	struct cli cli = {.program = "test", .command = commands_program()->commands[0]};

	(void)state;
	set(&cli.flags, "gemm", "beta", "2");
	assert_int_equal(verb_op_run(&cli, gemm, files), CLI_USAGE);
	assert_string_equal(cli.why, "--beta needs the old C: add -c FILE");
	set(&cli.flags, "softmax", "log", "yes");
	assert_int_equal(verb_op_run(&cli, softmax, files), CLI_FAILED);
	assert_non_null(strstr(cli.why, nowhere));
	set(&cli.flags, "gemm", "beta", "0"); /* says nothing */
	assert_int_equal(verb_op_run(&cli, gemm, files), CLI_FAILED);
	assert_non_null(strstr(cli.why, nowhere));
}

static void an_old_matrix_counts_once_by_default(void **state)
{
	struct step step = step_of(operation_by_name("gemm"));
	struct op_args args = {.op = op_by_name("gemm")};
	struct flags flags;

	(void)state;
	step_set_attributes(&step, &args);
	assert_true(args.params.gemm.alpha == 1 && args.params.gemm.beta == 0);
	step.accumulates = true;
	step_set_attributes(&step, &args);
	assert_true(args.params.gemm.alpha == 1 && args.params.gemm.beta == 1);
	set(&flags, "gemm", "beta", "-2");
	step.set = flags.op;
	step_set_attributes(&step, &args);
	assert_true(args.params.gemm.beta == -2);
	set(&flags, "gemm", "beta", "0");
	step.set = flags.op;
	step_set_attributes(&step, &args);
	assert_true(args.params.gemm.beta == 0);
}

static void a_precision_is_for_ops_that_have_one(void **state)
{
	struct step gemm = step_of(operation_by_name("gemm")), add = step_of(operation_by_name("add"));
	struct op_args args = {.op = op_by_name("gemm")};

	(void)state;
	step_set_precision(&gemm, KOPS_PRECISION_TF32);
	step_set_attributes(&gemm, &args);
	assert_int_equal(args.params.gemm.precision, KOPS_PRECISION_TF32);
	step_set_precision(&add, KOPS_PRECISION_TF32);
	assert_memory_equal(&add.set, &(struct settings){.kernel = NULL}, sizeof(add.set));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(options_and_files_may_be_mixed),
	    cmocka_unit_test(times_have_units),
	    cmocka_unit_test(wrong_options_are_named),
	    cmocka_unit_test(every_verb_has_what_help_needs),
	    cmocka_unit_test(mistyped_words_find_the_nearest),
	    cmocka_unit_test(the_ops_are_those_of_the_list),
	    cmocka_unit_test(json_is_escaped_and_nested),
	    cmocka_unit_test(a_setting_means_what_its_op_says),
	    cmocka_unit_test(an_old_matrix_counts_once_by_default),
	    cmocka_unit_test(a_precision_is_for_ops_that_have_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
