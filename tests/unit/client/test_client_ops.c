/*
 * libkops: ops by names say the same as the calls of single ops; what it refuses; and that descriptions and
 * messages of the protocol have the same members.
 */
#include <math.h>

#include "fake_daemon.h"

#include "kernel.h"

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

static void assert_member(const ProtobufCFieldDescriptor *f, const char *name, ProtobufCType type)
{
	assert_string_equal(f->name, name);
	assert_int_equal(f->type, type);
	assert_int_not_equal(f->label, PROTOBUF_C_LABEL_REPEATED);
}

static void test_own_messages_have_the_members_of_descriptions(void **state)
{
	(void)state;
	for (unsigned o = 0; o < OP_COUNT; o++) {
		const ProtobufCFieldDescriptor *own =
		    protobuf_c_message_descriptor_get_field_by_name(&kops__v1__op__descriptor, ops[o]->name);
		if (!own)
			continue;
		const ProtobufCMessageDescriptor *message = own->descriptor;
		const ProtobufCFieldDescriptor *field = message->fields;
		assert_true(message->sizeof_message <= CLIENT_OWN_MESSAGE_BYTES);
		assert_int_equal(message->n_fields, ops[o]->n_operands + ops[o]->n_attributes);
		for (unsigned i = 0; i < ops[o]->n_operands; i++)
			assert_member(field++, ops[o]->operands[i].name, PROTOBUF_C_TYPE_MESSAGE);
		for (unsigned i = 0; i < ops[o]->n_attributes; i++)
			assert_member(field++, ops[o]->attributes[i].name, type_of(ops[o]->attributes[i].type));
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
	assert_int_equal(called->n_operands, 3 + 1 + 2 + 2 + 2); /* c of the gemm is read, too */
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
	    {"reduce", both, 2, {"kind", 3, NULL}, KOPS_E_INVALID, "kind of reduce cannot be 3"},
	    {"reduce", both, 2, {"kind", 0.5, NULL}, KOPS_E_INVALID, "kind of reduce cannot be 0.5"},
	    {"reduce", both, 2, {"kind", -1, NULL}, KOPS_E_INVALID, "kind of reduce cannot be -1"},
	    {"reduce", both, 2, {"kind", 0, "min"}, KOPS_E_INVALID, "kind of reduce cannot be 'min'"},
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

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_setup, fake_teardown)
	const struct CMUnitTest tests[] = {
	    TEST(test_own_messages_have_the_members_of_descriptions),
	    TEST(test_names_say_the_same_as_the_calls),
	    TEST(test_wrong_names_and_values_are_refused),
	    TEST(test_the_largest_numbers_have_room),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
