#include "frame.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rows.h"

/* ---- Lines ---- */

static struct line *add_line(struct frame *frame)
{
	if (frame->n == frame->capacity) {
		size_t capacity = frame->capacity ? 2 * frame->capacity : 32;
		struct line *lines = realloc(frame->lines, capacity * sizeof(*lines));
		if (!lines)
			return NULL;
		frame->lines = lines;
		frame->capacity = capacity;
	}
	return &frame->lines[frame->n++];
}

static void put(struct frame *frame, enum look look, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void put(struct frame *frame, enum look look, const char *format, ...)
{
	struct line *line = add_line(frame);
	va_list args;

	if (!line) {
		frame->is_short = true;
		return;
	}
	*line = (struct line){.look = look};
	va_start(args, format);
	vsnprintf(line->text, sizeof(line->text), format, args);
	va_end(args);
	for (size_t n = strlen(line->text); n > 0 && line->text[n - 1] == ' '; n--)
		line->text[n - 1] = '\0';
}

static void put_gap(struct frame *frame)
{
	put(frame, LOOK_PLAIN, "%s", "");
}

/* ---- Figures ---- */

/* A column of a width with text that may have wide bytes. */
#define COLUMN(width, shown) show_field(width, (shown).text), (shown).text

/* A count that has grown since, by second; after a restart of kopsd it has not. */
static double per_s(double before, double now, double us)
{
	return now > before && us > 0 ? (now - before) / us * 1e6 : 0;
}

static struct show_text show_per_s(double value)
{
	struct show_text t;

	if (value < 9.95)
		snprintf(t.text, sizeof(t.text), "%.1f", value);
	else if (value < 1e6)
		snprintf(t.text, sizeof(t.text), "%.0f", value);
	else
		snprintf(t.text, sizeof(t.text), "%.2fM", value / 1e6);
	return t;
}

static struct show_text show_temperature(double celsius)
{
	struct show_text t = {"-"};

	if (celsius > 0)
		snprintf(t.text, sizeof(t.text), "%.0f °C", celsius);
	return t;
}

static struct show_text show_power(const kops_device_info *d)
{
	struct show_text t = {"-"};

	if (d->power_limit_w > 0)
		snprintf(t.text, sizeof(t.text), "%.0f/%.0f W", d->power_w, d->power_limit_w);
	else if (d->power_w > 0)
		snprintf(t.text, sizeof(t.text), "%.0f W", d->power_w);
	return t;
}

/* ---- kopsd and its devices ---- */

/* Those with sessions; `kops-client stats` shows the others too. */
static size_t count_users(const kops_list *users)
{
	size_t n = 0;

	for (size_t i = 0; i < kops_list_count(users); i++)
		n += kops_list_user(users, i)->sessions > 0;
	return n;
}

static void put_title(struct frame *frame, const struct snapshot *now)
{
	const kops_info *i = now->info;
	size_t users = count_users(now->users);

	put(frame, LOOK_PLAIN, "%s, up %s: %zu user%s, %" PRIu64 " session%s, %" PRIu64 " buffer%s, mapped %s",
	    i->daemon, rows_age((double)i->uptime_us).text, users, users == 1 ? "" : "s", i->sessions,
	    i->sessions == 1 ? "" : "s", i->buffers, i->buffers == 1 ? "" : "s",
	    show_bytes(i->mapped_bytes).text);
}

static void put_bar(char bar[FRAME_BAR_COLUMNS + 1], double share)
{
	int filled = (int)(share * FRAME_BAR_COLUMNS + 0.5);

	memset(bar, ' ', FRAME_BAR_COLUMNS);
	memset(bar, '|', (size_t)filled);
	bar[FRAME_BAR_COLUMNS] = '\0';
}

/* A GPU may have several jobs at once, whose times add up to more than there was. */
static double share_of(double before_us, double now_us, double us)
{
	double share = per_s(before_us, now_us, us) / 1e6;

	return share < 1 ? share : 1;
}

static void put_device(struct frame *frame, const kops_device_info *before, const kops_device_info *d,
                       double us)
{
	double busy = share_of(before->busy_us, d->busy_us, us);
	char bar[FRAME_BAR_COLUMNS + 1];
	size_t at = frame->n;

	put_bar(bar, busy);
	put(frame, LOOK_DEVICE, "%-6s %5.1f%% [%s] %8s %6" PRIu64 " %7" PRIu64 " %10s %*s %*s", d->name,
	    busy * 100, bar, show_per_s(per_s((double)before->jobs_done, (double)d->jobs_done, us)).text,
	    d->queued, d->running, show_bytes(d->resident_bytes).text,
	    COLUMN(6, show_temperature(d->temperature_c)), COLUMN(9, show_power(d)));
	if (frame->n > at)
		frame->lines[at].busy = busy;
}

static void put_devices(struct frame *frame, const struct snapshot *before, const struct snapshot *now,
                        double us)
{
	put(frame, LOOK_HEADING, "%-6s %6s %-*s %8s %6s %7s %10s %6s %9s", "DEVICE", "BUSY",
	    FRAME_BAR_COLUMNS + 2, "", "JOBS/S", "QUEUED", "RUNNING", "RESIDENT", "TEMP", "POWER");
	for (size_t i = 0; i < now->info->n_devices; i++) {
		const kops_device_info *d = kops_info_device(now->info, i),
		                       *was = kops_info_device(before->info, i);
		put_device(frame, was ? was : d, d, us);
	}
}

/* ---- Users and sessions ---- */

/* One of either. */
struct entry {
	const kops_user_info *user;
	const kops_session_info *session;
	const kops_usage *usage;
	uint64_t queued;
	double jobs_per_s, device_share;
};

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

/* The largest first; equal ones as kopsd lists them. */
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

static void put_user(struct frame *frame, const struct entry *e)
{
	const kops_user_info *u = e->user;
	struct show_line user = show_cut(rows_user(u->uid).text, 10);

	put(frame, LOOK_PLAIN, "%-*s %8" PRIu64 " %6" PRIu64 " %7" PRIu64 " %8s %5.1f%% %10s %*s %*s",
	    COLUMN(10, user), u->sessions, u->queued, u->running, show_per_s(e->jobs_per_s).text,
	    e->device_share * 100, show_bytes(u->mapped_bytes).text, COLUMN(8, rows_latency(u->usage->p50_us)),
	    COLUMN(8, rows_latency(u->usage->p99_us)));
}

static void put_session(struct frame *frame, const struct entry *e)
{
	const kops_session_info *s = e->session;
	struct show_line user = show_cut(rows_user(s->uid).text, 8), client = show_cut(s->client, 16);

	put(frame, LOOK_PLAIN, "%7" PRIu64 " %-*s %7" PRIu32 " %-*s %6" PRIu64 " %8s %5.1f%% %*s  %s",
	    s->session, COLUMN(8, user), s->pid, COLUMN(16, client), s->queued, show_per_s(e->jobs_per_s).text,
	    e->device_share * 100, COLUMN(8, rows_latency(s->usage->p99_us)), rows_running(s->oldest).text);
}

static void put_entries(struct frame *frame, struct entry *entries, size_t n, enum top_sort sort,
                        void (*put_one)(struct frame *frame, const struct entry *e))
{
	qsort_r(entries, n, sizeof(*entries), compare, &sort);
	for (size_t i = 0; i < n; i++)
		put_one(frame, &entries[i]);
	free(entries);
}

/* Of the list's length; frame->is_short where there is no memory. */
static struct entry *new_entries(struct frame *frame, const kops_list *list)
{
	struct entry *entries = calloc(kops_list_count(list) + 1, sizeof(*entries));

	frame->is_short |= !entries;
	return entries;
}

static void put_users(struct frame *frame, const struct snapshot *before, const struct snapshot *now, double us,
                      enum top_sort sort)
{
	struct entry *entries = new_entries(frame, now->users);
	const kops_user_info *u;
	size_t n = 0;

	for (size_t i = 0; entries && (u = kops_list_user(now->users, i)); i++) {
		if (u->sessions == 0)
			continue;
		entries[n] = (struct entry){.user = u, .usage = u->usage, .queued = u->queued};
		fill_rates(&entries[n++], snapshot_user(before, u->uid), us);
	}
	put(frame, LOOK_HEADING, "%-10s %8s %6s %7s %8s %6s %10s %8s %8s", "USER", "SESSIONS", "QUEUED",
	    "RUNNING", "JOBS/S", "DEVICE", "MAPPED", "P50", "P99");
	put_entries(frame, entries, n, sort, put_user);
}

static void put_sessions(struct frame *frame, const struct snapshot *before, const struct snapshot *now,
                         double us, enum top_sort sort)
{
	struct entry *entries = new_entries(frame, now->sessions);
	const kops_session_info *s;
	size_t n = 0;

	for (; entries && (s = kops_list_session(now->sessions, n)); n++) {
		entries[n] = (struct entry){.session = s, .usage = s->usage, .queued = s->queued};
		fill_rates(&entries[n], snapshot_session(before, s->session), us);
	}
	put(frame, LOOK_HEADING, "%7s %-8s %7s %-16s %6s %8s %6s %8s  %s", "SESSION", "USER", "PID", "CLIENT",
	    "QUEUED", "JOBS/S", "DEVICE", "P99", "RUNS");
	put_entries(frame, entries, n, sort, put_session);
}

int frame_make(struct frame *frame, const struct snapshot *before, const struct snapshot *now,
               enum top_sort sort)
{
	double us = now->taken_us - before->taken_us;

	frame->n = 0;
	frame->is_short = false;
	put_title(frame, now);
	put_gap(frame);
	put_devices(frame, before, now, us);
	put_gap(frame);
	put_users(frame, before, now, us, sort);
	put_gap(frame);
	put_sessions(frame, before, now, us, sort);
	return frame->is_short ? KOPS_E_NOMEM : 0;
}

void frame_free(struct frame *frame)
{
	free(frame->lines);
	*frame = (struct frame){.lines = NULL};
}
