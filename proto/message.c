/*
 * message.c: see message.h. In reading order: the arena, the scan that comes before unpacking, packing,
 * datagrams with descriptors.
 */
#include "message.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kops_types.h"

#define ARENA_ALIGN  16
#define FIELDS_MAX   64 /* of one message type: bits of struct seen */
#define VARINT_BYTES 10
#define TAG_BYTES    5 /* protobuf-c reads tags and lengths from at most 5 bytes */

/* ---- Arena ---- */

void *message_arena_alloc(struct message_arena *arena, size_t size)
{
	size_t rounded;
	if (__builtin_add_overflow(size, ARENA_ALIGN - 1, &rounded))
		return NULL;
	rounded &= ~(size_t)(ARENA_ALIGN - 1);
	if (rounded > MESSAGE_ARENA_BYTES - arena->used)
		return NULL;
	void *at = arena->bytes + arena->used;
	arena->used += rounded;
	return at;
}

static void *arena_alloc(void *data, size_t size)
{
	return message_arena_alloc(data, size);
}

static void arena_free(void *data, void *pointer)
{
	(void)data;
	(void)pointer;
}

/* ---- Scan ---- */

/* Bytes not yet read. Every read_* advances over what it accepts and returns a phrase or NULL. */
struct span {
	const uint8_t *at;
	const uint8_t *end;
};

/* What one message level has met so far; indices are those of type->fields. */
struct seen {
	uint64_t singular;
	uint16_t repeated[FIELDS_MAX];
};

static const char truncated[] = "truncated message";

static const char *read_long_varint(struct span *in, unsigned bytes_max, uint64_t *ret_value)
{
	uint64_t value = 0;
	for (unsigned i = 0; i < bytes_max; i++) {
		if (in->at == in->end)
			return truncated;
		uint64_t byte = *in->at++;
		if (i == VARINT_BYTES - 1 && byte > 1)
			return "number over 64 bits";
		value |= (byte & 0x7f) << (7 * i);
		if (!(byte & 0x80)) {
			*ret_value = value;
			return NULL;
		}
	}
	return "overlong number";
}

/* Most are of one byte. */
static inline const char *read_varint(struct span *in, unsigned bytes_max, uint64_t *ret_value)
{
	if (in->at == in->end || *in->at & 0x80)
		return read_long_varint(in, bytes_max, ret_value);
	*ret_value = *in->at++;
	return NULL;
}

static const char *read_bytes(struct span *in, uint64_t n, struct span *ret_part)
{
	if (n > (uint64_t)(in->end - in->at))
		return truncated;
	*ret_part = (struct span){in->at, in->at + n};
	in->at += n;
	return NULL;
}

static const char *read_prefixed(struct span *in, struct span *ret_part)
{
	uint64_t n = 0;
	const char *why = read_varint(in, TAG_BYTES, &n);
	return why ? why : read_bytes(in, n, ret_part);
}

static const char *read_tag(struct span *in, uint32_t *ret_tag, unsigned *ret_wire)
{
	uint64_t key = 0;
	const char *why = read_varint(in, TAG_BYTES, &key);
	if (why)
		return why;
	if (key > UINT32_MAX || key >> 3 == 0)
		return "field number out of range";
	*ret_tag = (uint32_t)(key >> 3);
	*ret_wire = key & 7;
	return NULL;
}

/* The bytes of one value: the payload alone where it has a length prefix. */
static const char *read_value(struct span *in, unsigned wire, struct span *ret_value)
{
	uint64_t ignored = 0;
	ret_value->at = in->at;
	const char *why = NULL;
	switch (wire) {
	case PROTOBUF_C_WIRE_TYPE_VARINT:
		why = read_varint(in, VARINT_BYTES, &ignored);
		ret_value->end = in->at;
		return why;
	case PROTOBUF_C_WIRE_TYPE_64BIT:
		return read_bytes(in, 8, ret_value);
	case PROTOBUF_C_WIRE_TYPE_32BIT:
		return read_bytes(in, 4, ret_value);
	case PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED:
		return read_prefixed(in, ret_value);
	default:
		return "groups are not accepted";
	}
}

static unsigned wire_of(ProtobufCType type)
{
	switch (type) {
	case PROTOBUF_C_TYPE_FIXED32:
	case PROTOBUF_C_TYPE_SFIXED32:
	case PROTOBUF_C_TYPE_FLOAT:
		return PROTOBUF_C_WIRE_TYPE_32BIT;
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_SFIXED64:
	case PROTOBUF_C_TYPE_DOUBLE:
		return PROTOBUF_C_WIRE_TYPE_64BIT;
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_BYTES:
	case PROTOBUF_C_TYPE_MESSAGE:
		return PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED;
	default:
		return PROTOBUF_C_WIRE_TYPE_VARINT;
	}
}

/*
 * Length in bytes of the UTF-8 character at s, 0 where there is none: overlong forms, surrogates, code points
 * over U+10FFFF and NUL are none. (Unicode 15, table 3-7.)
 */
static size_t utf8_char(const uint8_t *s, size_t n)
{
	uint8_t lo = 0x80, hi = 0xbf;
	size_t len;
	if (s[0] >= 1 && s[0] < 0x80)
		return 1;
	if (s[0] >= 0xc2 && s[0] <= 0xdf)
		len = 2;
	else if ((s[0] & 0xf0) == 0xe0)
		len = 3;
	else if (s[0] >= 0xf0 && s[0] <= 0xf4)
		len = 4;
	else
		return 0;
	if (s[0] == 0xe0)
		lo = 0xa0;
	else if (s[0] == 0xed)
		hi = 0x9f;
	else if (s[0] == 0xf0)
		lo = 0x90;
	else if (s[0] == 0xf4)
		hi = 0x8f;
	if (n < len || s[1] < lo || s[1] > hi)
		return 0;
	for (size_t i = 2; i < len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	return len;
}

static const char *scan_string(struct span text)
{
	while (text.at < text.end) {
		size_t n = utf8_char(text.at, (size_t)(text.end - text.at));
		if (n == 0)
			return "text is not UTF-8, or holds a NUL";
		text.at += n;
	}
	return NULL;
}

void message_make_text(char *text)
{
	while (*text) {
		size_t n = utf8_char((const uint8_t *)text, strlen(text));
		if (n == 0)
			*text = '?';
		text += n ? n : 1;
	}
}

static const char *scan_packed(struct span values, unsigned wire, uint64_t *ret_n)
{
	uint64_t n = 0;
	while (values.at < values.end) {
		struct span value;
		uint64_t ignored = 0;
		const char *why = wire == PROTOBUF_C_WIRE_TYPE_VARINT
		                      ? read_varint(&values, VARINT_BYTES, &ignored)
		                      : read_value(&values, wire, &value);
		if (why)
			return why;
		n++;
	}
	*ret_n = n;
	return NULL;
}

/* Notes a singular field, and with a oneof its other members; a second one is refused. */
static const char *note_singular(const ProtobufCMessageDescriptor *type, const ProtobufCFieldDescriptor *field,
                                 struct seen *seen)
{
	if (seen->singular & 1ull << (field - type->fields))
		return "a field or oneof is given twice";
	seen->singular |= 1ull << (field - type->fields);
	if (!(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF))
		return NULL;
	for (unsigned i = 0; i < type->n_fields; i++)
		if (type->fields[i].flags & PROTOBUF_C_FIELD_FLAG_ONEOF &&
		    type->fields[i].quantifier_offset == field->quantifier_offset)
			seen->singular |= 1ull << i;
	return NULL;
}

static const char *note_repeated(const ProtobufCMessageDescriptor *type, const ProtobufCFieldDescriptor *field,
                                 uint64_t n, enum message_unknown unknown, struct seen *seen)
{
	if (unknown == MESSAGE_UNKNOWN_ALLOWED)
		return NULL; /* the datagram and the arena are limits enough */
	unsigned max = field->type == PROTOBUF_C_TYPE_MESSAGE ? MESSAGE_OPS_MAX : MESSAGE_NUMBERS_MAX;
	uint16_t *count = &seen->repeated[field - type->fields];
	if (n > max || *count + n > max)
		return "too many elements in a repeated field";
	*count = (uint16_t)(*count + n);
	return NULL;
}

/* NULL for unknown ones. Fields numbered without gaps, as ours are, need no search. */
static const ProtobufCFieldDescriptor *find_field(const ProtobufCMessageDescriptor *type, uint32_t tag)
{
	if (tag <= type->n_fields && type->fields[tag - 1].id == tag)
		return &type->fields[tag - 1];
	return protobuf_c_message_descriptor_get_field(type, tag);
}

static const char *scan_message(const ProtobufCMessageDescriptor *type, struct span in,
                                enum message_unknown unknown, unsigned depth);

static const char *scan_field(const ProtobufCMessageDescriptor *type, const ProtobufCFieldDescriptor *field,
                              unsigned wire, const struct span *value, enum message_unknown unknown,
                              unsigned depth, struct seen *seen)
{
	bool repeated = field->label == PROTOBUF_C_LABEL_REPEATED;
	unsigned expected = wire_of(field->type);
	uint64_t n = 1;
	const char *why = NULL;
	if (wire != expected) {
		if (!repeated || wire != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)
			return "wrong wire type for a field";
		why = scan_packed(*value, expected, &n);
	}
	if (!why)
		why =
		    repeated ? note_repeated(type, field, n, unknown, seen) : note_singular(type, field, seen);
	if (why)
		return why;
	if (field->type == PROTOBUF_C_TYPE_STRING)
		return scan_string(*value);
	if (field->type == PROTOBUF_C_TYPE_MESSAGE)
		return scan_message(field->descriptor, *value, unknown, depth + 1);
	return NULL;
}

/* Everything protobuf-c would do at a cost that the sender chooses is refused here. NULL or the phrase. */
static const char *scan_message(const ProtobufCMessageDescriptor *type, struct span in,
                                enum message_unknown unknown, unsigned depth)
{
	struct seen seen;
	assert(type->n_fields <= FIELDS_MAX);
	seen.singular = 0;
	memset(seen.repeated, 0, type->n_fields * sizeof seen.repeated[0]);
	if (depth > MESSAGE_DEPTH_MAX)
		return "nested too deeply";
	while (in.at < in.end) {
		uint32_t tag = 0;
		unsigned wire = 0;
		struct span value;
		const char *why = read_tag(&in, &tag, &wire);
		if (!why)
			why = read_value(&in, wire, &value);
		if (why)
			return why;
		const ProtobufCFieldDescriptor *field = find_field(type, tag);
		if (field)
			why = scan_field(type, field, wire, &value, unknown, depth, &seen);
		else if (unknown == MESSAGE_UNKNOWN_REFUSED)
			why = "unknown field";
		if (why)
			return why;
	}
	return NULL;
}

const char *message_scan(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t len,
                         enum message_unknown unknown)
{
	if (len > MESSAGE_BYTES_MAX)
		return "message over the size limit";
	return scan_message(type, (struct span){data, data + len}, unknown, 1);
}

ProtobufCMessage *message_unpack_scanned(const ProtobufCMessageDescriptor *type, const uint8_t *data,
                                         size_t len, struct message_arena *arena)
{
	ProtobufCAllocator allocator = {arena_alloc, arena_free, arena};

	arena->used = 0;
	return protobuf_c_message_unpack(type, &allocator, len, data);
}

ProtobufCMessage *message_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t len,
                                 enum message_unknown unknown, struct message_arena *arena,
                                 const char **ret_why)
{
	const char *why = message_scan(type, data, len, unknown);
	ProtobufCMessage *msg = why ? NULL : message_unpack_scanned(type, data, len, arena);

	if (!msg)
		*ret_why = why ? why : MESSAGE_TOO_LARGE;
	return msg;
}

int message_pack(const ProtobufCMessage *msg, uint8_t out[MESSAGE_BYTES_MAX], size_t *ret_len)
{
	size_t len = protobuf_c_message_get_packed_size(msg);
	if (len > MESSAGE_BYTES_MAX)
		return KOPS_E_RANGE;
	*ret_len = protobuf_c_message_pack(msg, out);
	return 0;
}

/* ---- Datagrams ---- */

/* Room for the descriptors of one datagram. What does not fit the kernel would close, in our time. */
union control {
	struct cmsghdr align;
	unsigned char bytes[CMSG_SPACE(sizeof(int) * MESSAGE_FDS_ROOM)];
};

static int socket_error(void)
{
	switch (errno) {
	case EAGAIN:
		return KOPS_E_BUSY;
	case EPIPE:
	case ECONNRESET:
	case ENOTCONN:
		return KOPS_E_CONNECT;
	case ETOOMANYREFS:
		return KOPS_E_QUOTA;
	default:
		return KOPS_E_SYSTEM;
	}
}

int message_send(int sock, const uint8_t *data, size_t len, const int *fds, unsigned n_fds)
{
	union control control;
	struct iovec iov = {.iov_base = (void *)data, .iov_len = len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;
	assert(n_fds <= MESSAGE_FDS_MAX);
	if (n_fds > 0) {
		memset(&control, 0, sizeof control);
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * n_fds);
	}
	do
		n = n_fds > 0 ? sendmsg(sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL)
		              : send(sock, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? socket_error() : 0;
}

/* Collects the descriptors of every SCM_RIGHTS block. */
static unsigned take_fds(struct msghdr *msg, int fds[MESSAGE_FDS_ROOM])
{
	unsigned n_fds = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(&fds[n_fds], CMSG_DATA(c), n * sizeof(int));
		n_fds += (unsigned)n;
	}
	return n_fds;
}

int message_recv(int sock, uint8_t *data, size_t *ret_len, int fds[MESSAGE_FDS_ROOM], unsigned *ret_n_fds)
{
	union control control;
	struct iovec iov = {.iov_base = data, .iov_len = MESSAGE_BYTES_MAX};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;
	int resets = 0;

	*ret_n_fds = 0;
	/* A peer that closed with datagrams unread is reported once as a reset, ahead of what it had sent. */
	do {
		msg.msg_control = control.bytes;
		msg.msg_controllen = sizeof control.bytes;
		n = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (n < 0 && (errno == EINTR || (errno == ECONNRESET && resets++ == 0)));
	if (n < 0)
		return socket_error();
	*ret_n_fds = take_fds(&msg, fds);
	/* An empty datagram looks like the end of the connection, and no message is empty. */
	if (n == 0)
		return KOPS_E_CONNECT;
	if (*ret_n_fds > MESSAGE_FDS_MAX || (msg.msg_flags & MSG_TRUNC))
		return KOPS_E_PROTOCOL;
	*ret_len = (size_t)n;
	/* There was room for all: where the kernel cut, it found no free descriptor in this process. */
	return msg.msg_flags & MSG_CTRUNC ? KOPS_E_NOMEM : 0;
}

int message_recv_wait(int sock, uint8_t *data, size_t *ret_len)
{
	ssize_t n = recv(sock, data, MESSAGE_BYTES_MAX, MSG_TRUNC); /* says the whole length */
	if (n < 0)
		return errno == EINTR ? KOPS_E_BUSY : socket_error();
	if (n == 0)
		return KOPS_E_CONNECT;
	if (n > MESSAGE_BYTES_MAX)
		return KOPS_E_PROTOCOL;
	*ret_len = (size_t)n;
	return 0;
}

bool message_waits(int sock)
{
	char first;

	return recv(sock, &first, sizeof first, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN;
}
