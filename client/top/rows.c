#include "rows.h"

#include <inttypes.h>
#include <math.h>
#include <pwd.h>
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

static void user_json(struct json *json, const kops_user_info *u)
{
	json_object(json, NULL);
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
	rows_usage_json(json, u->usage);
	json_close_object(json);
}

void rows_users_json(struct json *json, const kops_list *users)
{
	json_array(json, "users");
	for (size_t i = 0; i < kops_list_count(users); i++)
		user_json(json, kops_list_user(users, i));
	json_close_array(json);
}

void rows_sensor_json(struct json *json, const char *key, double value)
{
	json_real(json, key, value > 0 ? value : (double)NAN);
}

void rows_usage_json(struct json *json, const kops_usage *u)
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
