/* reply.h: sends replies to a client, one per call. */
#ifndef KOPS_REPLY_H
#define KOPS_REPLY_H

#include "job/job.h"
#include "message.h"
#include "session/session.h"

/* Packs and sends a reply, with fd (-1: none). KOPS_E_QUOTA: the kernel takes no more descriptors for now;
 * nothing was sent. */
int reply_send(struct session *session, const Kops__V1__Reply *reply, int fd);
void reply_ok(struct session *session, uint64_t id);
/* message NULL: the status's own text. */
void reply_error(struct session *session, uint64_t id, int status, const char *message,
                 uint64_t retry_after_us);
/* Puts the receipt into the reserved entry of the session's ring. Returns false if it has text, or times of
 * single ops that were asked for. */
bool reply_by_ring(const struct job *job);
/* The receipt of a DONE job. */
void reply_receipt(const struct job *job);
/* Sets a message's members for an op's size. The extents are not copied. */
void reply_put_shape(const struct op_shape *shape, Kops__V1__DType *ret_dtype, size_t *ret_n,
                     uint64_t **ret_extents);

#endif
