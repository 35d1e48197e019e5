/* buffers.h: the buffers of a session, by the ids that its client chose. */
#ifndef KOPS_BUFFERS_H
#define KOPS_BUFFERS_H

#include "job/buffer.h"
#include "session/verbs.h"

/* Whether the session may have one more, of this id and size. KOPS_E_INVALID, _EXISTS, _QUOTA with a sentence.
 */
int buffers_may_add(struct request *r, uint64_t id, uint64_t bytes);

/*
 * Memory that the user kept beyond its sessions, and has no more, makes room for `bytes` of it. True: some of
 * it was looked at, and the rest is to be in the request's next step. To begin with, r->looks is how much there
 * is, or 0 where nothing needs to make room.
 */
bool buffers_look_for_room(struct request *r, uint64_t bytes);

/* Takes over the reference, also on failure: KOPS_E_NOMEM. */
int buffers_add(struct request *r, uint64_t id, struct buffer *buffer);

/* Takes it out of the session, with the reference. NULL: there is none of this id. */
struct buffer *buffers_take(struct session *session, uint64_t id);

/* Takes it out and gives up the reference, if it is still there under its id. */
void buffers_remove(struct session *session, struct buffer *buffer);

#endif
