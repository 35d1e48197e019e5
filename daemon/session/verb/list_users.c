/* verb/list_users.c: ListUsers: what each user has and had. */
#include "session/reply.h"
#include "session/verb/figures.h"
#include "session/verbs.h"

struct page {
	Kops__V1__User users[FIGURES_PAGE], *pointers[FIGURES_PAGE];
	Kops__V1__Usage usages[FIGURES_PAGE];
};

static double backlog_us(const struct engine *e, const struct sched_flow *flow)
{
	double us = 0;

	for (unsigned i = 0; i < e->n_devices; i++)
		us += flow->devices[i].backlog_us;
	return us;
}

static void put_user(void *on, unsigned i, const struct request *r, const struct list_link *at)
{
	struct page *page = on;
	struct account *a = container_of(at, struct account, link);
	Kops__V1__User *user = &page->users[i];
	Kops__V1__Usage *usage = &page->usages[i];

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
	user->backlog_us = backlog_us(r->session->engine, &a->flow);
	user->usage = usage;
	figures_of_usage(&a->usage, usage);
	page->pointers[i] = user;
}

static bool is_listed_user(const struct request *r, const struct list_link *at)
{
	const struct account *a = container_of(at, struct account, link);
	uint64_t before = r->msg->list_users->before;

	return (!before || a->uid < before) && figures_may_see(r->session, a->uid);
}

static uint64_t number_of_user(const struct list_link *at)
{
	return container_of(at, struct account, link)->uid;
}

static const struct figures_list list = {is_listed_user, number_of_user, put_user};

static int send_users(struct request *r)
{
	struct session *session = r->session;
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__Users users = KOPS__V1__USERS__INIT;
	struct page page;

	figures_begin(session->engine);
	users.n_users = figures_fill(r, &list, &page, &users.next);
	figures_end(session->engine);
	users.users = page.pointers;
	reply.id = r->id;
	reply.body_case = KOPS__V1__REPLY__BODY_USERS;
	reply.users = &users;
	reply_send(session, &reply, -1);
	return 0;
}

/* Finds the first user that is listed, where the page begins. */
static int find_users(struct request *r)
{
	if (figures_find(r, &list))
		return send_users(r);
	r->next = find_users;
	return 0;
}

int verb_list_users(struct request *r)
{
	struct accounts *accounts = &r->session->engine->accounts;

	list_walk_begin(&r->session->walk, &accounts->walks, &accounts->all);
	return find_users(r);
}
