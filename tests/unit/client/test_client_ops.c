/*
 * Tests that ops by names send the same as the calls of single ops, what libkops refuses, and that descriptions
 * and messages of the protocol have the same members.
 */
#include <math.h>

#include "fake_daemon.h"

#include "kernel.h"
#include "libkops/base/base.h"
#include "libkops/job/job.h"
#include "libkops/job/ops.h"

/* ---- Descriptions and messages ---- */

static ProtobufCType type_of(enum attribute_type type)
{
	switch (type) {
	case ATTRIBUTE_NUMBER:
		return PROTOBUF_C_TYPE_DOUBLE;
	case ATTRIBUTE_COUNT:
		return PROTOBUF_C_TYPE_UINT32;
	case ATTRIBUTE_FLAG:
		return PROTOBUF_C_TYPE_BOOL;
	case ATTRIBUTE_CHOICE:
		return PROTOBUF_C_TYPE_ENUM;
	}
	return (ProtobufCType)-1;
}

/* Returns 1; 0: the message has no such member. */
static unsigned count_member(const ProtobufCMessageDescriptor *message, const char *name, ProtobufCType type)
{
	const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field_by_name(message, name);
	if (!f)
		return 0;
	assert_int_equal(f->type, type);
	assert_int_not_equal(f->label, PROTOBUF_C_LABEL_REPEATED);
	return 1;
}

/* What the op got after its message must be such as an old message means: absent, or 0. */
static void test_own_messages_have_the_members_of_descriptions(void **state)
{
	(void)state;
	for (unsigned o = 0; o < OP_COUNT; o++) {
		const ProtobufCFieldDescriptor *own =
		    protobuf_c_message_descriptor_get_field_by_name(&kops__v1__op__descriptor, ops[o]->name);
		const struct op_attribute *a = ops[o]->attributes;
		unsigned n = 0, there;
		if (!own)
			continue;
		const ProtobufCMessageDescriptor *message = own->descriptor;
		assert_true(message->sizeof_message <= CLIENT_OWN_MESSAGE_BYTES);
		for (unsigned i = 0; i < ops[o]->n_operands; i++, n += there) {
			there = count_member(message, ops[o]->operands[i].name, PROTOBUF_C_TYPE_MESSAGE);
			assert_true(there || ops[o]->operands[i].is_optional);
		}
		for (unsigned i = 0; i < ops[o]->n_attributes; i++, n += there) {
			there = count_member(message, a[i].name, type_of(a[i].type));
			assert_true(there || a[i].otherwise == 0);
		}
		assert_int_equal(message->n_fields, n);
	}
}

/* ---- By names ---- */

static void script_nothing(struct fake *f)
{
	fake_greet(f);
	fake_lend(f);
	fake_expect_end(f);
}

static kops_job *new_job(kops *k)
{
	kops_job *job;
	assert_int_equal(kops_job_new(k, NULL, &job), 0);
	return job;
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void test_names_say_the_same_as_the_calls(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_nothing);
	kops *k = fake_open(f);
	kops_buffer *b = fake_alloc(k, 1024, KOPS_SHARED);
	kops_view x = fake_matrix(b, 0), y = fake_matrix(b, 64), z = fake_matrix(b, 128);
	kops_job *called = new_job(k), *named = new_job(k);
	const kops_operand product[] = {{"c", z}, {"a", x}, {"b", y}}, unary[] = {{"x", x}, {"y", y}};
	const kops_attribute factors[] = {{"beta", -1, NULL}, {"precision", 0, "tf32"}};
	const kops_attribute logarithm[] = {{"log", 1, NULL}}, kind[] = {{"kind", KOPS_MEAN, NULL}};

	assert_int_equal(kops_job_gemm(called, 1, x, y, -1, z, KOPS_PRECISION_TF32, "cublas"), 0);
	assert_int_equal(kops_job_softmax(called, x, y, 1, true, NULL), 0);
	assert_int_equal(kops_job_reduce(called, x, y, KOPS_MEAN, NULL), 0);
	assert_int_equal(kops_job_copy(called, x, y, NULL), 0);

	assert_int_equal(kops_job_op(named, "gemm", product, COUNT(product), factors, COUNT(factors), "cublas"),
	                 0);
	assert_int_equal(kops_job_op(named, "softmax", unary, 2, logarithm, 1, NULL), 0);
	assert_int_equal(kops_job_op(named, "reduce", unary, 2, kind, 1, NULL), 0);
	assert_int_equal(kops_job_op(named, "copy", unary, 2, NULL, 0, NULL), 0);

	assert_true(client_job_is_same(called, named));
	assert_int_equal(called->n_operands, named->n_operands);
	assert_int_equal(called->n_operands, 3 + 1 + 2 + 2 + 2); /* the gemm also reads c */
	kops_close(k);
	fake_stop(f);
}

/* Returns the first op of a job, which has no other; to be freed. */
static Kops__V1__Op *packed_op(const kops_job *job)
{
	const uint8_t *at = job->bytes + CLIENT_PREFIX_BYTES + 1; /* after the tag */
	while (*at++ & 0x80) {
	}
	Kops__V1__Op *op = kops__v1__op__unpack(NULL, (size_t)(job->bytes + job->bytes_len - at), at);
	assert_non_null(op);
	return op;
}

static void add_product(kops_job *job, kops_view x, kops_view c, kops_view bias, const char *activation)
{
	const kops_operand operands[] = {{"a", x}, {"b", x}, {"c", c}, {"bias", bias}};
	const kops_attribute attribute = {"activation", 0, activation};
	assert_int_equal(kops_job_op(job, "gemm", operands, COUNT(operands), &attribute, 1, NULL), 0);
}

/* The message of gemm is older than these. What it can say it says, so that old daemons understand it. */
static void test_bias_and_activation_go_by_names(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_nothing);
	kops *k = fake_open(f);
	kops_buffer *b = fake_alloc(k, 1024, KOPS_SHARED);
	kops_view x = fake_matrix(b, 0), y = fake_matrix(b, 64), bias = fake_matrix(b, 128), none = {0};
	const struct {
		kops_view bias;
		const char *activation;
		unsigned operands, operands_of_job;
	} cases[] = {
	    {none, "none", 0, 3}, {bias, "none", 4, 4}, {none, "silu", 3, 3}, {bias, "gelu_tanh", 4, 4}};
	for (size_t i = 0; i < COUNT(cases); i++) {
		kops_job *job = new_job(k);
		add_product(job, x, y, cases[i].bias, cases[i].activation);
		Kops__V1__Op *op = packed_op(job);
		if (cases[i].operands == 0) {
			assert_int_equal(op->params_case, KOPS__V1__OP__PARAMS_GEMM);
		} else {
			assert_int_equal(op->params_case, KOPS__V1__OP__PARAMS_INSTANCE);
			assert_string_equal(op->instance->op, "gemm");
			assert_int_equal(op->instance->n_operands, cases[i].operands);
			assert_int_equal(op->instance->n_attributes, 8);
			assert_string_equal(op->instance->attributes[3]->name, "activation");
			assert_string_equal(op->instance->attributes[3]->choice, cases[i].activation);
		}
		if (cases[i].operands == 4) {
			assert_string_equal(op->instance->operands[2]->name, "bias");
			assert_int_equal(op->instance->operands[2]->view->offset, 128);
		}
		assert_int_equal(job->n_operands, cases[i].operands_of_job);
		kops__v1__op__free_unpacked(op, NULL);
		kops_job_free(job);
	}
	kops_close(k);
	fake_stop(f);
}

static void test_wrong_names_and_values_are_refused(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_nothing);
	kops *k = fake_open(f);
	kops_buffer *b = fake_alloc(k, 1024, KOPS_SHARED);
	kops_view x = fake_matrix(b, 0), y = fake_matrix(b, 64);
	kops_job *job = new_job(k);
	const kops_operand both[] = {{"x", x}, {"y", y}}, twice[] = {{"x", x}, {"x", y}};
	const kops_operand other[] = {{"x", x}, {"z", y}}, nameless[] = {{NULL, x}, {"y", y}};
	const struct {
		const char *op;
		const kops_operand *operands;
		size_t n;
		kops_attribute attribute;
		int code;
		const char *sentence;
	} cases[] = {
	    {"sofmax", both, 2, {"log", 1, NULL}, KOPS_E_UNSUPPORTED, "this libkops knows no op 'sofmax'"},
	    {NULL, both, 2, {"log", 1, NULL}, KOPS_E_UNSUPPORTED, "this libkops knows no op ''"},
	    {"softmax", twice, 2, {"log", 1, NULL}, KOPS_E_INVALID, "operand x of softmax is given twice"},
	    {"softmax", other, 2, {"log", 1, NULL}, KOPS_E_INVALID, "softmax has no operand 'z'"},
	    {"softmax", nameless, 2, {"log", 1, NULL}, KOPS_E_INVALID, "softmax has no operand ''"},
	    {"softmax", both, 1, {"log", 1, NULL}, KOPS_E_INVALID, "operand y of softmax is missing"},
	    {"softmax", both, 2, {"beta", 1, NULL}, KOPS_E_INVALID, "softmax has no attribute 'beta'"},
	    {"softmax", both, 2, {NULL, 1, NULL}, KOPS_E_INVALID, "softmax has no attribute ''"},
	    {"softmax", both, 2, {"log", 2, NULL}, KOPS_E_INVALID, "log of softmax cannot be 2"},
	    {"softmax", both, 2, {"log", (double)NAN, NULL}, KOPS_E_INVALID, "log of softmax cannot be nan"},
	    {"softmax", both, 2, {"log", 0, "yes"}, KOPS_E_INVALID, "log of softmax cannot be 'yes'"},
	    {"reduce", both, 2, {"kind", 5, NULL}, KOPS_E_INVALID, "kind of reduce cannot be 5"},
	    {"reduce", both, 2, {"kind", 0.5, NULL}, KOPS_E_INVALID, "kind of reduce cannot be 0.5"},
	    {"reduce", both, 2, {"kind", -1, NULL}, KOPS_E_INVALID, "kind of reduce cannot be -1"},
	    {"reduce", both, 2, {"kind", 0, "least"}, KOPS_E_INVALID, "kind of reduce cannot be 'least'"},
	};
	for (size_t i = 0; i < COUNT(cases); i++) {
		assert_int_equal(
		    kops_job_op(job, cases[i].op, cases[i].operands, cases[i].n, &cases[i].attribute, 1, NULL),
		    cases[i].code);
		assert_string_equal(kops_error(k), cases[i].sentence);
	}
	assert_int_equal(job->n_ops, 0);
	kops_close(k);
	fake_stop(f);
}

static void script_of_an_old_daemon(struct fake *f)
{
	f->is_old = true;
	script_nothing(f);
}

/* An op without a message of its own is sent by names, which an old daemon would not understand. */
static void test_an_old_daemon_gets_no_op_by_names(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_of_an_old_daemon);
	kops *k = fake_open(f);
	kops_buffer *b = fake_alloc(k, 1024, KOPS_SHARED);
	kops_view x = fake_matrix(b, 0), y = fake_matrix(b, 64);
	kops_job *job = new_job(k);
	const kops_operand product[] = {{"a", x}, {"b", x}, {"y", y}}, gemm[] = {{"a", x}, {"b", x}, {"c", y}};
	const kops_attribute relu = {"activation", 0, "relu"};
	assert_int_equal(kops_job_multiply(job, x, x, y, NULL), KOPS_E_UNSUPPORTED);
	assert_int_equal(kops_job_op(job, "multiply", product, 3, NULL, 0, NULL), KOPS_E_UNSUPPORTED);
	assert_string_equal(kops_error(k),
	                    "this kopsd is older than libkops and does not know multiply; update "
	                    "and restart it");
	assert_int_equal(kops_job_op(job, "gemm", gemm, 3, &relu, 1, NULL), KOPS_E_UNSUPPORTED);
	assert_string_equal(kops_error(k), "this kopsd is older than libkops and does not know gemm with these "
	                                   "operands and attributes; update and restart it");
	assert_int_equal(job->n_ops, 0);
	assert_int_equal(kops_job_op(job, "gemm", gemm, 3, NULL, 0, NULL), 0);
	assert_int_equal(kops_job_add(job, x, x, y, NULL), 0);
	kops_close(k);
	fake_stop(f);
}

static void test_the_largest_numbers_have_room(void **state)
{
	struct fake *f = *state;
	fake_start(f, script_nothing);
	kops *k = fake_open(f);
	kops_buffer *b = fake_alloc(k, 1024, KOPS_SHARED);
	kops_view widest = {.buffer = b, .offset = UINT64_MAX, .dtype = (kops_dtype)-1, .rank = KOPS_RANK_MAX};
	kops_operand operands[OP_OPERANDS_MAX];
	char kernel[65] = "";
	memset(widest.shape, 0xff, sizeof widest.shape);
	memset(widest.strides, 0x80, sizeof widest.strides);
	memset(kernel, 'k', 64);
	b->id = UINT64_MAX;
	for (unsigned o = 0; o < OP_COUNT; o++) {
		kops_job *job = new_job(k);
		size_t before = job->bytes_len;
		for (unsigned i = 0; i < ops[o]->n_operands; i++)
			operands[i] = (kops_operand){ops[o]->operands[i].name, widest};
		assert_int_equal(kops_job_op(job, ops[o]->name, operands, ops[o]->n_operands, NULL, 0, kernel),
		                 0);
		assert_in_range(job->bytes_len - before, 1, CLIENT_OP_BYTES_MAX);
		kops_job_free(job);
	}
	b->id = 1;
	kops_close(k);
	fake_stop(f);
}

/* ---- Results ---- */

static kops_view shaped(kops_dtype dtype, uint32_t rank, const uint64_t *shape)
{
	return kops_tensor(NULL, 0, dtype, rank, shape);
}

#define SHAPED(...)                                                                                            \
	shaped(KOPS_F32, sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), (uint64_t[]){__VA_ARGS__})

static void assert_result(const char *op, const kops_operand *operands, size_t n, const char *output,
                          kops_view want)
{
	kops_view got;
	char why[WHY_BYTES] = "";
	assert_int_equal(kops_op_result(op, operands, n, NULL, 0, output, &got, why, sizeof why), 0);
	assert_memory_equal(&got, &want, sizeof got);
}

static void test_results_have_the_shapes_of_their_rules(void **state)
{
	(void)state;
	assert_result("gemm", (kops_operand[]){{"a", SHAPED(2, 3)}, {"b", SHAPED(3, 5)}}, 2, "c", SHAPED(2, 5));
	assert_result("gemm", (kops_operand[]){{"a", SHAPED(7, 2, 3)}, {"b", SHAPED(3, 5)}}, 2, "c",
	              SHAPED(7, 2, 5));
	assert_result("gemm", (kops_operand[]){{"a", SHAPED(1, 2, 3)}, {"b", SHAPED(7, 3, 5)}}, 2, "c",
	              SHAPED(7, 2, 5));
	assert_result("gemm", (kops_operand[]){{"bias", SHAPED(1)}, {"a", SHAPED(2, 3)}, {"b", SHAPED(3, 5)}},
	              3, "c", SHAPED(2, 5));
	assert_result("softmax", (kops_operand[]){{"x", SHAPED(4, 2, 3)}}, 1, "y", SHAPED(4, 2, 3));
	assert_result("transpose", (kops_operand[]){{"x", SHAPED(4, 2, 3)}}, 1, "y", SHAPED(4, 3, 2));
	assert_result("add", (kops_operand[]){{"a", SHAPED(4, 1, 3)}, {"b", SHAPED(2, 1)}}, 2, "y",
	              SHAPED(4, 2, 3));
	assert_result("add", (kops_operand[]){{"a", SHAPED(0, 3)}, {"b", SHAPED(1)}}, 2, "y", SHAPED(0, 3));
	assert_result("copy", (kops_operand[]){{"x", SHAPED(4)}, {"y", SHAPED(9)}}, 2, "y", SHAPED(4));
	assert_result("reduce", (kops_operand[]){{"x", SHAPED(4, 2)}}, 1, "y", SHAPED(4));
	assert_result("reduce", (kops_operand[]){{"x", SHAPED(4)}}, 1, "y", SHAPED(1));
}

static void assert_no_result(const char *op, const kops_operand *operands, size_t n, const char *output,
                             int code, const char *sentence)
{
	kops_view got = {.rank = 77};
	char why[WHY_BYTES] = "";
	assert_int_equal(kops_op_result(op, operands, n, NULL, 0, output, &got, why, sizeof why), code);
	assert_int_equal(kops_op_result(op, operands, n, NULL, 0, output, &got, NULL, 0), code);
	assert_string_equal(why, sentence);
	assert_int_equal(got.rank, 77);
}

static void test_operands_without_a_result_are_refused(void **state)
{
	const uint64_t one[] = {1, 1, 1, 1, 1};
	kops_view x = SHAPED(2, 3), flat = shaped(KOPS_F32, 0, one), deep = shaped(KOPS_F32, 5, one);
	kops_view of_f64 = shaped(KOPS_F64, 1, one), of_i32 = shaped(KOPS_I32, 1, one),
	          of_nothing = shaped((kops_dtype)99, 1, one);
	(void)state;
	assert_no_result("gem", NULL, 0, "c", KOPS_E_UNSUPPORTED, "this libkops knows no op 'gem'");
	assert_no_result("copy", (kops_operand[]){{"x", x}}, 1, "x", KOPS_E_INVALID, "copy has no output 'x'");
	assert_no_result("copy", (kops_operand[]){{"x", x}}, 1, NULL, KOPS_E_INVALID, "copy has no output ''");
	assert_no_result("copy", NULL, 0, "y", KOPS_E_INVALID, "operand x of copy is missing");
	assert_no_result("copy", (kops_operand[]){{"x", flat}}, 1, "y", KOPS_E_SHAPE,
	                 "operand x has rank 0, expected 1 to 4");
	assert_no_result("copy", (kops_operand[]){{"x", deep}}, 1, "y", KOPS_E_SHAPE,
	                 "operand x has rank 5, expected 1 to 4");
	assert_no_result("softmax", (kops_operand[]){{"x", of_i32}}, 1, "y", KOPS_E_DTYPE,
	                 "x is i32; softmax takes f32, f64, f16 and bf16");
	assert_no_result("add", (kops_operand[]){{"a", x}, {"b", of_f64}}, 2, "y", KOPS_E_DTYPE,
	                 "a is f32, b is f64: add wants one type for both");
	assert_int_equal(
	    kops_op_result("copy", (kops_operand[]){{"x", of_nothing}}, 1, NULL, 0, "y", &x, NULL, 0),
	    KOPS_E_DTYPE);
	assert_no_result("add", (kops_operand[]){{"a", x}, {"b", SHAPED(2, 2)}}, 2, "y", KOPS_E_SHAPE,
	                 "a is 2x3, b is 2x2: they cannot be broadcast together");
	assert_no_result("transpose", (kops_operand[]){{"x", SHAPED(3)}}, 1, "y", KOPS_E_SHAPE,
	                 "x has rank 1; this op takes rank 2 to 4");
	assert_no_result("gemm", (kops_operand[]){{"a", x}, {"b", x}}, 2, "c", KOPS_E_SHAPE,
	                 "a is 2x3, b is 2x3: a's columns (3) must equal b's rows (2)");
	assert_no_result(
	    "gemm", (kops_operand[]){{"a", x}, {"b", SHAPED(3, 5)}, {"bias", SHAPED(3)}}, 3, "c", KOPS_E_SHAPE,
	    "bias is 3, which does not repeat to c's 2x5: each extent, from the last, must be equal or 1");
	assert_no_result("gemm", (kops_operand[]){{"a", SHAPED(2, 2, 3)}, {"b", SHAPED(4, 3, 5)}}, 2, "c",
	                 KOPS_E_SHAPE, "a is 2x2x3, b is 4x3x5: they need one batch, or 1");
}

/* Names of clients, devices and kernels consist of printable ASCII, spaces included. */
static void test_names(void **state)
{
	char longest[CLIENT_NAME_BYTES + 2] = "";

	(void)state;
	assert_true(client_name_is_valid(""));
	assert_true(client_name_is_valid(" a name ~"));
	assert_false(client_name_is_valid("a\x1f"));
	assert_false(client_name_is_valid("\x7f"));
	assert_false(client_name_is_valid("na\xc3\xafve"));
	memset(longest, 'a', CLIENT_NAME_BYTES);
	assert_true(client_name_is_valid(longest));
	longest[CLIENT_NAME_BYTES] = 'a';
	assert_false(client_name_is_valid(longest));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_setup, fake_teardown)
	const struct CMUnitTest tests[] = {
	    TEST(test_own_messages_have_the_members_of_descriptions),
	    TEST(test_names_say_the_same_as_the_calls),
	    TEST(test_bias_and_activation_go_by_names),
	    TEST(test_wrong_names_and_values_are_refused),
	    TEST(test_an_old_daemon_gets_no_op_by_names),
	    TEST(test_the_largest_numbers_have_room),
	    cmocka_unit_test(test_names),
	    cmocka_unit_test(test_results_have_the_shapes_of_their_rules),
	    cmocka_unit_test(test_operands_without_a_result_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
