/* verb/list_users.c: ListUsers: what each user has and had. */
#include "session/figures.h"
#include "session/reply.h"
#include "session/verbs.h"

struct page {
	Kops__V1__User users[FIGURES_PAGE], *pointers[FIGURES_PAGE];
	Kops__V1__Usage usages[FIGURES_PAGE];
	unsigned n;
};

static double backlog_us(const struct engine *e, const struct sched_flow *flow)
{
	double us = 0;

	for (unsigned i = 0; i < e->n_devices; i++)
		us += flow->devices[i].backlog_us;
	return us;
}

static void add_user(struct page *page, const struct engine *e, struct account *a)
{
	Kops__V1__User *user = &page->users[page->n];
	Kops__V1__Usage *usage = &page->usages[page->n];

	*user = (Kops__V1__User)KOPS__V1__USER__INIT;
	user->uid = a->uid;
	user->sessions = a->sessions;
	user->buffers = a->buffers;
	user->mapped_bytes = a->bytes[ACCOUNT_MAPPED];
	user->pinned_bytes = a->bytes[ACCOUNT_PINNED];
	user->resident_bytes = a->bytes[ACCOUNT_RESIDENT];
	user->prepared_bytes = a->prepared_bytes;
	user->queued = a->jobs - a->usage.now.running;
	user->running = a->usage.now.running;
	user->backlog_us = backlog_us(e, &a->flow);
	user->usage = usage;
	figures_of_usage(&a->usage, usage);
	page->pointers[page->n++] = user;
}

int verb_list_users(struct request *r)
{
	struct session *session = r->session;
	uint64_t before = r->msg->list_users->before;
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__Users users = KOPS__V1__USERS__INIT;
	struct page page = {.n = 0};
	struct account *a;

	figures_begin(session->engine);
	list_for_each (a, &session->engine->accounts.all, link) {
		if ((before && a->uid >= before) || !figures_may_see(session, a->uid))
			continue;
		if (page.n == FIGURES_PAGE) {
			users.next = page.users[page.n - 1].uid;
			break;
		}
		add_user(&page, session->engine, a);
	}
	figures_end(session->engine);
	users.n_users = page.n;
	users.users = page.pointers;
	reply.id = r->id;
	reply.body_case = KOPS__V1__REPLY__BODY_USERS;
	reply.users = &users;
	reply_send(session, &reply, -1);
	return 0;
}
