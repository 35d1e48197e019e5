#include "entries.h"

#include <stdlib.h>

/* Returns how much a count grew per second; 0 if kopsd restarted meanwhile. */
static double per_s(double before, double now, double us)
{
	return now > before && us > 0 ? (now - before) / us * 1e6 : 0;
}

/* Limits the share to 1: a GPU may run several jobs at once, whose times add up to more than the interval. */
static double share_of(double before_us, double now_us, double us)
{
	double share = per_s(before_us, now_us, us) / 1e6;

	return share < 1 ? share : 1;
}

static double between_us(const struct snapshot *before, const struct snapshot *now)
{
	return now->taken_us - before->taken_us;
}

struct device_rates device_rates_of(const struct snapshot *before, const struct snapshot *now, size_t i)
{
	const kops_device_info *d = kops_info_device(now->info, i), *was = kops_info_device(before->info, i);
	double us = between_us(before, now);

	was = was ? was : d;
	return (struct device_rates){.device = d,
	                             .jobs_per_s = per_s((double)was->jobs_done, (double)d->jobs_done, us),
	                             .busy = share_of(was->busy_us, d->busy_us, us)};
}

static void fill_rates(struct entry *e, const kops_usage *before, double us)
{
	static const kops_usage nothing;
	const kops_usage *was = before ? before : &nothing;

	e->jobs_per_s = per_s((double)was->jobs_done, (double)e->usage->jobs_done, us);
	e->device_share = share_of(was->device_us, e->usage->device_us, us);
}

static double key_of(const struct entry *e, enum top_sort sort)
{
	switch (sort) {
	case TOP_JOBS:
		return e->jobs_per_s;
	case TOP_QUEUED:
		return (double)e->queued;
	case TOP_P99:
		return e->usage->p99_us;
	default:
		return e->device_share;
	}
}

/* Sorts the largest first. Equal ones stay in kopsd's order. */
static int compare(const void *a, const void *b, void *sort)
{
	const struct entry *left = a, *right = b;
	double x = key_of(left, *(const enum top_sort *)sort), y = key_of(right, *(const enum top_sort *)sort);

	if (x != y)
		return x < y ? 1 : -1;
	return (left->session ? left->session->session < right->session->session
	                      : left->user->uid < right->user->uid)
	           ? 1
	           : -1;
}

/* Allocates as many entries as the list has items. */
static struct entry *new_entries(const kops_list *list)
{
	return calloc(kops_list_count(list) + 1, sizeof(struct entry));
}

struct entry *entries_of_users(const struct snapshot *before, const struct snapshot *now, enum top_sort sort,
                               size_t *ret_n)
{
	struct entry *entries = new_entries(now->users);
	const kops_user_info *u;
	size_t n = 0;

	for (size_t i = 0; entries && (u = kops_list_user(now->users, i)); i++) {
		if (u->sessions == 0)
			continue;
		entries[n] = (struct entry){.user = u, .usage = u->usage, .queued = u->queued};
		fill_rates(&entries[n++], snapshot_user(before, u->uid), between_us(before, now));
	}
	if (entries)
		qsort_r(entries, n, sizeof(*entries), compare, &sort);
	*ret_n = n;
	return entries;
}

struct entry *entries_of_sessions(const struct snapshot *before, const struct snapshot *now, enum top_sort sort,
                                  size_t *ret_n)
{
	struct entry *entries = new_entries(now->sessions);
	const kops_session_info *s;
	size_t n = 0;

	for (; entries && (s = kops_list_session(now->sessions, n)); n++) {
		entries[n] = (struct entry){.session = s, .usage = s->usage, .queued = s->queued};
		fill_rates(&entries[n], snapshot_session(before, s->session), between_us(before, now));
	}
	if (entries)
		qsort_r(entries, n, sizeof(*entries), compare, &sort);
	*ret_n = n;
	return entries;
}
