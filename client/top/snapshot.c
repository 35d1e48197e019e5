#include "snapshot.h"

#include "cli.h"

int snapshot_take(kops *k, struct snapshot *ret)
{
	struct snapshot s = {.taken_us = cli_now_us()};
	int status = kops_query(k, &s.info);

	if (status == 0)
		status = kops_list_users(k, &s.users);
	if (status == 0)
		status = kops_list_sessions(k, &s.sessions);
	if (status < 0)
		snapshot_free(&s);
	else
		*ret = s;
	return status;
}

void snapshot_free(struct snapshot *s)
{
	kops_info_free(s->info);
	kops_list_free(s->users);
	kops_list_free(s->sessions);
	*s = (struct snapshot){.info = NULL};
}

/* Returns the first item whose number is not above this one. Lists are sorted, the largest first. */
static size_t find(const kops_list *list, uint64_t number,
                   uint64_t (*number_of)(const kops_list *list, size_t i))
{
	size_t from = 0, end = kops_list_count(list);

	while (from < end) {
		size_t middle = from + (end - from) / 2;
		if (number_of(list, middle) > number)
			from = middle + 1;
		else
			end = middle;
	}
	return from;
}

static uint64_t uid_of(const kops_list *list, size_t i)
{
	return kops_list_user(list, i)->uid;
}

static uint64_t session_of(const kops_list *list, size_t i)
{
	return kops_list_session(list, i)->session;
}

const kops_usage *snapshot_user(const struct snapshot *s, uint32_t uid)
{
	const kops_user_info *user = kops_list_user(s->users, find(s->users, uid, uid_of));

	return user && user->uid == uid ? user->usage : NULL;
}

const kops_usage *snapshot_session(const struct snapshot *s, uint64_t number)
{
	const kops_session_info *session =
	    kops_list_session(s->sessions, find(s->sessions, number, session_of));

	return session && session->session == number ? session->usage : NULL;
}
