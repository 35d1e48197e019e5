#include "perfetto.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rows.h"

enum { DEVICES = 1, SESSIONS }; /* groups of tracks, which the format calls processes */

/* A job on the time axis. The phases follow each other; pauses come after them. */
struct span {
	const kops_traced_job *job;
	int64_t arrived_ns, started_ns, uploaded_ns, computed_ns, downloaded_ns, ended_ns;
};

/* A track, which the format calls a thread. */
struct track {
	int group, number;
	const struct span *of; /* its first job, which tells its device or session */
	unsigned sibling;      /* counts the tracks of that device or session from 1 */
	int64_t free_ns;
};

struct tracks {
	struct track *list;
	int n;
};

/* ---- When ---- */

static int64_t later(int64_t from_ns, double us, int64_t end_ns)
{
	int64_t ns = from_ns + llround(us * 1e3);

	return ns < end_ns ? ns : end_ns;
}

static int64_t end_of(const kops_traced_job *job)
{
	struct timespec now;

	if (job->ended_ns)
		return (int64_t)job->ended_ns;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - (int64_t)job->age_us * 1000;
}

static struct span span_of(const kops_traced_job *job)
{
	struct span s = {.job = job, .ended_ns = end_of(job)};

	s.arrived_ns = s.ended_ns - llround(job->total_us * 1e3);
	s.started_ns = later(s.arrived_ns, job->queue_us, s.ended_ns);
	s.uploaded_ns = later(s.started_ns, job->upload_us, s.ended_ns);
	s.computed_ns = later(s.uploaded_ns, job->compute_us, s.ended_ns);
	s.downloaded_ns = later(s.computed_ns, job->download_us, s.ended_ns);
	return s;
}

/* A job's slice begins at its start on a device, and at its arrival in a session. */
static int64_t begin_of(const struct span *s, int group)
{
	return group == DEVICES ? s->started_ns : s->arrived_ns;
}

/* Sorts by the beginning; of two that begin at once, the longer comes first. */
static int compare(const void *a, const void *b, void *group)
{
	const struct span *x = a, *y = b;
	int64_t from = begin_of(x, *(int *)group), other = begin_of(y, *(int *)group);

	if (from != other)
		return from < other ? -1 : 1;
	return x->ended_ns == y->ended_ns ? 0 : x->ended_ns > y->ended_ns ? -1 : 1;
}

/* ---- Where ---- */

static bool is_alike(const struct span *a, const struct span *b, int group)
{
	if (group == DEVICES)
		return strcmp(a->job->device, b->job->device) == 0;
	return a->job->session == b->job->session;
}

/*
 * Returns the first track of the span's device or session that is free by then, or a new one. The list has
 * room.
 */
static struct track *track_for(struct tracks *tracks, const struct span *s, int group)
{
	unsigned siblings = 0;

	for (int i = 0; i < tracks->n; i++) {
		struct track *t = &tracks->list[i];
		if (t->group != group || !is_alike(t->of, s, group))
			continue;
		siblings++;
		if (t->free_ns <= begin_of(s, group))
			return t;
	}
	struct track *t = &tracks->list[tracks->n++];
	*t = (struct track){.group = group, .number = tracks->n, .of = s, .sibling = siblings + 1};
	return t;
}

/* ---- Events ---- */

static void begin_event(struct json *json, const char *phase, const char *name, int group, int track)
{
	json_object(json, NULL);
	json_text(json, "ph", phase);
	json_text(json, "name", name);
	json_count(json, "pid", (uint64_t)group);
	json_count(json, "tid", (uint64_t)track);
}

static void begin_slice(struct json *json, const char *name, const struct track *t, int64_t from_ns,
                        int64_t end_ns)
{
	begin_event(json, "X", name, t->group, t->number);
	json_text(json, "cat", "kops");
	json_us(json, "ts", (double)from_ns / 1e3);
	json_us(json, "dur", (double)(end_ns - from_ns) / 1e3);
}

static void put_phase(struct json *json, const char *name, const struct track *t, int64_t from_ns,
                      int64_t end_ns)
{
	if (from_ns == end_ns)
		return;
	begin_slice(json, name, t, from_ns, end_ns);
	json_close_object(json);
}

static void put_details(struct json *json, const kops_traced_job *job)
{
	json_object(json, "args");
	json_count(json, "number", job->number);
	json_count(json, "session", job->session);
	json_text(json, "user", rows_user(job->uid).text);
	json_count(json, "pid", job->pid);
	json_text(json, "device", job->device);
	json_text(json, "kernel", job->kernel);
	json_count(json, "ops", job->n_ops);
	json_real(json, "flops", job->flops);
	json_real(json, "bytes", job->bytes);
	json_text(json, "result", job->status < 0 ? kops_strerror(job->status) : "done");
	json_bool(json, "prepared", job->prepared);
	json_bool(json, "graph", job->graph);
	json_bool(json, "ring", job->ring);
	json_close_object(json);
}

static void put_job(struct json *json, const struct span *s, const struct track *t)
{
	const kops_traced_job *job = s->job;

	begin_slice(json, rows_op(job->op, &job->shape, job->n_ops).text, t, begin_of(s, t->group),
	            s->ended_ns);
	put_details(json, job);
	json_close_object(json);
	if (t->group == SESSIONS)
		put_phase(json, "queue", t, s->arrived_ns, s->started_ns);
	put_phase(json, "upload", t, s->started_ns, s->uploaded_ns);
	put_phase(json, "compute", t, s->uploaded_ns, s->computed_ns);
	put_phase(json, "download", t, s->computed_ns, s->downloaded_ns);
}

static void put_jobs(struct json *json, struct tracks *tracks, struct span *spans, size_t n, int group)
{
	qsort_r(spans, n, sizeof(*spans), compare, &group);
	for (size_t i = 0; i < n; i++) {
		if (begin_of(&spans[i], group) == spans[i].ended_ns)
			continue; /* the job never started */
		struct track *t = track_for(tracks, &spans[i], group);
		t->free_ns = spans[i].ended_ns;
		put_job(json, &spans[i], t);
	}
}

/* ---- Names ---- */

static void put_name(struct json *json, const char *what, const char *name, int group, int track)
{
	begin_event(json, "M", what, group, track);
	json_object(json, "args");
	json_text(json, "name", name);
	json_close_object(json);
	json_close_object(json);
}

static const char *client_of(const kops_traced_job *job, const kops_list *sessions)
{
	const kops_session_info *s;

	for (size_t i = 0; (s = kops_list_session(sessions, i)); i++)
		if (s->session == job->session)
			return s->client;
	return "";
}

static void put_track_name(struct json *json, const struct track *t, const kops_list *sessions)
{
	const kops_traced_job *job = t->of->job;
	char name[256], sibling[16] = "";

	if (t->sibling > 1)
		snprintf(sibling, sizeof(sibling), " (%u)", t->sibling);
	if (t->group == DEVICES)
		snprintf(name, sizeof(name), "%s%s", job->device, sibling);
	else
		snprintf(name, sizeof(name), "session %" PRIu64 ": %s, pid %" PRIu32 " %s%s", job->session,
		         rows_user(job->uid).text, job->pid, client_of(job, sessions), sibling);
	put_name(json, "thread_name", name, t->group, t->number);
}

int perfetto_write(FILE *out, const kops_traced_job *const *jobs, size_t n, const kops_list *sessions)
{
	/* Tracks point into these arrays, so each group has its own. */
	struct span *spans[] = {calloc(n + 1, sizeof(struct span)), calloc(n + 1, sizeof(struct span))};
	struct tracks tracks = {.list = calloc(2 * n + 1, sizeof(struct track))};
	int status = spans[0] && spans[1] && tracks.list ? 0 : KOPS_E_NOMEM;
	struct json json;

	if (status < 0)
		goto end;
	for (size_t i = 0; i < n; i++)
		spans[0][i] = spans[1][i] = span_of(jobs[i]);
	json_begin_plain(&json, out);
	json_text(&json, "displayTimeUnit", "ns");
	json_array(&json, "traceEvents");
	put_name(&json, "process_name", "devices", DEVICES, 0);
	put_name(&json, "process_name", "sessions", SESSIONS, 0);
	put_jobs(&json, &tracks, spans[0], n, DEVICES);
	put_jobs(&json, &tracks, spans[1], n, SESSIONS);
	for (int i = 0; i < tracks.n; i++)
		put_track_name(&json, &tracks.list[i], sessions);
	json_close_array(&json);
	json_end(&json);
end:
	free(tracks.list);
	free(spans[0]);
	free(spans[1]);
	return status;
}
