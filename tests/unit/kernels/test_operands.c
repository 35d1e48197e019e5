/*
 * Tests descriptions of ops: those of all ops make sense, and common code follows them, with an op that exists
 * only here.
 */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/rules.h"

/* ---- All ops ---- */

static void operands_make_sense(const struct op *op)
{
	bool outputs = false;

	assert_in_range(op->n_operands, 1, OP_OPERANDS_MAX);
	for (unsigned v = 0; v < op->n_operands; v++) {
		const struct op_operand *o = &op->operands[v];

		assert_true(o->name && *o->name && o->about && *o->about && o->dtypes != 0);
		assert_int_equal(op_operand_index(op, o->name), v);
		assert_true(!outputs || op_is_output(op, v));
		outputs |= op_is_output(op, v);
		assert_true(o->dtype_of == OWN_DTYPE || o->dtype_of < (int)v || v == 0);
		if (o->dtype_of != OWN_DTYPE)
			assert_int_equal(o->dtypes & ~op->operands[o->dtype_of].dtypes, 0);
		assert_int_equal(o->in_place >> op_first_output(op), 0);
		assert_true(op_is_output(op, v) || o->in_place == 0);
		if (v > 0 && !op_is_output(op, v) && op->operands[v - 1].is_optional)
			assert_true(o->is_optional);
	}
	assert_true(outputs);
}

static void attributes_make_sense(const struct op *op)
{
	for (unsigned i = 0; i < op->n_attributes; i++) {
		const struct op_attribute *a = &op->attributes[i];

		assert_true(a->name && *a->name && a->about && *a->about);
		assert_int_equal(op_attribute_index(op, a->name), i);
		assert_int_equal(op_operand_index(op, a->name), op->n_operands);
		assert_true(a->offset < sizeof(((struct op_args *)0)->params));
		if (a->type == ATTRIBUTE_NUMBER || a->type == ATTRIBUTE_COUNT)
			assert_true(a->min <= a->otherwise && a->otherwise <= a->max);
		if (a->type == ATTRIBUTE_CHOICE)
			assert_true(a->otherwise < a->n_choices);
		for (unsigned c = 0; c < a->n_choices; c++)
			assert_true(a->choices[c] && *a->choices[c]);
	}
}

static void descriptions_make_sense(void **state)
{
	(void)state;
	for (unsigned i = 0; i < OP_COUNT; i++) {
		assert_true(ops[i]->about && *ops[i]->about);
		operands_make_sense(ops[i]);
		attributes_make_sense(ops[i]);
	}
}

static struct op_args sample_of(const struct op *op)
{
	struct op_args args = {.op = op};

	assert_true(op->sample(KOPS_F32, &args));
	for (unsigned v = 0; v < op->n_operands; v++)
		args.views[v].space = &args.views[v];
	return args;
}

/* Tries types that only this test knows, and those that the op does not name. */
static void types_that_are_not_named_are_refused(void **state)
{
	char why[WHY_BYTES];

	(void)state;
	for (unsigned i = 0; i < OP_COUNT; i++)
		for (unsigned v = 0; v < ops[i]->n_operands; v++)
			for (unsigned dtype = 1; dtype < 70; dtype++) {
				struct op_args args = sample_of(ops[i]);
				bool named = dtype < 32 && (ops[i]->operands[v].dtypes & DTYPE_BIT(dtype)) != 0;

				args.views[v].dtype = (kops_dtype)dtype;
				if (!named)
					assert_int_equal(op_check(&args, why), KOPS_E_DTYPE);
			}
}

static void operands_that_are_missing_are_refused(void **state)
{
	char why[WHY_BYTES];

	(void)state;
	for (unsigned i = 0; i < OP_COUNT; i++)
		for (unsigned v = 0; v < ops[i]->n_operands; v++) {
			struct op_args args = sample_of(ops[i]);

			args.views[v] = (struct view){0};
			if (ops[i]->operands[v].is_optional)
				continue;
			assert_int_equal(op_check(&args, why), KOPS_E_INVALID);
			assert_non_null(strstr(why, "is missing"));
		}
}

/* Outputs whose shape is an attribute's, too. */
static void take_shapes(struct op_args *args)
{
	struct op_args shaped = *args;
	char why[WHY_BYTES];

	assert_int_equal(op_result(&shaped, why), 0);
	for (unsigned v = op_first_output(args->op); v < args->op->n_operands; v++) {
		if (view_is_absent(&args->views[v]))
			continue;
		shaped.views[v].space = args->views[v].space;
		args->views[v] = shaped.views[v];
		view_make_dense(&args->views[v]);
	}
}

static void defaults_are_accepted(void **state)
{
	char why[WHY_BYTES];

	(void)state;
	for (unsigned i = 0; i < OP_COUNT; i++) {
		struct op_args args = sample_of(ops[i]);

		memset(&args.params, 0xff, sizeof args.params);
		op_set_defaults(&args);
		take_shapes(&args);
		assert_int_equal(op_check(&args, why), 0);
	}
}

/* ---- An op with five operands, one of them optional, and two outputs ---- */

enum { X, WEIGHT, MASK, Y, PLACES };

static const struct op_operand operands[] = {
    [X] = {.name = "x", .dtypes = DTYPE_BIT(KOPS_F32) | DTYPE_BIT(KOPS_F16), .about = "a vector"},
    [WEIGHT] = {.name = "weight", .dtypes = DTYPE_BIT(KOPS_F32) | DTYPE_BIT(KOPS_F16), .about = "likewise"},
    [MASK] = {.name = "mask",
              .is_optional = true,
              .dtypes = DTYPE_BIT(KOPS_F64),
              .dtype_of = OWN_DTYPE,
              .about = "likewise"},
    [Y] = {.name = "y",
           .role = OPERAND_OUTPUT,
           .dtypes = DTYPE_BIT(KOPS_F32) | DTYPE_BIT(KOPS_F16),
           .in_place = 1u << X,
           .about = "likewise; may be x"},
    [PLACES] = {.name = "places",
                .role = OPERAND_UPDATED,
                .is_optional = true,
                .dtypes = DTYPE_BIT(KOPS_F64),
                .dtype_of = OWN_DTYPE,
                .about = "likewise"},
};

enum { EPSILON, COUNT, EXACT };

static const struct op_attribute attributes[] = {
    [EPSILON] = {.name = "epsilon",
                 .offset = offsetof(struct plain_params, numbers),
                 .min = 0,
                 .max = 1,
                 .otherwise = 0.5,
                 .about = "small"},
    [COUNT] = {.name = "count",
               .type = ATTRIBUTE_COUNT,
               .offset = offsetof(struct plain_params, counts),
               .min = 1,
               .max = 9,
               .otherwise = 3,
               .about = "how many"},
    [EXACT] = {.name = "exact",
               .type = ATTRIBUTE_FLAG,
               .offset = offsetof(struct plain_params, flags),
               .otherwise = 1,
               .about = "whether"},
};

static int check(struct op_args *args, char why[WHY_BYTES])
{
	return rules_outputs(args, why);
}

static bool reads_output(const struct op_args *args, unsigned v)
{
	return v == PLACES && args->params.plain.flags[0];
}

static const struct op five = {
    .name = "five",
    .about = "nothing",
    .operands = operands,
    .n_operands = 5,
    .attributes = attributes,
    .n_attributes = 3,
    .check = check,
    .reads_output = reads_output,
};

static char memory[5][64];

static struct op_args args_of_five(void)
{
	struct op_args args = {.op = &five};

	for (unsigned v = 0; v < 5; v++)
		args.views[v] = (struct view){.space = memory[v],
		                              .dtype = v == MASK || v == PLACES ? KOPS_F64 : KOPS_F32,
		                              .rank = 1,
		                              .shape = {4},
		                              .strides = {1}};
	op_set_defaults(&args);
	return args;
}

static void refused(struct op_args args, int code, const char *sentence)
{
	char why[WHY_BYTES] = "";

	assert_int_equal(op_check(&args, why), code);
	assert_string_equal(why, sentence);
}

static void accepted(struct op_args args)
{
	char why[WHY_BYTES];

	assert_int_equal(op_check(&args, why), 0);
}

static void five_is_well_described(void **state)
{
	(void)state;
	operands_make_sense(&five);
	attributes_make_sense(&five);
}

/* Takes as many of the last axes of x as the op accepts, with any or a given number of elements. */
static void optional_operands_take_the_last_axes(void **state)
{
	struct op_args args = {.op = &five};

	(void)state;
	for (unsigned v = X; v <= WEIGHT; v++) {
		args.views[v] = (struct view){.dtype = KOPS_F32, .rank = 3, .shape = {2, 3, 4}};
		view_make_dense(&args.views[v]);
	}
	for (unsigned axes = 3; axes > 0; axes--) {
		uint64_t elements = axes == 3 ? 24 : axes == 2 ? 12 : 4;
		args.views[MASK].dtype = KOPS_F64;
		assert_true(op_fit_optional(&args, MASK, elements));
		assert_int_equal(args.views[MASK].rank, axes);
		assert_int_equal(args.views[MASK].shape[axes - 1], 4);
		assert_int_equal(args.views[MASK].strides[axes - 1], 1);
	}
	args.views[MASK].dtype = KOPS_F64;
	assert_true(op_fit_optional(&args, MASK, ANY_COUNT));
	assert_int_equal(args.views[MASK].rank, 3);
	args.views[MASK].dtype = KOPS_F64;
	assert_false(op_fit_optional(&args, MASK, 3));
	assert_true(view_is_absent(&args.views[MASK]));
	args.views[MASK].dtype = KOPS_F16; /* an f16 mask is not allowed */
	assert_false(op_fit_optional(&args, MASK, ANY_COUNT));
}

static void optional_operands_may_be_absent(void **state)
{
	struct op_args args = args_of_five();

	(void)state;
	accepted(args);
	args.views[MASK] = (struct view){0};
	accepted(args);
	assert_false(op_reads(&args, MASK));
	args.views[PLACES] = (struct view){0};
	accepted(args);
	assert_false(op_reads(&args, PLACES));
	args.views[WEIGHT] = (struct view){0};
	refused(args, KOPS_E_INVALID, "operand weight of five is missing");
}

static void operands_have_types_of_their_own(void **state)
{
	struct op_args args = args_of_five();

	(void)state;
	args.views[MASK].dtype = KOPS_F32;
	refused(args, KOPS_E_DTYPE, "mask is f32; five takes f64");
	args = args_of_five();
	args.views[Y].dtype = KOPS_F16;
	refused(args, KOPS_E_DTYPE, "x is f32, y is f16: five wants one type for both");
	args.views[X].dtype = args.views[WEIGHT].dtype = KOPS_F16;
	accepted(args);
	args.views[X].dtype = KOPS_F64;
	refused(args, KOPS_E_DTYPE, "x is f64; five takes f32 and f16");
}

static void outputs_share_no_byte(void **state)
{
	struct op_args args = args_of_five();

	(void)state;
	args.views[Y] = args.views[X];
	accepted(args);
	assert_true(op_reads_output(&args, Y));
	args.views[Y].offset = 4;
	refused(args, KOPS_E_OVERLAP,
	        "output y overlaps input x without being the same view; write to other memory");
	args = args_of_five();
	args.views[PLACES].space = args.views[Y].space;
	refused(args, KOPS_E_OVERLAP, "output places overlaps output y; write to other memory");
	args.views[PLACES].space = args.views[MASK].space;
	refused(args, KOPS_E_OVERLAP, "output places overlaps input mask; write to other memory");
	args.views[MASK] = (struct view){0};
	accepted(args);
	args.views[PLACES].strides[0] = 0;
	refused(args, KOPS_E_OVERLAP,
	        "the strides of output places (4) place several elements at one address; use strides that "
	        "keep them apart");
}

static void each_output_counts(void **state)
{
	struct op_args args = args_of_five();

	(void)state;
	assert_int_equal(op_first_output(&five), Y);
	assert_false(op_reads_output(&args, Y));
	assert_true(op_reads_output(&args, PLACES));
	assert_true(op_reads_outputs(&args));
	args.params.plain.flags[0] = false;
	assert_false(op_reads_outputs(&args));
	assert_true(op_writes(&args, &args.views[PLACES]));
	assert_false(op_writes(&args, &args.views[X]));
	args.views[Y].shape[0] = 0;
	assert_false(op_is_empty(&args));
	args.views[PLACES] = (struct view){0};
	assert_true(op_is_empty(&args));
}

static void attributes_have_ranges(void **state)
{
	struct op_args args = args_of_five();
	struct plain_params *p = &args.params.plain;

	(void)state;
	assert_true(p->numbers[0] == 0.5 && p->counts[0] == 3 && p->flags[0]);
	p->numbers[0] = 1.5;
	refused(args, KOPS_E_INVALID, "epsilon is 1.5; it must be from 0 to 1");
	p->numbers[0] = (double)NAN;
	refused(args, KOPS_E_INVALID, "epsilon is not a number");
	p->numbers[0] = 1;
	p->counts[0] = 10;
	refused(args, KOPS_E_INVALID, "count is 10; it must be from 1 to 9");
	p->counts[0] = 0;
	refused(args, KOPS_E_INVALID, "count is 0; it must be from 1 to 9");
	p->counts[0] = 1;
	accepted(args);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(descriptions_make_sense),
	    cmocka_unit_test(types_that_are_not_named_are_refused),
	    cmocka_unit_test(operands_that_are_missing_are_refused),
	    cmocka_unit_test(defaults_are_accepted),
	    cmocka_unit_test(five_is_well_described),
	    cmocka_unit_test(optional_operands_take_the_last_axes),
	    cmocka_unit_test(optional_operands_may_be_absent),
	    cmocka_unit_test(operands_have_types_of_their_own),
	    cmocka_unit_test(outputs_share_no_byte),
	    cmocka_unit_test(each_output_counts),
	    cmocka_unit_test(attributes_have_ranges),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
