/*
 * Tests message.c: accepted messages come back unchanged, and each kind of hostile bytes is refused with its
 * own phrase. Byte strings in the tests are protobuf written by hand: tag << 3 | wire type, then the value.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "as_protobuf_c.h"
#include "kops.h"
#include "message.h"
#include "seed.h"

static struct message_arena arena;

#define REQUEST  (&kops__v1__request__descriptor)
#define REPLY    (&kops__v1__reply__descriptor)
#define BYTES(s) (const uint8_t *)(s), sizeof(s) - 1

static Kops__V1__Request *unpack(const uint8_t *data, size_t len, const char **ret_why)
{
	return (Kops__V1__Request *)message_unpack(REQUEST, data, len, MESSAGE_UNKNOWN_REFUSED, &arena,
	                                           ret_why);
}

static void assert_refused(const uint8_t *data, size_t len, const char *phrase)
{
	const char *why = "nothing";
	assert_null(unpack(data, len, &why));
	assert_string_equal(why, phrase);
}

static void assert_accepted(const uint8_t *data, size_t len)
{
	const char *why = "";
	if (!unpack(data, len, &why))
		fail_msg("refused: %s", why);
}

/* ---- A real message ---- */

/* Writes a gemm into c, then a softmax of it, with views of every shape of field. */
static size_t real_request(uint8_t out[MESSAGE_BYTES_MAX])
{
	uint64_t shape[] = {3, 1ull << 40}, dense[] = {7};
	int64_t strides[] = {-5, 1};
	Kops__V1__View a = KOPS__V1__VIEW__INIT, b = KOPS__V1__VIEW__INIT, c = KOPS__V1__VIEW__INIT;
	Kops__V1__Gemm gemm = KOPS__V1__GEMM__INIT;
	Kops__V1__Softmax softmax = KOPS__V1__SOFTMAX__INIT;
	Kops__V1__Op op0 = KOPS__V1__OP__INIT, op1 = KOPS__V1__OP__INIT;
	Kops__V1__Op *ops[] = {&op0, &op1};
	Kops__V1__Submit submit = KOPS__V1__SUBMIT__INIT;
	Kops__V1__Request request = KOPS__V1__REQUEST__INIT;
	size_t len = 0;

	a.buffer = 1, a.offset = 8, a.dtype = KOPS__V1__DTYPE__F32;
	a.n_shape = a.n_strides = 2, a.shape = shape, a.strides = strides;
	b.buffer = 2, b.n_shape = 1, b.shape = dense;
	c.buffer = UINT64_MAX;
	gemm.a = &a, gemm.b = &b, gemm.c = &c, gemm.alpha = 1.5, gemm.beta = -0.25;
	op0.kernel = "k\xc3\xa9rnel", op0.params_case = KOPS__V1__OP__PARAMS_GEMM, op0.gemm = &gemm;
	softmax.x = &c, softmax.y = &c, softmax.scale = 0.125, softmax.log = true;
	op1.params_case = KOPS__V1__OP__PARAMS_SOFTMAX, op1.softmax = &softmax;
	submit.queue = 3, submit.device = "gpu0", submit.deadline_us = 5000, submit.n_ops = 2, submit.ops = ops;
	request.id = 77, request.body_case = KOPS__V1__REQUEST__BODY_SUBMIT, request.submit = &submit;
	assert_int_equal(message_pack(&request.base, out, &len), 0);
	return len;
}

static void test_round_trip(void **state)
{
	(void)state;
	uint8_t data[MESSAGE_BYTES_MAX], again[MESSAGE_BYTES_MAX];
	const char *why = "";
	size_t len = real_request(data), len_again = 0;
	Kops__V1__Request *r = unpack(data, len, &why);
	assert_non_null(r);
	assert_int_equal(r->id, 77);
	assert_int_equal(r->body_case, KOPS__V1__REQUEST__BODY_SUBMIT);
	assert_int_equal(r->submit->n_ops, 2);
	const Kops__V1__Op *op = r->submit->ops[0];
	assert_string_equal(op->kernel, "k\xc3\xa9rnel");
	assert_int_equal(op->gemm->a->shape[1], 1ull << 40);
	assert_int_equal(op->gemm->a->strides[0], -5);
	assert_true(op->gemm->beta == -0.25);
	assert_int_equal(op->gemm->c->buffer, UINT64_MAX);
	assert_string_equal(r->submit->ops[1]->kernel, "");
	assert_true(r->submit->ops[1]->softmax->log);
	assert_int_equal(message_pack(&r->base, again, &len_again), 0);
	assert_int_equal(len_again, len);
	assert_memory_equal(again, data, len);
}

/* Writes 64 ops whose views have as many numbers as allowed. */
static size_t wide_request(uint8_t out[MESSAGE_BYTES_MAX])
{
	uint64_t shape[MESSAGE_NUMBERS_MAX];
	int64_t strides[MESSAGE_NUMBERS_MAX];
	Kops__V1__View view = KOPS__V1__VIEW__INIT;
	Kops__V1__Copy copy = KOPS__V1__COPY__INIT;
	Kops__V1__Op op = KOPS__V1__OP__INIT, *ops[MESSAGE_OPS_MAX];
	Kops__V1__Submit submit = KOPS__V1__SUBMIT__INIT;
	Kops__V1__Request request = KOPS__V1__REQUEST__INIT;
	size_t len = 0;

	for (unsigned i = 0; i < MESSAGE_NUMBERS_MAX; i++)
		shape[i] = i + 1, strides[i] = -(int64_t)i * 50;
	for (unsigned i = 0; i < MESSAGE_OPS_MAX; i++)
		ops[i] = &op;
	view.buffer = 1, view.n_shape = view.n_strides = MESSAGE_NUMBERS_MAX;
	view.shape = shape, view.strides = strides;
	copy.x = copy.y = &view;
	op.params_case = KOPS__V1__OP__PARAMS_COPY, op.copy = &copy;
	submit.n_ops = MESSAGE_OPS_MAX, submit.ops = ops;
	request.id = 5, request.body_case = KOPS__V1__REQUEST__BODY_SUBMIT, request.submit = &submit;
	assert_int_equal(message_pack(&request.base, out, &len), 0);
	return len;
}

/* Unpacks in steps of `bytes` bytes, with the same result as at once. Returns how many steps. */
static unsigned unpack_in_steps(const uint8_t *data, size_t len, size_t bytes)
{
	static struct message_arena other;
	static uint8_t packed[MESSAGE_BYTES_MAX], again[MESSAGE_BYTES_MAX];
	size_t len_packed = 0, len_again = 0;
	struct message_unpacking u;
	unsigned steps = 1;
	const char *why = NULL;
	Kops__V1__Request *whole = unpack(data, len, &why);

	message_unpack_begin(&u, REQUEST, data, len, MESSAGE_UNKNOWN_REFUSED, &other);
	while (!message_unpack_some(&u, bytes))
		steps++;
	assert_true(!u.why == (whole != NULL));
	if (!whole) {
		assert_string_equal(u.why, why);
		return steps;
	}
	assert_int_equal(message_pack(&whole->base, packed, &len_packed), 0);
	assert_int_equal(message_pack(u.msg, again, &len_again), 0);
	assert_int_equal(len_again, len_packed);
	assert_memory_equal(again, packed, len_packed);
	return steps;
}

static void test_in_steps(void **state)
{
	(void)state;
	const size_t field_most = 2 + MESSAGE_NUMBERS_MAX * 10;
	uint8_t data[MESSAGE_BYTES_MAX];
	size_t len = real_request(data);

	assert_int_equal(unpack_in_steps(data, 0, 1), 1);
	assert_int_equal(unpack_in_steps(data, len, len), 1);
	assert_true(unpack_in_steps(data, len, 1) > 20);
	len = wide_request(data);
	assert_in_range(len, 6000, MESSAGE_BYTES_MAX);
	assert_int_equal(unpack_in_steps(data, len, 0), unpack_in_steps(data, len, 1));
	for (size_t bytes = 1; bytes < 2 * len; bytes *= 2) {
		unsigned steps = unpack_in_steps(data, len, bytes);

		assert_in_range(steps, len / (bytes + field_most), len / bytes + 1);
	}
	assert_int_equal(unpack_in_steps(data, len - 1, 1), 2); /* after the id, the cut-off end is noticed */
	data[len - 1] |= 0x80;
	assert_in_range(unpack_in_steps(data, len, 500), len / (500 + field_most), len / 500 + 1);
}

static void test_empty_is_a_message(void **state)
{
	(void)state;
	const char *why = "";
	Kops__V1__Request *r = unpack(NULL, 0, &why);
	assert_non_null(r);
	assert_int_equal(r->body_case, KOPS__V1__REQUEST__BODY__NOT_SET);
}

static void test_pack_refuses_what_does_not_fit(void **state)
{
	(void)state;
	static char text[MESSAGE_BYTES_MAX + 1];
	static uint8_t out[MESSAGE_BYTES_MAX];
	Kops__V1__Hello hello = KOPS__V1__HELLO__INIT;
	size_t len = 99;
	const size_t overhead = 1 + 2; /* tag and a length of two bytes */

	memset(text, 'x', sizeof text - 1);
	hello.client = text;
	text[MESSAGE_BYTES_MAX - overhead + 1] = 0;
	assert_int_equal(message_pack(&hello.base, out, &len), KOPS_E_RANGE);
	assert_int_equal(len, 99);
	text[MESSAGE_BYTES_MAX - overhead] = 0;
	assert_int_equal(message_pack(&hello.base, out, &len), 0);
	assert_int_equal(len, MESSAGE_BYTES_MAX);
}

/* ---- Refusals ---- */

static void test_refuses_malformed(void **state)
{
	(void)state;
	static const uint8_t big[MESSAGE_BYTES_MAX + 1];
	assert_refused(big, sizeof big, "message over the size limit");
	assert_refused(BYTES("\x08"), "truncated message");
	assert_refused(BYTES("\x08\x80"), "truncated message");
	assert_refused(BYTES("\x12\x05\x08\x01"), "truncated message");
	assert_refused(BYTES("\x12\xff\xff\xff\xff\x0f"), "truncated message");
	assert_refused(BYTES("\x12\xff\xff\xff\xff\xff\x0f"), "overlong number");
	assert_refused(BYTES("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"), "number over 64 bits");
	assert_refused(BYTES("\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00"), "number over 64 bits");
	assert_accepted(BYTES("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"));
	assert_refused(BYTES("\x00\x01"), "field number out of range");
	assert_refused(BYTES("\xf8\xff\xff\xff\x7f\x01"), "field number out of range");
	assert_refused(BYTES("\xf8\xff\xff\xff\x0f\x01"), "unknown field");
}

static void test_refuses_wrong_wire_types(void **state)
{
	(void)state;
	assert_refused(BYTES("\x0a\x01\x01"), "wrong wire type for a field");           /* id as bytes */
	assert_refused(BYTES("\x09\1\2\3\4\5\6\7\x08"), "wrong wire type for a field"); /* id as fixed64 */
	assert_refused(BYTES("\x0d\1\2\3\4"), "wrong wire type for a field");           /* id as fixed32 */
	assert_refused(BYTES("\x10\x01"), "wrong wire type for a field");               /* hello as a number */
	assert_refused(BYTES("\x0b\x0c"), "groups are not accepted");
	assert_refused(BYTES("\x0c"), "groups are not accepted");
	assert_refused(BYTES("\x0e"), "groups are not accepted");
	assert_refused(BYTES("\x0f"), "groups are not accepted");
}

static void test_unknown_fields(void **state)
{
	(void)state;
	static const uint8_t top[] = "\x08\x05\xa0\x06\x01";               /* field 100 after the id */
	static const uint8_t inner[] = "\x12\x03\xa0\x06\x01";             /* field 100 in Hello */
	static const uint8_t group[] = "\xa3\x06\xa4\x06";                 /* field 100 as a group */
	static const uint8_t text[] = "\xa2\x06\x02\xff\xff\xa2\x06\x01x"; /* opaque, and twice */
	const char *why = "";

	assert_refused(top, sizeof top - 1, "unknown field");
	assert_refused(inner, sizeof inner - 1, "unknown field");
	Kops__V1__Request *r = (Kops__V1__Request *)message_unpack(REQUEST, top, sizeof top - 1,
	                                                           MESSAGE_UNKNOWN_ALLOWED, &arena, &why);
	assert_non_null(r);
	assert_int_equal(r->id, 5);
	assert_non_null(
	    message_unpack(REQUEST, inner, sizeof inner - 1, MESSAGE_UNKNOWN_ALLOWED, &arena, &why));
	assert_non_null(message_unpack(REQUEST, text, sizeof text - 1, MESSAGE_UNKNOWN_ALLOWED, &arena, &why));
	assert_null(message_unpack(REQUEST, group, sizeof group - 1, MESSAGE_UNKNOWN_ALLOWED, &arena, &why));
	assert_string_equal(why, "groups are not accepted");
}

static void test_refuses_duplicates(void **state)
{
	(void)state;
	static const char twice[] = "a field or oneof is given twice";
	const char *why = "";
	assert_refused(BYTES("\x08\x01\x08\x01"), twice);                 /* id */
	assert_refused(BYTES("\x12\x00\x12\x00"), twice);                 /* one member of the oneof */
	assert_refused(BYTES("\x4a\x00\x42\x00"), twice);                 /* two members of it */
	assert_refused(BYTES("\x12\x04\x08\x01\x08\x02"), twice);         /* inside Hello */
	assert_accepted(BYTES("\x12\x04\x08\x01\x10\x02"));               /* two fields of Hello */
	assert_accepted(BYTES("\x32\x04\x2a\x00\x2a\x00"));               /* two ops in a Submit */
	assert_refused(BYTES("\x32\x06\x2a\x04\x22\x00\x2a\x00"), twice); /* transpose and add in one Op */
	assert_null(message_unpack(REPLY, BYTES("\x10\x01\x10\x01"), MESSAGE_UNKNOWN_ALLOWED, &arena, &why));
	assert_string_equal(why, twice);
}

static void test_strings(void **state)
{
	(void)state;
	static const char bad[] = "text is not UTF-8, or holds a NUL";
	assert_accepted(BYTES("\x12\x06\x1a\x04\xf0\x90\x80\x80")); /* U+10000 */
	assert_accepted(BYTES("\x12\x06\x1a\x04\xf4\x8f\xbf\xbf")); /* U+10FFFF */
	assert_accepted(BYTES("\x12\x05\x1a\x03\xe2\x82\xac"));     /* U+20AC */
	assert_accepted(BYTES("\x12\x05\x1a\x03\xed\x9f\xbf"));     /* U+D7FF */
	assert_refused(BYTES("\x12\x05\x1a\x03\x61\x00\x62"), bad);
	assert_refused(BYTES("\x12\x03\x1a\x01\x80"), bad);             /* continuation alone */
	assert_refused(BYTES("\x12\x03\x1a\x01\xc3"), bad);             /* cut short */
	assert_refused(BYTES("\x12\x04\x1a\x02\xc0\xaf"), bad);         /* overlong, 2 bytes */
	assert_refused(BYTES("\x12\x05\x1a\x03\xe0\x9f\xbf"), bad);     /* overlong, 3 */
	assert_refused(BYTES("\x12\x06\x1a\x04\xf0\x8f\xbf\xbf"), bad); /* overlong, 4 */
	assert_refused(BYTES("\x12\x05\x1a\x03\xed\xa0\x80"), bad);     /* surrogate */
	assert_refused(BYTES("\x12\x06\x1a\x04\xf4\x90\x80\x80"), bad); /* U+110000 */
	assert_refused(BYTES("\x12\x07\x1a\x05\xf8\x88\x80\x80\x80"), bad);
	assert_refused(BYTES("\x12\x05\x1a\x03\xe2\x82\x28"), bad); /* broken last byte */
}

/* Writes a Submit of n Ops of two bytes each. */
static size_t tiny_ops(unsigned n, uint8_t out[MESSAGE_BYTES_MAX])
{
	unsigned body = 2 * n;
	uint8_t *p = out;
	*p++ = 0x32;
	*p++ = (uint8_t)(body | 0x80);
	*p++ = (uint8_t)((body >> 7) | 0x80);
	*p++ = (uint8_t)(body >> 14);
	for (unsigned i = 0; i < n; i++) {
		*p++ = 0x2a;
		*p++ = 0;
	}
	return (size_t)(p - out);
}

static double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void test_repeated_messages_are_limited(void **state)
{
	(void)state;
	uint8_t data[MESSAGE_BYTES_MAX];
	const char *why = "";
	assert_accepted(data, tiny_ops(MESSAGE_OPS_MAX, data));
	assert_int_equal(unpack(data, tiny_ops(MESSAGE_OPS_MAX, data), &why)->submit->n_ops, MESSAGE_OPS_MAX);
	assert_refused(data, tiny_ops(MESSAGE_OPS_MAX + 1, data), "too many elements in a repeated field");

	size_t len = tiny_ops((MESSAGE_BYTES_MAX - 4) / 2, data);
	assert_int_equal(len, MESSAGE_BYTES_MAX);
	double start = seconds();
	assert_refused(data, len, "too many elements in a repeated field");
	assert_true(seconds() - start < 0.01);
	/* A client takes as many as its arena holds, which is too small here. */
	assert_null(message_unpack(REQUEST, data, len, MESSAGE_UNKNOWN_ALLOWED, &arena, &why));
	assert_string_equal(why, "message needs too much memory");
	assert_true(seconds() - start < 0.1);
}

static void test_repeated_scalars_are_limited(void **state)
{
	(void)state;
	static const char many[] = "too many elements in a repeated field";
	const ProtobufCMessageDescriptor *view = &kops__v1__view__descriptor;
	uint8_t data[64] = {0x22}; /* View.shape, packed */
	const char *why = "";

	data[1] = 16;
	memset(data + 2, 1, 17);
	Kops__V1__View *v =
	    (Kops__V1__View *)message_unpack(view, data, 18, MESSAGE_UNKNOWN_REFUSED, &arena, &why);
	assert_non_null(v);
	assert_int_equal(v->n_shape, 16);
	data[1] = 17;
	assert_null(message_unpack(view, data, 19, MESSAGE_UNKNOWN_REFUSED, &arena, &why));
	assert_string_equal(why, many);
	v = (Kops__V1__View *)message_unpack(view, data, 19, MESSAGE_UNKNOWN_ALLOWED, &arena, &why);
	assert_non_null(v);
	assert_int_equal(v->n_shape, 17);

	/* Unpacked elements count alike, and both forms may be mixed. */
	for (unsigned i = 0; i < 17; i++) {
		data[2 * i] = 0x20;
		data[2 * i + 1] = (uint8_t)i;
	}
	v = (Kops__V1__View *)message_unpack(view, data, 32, MESSAGE_UNKNOWN_REFUSED, &arena, &why);
	assert_non_null(v);
	assert_int_equal(v->n_shape, 16);
	assert_int_equal(v->shape[15], 15);
	assert_null(message_unpack(view, data, 34, MESSAGE_UNKNOWN_REFUSED, &arena, &why));
	assert_string_equal(why, many);
	v = (Kops__V1__View *)message_unpack(view, BYTES("\x20\x05\x22\x02\x06\x07"), MESSAGE_UNKNOWN_REFUSED,
	                                     &arena, &why);
	assert_non_null(v);
	assert_int_equal(v->n_shape, 3);
	assert_int_equal(v->shape[2], 7);

	assert_null(message_unpack(view, BYTES("\x22\x02\x05\x80"), MESSAGE_UNKNOWN_REFUSED, &arena, &why));
	assert_string_equal(why, "truncated message");
}

/* ---- Depth: a type that holds itself ---- */

struct node {
	ProtobufCMessage base;
	struct node *child;
};
static ProtobufCMessageDescriptor node_type;
static ProtobufCFieldDescriptor node_fields[1];
static const unsigned node_by_name[] = {0};
static const ProtobufCIntRange node_ranges[] = {{1, 0}, {0, 1}};

static void node_init(ProtobufCMessage *node)
{
	*(struct node *)node = (struct node){.base.descriptor = &node_type};
}

static void node_type_init(void)
{
	node_fields[0] = (ProtobufCFieldDescriptor){.name = "child",
	                                            .id = 1,
	                                            .label = PROTOBUF_C_LABEL_NONE,
	                                            .type = PROTOBUF_C_TYPE_MESSAGE,
	                                            .offset = offsetof(struct node, child),
	                                            .descriptor = &node_type};
	node_type = (ProtobufCMessageDescriptor){.magic = PROTOBUF_C__MESSAGE_DESCRIPTOR_MAGIC,
	                                         .name = "Node",
	                                         .sizeof_message = sizeof(struct node),
	                                         .n_fields = 1,
	                                         .fields = node_fields,
	                                         .fields_sorted_by_name = node_by_name,
	                                         .n_field_ranges = 1,
	                                         .field_ranges = node_ranges,
	                                         .message_init = node_init};
}

/* Writes n levels below the outermost, built from the inside out at the end of the space. */
static const uint8_t *nest(unsigned n, uint8_t space[MESSAGE_BYTES_MAX], size_t *ret_len)
{
	uint8_t *p = space + MESSAGE_BYTES_MAX;
	for (unsigned i = 0; i < n; i++) {
		size_t len = (size_t)(space + MESSAGE_BYTES_MAX - p);
		*--p = (uint8_t)(len >> 14);
		*--p = (uint8_t)((len >> 7) | 0x80);
		*--p = (uint8_t)(len | 0x80);
		*--p = 0x0a;
	}
	*ret_len = (size_t)(space + MESSAGE_BYTES_MAX - p);
	return p;
}

static void test_depth_is_limited(void **state)
{
	(void)state;
	uint8_t space[MESSAGE_BYTES_MAX];
	const char *why = "";
	size_t len;
	node_type_init();
	const uint8_t *data = nest(MESSAGE_DEPTH_MAX - 1, space, &len);
	assert_non_null(message_unpack(&node_type, data, len, MESSAGE_UNKNOWN_REFUSED, &arena, &why));
	data = nest(MESSAGE_DEPTH_MAX, space, &len);
	assert_null(message_unpack(&node_type, data, len, MESSAGE_UNKNOWN_REFUSED, &arena, &why));
	assert_string_equal(why, "nested too deeply");
	data = nest(MESSAGE_BYTES_MAX / 4, space, &len);
	assert_null(message_unpack(&node_type, data, len, MESSAGE_UNKNOWN_ALLOWED, &arena, &why));
	assert_string_equal(why, "nested too deeply");
}

/* ---- Types ---- */

/* Checks the type of every field below a message: message_unpack() would mistake an unknown one. */
static void assert_fields_are_known(const ProtobufCMessageDescriptor *type)
{
	for (unsigned i = 0; i < type->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &type->fields[i];

		assert_int_not_equal(field->type, PROTOBUF_C_TYPE_BYTES);
		assert_true(field->label == PROTOBUF_C_LABEL_NONE || field->label == PROTOBUF_C_LABEL_REPEATED);
		assert_true(field->default_value == NULL || field->type == PROTOBUF_C_TYPE_STRING);
		if (field->type == PROTOBUF_C_TYPE_MESSAGE)
			assert_fields_are_known(field->descriptor);
	}
}

static void test_types_of_fields(void **state)
{
	(void)state;
	assert_fields_are_known(REQUEST);
	assert_fields_are_known(REPLY);
}

/* As in protobuf, longer numbers lose their upper bits. */
static void test_numbers_of_each_type(void **state)
{
	(void)state;
	static const uint8_t numbers[][10] = {{0x00},
	                                      {0x01},
	                                      {0x7f},
	                                      {0x80, 0x00},
	                                      {0x80, 0x01},
	                                      {0xff, 0xff, 0xff, 0xff, 0x0f},
	                                      {0x80, 0x80, 0x80, 0x80, 0x10},
	                                      {0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
	                                      {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}};
	const ProtobufCMessageDescriptor *types[] = {
	    &kops__v1__view__descriptor,   &kops__v1__gemm__descriptor,  &kops__v1__softmax__descriptor,
	    &kops__v1__submit__descriptor, &kops__v1__reply__descriptor, &kops__v1__receipt__descriptor};
	unsigned n_checked = 0;

	for (unsigned t = 0; t < sizeof types / sizeof types[0]; t++)
		for (unsigned f = 0; f < types[t]->n_fields; f++)
			for (unsigned i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
				uint8_t data[11] = {(uint8_t)(types[t]->fields[f].id << 3)};
				const char *why;
				ProtobufCMessage *msg;
				size_t n = 0;

				memcpy(data + 1, numbers[i], sizeof numbers[i]);
				while (data[++n] & 0x80)
					;
				msg = message_unpack(types[t], data, n + 1, MESSAGE_UNKNOWN_REFUSED, &arena,
				                     &why);
				if (!msg)
					continue; /* no number, or one of 8 or 4 bytes */
				assert_true(is_as_protobuf_c(msg, data, n + 1));
				n_checked++;
			}
	assert_true(n_checked >= 100);
}

/* Tests an array that grows several times, and one that begins empty. */
static void test_repeated_fields_grow(void **state)
{
	(void)state;
	uint8_t data[MESSAGE_BYTES_MAX];
	const ProtobufCMessageDescriptor *view = &kops__v1__view__descriptor;
	const char *why;
	ProtobufCMessage *msg;

	for (unsigned n = 1; n <= MESSAGE_OPS_MAX; n++) {
		size_t len = tiny_ops(n, data);

		msg = &unpack(data, len, &why)->base;
		assert_true(is_as_protobuf_c(msg, data, len));
	}
	msg = message_unpack(view, BYTES("\x22\x00\x20\x05\x22\x04\x01\x02\x03\x04\x20\x06\x22\x00"),
	                     MESSAGE_UNKNOWN_REFUSED, &arena, &why);
	assert_non_null(msg);
	assert_int_equal(((Kops__V1__View *)msg)->n_shape, 6);
	assert_int_equal(((Kops__V1__View *)msg)->shape[5], 6);
	assert_null(message_unpack(view, BYTES("\x22\x01\x80"), MESSAGE_UNKNOWN_REFUSED, &arena, &why));
	assert_string_equal(why, "truncated message");
	assert_null(message_unpack(&kops__v1__receipt__descriptor, BYTES("\x52\x03\x01\x02\x03"),
	                           MESSAGE_UNKNOWN_ALLOWED, &arena, &why));
	assert_string_equal(why, "truncated message");
}

/* ---- Damage ---- */

/*
 * A prefix is refused, or is itself whole. It is never read beyond its end, since the copy is exactly as long.
 */
static void test_truncated_at_every_byte(void **state)
{
	(void)state;
	uint8_t data[MESSAGE_BYTES_MAX];
	size_t len = real_request(data);
	for (size_t n = 0; n < len; n++) {
		const char *why = "nothing";
		uint8_t *copy = malloc(n ? n : 1);
		memcpy(copy, data, n);
		Kops__V1__Request *r = unpack(copy, n, &why);
		if (r)
			assert_true(n == 0 || n == 2); /* nothing, or only the id */
		else
			assert_string_equal(why, "truncated message");
		free(copy);
	}
}

static uint64_t random_state;
static uint32_t random_u32(void)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 33);
}

static void mutate(uint8_t *data, size_t *len)
{
	for (unsigned n = 1 + random_u32() % 4; n > 0; n--) {
		size_t at = random_u32() % *len;
		switch (random_u32() % 4) {
		case 0:
			data[at] ^= (uint8_t)(1u << random_u32() % 8);
			break;
		case 1:
			data[at] = (uint8_t)random_u32();
			break;
		case 2:
			memmove(data + at, data + at + 1, --*len - at);
			*len += *len == 0;
			break;
		default:
			memmove(data + at + 1, data + at, (*len)++ - at);
			data[at] = (uint8_t)random_u32();
		}
	}
}

/* Any bytes give an answer, and accepted messages pack to bytes that are accepted. */
static void test_random_mutations(void **state)
{
	(void)state;
	uint8_t whole[MESSAGE_BYTES_MAX], data[MESSAGE_BYTES_MAX], again[MESSAGE_BYTES_MAX];
	const size_t len = real_request(whole);
	unsigned accepted = 0;
	random_state = seed_of_run();
	print_message("seed: KOPS_TEST_SEED=%llu\n", (unsigned long long)random_state);
	for (unsigned i = 0; i < 50000; i++) {
		const char *why = NULL;
		size_t n = len, n_again = 0;
		memcpy(data, whole, len);
		mutate(data, &n);
		if (i % 8 == 0)
			unpack_in_steps(data, n, i % 128);
		Kops__V1__Request *r = unpack(data, n, &why);
		if (!r) {
			assert_non_null(why);
			continue;
		}
		accepted++;
		assert_true(is_as_protobuf_c(&r->base, data, n));
		assert_int_equal(message_pack(&r->base, again, &n_again), 0);
		assert_accepted(again, n_again);
	}
	print_message("%u of 50000 still decode\n", accepted);
	assert_true(accepted > 0 && accepted < 50000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_round_trip),
	    cmocka_unit_test(test_in_steps),
	    cmocka_unit_test(test_empty_is_a_message),
	    cmocka_unit_test(test_pack_refuses_what_does_not_fit),
	    cmocka_unit_test(test_refuses_malformed),
	    cmocka_unit_test(test_refuses_wrong_wire_types),
	    cmocka_unit_test(test_unknown_fields),
	    cmocka_unit_test(test_refuses_duplicates),
	    cmocka_unit_test(test_strings),
	    cmocka_unit_test(test_repeated_messages_are_limited),
	    cmocka_unit_test(test_repeated_scalars_are_limited),
	    cmocka_unit_test(test_depth_is_limited),
	    cmocka_unit_test(test_types_of_fields),
	    cmocka_unit_test(test_numbers_of_each_type),
	    cmocka_unit_test(test_repeated_fields_grow),
	    cmocka_unit_test(test_truncated_at_every_byte),
	    cmocka_unit_test(test_random_mutations),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
