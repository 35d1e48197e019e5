#include "share/account.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

/* ---- Limits ---- */

/* Limits as an array, in the order of the settings. */
union limits {
	struct user_limits of;
	uint64_t number[CONFIG_LIMITS];
};

static union limits everybodys_limits(const struct config *config)
{
	union limits limits;

#define X(name, type, value, min, max, reloadable, help)
#define U(name, type, value, min, max, reloadable, help) limits.of.name = config->name;
#include "config/config.def"
#undef X
	return limits;
}

static bool is_in(gid_t group, const gid_t *groups, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (groups[i] == group)
			return true;
	return false;
}

/* Finds one limit. */
static uint64_t find_limit(const struct config *config, unsigned limit, uint64_t everybodys, uid_t uid,
                           const gid_t *groups, size_t n_groups)
{
	bool found = false;
	uint64_t largest = 0;

	for (unsigned i = 0; i < config->n_owners; i++) {
		const struct config_owner *owner = &config->owners[i];
		uint64_t value = owner->limits[limit].value;

		if (!owner->is_known || !owner->limits[limit].origin[0])
			continue;
		if (!owner->is_group && owner->id == uid)
			return value;
		if (owner->is_group && is_in(owner->id, groups, n_groups)) {
			found = true;
			largest = value > largest ? value : largest;
		}
	}
	return found ? largest : everybodys;
}

static union limits find_limits(const struct config *config, uid_t uid, const gid_t *groups, size_t n_groups)
{
	union limits limits = everybodys_limits(config);

	for (unsigned i = 0; config->n_owners > 0 && i < CONFIG_LIMITS; i++)
		limits.number[i] = find_limit(config, i, limits.number[i], uid, groups, n_groups);
	return limits;
}

static struct user_limits widest(struct user_limits a, struct user_limits b)
{
	union limits both = {.of = a}, other = {.of = b};

	for (unsigned i = 0; i < CONFIG_LIMITS; i++)
		if (both.number[i] < other.number[i])
			both.number[i] = other.number[i];
	return both.of;
}

struct user_limits account_limits_beside(const struct accounts *all, const struct account *a,
                                         const gid_t *groups, size_t n_groups)
{
	struct user_limits own = find_limits(all->config, a->uid, groups, n_groups).of;

	return a->sessions > 0 ? widest(own, a->limits) : own;
}

void accounts_begin_limits(struct accounts *all)
{
	struct account *a;

	list_for_each (a, &all->all, link)
		a->fresh = (struct user_limits){0}; /* so that groups may have less than the default */
}

void account_note_session(const struct accounts *all, struct account *a, const gid_t *groups, size_t n_groups)
{
	a->fresh = widest(a->fresh, find_limits(all->config, a->uid, groups, n_groups).of);
}

void accounts_take_limits(struct accounts *all)
{
	struct account *a;

	list_for_each (a, &all->all, link)
		a->limits = a->sessions > 0 ? a->fresh : find_limits(all->config, a->uid, NULL, 0).of;
}

/* ---- Accounts ---- */

void accounts_init(struct accounts *all)
{
	errands_init(&all->errands, all->turns, &all->kopsd);
}

/* Makes an account after `before`; NULL: as the first. */
static struct account *account_new(struct accounts *all, uid_t uid, struct account *before)
{
	struct account *a = calloc(1, sizeof *a);

	if (!a)
		return NULL;
	a->uid = uid;
	errands_init(&a->errands, all->turns, &a->turns);
	a->limits = find_limits(all->config, uid, NULL, 0).of;
	a->flow.share = &a->limits.share;
	list_insert(&all->all, before ? &before->link : NULL, &a->link);
	return a;
}

/* The uid's account, or NULL and the account after which it would be. */
static struct account *find_account(const struct accounts *all, uid_t uid, struct account **ret_before)
{
	struct account *a;

	*ret_before = NULL;
	list_for_each (a, &all->all, link) {
		if (a->uid <= uid)
			return a->uid == uid ? a : NULL;
		*ret_before = a;
	}
	return NULL;
}

struct account *accounts_find(const struct accounts *all, uid_t uid)
{
	struct account *before;

	return find_account(all, uid, &before);
}

struct account *accounts_get(struct accounts *all, uid_t uid)
{
	struct account *before, *a = find_account(all, uid, &before);

	if (!a)
		a = account_new(all, uid, before);
	if (a)
		a->refs++;
	return a;
}

void account_ref(struct account *a)
{
	a->refs++;
}

/* An account also stays while it waits for a turn. During its turn it stays too, because the turn is charged to
 * it when it ends. */
static bool is_ahead(const struct accounts *all, const struct account *a)
{
	return all->turns->taking == &a->turns || !list_is_empty(&a->turns.waiters) ||
	       a->slow_until_ns > clock_ns() || sched_flow_is_ahead(all->sched, &a->flow) ||
	       turns_is_ahead(all->turns, &a->turns) ||
	       (all->memory_sched && sched_flow_is_ahead(all->memory_sched, &a->memory_flow.flow));
}

/* The account that lost its last reference first; NULL: there are few enough, or all are ahead of their
 * share. */
static struct account *find_forgettable(const struct accounts *all)
{
	struct account *oldest = NULL, *a;
	unsigned n_idle = 0;

	list_for_each (a, &all->all, link) {
		if (a->refs)
			continue;
		n_idle++;
		if ((!oldest || a->idle_since < oldest->idle_since) && !is_ahead(all, a))
			oldest = a;
	}
	return n_idle > ACCOUNTS_IDLE_MAX ? oldest : NULL;
}

static void forget_idle_accounts(struct accounts *all)
{
	struct account *a;

	while ((a = find_forgettable(all))) {
		list_walks_pass(&all->walks, &a->link);
		list_remove(&a->link);
		free(a);
	}
}

void account_unref(struct accounts *all, struct account *a)
{
	if (--a->refs)
		return;
	a->idle_since = all->departures++;
	forget_idle_accounts(all);
}

static struct account *find_errands(const struct accounts *all)
{
	struct account *a;

	list_for_each (a, &all->all, link)
		if (!list_is_empty(&a->errands.waiting))
			return a;
	return NULL;
}

void accounts_finish_errands(struct accounts *all)
{
	struct account *a;

	errands_finish(&all->errands);
	while ((a = find_errands(all))) {
		account_ref(a);
		errands_finish(&a->errands);
		account_unref(all, a);
	}
}

void accounts_clear(struct accounts *all)
{
	struct account *a;

	while ((a = list_take(&all->all, struct account, link)))
		free(a);
}

/* ---- Bytes ---- */

struct limit {
	const char *what, *key_user, *key_all;
	uint64_t user, all;
};

static struct limit limit_of(const struct config *c, const struct user_limits *user, enum account_kind kind)
{
	switch (kind) {
	case ACCOUNT_MAPPED:
		return (struct limit){"shared memory", "max-mapped-per-uid", "max-mapped",
		                      user->max_mapped_per_uid, c->max_mapped};
	case ACCOUNT_PINNED:
		return (struct limit){"pinned memory", "max-pinned-per-uid", "max-pinned",
		                      user->max_pinned_per_uid, c->max_pinned};
	default:
		return (struct limit){"resident memory", "max-resident-per-uid", "max-resident-per-uid",
		                      user->max_resident_per_uid, UINT64_MAX};
	}
}

bool account_fits(uint64_t used, uint64_t bytes, uint64_t limit)
{
	return used <= limit && bytes <= limit - used;
}

bool account_has_room(const struct accounts *all, const struct account *a, enum account_kind kind,
                      uint64_t bytes)
{
	struct limit l = limit_of(all->config, &a->limits, kind);

	return account_fits(a->bytes[kind], bytes, l.user) && account_fits(all->bytes[kind], bytes, l.all);
}

int account_charge(struct accounts *all, struct account *a, enum account_kind kind, uint64_t bytes,
                   char why[WHY_BYTES])
{
	struct limit l = limit_of(all->config, &a->limits, kind);
	bool user_fits = account_fits(a->bytes[kind], bytes, l.user);

	if (user_fits && account_fits(all->bytes[kind], bytes, l.all)) {
		a->bytes[kind] += bytes;
		all->bytes[kind] += bytes;
		return 0;
	}
	if (why)
		snprintf(why, WHY_BYTES,
		         "%" PRIu64 " more bytes of %s exceed the limit: %s use %" PRIu64 " of %" PRIu64
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

/* ---- Replies ---- */

/* The share of the unread bytes that each user with unread replies may have. */
static uint64_t equal_share(const struct accounts *all, const struct account *user)
{
	const struct account *a;
	unsigned n = 1;

	list_for_each (a, &all->all, link)
		n += a != user && a->unread_bytes > 0;
	return all->unread_max / n;
}

bool account_leave_unread(struct accounts *all, struct account *a, uint64_t bytes)
{
	uint64_t own = a->unread_bytes + bytes;

	if (own > a->limits.max_unread_per_uid)
		return false;
	if (!account_fits(all->unread_bytes, bytes, all->unread_max) && own > equal_share(all, a))
		return false;
	a->unread_bytes += bytes;
	all->unread_bytes += bytes;
	return true;
}

void account_was_read(struct accounts *all, struct account *a, uint64_t bytes)
{
	a->unread_bytes -= bytes;
	all->unread_bytes -= bytes;
}
