/* Job files: what a good one means, and an error with its line for every bad one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli.h"
#include "files/jobfile.h"
#include "random.h"
#include "seed.h"

static int parse(const char *text, struct jobfile **ret, char *why)
{
	return jobfile_parse("a.job", text, strlen(text), ret, why);
}

static const char example[] = "# which digit is it?\n"
                              "x = load digits_test.npy\n"
                              "t=load \"known ones.npy\"   # quoted\n"
                              "\n"
                              "y = load y.bin cols=10 dtype=f32\r\n"
                              "  s = gemm x t' alpha=100 precision=ieee  # t' = transposed\n"
                              "p = softmax s scale=0.5 log=yes kernel=rows\n"
                              "c\t=\tgemm p y c=p beta=-2\n"
                              "save c out.npy\n"
                              "save s s.bin";

static void a_good_file_means_what_it_says(void **state)
{
	struct jobfile *f;
	char why[CLI_WHY_BYTES];

	(void)state;
	assert_int_equal(parse(example, &f, why), 0);
	assert_int_equal(f->n_values, 6);
	assert_string_equal(f->values[0].name, "x");
	assert_null(f->values[0].op);
	assert_string_equal(f->values[0].path, "digits_test.npy");
	assert_string_equal(f->values[1].path, "known ones.npy");
	assert_int_equal(f->values[2].flags.n.value, 10);
	assert_false(f->values[2].flags.m.set);
	assert_int_equal(f->values[2].flags.dtype, KOPS_F32);

	const struct jobfile_value *s = &f->values[3];
	assert_string_equal(s->op->name, "gemm");
	assert_int_equal(s->line, 6);
	assert_int_equal(s->operands[0].value, 0);
	assert_false(s->operands[0].transposed);
	assert_int_equal(s->operands[1].value, 1);
	assert_true(s->operands[1].transposed);
	assert_true(s->flags.op.attributes[0].number.set && s->flags.op.attributes[0].number.value == 100);
	assert_int_equal(s->flags.op.attributes[2].choice, 1 + KOPS_PRECISION_IEEE);
	assert_false(s->has_old);

	const struct jobfile_value *p = &f->values[4];
	assert_true(p->flags.op.attributes[0].number.value == 0.5 && p->flags.op.attributes[1].flag);
	assert_string_equal(p->flags.op.kernel, "rows");

	const struct jobfile_value *c = &f->values[5];
	assert_true(c->has_old && c->old == 4 && c->flags.op.attributes[1].number.value == -2);
	assert_int_equal(f->n_saves, 2);
	assert_int_equal(f->saves[0].value, 5);
	assert_string_equal(f->saves[0].path, "out.npy");
	assert_int_equal(f->saves[1].value, 3);
	assert_int_equal(f->saves[1].line, 10);
	jobfile_free(f);
}

static void settings_are_those_of_the_op(void **state)
{
	struct jobfile *f;
	char why[CLI_WHY_BYTES];

	(void)state;
	assert_int_equal(
	    parse("x = load x.npy\nm = reduce x kind=mean kernel=k\ns = reduce m\nv = gemm s s alpha=3\n", &f,
	          why),
	    0);
	assert_string_equal(f->values[1].op->name, "reduce");
	assert_int_equal(f->values[1].flags.op.attributes[0].choice, 1 + KOPS_MEAN);
	assert_string_equal(f->values[1].flags.op.kernel, "k");
	assert_int_equal(f->values[2].flags.op.attributes[0].choice, 0);
	assert_null(f->values[2].flags.op.kernel);
	assert_true(f->values[3].flags.op.attributes[0].number.set &&
	            f->values[3].flags.op.attributes[0].number.value == 3);
	assert_false(f->values[3].flags.op.attributes[1].number.set);
	jobfile_free(f);
}

static void a_bad_line_is_named_with_its_reason(void **state)
{
	static const struct {
		const char *text, *reason;
	} cases[] = {
	    {"", "a.job: nothing to do"},
	    {"# only\n\n", "a.job: nothing to do"},
	    {"x = load a.npy\ny = softmax z\n", "a.job:2: no value is named 'z' above"},
	    {"x = load a.npy\nx = softmax x\n", "a.job:2: 'x' has a value since line 1"},
	    {"x = load a.npy\n\n# c\ny = gem x x\n",
	     "a.job:4: 'gem' is not load, gemm, softmax, transpose, add, copy"},
	    {"x = load a.npy\ny = gemm x\n", "a.job:2: gemm takes 2 operands, got 1"},
	    {"x = load a.npy\ny = softmax x x\n", "a.job:2: softmax takes 1 operand; 'x' is one too many"},
	    {"y = softmax 1.0\n", "a.job:1: '1.0' is a number; operands are names of values"},
	    {"y = softmax 2\n", "a.job:1: '2' is a number"},
	    {"y = softmax a.npy\n", "a.job:1: 'a.npy' is not a value; load a file first: x = load a.npy"},
	    {"x = load a.npy\ny = gemm x x alpha=one\n", "a.job:2: alpha takes a number, not 'one'"},
	    {"x = load a.npy\ny = gemm x x alpha=nan\n", "a.job:2: alpha takes a number, not 'nan'"},
	    {"x = load a.npy\ny = softmax x alpha=1\n", "a.job:2: softmax has no setting 'alpha'"},
	    {"x = load a.npy\ny = softmax x log=maybe\n", "a.job:2: log takes yes or no, not 'maybe'"},
	    {"x = load a.npy\ny = gemm x x beta=1\n", "a.job:2: beta= needs c=NAME"},
	    {"x = load a.npy\ny = reduce x kind=median\n",
	     "a.job:2: kind takes sum, max, mean, min or prod, not 'median'"},
	    {"x = load a.npy\ny = gemm x x kind=max\n", "a.job:2: gemm has no setting 'kind'"},
	    {"x = load a.npy\ny = softmax x c=x\n", "a.job:2: softmax has no setting 'c'"},
	    {"x = load a.npy\ny = gemm x x c=q\n", "a.job:2: no value is named 'q'"},
	    {"x = load a.npy kernel=q\n", "a.job:1: load has no setting 'kernel'"},
	    {"x = load\n", "a.job:1: load takes a file"},
	    {"x = load a b\n", "a.job:1: load takes one file; 'b' is one too many"},
	    {"x =\n", "a.job:1: nothing after 'x ='"},
	    {"x = load \"a.npy\n", "a.job:1: a quotation mark is missing"},
	    {"1x = load a.npy\n", "a.job:1: '1x' is not a valid name"},
	    {"x = load a.npy\nsave x\n", "a.job:2: save takes a value and a file"},
	    {"x = load a.npy\nsave y y.npy\n", "a.job:2: no value is named 'y'"},
	    {"load a.npy\n", "a.job:1: expected 'NAME = …'"},
	    {"x = load a.npy\ny = gemm x ' \n", "a.job:2: no value is named '''"},
	    {"x = copy a a a a a a a a a a a a a a a\n", "a.job:1: more than 16 words"},
	};
	char why[CLI_WHY_BYTES];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct jobfile *f = NULL;
		assert_int_equal(parse(cases[i].text, &f, why), KOPS_E_INVALID);
		assert_null(f);
		if (strncmp(why, cases[i].reason, strlen(cases[i].reason)) != 0)
			fail_msg("\"%s\" does not start with \"%s\"", why, cases[i].reason);
	}
}

static void limits_hold_at_the_limit_and_one_beyond(void **state)
{
	char *text = calloc(1, 65536), why[CLI_WHY_BYTES], name[80];
	struct jobfile *f;
	size_t used = 0;

	(void)state;
	for (int i = 0; i < JOBFILE_VALUES_MAX; i++)
		used += (size_t)sprintf(text + used, "x%d = load a.npy\n", i);
	assert_int_equal(parse(text, &f, why), 0);
	assert_int_equal(f->n_values, JOBFILE_VALUES_MAX);
	jobfile_free(f);
	strcpy(text + used, "y = load a.npy");
	assert_int_equal(parse(text, &f, why), KOPS_E_INVALID);
	assert_non_null(strstr(why, "a.job:129: more than 128 values"));

	memset(name, 'n', sizeof(name));
	sprintf(text, "%.*s = load a.npy", JOBFILE_NAME_BYTES - 1, name);
	assert_int_equal(parse(text, &f, why), 0);
	jobfile_free(f);
	sprintf(text, "%.*s = load a.npy", JOBFILE_NAME_BYTES, name);
	assert_int_equal(parse(text, &f, why), KOPS_E_INVALID);
	assert_non_null(strstr(why, "is not a valid name"));
	free(text);
}

/* Operands always name an earlier value, whatever the text; nothing crashes. */
static void damage_never_crashes(void **state)
{
	static const char letters[] = "xtyspc ='\"#\n\t.0123456789gemmloadsave";
	uint64_t seed = seed_of_run();
	struct random random;
	unsigned accepted = 0;
	char why[CLI_WHY_BYTES];

	(void)state;
	print_message("seed: KOPS_TEST_SEED=%llu\n", (unsigned long long)seed);
	random_start(&random, seed);
	for (int round = 0; round < 50000; round++) {
		char *text = strdup(example);
		size_t n = strlen(text);
		struct jobfile *f;
		for (uint64_t hits = random_below(&random, 4); hits > 0; hits--)
			text[random_below(&random, n)] = letters[random_below(&random, sizeof(letters) - 1)];
		int rc = jobfile_parse("a.job", text, n, &f, why);
		free(text);
		if (rc < 0) {
			assert_int_equal(strncmp(why, "a.job:", 6), 0);
			continue;
		}
		accepted++;
		for (size_t i = 0; i < f->n_values; i++)
			for (unsigned j = 0; f->values[i].op && j < f->values[i].op->n_inputs; j++)
				assert_true(f->values[i].operands[j].value < i);
		for (size_t i = 0; i < f->n_saves; i++)
			assert_true(f->saves[i].value < f->n_values);
		jobfile_free(f);
	}
	assert_true(accepted > 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_good_file_means_what_it_says),
	    cmocka_unit_test(settings_are_those_of_the_op),
	    cmocka_unit_test(a_bad_line_is_named_with_its_reason),
	    cmocka_unit_test(limits_hold_at_the_limit_and_one_beyond),
	    cmocka_unit_test(damage_never_crashes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
