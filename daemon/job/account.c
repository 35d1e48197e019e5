#include "job/account.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct account *accounts_get(struct accounts *all, uid_t uid)
{
	struct account *a = all->first;

	while (a && a->uid != uid)
		a = a->next;
	if (!a) {
		a = calloc(1, sizeof *a);
		if (!a)
			return NULL;
		a->uid = uid;
		a->next = all->first;
		all->first = a;
	}
	a->refs++;
	return a;
}

void account_ref(struct account *a)
{
	a->refs++;
}

static bool is_ahead(const struct accounts *all, const struct account *a)
{
	return sched_flow_is_ahead(all->sched, &a->flow) || turns_is_ahead(all->turns, &a->turns) ||
	       (all->memory_sched && sched_flow_is_ahead(all->memory_sched, &a->memory_flow));
}

static void forget_idle(struct accounts *all)
{
	for (struct account **link = &all->first, *a; (a = *link);) {
		if (a->refs || is_ahead(all, a)) {
			link = &a->next;
			continue;
		}
		*link = a->next;
		free(a);
	}
}

void account_unref(struct accounts *all, struct account *a)
{
	if (--a->refs == 0)
		forget_idle(all);
}

void accounts_clear(struct accounts *all)
{
	struct account *next;

	for (struct account *a = all->first; a; a = next) {
		next = a->next;
		free(a);
	}
	all->first = NULL;
}

struct limit {
	const char *what, *key_user, *key_all;
	uint64_t user, all;
};

static struct limit limit_of(const struct config *c, enum account_kind kind)
{
	switch (kind) {
	case ACCOUNT_MAPPED:
		return (struct limit){"shared memory", "max-mapped-per-uid", "max-mapped",
		                      c->max_mapped_per_uid, c->max_mapped};
	case ACCOUNT_PINNED:
		return (struct limit){"pinned memory", "max-pinned-per-uid", "max-pinned",
		                      c->max_pinned_per_uid, c->max_pinned};
	default:
		return (struct limit){"resident memory", "max-resident-per-uid", "max-resident-per-uid",
		                      c->max_resident_per_uid, UINT64_MAX};
	}
}

static bool fits(uint64_t used, uint64_t bytes, uint64_t limit)
{
	return used <= limit && bytes <= limit - used;
}

int account_charge(struct accounts *all, struct account *a, enum account_kind kind, uint64_t bytes,
                   char why[WHY_BYTES])
{
	struct limit l = limit_of(all->config, kind);
	bool user_fits = fits(a->bytes[kind], bytes, l.user);

	if (user_fits && fits(all->bytes[kind], bytes, l.all)) {
		a->bytes[kind] += bytes;
		all->bytes[kind] += bytes;
		return 0;
	}
	if (why)
		snprintf(why, WHY_BYTES,
		         "%" PRIu64 " bytes more of %s are over the limit: %s hold %" PRIu64 " of %" PRIu64
		         " bytes; drop buffers, or raise %s in kopsd.conf",
		         bytes, l.what, user_fits ? "all users" : "you",
		         user_fits ? all->bytes[kind] : a->bytes[kind], user_fits ? l.all : l.user,
		         user_fits ? l.key_all : l.key_user);
	return KOPS_E_QUOTA;
}

void account_refund(struct accounts *all, struct account *a, enum account_kind kind, uint64_t bytes)
{
	a->bytes[kind] -= bytes;
	all->bytes[kind] -= bytes;
}
