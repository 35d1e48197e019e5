/* Tests ops by their own messages and by instances: every member arrives where the op expects it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "decode.h"
#include "gemm/gemm.h"
#include "softmax/operands.h"

static const Kops__V1__View *views[OP_OPERANDS_MAX];

static struct op_args decoded(const Kops__V1__Op *op)
{
	struct op_args args;
	char why[WHY_BYTES];

	memset(&args, 0, sizeof args);
	memset(views, 0, sizeof views);
	assert_int_equal(decode_op(op, &args, views, why), 0);
	return args;
}

static void refused(const Kops__V1__Op *op, const char *sentence)
{
	struct op_args args;
	char why[WHY_BYTES];

	memset(&args, 0, sizeof args);
	memset(views, 0, sizeof views);
	assert_int_equal(decode_op(op, &args, views, why), KOPS_E_INVALID);
	assert_string_equal(why, sentence);
}

static void messages_are_as_ops_describe_them(void **state)
{
	char why[WHY_BYTES] = "";

	(void)state;
	assert_int_equal(decode_open(why), 0);
	assert_string_equal(why, "");
}

static void an_op_by_its_message(void **state)
{
	Kops__V1__View a = KOPS__V1__VIEW__INIT, b = a, c = a;
	Kops__V1__Gemm gemm = KOPS__V1__GEMM__INIT;
	Kops__V1__Op op = KOPS__V1__OP__INIT;
	struct op_args args;

	(void)state;
	gemm.a = &a, gemm.b = &b, gemm.c = &c;
	gemm.alpha = 2, gemm.beta = 3, gemm.precision = KOPS__V1__PRECISION__PRECISION_TF32;
	op.params_case = KOPS__V1__OP__PARAMS_GEMM, op.gemm = &gemm;
	args = decoded(&op);
	assert_string_equal(args.op->name, "gemm");
	assert_true(views[GEMM_A] == &a && views[GEMM_B] == &b && views[GEMM_C] == &c && !views[GEMM_BIAS]);
	assert_true(args.params.gemm.alpha == 2 && args.params.gemm.beta == 3);
	assert_int_equal(args.params.gemm.precision, KOPS_PRECISION_TF32);
	gemm.b = NULL;
	decoded(&op);
	assert_null(views[1]);
	op.params_case = KOPS__V1__OP__PARAMS__NOT_SET;
	refused(&op, "an op without parameters");
	op.params_case = (Kops__V1__Op__ParamsCase)1000;
	refused(&op, "an op without parameters");
}

static void a_flag_and_a_number(void **state)
{
	Kops__V1__Softmax softmax = KOPS__V1__SOFTMAX__INIT;
	Kops__V1__Op op = KOPS__V1__OP__INIT;

	(void)state;
	op.params_case = KOPS__V1__OP__PARAMS_SOFTMAX, op.softmax = &softmax;
	assert_false(decoded(&op).params.softmax.log);
	softmax.log = 1, softmax.scale = 0.5;
	assert_true(decoded(&op).params.softmax.log);
	assert_true(decoded(&op).params.softmax.scale == 0.5);
}

struct by_name {
	Kops__V1__View x, y;
	Kops__V1__Instance__Operand operands[3], *operand_list[3];
	Kops__V1__Instance__Attribute attributes[2], *attribute_list[2];
	Kops__V1__Instance instance;
	Kops__V1__Op op;
};

static void softmax_by_name(struct by_name *n)
{
	for (unsigned i = 0; i < 3; i++) {
		kops__v1__instance__operand__init(&n->operands[i]);
		n->operands[i].name = (char *)(i == 0 ? "y" : "x");
		n->operands[i].view = i == 0 ? &n->y : &n->x;
		n->operand_list[i] = &n->operands[i];
	}
	for (unsigned i = 0; i < 2; i++) {
		kops__v1__instance__attribute__init(&n->attributes[i]);
		n->attributes[i].name = (char *)"log";
		n->attributes[i].value_case = KOPS__V1__INSTANCE__ATTRIBUTE__VALUE_FLAG;
		n->attributes[i].flag = 1;
		n->attribute_list[i] = &n->attributes[i];
	}
	kops__v1__view__init(&n->x);
	kops__v1__view__init(&n->y);
	kops__v1__instance__init(&n->instance);
	kops__v1__op__init(&n->op);
	n->instance.op = (char *)"softmax";
	n->instance.operands = n->operand_list, n->instance.n_operands = 2;
	n->instance.attributes = n->attribute_list, n->instance.n_attributes = 1;
	n->op.params_case = KOPS__V1__OP__PARAMS_INSTANCE, n->op.instance = &n->instance;
}

static void an_op_by_names(void **state)
{
	struct by_name n;
	struct op_args args;

	(void)state;
	softmax_by_name(&n);
	args = decoded(&n.op);
	assert_string_equal(args.op->name, "softmax");
	assert_true(views[SOFTMAX_X] == &n.x && !views[SOFTMAX_MASK] && views[SOFTMAX_Y] == &n.y);
	assert_true(args.params.softmax.log && args.params.softmax.scale == 1);
}

static void names_given_twice_or_unknown(void **state)
{
	struct by_name n;

	(void)state;
	softmax_by_name(&n);
	n.instance.n_operands = 3;
	refused(&n.op, "operand x of softmax is given twice");
	n.operands[2].name = (char *)"z";
	refused(&n.op, "softmax has no operand \"z\"");
	n.instance.n_operands = 2;
	n.instance.n_attributes = 2;
	refused(&n.op, "attribute log of softmax is given twice");
	n.attributes[1].name = (char *)"scale";
	refused(&n.op, "scale is a number, and nothing else");
	n.attributes[1].name = (char *)"slope";
	refused(&n.op, "softmax has no attribute \"slope\"");
	n.instance.op = (char *)"hardmax";
	refused(&n.op, "there is no op \"hardmax\"");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(messages_are_as_ops_describe_them),
	    cmocka_unit_test(an_op_by_its_message),
	    cmocka_unit_test(a_flag_and_a_number),
	    cmocka_unit_test(an_op_by_names),
	    cmocka_unit_test(names_given_twice_or_unknown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
