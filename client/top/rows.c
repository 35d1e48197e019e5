#include "rows.h"

#include <inttypes.h>
#include <math.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

struct show_text rows_age(double us)
{
	struct show_text t;
	double s = us / 1e6;

	if (s < 100)
		return show_us(us);
	if (s < 6000)
		snprintf(t.text, sizeof(t.text), "%.0f min", s / 60);
	else if (s < 48 * 3600)
		snprintf(t.text, sizeof(t.text), "%.1f h", s / 3600);
	else
		snprintf(t.text, sizeof(t.text), "%.1f days", s / 86400);
	return t;
}

struct show_text rows_latency(double us)
{
	return us > 0 ? show_us(us) : (struct show_text){"-"};
}

struct show_text rows_user(uint32_t uid)
{
	const struct passwd *entry = getpwuid(uid);
	struct show_text t;

	if (entry)
		snprintf(t.text, sizeof(t.text), "%s", entry->pw_name);
	else
		snprintf(t.text, sizeof(t.text), "%" PRIu32, uid);
	return t;
}

struct show_line rows_op(const char *op, const kops_op_shape *shape, uint32_t n_ops)
{
	struct show_line t = show_op(op, shape);
	size_t used = strlen(t.text);

	if (n_ops > 1)
		snprintf(t.text + used, sizeof(t.text) - used, " +%" PRIu32, n_ops - 1);
	return t;
}

struct show_line rows_running(const kops_running_job *job)
{
	struct show_line t = {""};

	if (job)
		snprintf(t.text, sizeof(t.text), "%.180s %" PRIu32 "/%" PRIu32 ", %.12s of %.12s",
		         show_cut(rows_op(job->op, &job->shape, job->n_ops).text, ROWS_OP_COLUMNS).text,
		         job->parts_done, job->parts, show_us(job->running_us).text,
		         show_us(job->estimate_us).text);
	return t;
}

/* ---- Users ---- */

static void put_user(FILE *out, const kops_user_info *u)
{
	struct show_text device = show_us(u->usage->device_us), p50 = rows_latency(u->usage->p50_us),
	                 p99 = rows_latency(u->usage->p99_us);

	struct show_line user = show_cut(rows_user(u->uid).text, 10);
	fprintf(
	    out, "%-*s %8" PRIu64 " %6" PRIu64 " %7" PRIu64 " %10" PRIu64 " %8" PRIu64 " %*s %10s %*s %*s\n",
	    show_field(10, user.text), user.text, u->sessions, u->queued, u->running, u->usage->jobs_done,
	    u->usage->jobs_failed, show_field(10, device.text), device.text, show_bytes(u->mapped_bytes).text,
	    show_field(8, p50.text), p50.text, show_field(8, p99.text), p99.text);
}

void rows_users(FILE *out, const kops_list *users)
{
	fprintf(out, "\n%-10s %8s %6s %7s %10s %8s %10s %10s %8s %8s\n", "USER", "SESSIONS", "QUEUED",
	        "RUNNING", "DONE", "FAILED", "DEVICE", "MAPPED", "P50", "P99");
	for (size_t i = 0; i < kops_list_count(users); i++)
		put_user(out, kops_list_user(users, i));
}

static void usage_json(struct json *json, const kops_usage *u)
{
	json_object(json, "usage");
	json_count(json, "jobs_done", u->jobs_done);
	json_count(json, "jobs_failed", u->jobs_failed);
	json_real(json, "flops", u->flops);
	json_real(json, "bytes", u->bytes);
	json_us(json, "queue_us", u->queue_us);
	json_us(json, "total_us", u->total_us);
	json_us(json, "device_us", u->device_us);
	json_us(json, "p50_us", u->p50_us);
	json_us(json, "p99_us", u->p99_us);
	json_close_object(json);
}

void rows_user_json(struct json *json, const kops_user_info *u)
{
	json_count(json, "uid", u->uid);
	json_text(json, "user", rows_user(u->uid).text);
	json_count(json, "sessions", u->sessions);
	json_count(json, "buffers", u->buffers);
	json_count(json, "mapped_bytes", u->mapped_bytes);
	json_count(json, "pinned_bytes", u->pinned_bytes);
	json_count(json, "resident_bytes", u->resident_bytes);
	json_count(json, "prepared_bytes", u->prepared_bytes);
	json_count(json, "queued", u->queued);
	json_count(json, "running", u->running);
	json_us(json, "backlog_us", u->backlog_us);
	usage_json(json, u->usage);
}

/* ---- Devices ---- */

static bool knows_memory(const kops_device_info *d)
{
	return d->memory_used_bytes > 0 || d->memory_free_bytes > 0;
}

struct show_text rows_memory(const kops_device_info *d)
{
	uint64_t all = d->memory_used_bytes + d->memory_free_bytes;
	struct show_text t = {"-"}, total = show_bytes(all);
	const char *unit = strchr(total.text, ' ');

	if (knows_memory(d)) /* used and total in the unit of the larger */
		snprintf(t.text, sizeof(t.text), "%.1f/%.*s%.8s",
		         (double)d->memory_used_bytes / (double)all * strtod(total.text, NULL),
		         (int)(unit - total.text), total.text, unit);
	return t;
}

struct show_text rows_utilization(const kops_device_info *d)
{
	struct show_text t = {"-"};

	if (d->utilization >= 0)
		snprintf(t.text, sizeof(t.text), "%.0f%%", d->utilization * 100);
	return t;
}

static void sensor_json(struct json *json, const char *key, double value, bool is_known)
{
	json_real(json, key, is_known ? value : (double)NAN);
}

static void memory_json(struct json *json, const char *key, uint64_t bytes, const kops_device_info *d)
{
	if (knows_memory(d))
		json_count(json, key, bytes);
	else
		json_text(json, key, NULL);
}

void rows_memory_json(struct json *json, const kops_device_info *d)
{
	memory_json(json, "memory_used_bytes", d->memory_used_bytes, d);
	memory_json(json, "memory_free_bytes", d->memory_free_bytes, d);
	sensor_json(json, "utilization", d->utilization, d->utilization >= 0);
}

void rows_device_json(struct json *json, const kops_device_info *d)
{
	json_text(json, "name", d->name);
	json_count(json, "jobs_done", d->jobs_done);
	json_count(json, "jobs_failed", d->jobs_failed);
	json_count(json, "queued", d->queued);
	json_count(json, "running", d->running);
	json_count(json, "resident_bytes", d->resident_bytes);
	json_us(json, "busy_us", d->busy_us);
	json_count(json, "canary_age_us", d->canary_age_us);
	sensor_json(json, "temperature_c", d->temperature_c, d->temperature_c > 0);
	sensor_json(json, "power_w", d->power_w, d->power_w > 0);
	sensor_json(json, "power_limit_w", d->power_limit_w, d->power_limit_w > 0);
	rows_memory_json(json, d);
}

/* ---- Sessions ---- */

static void json_running(struct json *json, const kops_running_job *job)
{
	json_object(json, "oldest");
	json_text(json, "device", job->device);
	json_text(json, "op", job->op);
	show_op_shape_json(json, &job->shape);
	json_text(json, "kernel", job->kernel);
	json_count(json, "ops", job->n_ops);
	json_count(json, "parts", job->parts);
	json_count(json, "parts_done", job->parts_done);
	json_us(json, "running_us", job->running_us);
	json_us(json, "estimate_us", job->estimate_us);
	json_close_object(json);
}

void rows_session_json(struct json *json, const kops_session_info *s)
{
	json_count(json, "session", s->session);
	json_count(json, "uid", s->uid);
	json_text(json, "user", rows_user(s->uid).text);
	json_count(json, "pid", s->pid);
	json_text(json, "client", s->client);
	json_count(json, "age_us", s->age_us);
	json_count(json, "buffers", s->buffers);
	json_count(json, "mapped_bytes", s->mapped_bytes);
	json_count(json, "resident_bytes", s->resident_bytes);
	json_count(json, "prepared", s->prepared);
	json_count(json, "queued", s->queued);
	json_count(json, "running", s->running);
	if (s->oldest)
		json_running(json, s->oldest);
	usage_json(json, s->usage);
}
