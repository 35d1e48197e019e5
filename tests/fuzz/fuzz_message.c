/*
 * fuzz_message.c: libFuzzer target. Any bytes, taken as the daemon takes a Request and as libkops takes a
 * Reply: an answer or a phrase, and what was accepted packs again to bytes that are accepted too. What the
 * daemon accepts is as protobuf-c has it.
 */
#include <stdlib.h>
#include <string.h>

#include "message.h"

static void compare(const ProtobufCMessage *ours, const uint8_t *data, size_t len)
{
	static uint8_t out[2][2 * MESSAGE_BYTES_MAX];
	ProtobufCMessage *theirs = protobuf_c_message_unpack(ours->descriptor, NULL, len, data);
	size_t n = protobuf_c_message_get_packed_size(ours);

	if (!theirs || n > sizeof out[0] || protobuf_c_message_get_packed_size(theirs) != n)
		abort();
	protobuf_c_message_pack(ours, out[0]);
	protobuf_c_message_pack(theirs, out[1]);
	if (memcmp(out[0], out[1], n) != 0)
		abort();
	protobuf_c_message_free_unpacked(theirs, NULL);
}

static void check(const ProtobufCMessageDescriptor *type, enum message_unknown unknown, const uint8_t *data,
                  size_t len)
{
	static struct message_arena arena, arena_again;
	static uint8_t out[MESSAGE_BYTES_MAX];
	const char *why = NULL;
	size_t len_again = 0;
	ProtobufCMessage *msg = message_unpack(type, data, len, unknown, &arena, &why);
	if (!msg) {
		if (!why)
			abort();
		return;
	}
	if (arena.used > MESSAGE_ARENA_BYTES)
		abort();
	if (unknown == MESSAGE_UNKNOWN_REFUSED)
		compare(msg, data, len);
	if (message_pack(msg, out, &len_again) < 0)
		return; /* only numbers can grow: a cut-off enum packs as ten bytes */
	if (!message_unpack(type, out, len_again, unknown, &arena_again, &why))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	check(&kops__v1__request__descriptor, MESSAGE_UNKNOWN_REFUSED, data, len);
	check(&kops__v1__reply__descriptor, MESSAGE_UNKNOWN_ALLOWED, data, len);
	return 0;
}
