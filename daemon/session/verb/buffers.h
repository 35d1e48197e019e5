/* buffers.h: the buffers of a session, by the ids that its client chose. */
#ifndef KOPS_BUFFERS_H
#define KOPS_BUFFERS_H

#include "job/memory/buffer.h"
#include "session/verbs.h"

/* Returns 0 if the session may have another buffer of this id and size. KOPS_E_INVALID, _EXISTS, _QUOTA with a
 * sentence. */
int buffers_may_add(struct request *r, uint64_t id, uint64_t bytes);

/*
 * Makes room for `bytes`, by releasing memory that the user kept and nobody has. Returns true if it checked
 * some; the request's next step must check the rest. First set r->looks to the number of segments to check, or
 * 0 if no room is needed.
 */
bool buffers_look_for_room(struct request *r, uint64_t bytes);

/* Adds a buffer. Takes over the reference, also on failure: KOPS_E_NOMEM. */
int buffers_add(struct request *r, uint64_t id, struct buffer *buffer);

/* Removes the buffer of this id from the session, and returns it with its reference. NULL: none. */
struct buffer *buffers_take(struct session *session, uint64_t id);

/* Removes a buffer and releases its reference, if it is still there under its id. */
void buffers_remove(struct session *session, struct buffer *buffer);

#endif
