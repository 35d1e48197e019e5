#include "metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rows.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* How a member is stored and written. Stored times are microseconds, written ones seconds. */
enum form {
	COUNT,
	US_COUNT,
	US,
	REAL,
	SENSOR, /* REAL; 0: the device does not report it */
	SHARE,  /* REAL; below 0: unknown */
};

struct metric {
	const char *name, *type, *help;
	enum form form;
	size_t member; /* offset in the struct that the table describes */
};

static const struct metric of_daemon[] = {
    {"kops_uptime_seconds", "gauge", "Time since kopsd started.", US_COUNT, offsetof(kops_info, uptime_us)},
    {"kops_sessions", "gauge", "Connected sessions.", COUNT, offsetof(kops_info, sessions)},
    {"kops_buffers", "gauge", "Buffers of all sessions.", COUNT, offsetof(kops_info, buffers)},
    {"kops_mapped_bytes", "gauge", "Shared memory of buffers.", COUNT, offsetof(kops_info, mapped_bytes)},
    {"kops_pinned_bytes", "gauge", "Memory pinned for DMA.", COUNT, offsetof(kops_info, pinned_bytes)},
    {"kops_pool_bytes", "gauge", "Shared memory kept to be lent.", COUNT, offsetof(kops_info, pool_bytes)},
};

#define DEVICE(form, member) form, offsetof(kops_device_info, member)
static const struct metric of_device[] = {
    {"kops_device_jobs_done_total", "counter", "Jobs done.", DEVICE(COUNT, jobs_done)},
    {"kops_device_jobs_failed_total", "counter", "Jobs that failed.", DEVICE(COUNT, jobs_failed)},
    {"kops_device_busy_seconds_total", "counter", "Time of jobs on the device, summed over jobs.",
     DEVICE(US, busy_us)},
    {"kops_device_jobs_queued", "gauge", "Jobs that wait for the device.", DEVICE(COUNT, queued)},
    {"kops_device_jobs_running", "gauge", "Jobs that have started.", DEVICE(COUNT, running)},
    {"kops_device_memory_bytes", "gauge", "Memory of the device.", DEVICE(COUNT, memory_bytes)},
    {"kops_device_resident_bytes", "gauge", "Memory of RESIDENT buffers.", DEVICE(COUNT, resident_bytes)},
    {"kops_device_memory_used_bytes", "gauge", "Memory in use, by all programs.",
     DEVICE(COUNT, memory_used_bytes)},
    {"kops_device_memory_free_bytes", "gauge", "Memory that is left.", DEVICE(COUNT, memory_free_bytes)},
    {"kops_device_utilization_ratio", "gauge", "Share of the last second in which it worked.",
     DEVICE(SHARE, utilization)},
    {"kops_device_self_check_age_seconds", "gauge", "Time since the device last passed its self-check.",
     DEVICE(US_COUNT, canary_age_us)},
    {"kops_device_temperature_celsius", "gauge", "Temperature, of devices that tell it.",
     DEVICE(SENSOR, temperature_c)},
    {"kops_device_power_watts", "gauge", "Power, of devices that tell it.", DEVICE(SENSOR, power_w)},
    {"kops_device_power_limit_watts", "gauge", "Power limit, of devices that tell it.",
     DEVICE(SENSOR, power_limit_w)},
};

#define USER(form, member) form, offsetof(kops_user_info, member)
static const struct metric of_user[] = {
    {"kops_user_sessions", "gauge", "Connected sessions of the user.", USER(COUNT, sessions)},
    {"kops_user_buffers", "gauge", "Buffers of the user.", USER(COUNT, buffers)},
    {"kops_user_mapped_bytes", "gauge", "Shared memory of its buffers.", USER(COUNT, mapped_bytes)},
    {"kops_user_pinned_bytes", "gauge", "Its memory pinned for DMA.", USER(COUNT, pinned_bytes)},
    {"kops_user_resident_bytes", "gauge", "Memory of its RESIDENT buffers.", USER(COUNT, resident_bytes)},
    {"kops_user_prepared_bytes", "gauge", "Memory of its prepared jobs.", USER(COUNT, prepared_bytes)},
    {"kops_user_jobs_queued", "gauge", "Its jobs that wait.", USER(COUNT, queued)},
    {"kops_user_jobs_running", "gauge", "Its jobs that have started.", USER(COUNT, running)},
    {"kops_user_backlog_seconds", "gauge", "What these jobs are planned to take.", USER(US, backlog_us)},
};

#define USAGE(form, member) form, offsetof(kops_usage, member)
static const struct metric of_usage[] = {
    {"kops_user_jobs_done_total", "counter", "Jobs of the user that were done.", USAGE(COUNT, jobs_done)},
    {"kops_user_jobs_failed_total", "counter", "Its jobs that failed, cancelled ones too.",
     USAGE(COUNT, jobs_failed)},
    {"kops_user_flops_total", "counter", "FLOPs of its jobs done, counted from the shapes.",
     USAGE(REAL, flops)},
    {"kops_user_processed_bytes_total", "counter", "Bytes that its jobs done read and wrote, by the shapes.",
     USAGE(REAL, bytes)},
    {"kops_user_queue_seconds_total", "counter", "Time from arrival to start of its jobs done, summed.",
     USAGE(US, queue_us)},
    {"kops_user_device_seconds_total", "counter", "Time of devices on its jobs, copies included.",
     USAGE(US, device_us)},
};

/* A row of a table: a device, a user. */
struct subject {
	const void *of;
	char labels[192]; /* uid="1000",user="alice" */
};

static void put_heading(FILE *out, const char *name, const char *type, const char *help)
{
	fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_value(FILE *out, enum form form, const void *member)
{
	switch (form) {
	case COUNT:
		fprintf(out, " %" PRIu64 "\n", *(const uint64_t *)member);
		break;
	case US_COUNT:
		fprintf(out, " %.17g\n", (double)*(const uint64_t *)member / 1e6);
		break;
	case US:
		fprintf(out, " %.17g\n", *(const double *)member / 1e6);
		break;
	default:
		fprintf(out, " %.17g\n", *(const double *)member);
	}
}

static void put_metric(FILE *out, const struct metric *m, const struct subject *s)
{
	const void *member = (const char *)s->of + m->member;

	if ((m->form == SENSOR && *(const double *)member == 0) ||
	    (m->form == SHARE && *(const double *)member < 0))
		return;
	fputs(m->name, out);
	if (s->labels[0])
		fprintf(out, "{%s}", s->labels);
	put_value(out, m->form, member);
}

/* Writes metric by metric, since all lines of a metric must follow each other. */
static void put_table(FILE *out, const struct metric *metrics, size_t n_metrics, const struct subject *subjects,
                      size_t n)
{
	for (const struct metric *m = metrics; m < metrics + n_metrics; m++) {
		put_heading(out, m->name, m->type, m->help);
		for (size_t i = 0; i < n; i++)
			put_metric(out, m, &subjects[i]);
	}
}

/* ---- kopsd and its devices ---- */

static void put_version(FILE *out, const char *name, const char *help, const char *version)
{
	put_heading(out, name, "gauge", help);
	fprintf(out, "%s{version=\"%s\"} 1\n", name, version);
}

static void put_daemon(FILE *out, const kops_info *info)
{
	const char *space = strchr(info->daemon, ' '); /* "kopsd VERSION" */

	put_version(out, "kops_build_info", "Version of kopsd.", space ? space + 1 : info->daemon);
	put_table(out, of_daemon, COUNT_OF(of_daemon), &(struct subject){.of = info}, 1);
}

/* "gemm/cublas,softmax/online"; "": none */
static unsigned count_kernels(const char *list)
{
	unsigned n = *list ? 1 : 0;

	for (; *list; list++)
		n += *list == ',';
	return n;
}

static int put_devices(FILE *out, const kops_info *info)
{
	static const char disabled[] = "kops_device_disabled_kernels";
	struct subject *devices = calloc(info->n_devices + 1, sizeof(*devices));

	if (!devices)
		return KOPS_E_NOMEM;
	put_heading(out, disabled, "gauge", "Kernels that failed their self-test.");
	for (size_t i = 0; i < info->n_devices; i++) {
		const kops_device_info *d = kops_info_device(info, i);
		devices[i].of = d;
		snprintf(devices[i].labels, sizeof(devices[i].labels), "device=\"%s\"", d->name);
		fprintf(out, "%s{%s} %u\n", disabled, devices[i].labels, count_kernels(d->disabled_kernels));
	}
	put_table(out, of_device, COUNT_OF(of_device), devices, info->n_devices);
	free(devices);
	return 0;
}

/* ---- Users ---- */

/* Adds the number to the name, since two users of a directory may share a name. */
static void label_user(char *labels, uint32_t uid)
{
	struct show_text user = rows_user(uid);

	labels += sprintf(labels, "uid=\"%" PRIu32 "\",user=\"", uid);
	for (const char *at = user.text; *at; at++) {
		if (*at == '"' || *at == '\\')
			*labels++ = '\\';
		*labels++ = *at;
	}
	strcpy(labels, "\"");
}

static void put_latency(FILE *out, const struct subject *s)
{
	static const char name[] = "kops_user_job_duration_seconds";
	const kops_usage *u = s->of;

	if (u->jobs_done > 0) {
		fprintf(out, "%s{%s,quantile=\"0.5\"} %.17g\n", name, s->labels, u->p50_us / 1e6);
		fprintf(out, "%s{%s,quantile=\"0.99\"} %.17g\n", name, s->labels, u->p99_us / 1e6);
	}
	fprintf(out, "%s_sum{%s} %.17g\n", name, s->labels, u->total_us / 1e6);
	fprintf(out, "%s_count{%s} %" PRIu64 "\n", name, s->labels, u->jobs_done);
}

static int put_users(FILE *out, const kops_list *list)
{
	size_t n = kops_list_count(list);
	struct subject *users = calloc(n + 1, sizeof(*users));

	if (!users)
		return KOPS_E_NOMEM;
	for (size_t i = 0; i < n; i++) {
		users[i].of = kops_list_user(list, i);
		label_user(users[i].labels, kops_list_user(list, i)->uid);
	}
	put_table(out, of_user, COUNT_OF(of_user), users, n);
	for (size_t i = 0; i < n; i++)
		users[i].of = kops_list_user(list, i)->usage;
	put_table(out, of_usage, COUNT_OF(of_usage), users, n);
	put_heading(
	    out, "kops_user_job_duration_seconds", "summary",
	    "Time from arrival to completion of its jobs done; quantiles of the latest 32 to 65 thousand.");
	for (size_t i = 0; i < n; i++)
		put_latency(out, &users[i]);
	free(users);
	return 0;
}

static int put_all(FILE *out, const struct answer *answer)
{
	int status = 0;

	put_heading(out, "kops_up", "gauge", "Whether kopsd answered: 1 or 0.");
	fprintf(out, "kops_up %d\n", answer->info ? 1 : 0);
	put_version(out, "kops_exporter_build_info", "Version of kops-exporter.", KOPS_VERSION);
	if (answer->info) {
		put_daemon(out, answer->info);
		status = put_devices(out, answer->info);
	}
	if (status == 0 && answer->list)
		status = put_users(out, answer->list);
	return status;
}

int metrics_text(const struct answer *answer, char **ret_text, size_t *ret_bytes)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);
	int status = out ? put_all(out, answer) : KOPS_E_NOMEM;

	if (out && fclose(out) != 0)
		status = KOPS_E_NOMEM;
	if (status < 0) {
		free(text);
		return status;
	}
	*ret_text = text;
	*ret_bytes = bytes;
	return 0;
}
