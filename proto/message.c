/*
 * message.c: see message.h. In reading order: the arena, bytes, values, unpacking, packing, datagrams with
 * descriptors.
 */
#include "message.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kops_types.h"

#define ARENA_ALIGN 16
#define FIELDS_MAX  64 /* the most fields of a message type: bits of struct message_level */
#define TAG_BYTES   5  /* protobuf-c reads tags and lengths from at most 5 bytes */

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

/* ---- Reading bytes ---- */

/* Bytes not yet read. Every read_* advances over what it accepts and returns a phrase or NULL. */
struct span {
	const uint8_t *at;
	const uint8_t *end;
};

static const char truncated[] = "truncated message";

static const char *read_long_varint(struct span *in, unsigned bytes_max, uint64_t *ret_value)
{
	uint64_t value = 0;
	for (unsigned i = 0; i < bytes_max; i++) {
		if (in->at == in->end)
			return truncated;
		uint64_t byte = *in->at++;
		if (i == MESSAGE_VARINT_MAX - 1 && byte > 1)
			return "number over 64 bits";
		value |= (byte & 0x7f) << (7 * i);
		if (!(byte & 0x80)) {
			*ret_value = value;
			return NULL;
		}
	}
	return "overlong number";
}

/* Most varints have one byte. */
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

/* A value as the message has it. */
struct value {
	uint64_t number;   /* of a varint */
	struct span bytes; /* of other types; without the length prefix, if there is one */
};

static const char *read_value(struct span *in, unsigned wire, struct value *ret)
{
	switch (wire) {
	case PROTOBUF_C_WIRE_TYPE_VARINT:
		return read_varint(in, MESSAGE_VARINT_MAX, &ret->number);
	case PROTOBUF_C_WIRE_TYPE_64BIT:
		return read_bytes(in, 8, &ret->bytes);
	case PROTOBUF_C_WIRE_TYPE_32BIT:
		return read_bytes(in, 4, &ret->bytes);
	case PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED:
		return read_prefixed(in, &ret->bytes);
	default:
		return "groups are not accepted";
	}
}

/* ---- Values ---- */

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
 * Returns the length in bytes of the UTF-8 character at s, or 0. Overlong forms, surrogates, code points over
 * U+10FFFF and NUL are invalid (Unicode 15, table 3-7).
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

static bool is_text(struct span bytes)
{
	while (bytes.at < bytes.end) {
		size_t n = utf8_char(bytes.at, (size_t)(bytes.end - bytes.at));
		if (n == 0)
			return false;
		bytes.at += n;
	}
	return true;
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

/* The size of a field in the struct that protobuf-c generates. */
static size_t size_in_struct(ProtobufCType type)
{
	switch (type) {
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_MESSAGE:
		return sizeof(void *);
	case PROTOBUF_C_TYPE_BOOL:
		return sizeof(protobuf_c_boolean);
	case PROTOBUF_C_TYPE_ENUM:
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_SINT32:
	case PROTOBUF_C_TYPE_FIXED32:
	case PROTOBUF_C_TYPE_SFIXED32:
	case PROTOBUF_C_TYPE_FLOAT:
		return 4;
	default:
		return 8;
	}
}

static uint64_t unzigzag(uint64_t number)
{
	return (number >> 1) ^ (0 - (number & 1));
}

/* Longer numbers lose their upper bits, as protobuf requires. */
static void store_number(ProtobufCType type, const struct value *value, void *at)
{
	uint64_t number = value->number;
	uint32_t low = (uint32_t)number;
	protobuf_c_boolean flag = number != 0;

	switch (type) {
	case PROTOBUF_C_TYPE_BOOL:
		memcpy(at, &flag, sizeof flag);
		return;
	case PROTOBUF_C_TYPE_SINT32:
		low = (uint32_t)unzigzag(low);
		/* fall through */
	case PROTOBUF_C_TYPE_ENUM:
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_UINT32:
		memcpy(at, &low, sizeof low);
		return;
	case PROTOBUF_C_TYPE_SINT64:
		number = unzigzag(number);
		/* fall through */
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_UINT64:
		memcpy(at, &number, sizeof number);
		return;
	default: /* other types have the same bytes in the message and in memory, on little-endian machines */
		memcpy(at, value->bytes.at, size_in_struct(type));
	}
}

/* ---- Unpacking ---- */

static const char out_of_memory[] = "message needs too much memory";

static const char *store_string(const struct message_unpacking *u, struct span text, void *at)
{
	size_t n = (size_t)(text.end - text.at);
	char *copy;

	if (!is_text(text))
		return "text is not UTF-8, or holds a NUL";
	copy = message_arena_alloc(u->arena, n + 1);
	if (!copy)
		return out_of_memory;
	memcpy(copy, text.at, n);
	copy[n] = '\0';
	memcpy(at, &copy, sizeof copy);
	return NULL;
}

static void *new_message(const struct message_unpacking *u, const ProtobufCMessageDescriptor *type)
{
	void *msg = message_arena_alloc(u->arena, type->sizeof_message);

	if (msg)
		protobuf_c_message_init(type, msg);
	return msg;
}

/* Begins to read the fields of a nested message. NULL, or why it is refused. */
static const char *enter(struct message_unpacking *u, const ProtobufCMessageDescriptor *type, struct span in,
                         void **ret_msg)
{
	assert(type->n_fields <= FIELDS_MAX);
	if (u->depth == MESSAGE_DEPTH_MAX)
		return "nested too deeply";
	*ret_msg = new_message(u, type);
	if (!*ret_msg)
		return out_of_memory;
	u->levels[u->depth++] =
	    (struct message_level){.type = type, .msg = *ret_msg, .at = in.at, .end = in.end};
	return NULL;
}

static const char *store(struct message_unpacking *u, const ProtobufCFieldDescriptor *field,
                         const struct value *value, void *at)
{
	void *child = NULL;
	const char *why;

	switch (field->type) {
	case PROTOBUF_C_TYPE_STRING:
		return store_string(u, value->bytes, at);
	case PROTOBUF_C_TYPE_MESSAGE:
		why = enter(u, field->descriptor, value->bytes, &child);
		memcpy(at, &child, sizeof child);
		return why;
	default:
		store_number(field->type, value, at);
		return NULL;
	}
}

/* The capacity of an array of n, which moves when it grows beyond. */
static size_t capacity(size_t n)
{
	size_t room = n ? 4 : 0;

	while (room < n)
		room *= 2;
	return room;
}

/* Returns the address for `more` elements after the n of the array whose address is at `at`. NULL: out of
 * memory. */
static void *grow(const struct message_unpacking *u, void *at, size_t n, size_t more, size_t size)
{
	uint8_t *array, *larger;

	memcpy(&array, at, sizeof array);
	if (n + more <= capacity(n))
		return array + n * size;
	larger = message_arena_alloc(u->arena, capacity(n + more) * size);
	if (!larger)
		return NULL;
	if (n)
		memcpy(larger, array, n * size);
	memcpy(at, &larger, sizeof larger);
	return larger + n * size;
}

/* Makes room for `more` elements of a repeated field, which are counted already. */
static const char *add_repeated(const struct message_unpacking *u, const ProtobufCFieldDescriptor *field,
                                size_t more, uint8_t *msg, void **ret_at)
{
	/* For bytes from our own side, the datagram and the arena are limits enough. */
	size_t max = field->type == PROTOBUF_C_TYPE_MESSAGE ? MESSAGE_OPS_MAX : MESSAGE_NUMBERS_MAX;
	size_t *n = (size_t *)(void *)(msg + field->quantifier_offset);

	if (more == 0)
		return NULL; /* no elements, or an incomplete number */
	if (u->unknown == MESSAGE_UNKNOWN_REFUSED && *n + more > max)
		return "too many elements in a repeated field";
	*ret_at = grow(u, msg + field->offset, *n, more, size_in_struct(field->type));
	if (!*ret_at)
		return out_of_memory;
	*n += more;
	return NULL;
}

/* Counts packed numbers. A varint ends at the byte whose upper bit is 0. */
static size_t count_packed(struct span values, unsigned wire)
{
	size_t bytes = (size_t)(values.end - values.at), n = 0;

	if (wire != PROTOBUF_C_WIRE_TYPE_VARINT)
		return bytes / (wire == PROTOBUF_C_WIRE_TYPE_64BIT ? 8 : 4);
	for (; values.at < values.end; values.at++)
		n += *values.at < 0x80;
	return n;
}

static const char *add_packed(const struct message_unpacking *u, const ProtobufCFieldDescriptor *field,
                              struct span values, uint8_t *msg)
{
	size_t size = size_in_struct(field->type);
	unsigned wire = wire_of(field->type);
	void *at = NULL;
	const char *why = add_repeated(u, field, count_packed(values, wire), msg, &at);

	while (!why && values.at < values.end) {
		struct value value;
		why = read_value(&values, wire, &value);
		if (why)
			break;
		store_number(field->type, &value, at);
		at = (uint8_t *)at + size;
	}
	return why;
}

/* Refuses a field given twice, and with a oneof another member of it. */
static const char *note_singular(struct message_level *l, const ProtobufCFieldDescriptor *field)
{
	uint64_t bit = 1ull << (field - l->type->fields);
	uint32_t id = field->id, which = 0;

	if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
		memcpy(&which, l->msg + field->quantifier_offset, sizeof which);
		memcpy(l->msg + field->quantifier_offset, &id, sizeof id);
	}
	if (l->seen & bit || which)
		return "a field or oneof is given twice";
	l->seen |= bit;
	return NULL;
}

static const char *unpack_field(struct message_unpacking *u, struct message_level *l,
                                const ProtobufCFieldDescriptor *field, unsigned wire, const struct value *value)
{
	bool repeated = field->label == PROTOBUF_C_LABEL_REPEATED;
	void *at = l->msg + field->offset;
	const char *why;

	if (wire != wire_of(field->type))
		return repeated && wire == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED
		           ? add_packed(u, field, value->bytes, l->msg)
		           : "wrong wire type for a field";
	why = repeated ? add_repeated(u, field, 1, l->msg, &at) : note_singular(l, field);
	return why ? why : store(u, field, value, at);
}

/* NULL: the field is unknown. Fields numbered without gaps, as ours are, need no search. */
static const ProtobufCFieldDescriptor *find_field(const ProtobufCMessageDescriptor *type, uint32_t tag)
{
	if (tag <= type->n_fields && type->fields[tag - 1].id == tag)
		return &type->fields[tag - 1];
	return protobuf_c_message_descriptor_get_field(type, tag);
}

/* Unpacks the next field of the innermost level. NULL, or why it is refused. */
static const char *unpack_next(struct message_unpacking *u)
{
	struct message_level *l = &u->levels[u->depth - 1];
	struct span in = {l->at, l->end};
	const ProtobufCFieldDescriptor *field;
	struct value value;
	unsigned wire = 0;
	uint32_t tag = 0;
	const char *why = read_tag(&in, &tag, &wire);

	if (!why)
		why = read_value(&in, wire, &value);
	if (why)
		return why;
	l->at = in.at;
	field = find_field(l->type, tag);
	if (field)
		return unpack_field(u, l, field, wire, &value);
	return u->unknown == MESSAGE_UNKNOWN_REFUSED ? "unknown field" : NULL;
}

void message_unpack_begin(struct message_unpacking *u, const ProtobufCMessageDescriptor *type,
                          const uint8_t *data, size_t len, enum message_unknown unknown,
                          struct message_arena *arena)
{
	void *msg = NULL;

	u->unknown = unknown;
	u->arena = arena;
	u->depth = 0;
	arena->used = 0;
	u->why = len > MESSAGE_BYTES_MAX
	             ? "message over the size limit"
	             : enter(u, type, (struct span){data, len > 0 ? data + len : data}, &msg);
	u->msg = msg;
}

bool message_unpack_some(struct message_unpacking *u, size_t bytes)
{
	const uint8_t *from = u->depth ? u->levels[u->depth - 1].at : NULL;

	while (!u->why && u->depth) {
		const struct message_level *l = &u->levels[u->depth - 1];
		if (l->at == l->end)
			u->depth--;
		else if (l->at > from && (size_t)(l->at - from) >= bytes)
			return false;
		else
			u->why = unpack_next(u);
	}
	return true;
}

ProtobufCMessage *message_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t len,
                                 enum message_unknown unknown, struct message_arena *arena,
                                 const char **ret_why)
{
	struct message_unpacking u;

	message_unpack_begin(&u, type, data, len, unknown, arena);
	message_unpack_some(&u, len);
	if (u.why)
		*ret_why = u.why;
	return u.why ? NULL : u.msg;
}

/* ---- Packing ---- */

int message_pack(const ProtobufCMessage *msg, uint8_t out[MESSAGE_BYTES_MAX], size_t *ret_len)
{
	size_t len = protobuf_c_message_get_packed_size(msg);
	if (len > MESSAGE_BYTES_MAX)
		return KOPS_E_RANGE;
	*ret_len = protobuf_c_message_pack(msg, out);
	return 0;
}

size_t message_put_varint(uint8_t *out, uint64_t value)
{
	size_t n = 0;
	for (; value >= 0x80; value >>= 7)
		out[n++] = (uint8_t)(value | 0x80);
	out[n++] = (uint8_t)value;
	return n;
}

/* ---- Datagrams ---- */

/* Room for the descriptors of one datagram. Any that do not fit would be closed by the kernel within our
 * call. */
union control {
	struct cmsghdr align;
	unsigned char bytes[CMSG_SPACE(sizeof(int) * MESSAGE_FDS_ROOM)];
};

static int socket_error(void)
{
	switch (errno) {
	case EAGAIN:
	case ENOBUFS: /* the kernel is out of memory for now */
	case ENOMEM:
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
	/* If a peer closed with datagrams unread, the first call reports a reset, before what the peer had
	 * sent. */
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
	/* The buffer had room for all: if the kernel cut, this process has no free descriptor. */
	return msg.msg_flags & MSG_CTRUNC ? KOPS_E_NOMEM : 0;
}

/* If a peer closed with datagrams unread, the first call reports a reset, before what the peer had sent. */
static ssize_t peek(int sock, struct msghdr *msg)
{
	ssize_t n;
	int resets = 0;

	do
		n = recvmsg(sock, msg, MSG_DONTWAIT | MSG_PEEK);
	while (n < 0 && (errno == EINTR || (errno == ECONNRESET && resets++ == 0)));
	return n;
}

/*
 * Peeking shows by MSG_CTRUNC whether there are descriptors (unless the socket has SO_PASSCRED), and installs
 * none. Then the datagram is taken without room for its bytes. Both take 0.2 µs more than receiving it.
 */
int message_recv_bytes(int sock, uint8_t *data, size_t *ret_len)
{
	struct iovec iov = {.iov_base = data, .iov_len = MESSAGE_BYTES_MAX};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n = peek(sock, &msg), taken;

	if (n < 0)
		return socket_error();
	if (n == 0)
		return KOPS_E_CONNECT;
	if (msg.msg_flags & MSG_TRUNC)
		return KOPS_E_PROTOCOL;
	if (msg.msg_flags & MSG_CTRUNC)
		return KOPS_E_FD;
	do
		taken = recv(sock, NULL, 0, MSG_DONTWAIT);
	while (taken < 0 && errno == EINTR);
	if (taken < 0) /* it is still there, and comes again */
		return socket_error();
	*ret_len = (size_t)n;
	return 0;
}

int message_recv_wait(int sock, uint8_t *data, size_t *ret_len)
{
	ssize_t n = recv(sock, data, MESSAGE_BYTES_MAX, MSG_TRUNC); /* returns the whole length */
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
