/* verb/publish.c: Publish: gives a buffer a name by which others attach it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "job/memory/published.h"
#include "session/reply.h"
#include "session/verbs.h"

static int copy_shape(const Kops__V1__Publish *publish, struct op_shape *ret, char why[WHY_BYTES])
{
	if (publish->n_shape > KOPS_RANK_MAX || (publish->n_shape > 0) != (publish->dtype != 0)) {
		snprintf(why, WHY_BYTES,
		         "a published buffer has a type and 1 to %d extents, or neither; got %zu extents",
		         KOPS_RANK_MAX, publish->n_shape);
		return KOPS_E_SHAPE;
	}
	ret->dtype = (kops_dtype)publish->dtype;
	ret->rank = (uint32_t)publish->n_shape;
	if (publish->n_shape)
		memcpy(ret->extents, publish->shape, publish->n_shape * sizeof ret->extents[0]);
	return 0;
}

int verb_publish(struct request *r)
{
	const Kops__V1__Publish *publish = r->msg->publish;
	struct session *session = r->session;
	struct buffer *buffer = idmap_get(&session->buffers, publish->buffer);
	struct publishing how = {.name = publish->name,
	                         .access = (kops_access)publish->access,
	                         .group = publish->group,
	                         .pid = publish->keep ? 0 : session->pid};
	struct published *published;
	int rc = copy_shape(publish, &how.shape, r->why);

	if (rc < 0)
		return rc;
	if (!buffer) {
		snprintf(r->why, sizeof r->why, "there is no buffer %" PRIu64, publish->buffer);
		return KOPS_E_NOT_FOUND;
	}
	rc = published_add(buffer, &how, &published, r->why);
	if (rc < 0)
		return rc;
	if (!publish->keep)
		list_push_first(&session->published, &published->owned);
	reply_ok(session, r->id);
	return 0;
}
