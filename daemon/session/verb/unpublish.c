/* verb/unpublish.c: Unpublish: withdraws a name. */
#include <stdio.h>

#include "job/memory/published.h"
#include "session/reply.h"
#include "session/verbs.h"

int verb_unpublish(struct request *r)
{
	const Kops__V1__Unpublish *unpublish = r->msg->unpublish;
	struct session *session = r->session;
	const struct account *own = session->account;
	struct published *published = NULL;

	if (own->uid == unpublish->user || own->uid == 0)
		published =
		    published_find(accounts_find(&session->engine->accounts, unpublish->user), unpublish->name);
	if (!published) {
		snprintf(
		    r->why, sizeof r->why,
		    "uid %u has published no buffer \"%.100s\" that you may unpublish; `kops-client buffers` "
		    "lists yours",
		    unpublish->user, unpublish->name);
		return KOPS_E_NOT_FOUND;
	}
	published_remove(published);
	reply_ok(session, r->id);
	return 0;
}
