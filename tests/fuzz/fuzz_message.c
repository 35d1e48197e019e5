/*
 * fuzz_message.c: libFuzzer target. Reads any bytes as the daemon reads a Request and as libkops reads a Reply.
 * It gets a message or a phrase, and an accepted message packs to bytes that are accepted too. What the daemon
 * accepts must match protobuf-c, and must be accepted in steps too.
 */
#include <stdlib.h>

#include "as_protobuf_c.h"
#include "message.h"

static bool accepts_in_steps(const ProtobufCMessageDescriptor *type, enum message_unknown unknown,
                             const uint8_t *data, size_t len)
{
	static struct message_arena arena;
	struct message_unpacking u;

	message_unpack_begin(&u, type, data, len, unknown, &arena);
	while (!message_unpack_some(&u, len % 16))
		;
	return !u.why;
}

static void check(const ProtobufCMessageDescriptor *type, enum message_unknown unknown, const uint8_t *data,
                  size_t len)
{
	static struct message_arena arena, arena_again;
	static uint8_t out[MESSAGE_BYTES_MAX];
	const char *why = NULL;
	size_t len_again = 0;
	ProtobufCMessage *msg = message_unpack(type, data, len, unknown, &arena, &why);
	if (accepts_in_steps(type, unknown, data, len) != (msg != NULL))
		abort();
	if (!msg) {
		if (!why)
			abort();
		return;
	}
	if (arena.used > MESSAGE_ARENA_BYTES)
		abort();
	if (unknown == MESSAGE_UNKNOWN_REFUSED && !is_as_protobuf_c(msg, data, len))
		abort();
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
