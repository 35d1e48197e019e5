/*
 * message.h: one datagram ⇄ one protobuf message and its file descriptors.
 *
 * Packing and unpacking use storage of the caller, never the heap. protobuf-c packs, but does not unpack: it
 * recurses without limit, amplifies memory, is quadratic on repeated singular fields, and reads each message
 * twice. This unpacker follows protobuf-c's descriptors in one pass, into a capped arena.
 */
#ifndef KOPS_MESSAGE_H
#define KOPS_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kops.pb-c.h"

#define MESSAGE_BYTES_MAX   (16 * 1024) /* one datagram */
#define MESSAGE_FDS_MAX     4
#define MESSAGE_FDS_ROOM    253 /* the kernel sends no more at once */
#define MESSAGE_ARENA_BYTES (128 * 1024)
#define MESSAGE_OPS_MAX     64
#define MESSAGE_NUMBERS_MAX 16 /* of a repeated field */
#define MESSAGE_DEPTH_MAX   6  /* Request > Submit > Op > Instance > Operand > View */

/* A bump allocator; unpacking empties it first. What it returned lives until the next unpack. */
struct message_arena {
	size_t used;
	_Alignas(16) unsigned char bytes[MESSAGE_ARENA_BYTES];
};

/* Allocates beside what was unpacked. NULL: the arena is full. */
void *message_arena_alloc(struct message_arena *arena, size_t size);

enum message_unknown {
	MESSAGE_UNKNOWN_REFUSED, /* daemon: hostile bytes are refused */
	MESSAGE_UNKNOWN_ALLOWED, /* client: a newer daemon may say more */
};

/*
 * Unpacks len bytes as a message of that type in the arena, like protobuf_c_message_unpack(), but drops unknown
 * fields. Linear time. No field may be of type bytes, have a default value or be optional.
 *
 * Returns NULL with a static phrase in *ret_why for: malformed or truncated bytes; nesting over
 * MESSAGE_DEPTH_MAX; a singular field or oneof given twice; more than MESSAGE_OPS_MAX of a repeated submessage
 * or MESSAGE_NUMBERS_MAX of a repeated number (on the daemon's side); unknown fields (as asked); invalid UTF-8
 * or NUL bytes in strings; more memory than the arena has.
 */
ProtobufCMessage *message_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t len,
                                 enum message_unknown unknown, struct message_arena *arena,
                                 const char **ret_why);

/* One of the nested messages being read, and what is left of it. */
struct message_level {
	const ProtobufCMessageDescriptor *type;
	uint8_t *msg;
	const uint8_t *at, *end;
	uint64_t seen; /* singular fields read: bits of type->fields */
};

/* A message that is partly unpacked. */
struct message_unpacking {
	ProtobufCMessage *msg; /* complete when all is done and why is NULL */
	const char *why;       /* why it is refused */
	enum message_unknown unknown;
	struct message_arena *arena;
	unsigned depth;
	struct message_level levels[MESSAGE_DEPTH_MAX];
};

/*
 * The same in steps, each of which reads about `bytes` more, and at least one field. data must stay, and the
 * arena may only be added to meanwhile. Returns true when all is done.
 */
void message_unpack_begin(struct message_unpacking *u, const ProtobufCMessageDescriptor *type,
                          const uint8_t *data, size_t len, enum message_unknown unknown,
                          struct message_arena *arena);
bool message_unpack_some(struct message_unpacking *u, size_t bytes);

/* Replaces what is not UTF-8 by '?', such as half a character at the end of a name that was cut. Protobuf
 * strings must be UTF-8. */
void message_make_text(char *text);

/*
 * Packs into out[MESSAGE_BYTES_MAX]. Returns 0 and the length, or KOPS_E_RANGE if it does not fit.
 */
int message_pack(const ProtobufCMessage *msg, uint8_t out[MESSAGE_BYTES_MAX], size_t *ret_len);

/* For messages that are cheaper to write by hand: the first byte of a field below 16; and a number, returning
 * its length. */
#define MESSAGE_TAG(field, wire_type) ((uint8_t)((field) << 3 | (wire_type)))
#define MESSAGE_VARINT_MAX            10
size_t message_put_varint(uint8_t *out, uint64_t value);

/*
 * Sends one datagram with n_fds <= MESSAGE_FDS_MAX descriptors, without blocking and without SIGPIPE. 0, or
 * KOPS_E_BUSY (the socket is full, or the kernel is out of memory for now), KOPS_E_CONNECT (the peer is gone),
 * KOPS_E_QUOTA (too many descriptors of this user are unread), KOPS_E_SYSTEM (errno).
 */
int message_send(int sock, const uint8_t *data, size_t len, const int *fds, unsigned n_fds);

/*
 * Receives one datagram into data[MESSAGE_BYTES_MAX] without blocking. 0, or KOPS_E_BUSY (none waits),
 * KOPS_E_CONNECT (the end), KOPS_E_PROTOCOL (the datagram is too large or has more than MESSAGE_FDS_MAX
 * descriptors), KOPS_E_NOMEM (the datagram was received, but this process had too few free descriptors for
 * those that came with it), KOPS_E_SYSTEM.
 *
 * Received descriptors are close-on-exec. The caller closes them, whatever the code. How long that takes is up
 * to their sender.
 */
int message_recv(int sock, uint8_t *data, size_t *ret_len, int fds[MESSAGE_FDS_ROOM], unsigned *ret_n_fds);

/*
 * The same, but takes a datagram only if no descriptors came with it; otherwise it stays, and KOPS_E_FD is
 * returned. For a process that must not have others' files in its table.
 */
int message_recv_bytes(int sock, uint8_t *data, size_t *ret_len);

/*
 * The same, but blocks as a blocking socket does, and takes no descriptors: the kernel discards any that come.
 * KOPS_E_BUSY after the socket's SO_RCVTIMEO, or when a signal came.
 */
int message_recv_wait(int sock, uint8_t *data, size_t *ret_len);

/* Returns true if message_recv() would find something: a datagram, the end or an error. */
bool message_waits(int sock);

#endif
