/*
 * as_protobuf_c.h: compares messages of message_unpack() with protobuf-c's of the same bytes, except for
 * unknown fields.
 */
#ifndef KOPS_TESTS_AS_PROTOBUF_C_H
#define KOPS_TESTS_AS_PROTOBUF_C_H

#include <string.h>

#include "message.h"

/*
 * Compares both messages packed again. Packed bytes may be longer than a datagram: a cut-off enum takes ten
 * bytes.
 */
static inline bool is_as_protobuf_c(const ProtobufCMessage *ours, const uint8_t *data, size_t len)
{
	static uint8_t out[2][2 * MESSAGE_BYTES_MAX];
	ProtobufCMessage *theirs = protobuf_c_message_unpack(ours->descriptor, NULL, len, data);
	size_t n = protobuf_c_message_get_packed_size(ours);
	bool same;

	if (!theirs)
		return false;
	same = n <= sizeof out[0] && protobuf_c_message_get_packed_size(theirs) == n;
	if (same) {
		protobuf_c_message_pack(ours, out[0]);
		protobuf_c_message_pack(theirs, out[1]);
		same = memcmp(out[0], out[1], n) == 0;
	}
	protobuf_c_message_free_unpacked(theirs, NULL);
	return same;
}

#endif
