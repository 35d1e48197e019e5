#include "frame.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "entries.h"
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

/* A column of fixed width for text that may have multibyte characters. */
#define COLUMN(width, shown) show_field(width, (shown).text), (shown).text

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

/* Counts users with sessions. `kops-client stats` shows the others too. */
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

static void put_device(struct frame *frame, const struct device_rates *rates)
{
	const kops_device_info *d = rates->device;
	char bar[FRAME_BAR_COLUMNS + 1];
	size_t at = frame->n;

	put_bar(bar, rates->busy);
	put(frame, LOOK_DEVICE, "%-6s %5.1f%% [%s] %4s %6s %6" PRIu64 " %5" PRIu64 " %13s %*s %*s", d->name,
	    rates->busy * 100, bar, rows_utilization(d).text, show_per_s(rates->jobs_per_s).text, d->queued,
	    d->running, rows_memory(d).text, COLUMN(6, show_temperature(d->temperature_c)),
	    COLUMN(9, show_power(d)));
	if (frame->n > at)
		frame->lines[at].busy = rates->busy;
}

static void put_devices(struct frame *frame, const struct snapshot *before, const struct snapshot *now)
{
	put(frame, LOOK_HEADING, "%-6s %6s %-*s %4s %6s %6s %5s %13s %6s %9s", "DEVICE", "BUSY",
	    FRAME_BAR_COLUMNS + 2, "", "UTIL", "JOBS/S", "QUEUED", "RUN", "MEMORY", "TEMP", "POWER");
	for (size_t i = 0; i < now->info->n_devices; i++) {
		struct device_rates rates = device_rates_of(before, now, i);
		put_device(frame, &rates);
	}
}

/* ---- Users and sessions ---- */

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
	struct show_line user = show_cut(rows_user(s->uid).text, 8), client = show_cut(s->client, 12);

	put(frame, LOOK_PLAIN, "%5" PRIu64 " %-*s %7" PRIu32 " %-*s %6" PRIu64 " %6s %5.1f%% %8s %*s  %s",
	    s->session, COLUMN(8, user), s->pid, COLUMN(12, client), s->queued, show_per_s(e->jobs_per_s).text,
	    e->device_share * 100, show_bytes(s->mapped_bytes + s->resident_bytes).text,
	    COLUMN(7, rows_latency(s->usage->p99_us)), rows_running(s->oldest).text);
}

/* Sets frame->is_short if there was no memory for the entries. */
static void put_entries(struct frame *frame, struct entry *entries, size_t n,
                        void (*put_one)(struct frame *frame, const struct entry *e))
{
	frame->is_short |= !entries;
	for (size_t i = 0; i < n; i++)
		put_one(frame, &entries[i]);
	free(entries);
}

int frame_make(struct frame *frame, const struct snapshot *before, const struct snapshot *now,
               enum top_sort sort)
{
	struct entry *entries;
	size_t n;

	frame->n = 0;
	frame->is_short = false;
	put_title(frame, now);
	put_gap(frame);
	put_devices(frame, before, now);
	put_gap(frame);
	put(frame, LOOK_HEADING, "%-10s %8s %6s %7s %8s %6s %10s %8s %8s", "USER", "SESSIONS", "QUEUED",
	    "RUNNING", "JOBS/S", "DEVICE", "MAPPED", "P50", "P99");
	entries = entries_of_users(before, now, sort, &n);
	put_entries(frame, entries, n, put_user);
	put_gap(frame);
	put(frame, LOOK_HEADING, "%5s %-8s %7s %-12s %6s %6s %6s %8s %7s  %s", "SESS", "USER", "PID", "CLIENT",
	    "QUEUED", "JOBS/S", "DEVICE", "MEMORY", "P99", "RUNS");
	entries = entries_of_sessions(before, now, sort, &n);
	put_entries(frame, entries, n, put_session);
	return frame->is_short ? KOPS_E_NOMEM : 0;
}

void frame_free(struct frame *frame)
{
	free(frame->lines);
	*frame = (struct frame){.lines = NULL};
}
