/* trace: shows the latest jobs of kopsd, and where their time went. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ids.h"
#include "op/operation.h"
#include "perfetto.h"
#include "rows.h"
#include "show.h"
#include "verb/commands.h"

#define JOBS_SHOWN      20
#define FOLLOW_EVERY_NS 200000000l

/* The jobs to show. */
static struct {
	uint64_t after; /* for --follow: the number of the latest job that was seen */
	size_t most;    /* most jobs to show; 0: all */
	bool by_user;
	uint32_t uid;
	const char *op; /* NULL: any */
	double longer_than_us;
	bool has_filters;
} wanted;

static bool is_wanted(const kops_traced_job *job)
{
	return (!wanted.by_user || job->uid == wanted.uid) && (!wanted.op || strcmp(job->op, wanted.op) == 0) &&
	       job->total_us >= wanted.longer_than_us;
}

/* Returns how many items, counted from the latest job, contain the wanted ones. */
static size_t end_of_wanted(const kops_list *list)
{
	size_t n = 0, i = 0;

	for (; i < kops_list_count(list) && (wanted.most == 0 || n < wanted.most); i++)
		n += is_wanted(kops_list_job(list, i));
	return i;
}

static int list(const struct cli *cli, kops_list **ret_list)
{
	return kops_list_jobs(cli->handle, wanted.after, wanted.has_filters ? 0 : wanted.most, ret_list);
}

static void put_us(double us)
{
	struct show_text t = show_us(us);

	printf(" %*s", show_field(8, t.text), t.text);
}

static void put_cut(int columns, const char *text)
{
	struct show_line t = show_cut(text, columns);

	printf(" %-*s", show_field(columns, t.text), t.text);
}

static void put_job(const kops_traced_job *job)
{
	time_t ended = time(NULL) - (time_t)(job->age_us / 1000000);
	char at[16];

	strftime(at, sizeof(at), "%T", localtime(&ended));
	printf("%s", at);
	put_cut(10, rows_user(job->uid).text);
	printf(" %7" PRIu32, job->pid);
	put_cut(5, job->device);
	put_cut(ROWS_OP_COLUMNS, rows_op(job->op, &job->shape, job->n_ops).text);
	put_cut(12, job->kernel);
	put_us(job->queue_us);
	put_us(job->upload_us);
	put_us(job->compute_us);
	put_us(job->download_us);
	put_us(job->total_us);
	printf("  %s%s%s\n", job->status < 0 ? kops_strerror(job->status) : "done",
	       job->prepared && job->status == 0 ? ", prepared" : "", job->graph ? ", graph" : "");
}

static void text_jobs(const struct answer *answer)
{
	for (size_t i = end_of_wanted(answer->list); i-- > 0;)
		if (is_wanted(kops_list_job(answer->list, i)))
			put_job(kops_list_job(answer->list, i));
	if (kops_list_count(answer->list) > 0)
		wanted.after = kops_list_job(answer->list, 0)->number;
}

static void text(const struct answer *answer)
{
	printf("%-8s %-10s %7s %-5s %-*s %-12s %8s %8s %8s %8s %8s  %s\n", "ENDED", "USER", "PID", "ON",
	       ROWS_OP_COLUMNS, "OP", "KERNEL", "QUEUED", "UPLOAD", "COMPUTE", "DOWNLOAD", "TOTAL", "RESULT");
	text_jobs(answer);
}

static void json_job(struct json *json, const kops_traced_job *job)
{
	json_object(json, NULL);
	json_count(json, "number", job->number);
	json_count(json, "session", job->session);
	json_count(json, "uid", job->uid);
	json_text(json, "user", rows_user(job->uid).text);
	json_count(json, "pid", job->pid);
	json_bool(json, "ok", job->status == 0);
	json_text(json, "error", job->status < 0 ? kops_strerror(job->status) : NULL);
	json_count(json, "age_us", job->age_us);
	json_count(json, "ended_ns", job->ended_ns);
	json_text(json, "device", job->device);
	json_text(json, "op", job->op);
	show_op_shape_json(json, &job->shape);
	json_text(json, "kernel", job->kernel);
	json_count(json, "ops", job->n_ops);
	json_real(json, "flops", job->flops);
	json_real(json, "bytes", job->bytes);
	json_us(json, "queue_us", job->queue_us);
	json_us(json, "upload_us", job->upload_us);
	json_us(json, "compute_us", job->compute_us);
	json_us(json, "download_us", job->download_us);
	json_us(json, "total_us", job->total_us);
	json_bool(json, "prepared", job->prepared);
	json_bool(json, "graph", job->graph);
	json_bool(json, "ring", job->ring);
	json_close_object(json);
}

static void json(struct json *json, const struct answer *answer)
{
	json_array(json, "jobs");
	for (size_t i = end_of_wanted(answer->list); i-- > 0;)
		if (is_wanted(kops_list_job(answer->list, i)))
			json_job(json, kops_list_job(answer->list, i));
	json_close_array(json);
}

/* Runs until kopsd or the reader of stdout goes away. */
static int follow(struct cli *cli)
{
	struct answer answer = {.list = NULL};
	int rc = CLI_OK;

	wanted.most = 0;
	while (rc == CLI_OK && (rc = cli_flush(cli)) == CLI_OK) {
		nanosleep(&(struct timespec){.tv_nsec = FOLLOW_EVERY_NS}, NULL);
		int status = list(cli, &answer.list);
		if (status < 0)
			return cli_fail_kops(cli, status, kops_error(cli->handle));
		text_jobs(&answer);
		kops_list_free(answer.list);
	}
	return rc;
}

/* ---- For Perfetto ---- */

static int write_jobs(struct cli *cli, FILE *out, const kops_list *jobs, const kops_list *sessions)
{
	const kops_traced_job **chosen = calloc(kops_list_count(jobs) + 1, sizeof(*chosen));
	size_t n = 0;

	if (!chosen)
		return cli_fail(cli, CLI_FAILED, "out of memory");
	for (size_t i = 0, end = end_of_wanted(jobs); i < end; i++)
		if (is_wanted(kops_list_job(jobs, i)))
			chosen[n++] = kops_list_job(jobs, i);
	int status = perfetto_write(out, chosen, n, sessions);
	free(chosen);
	return status < 0 ? cli_fail(cli, CLI_FAILED, "out of memory") : CLI_OK;
}

/* The caller flushes standard output. */
static int write_file(struct cli *cli, const kops_list *jobs, const kops_list *sessions)
{
	const char *path = cli->flags.perfetto;
	bool standard = strcmp(path, "-") == 0;
	FILE *out = standard ? stdout : fopen(path, "we");

	if (!out)
		return cli_fail(cli, CLI_FAILED, "cannot write %s: %s", path, strerror(errno));
	int rc = write_jobs(cli, out, jobs, sessions);
	if (standard)
		return rc;
	bool failed = ferror(out) != 0;
	if ((fclose(out) != 0 || failed) && rc == CLI_OK)
		rc = cli_fail(cli, CLI_FAILED, "cannot write %s: %s", path, strerror(errno));
	return rc;
}

static int run_perfetto(struct cli *cli)
{
	kops_list *jobs = NULL, *sessions = NULL;
	int rc = cli_open(cli);

	if (rc != CLI_OK)
		return rc;
	int status = list(cli, &jobs);
	if (status == 0)
		status = kops_list_sessions(cli->handle, &sessions);
	if (status < 0)
		rc = cli_fail_kops(cli, status, kops_error(cli->handle));
	else
		rc = write_file(cli, jobs, sessions);
	kops_list_free(sessions);
	kops_list_free(jobs);
	return rc;
}

/* ---- The verb ---- */

static int find_user(struct cli *cli, const char *name)
{
	if (!id_find(false, name, &wanted.uid))
		return cli_fail(cli, CLI_USAGE, "--user takes a user's name or number; there is no user '%s'",
		                name);
	wanted.by_user = true;
	return CLI_OK;
}

static int read_wishes(struct cli *cli)
{
	const struct flags *f = &cli->flags;

	wanted.op = f->of_op;
	wanted.longer_than_us = opt_or(f->longer_than, 0);
	wanted.has_filters = f->user || f->of_op || f->longer_than.set;
	wanted.most = f->count.set ? f->count.value : f->perfetto ? 0 : JOBS_SHOWN;
	if (f->of_op && !operation_by_name(f->of_op))
		return cli_fail(cli, CLI_USAGE, "there is no op '%s'; `kops-client ops` lists them", f->of_op);
	if (f->follow && (f->json || f->perfetto))
		return cli_fail(cli, CLI_USAGE, "--follow has no end, so it makes no JSON document");
	if (f->json && f->perfetto)
		return cli_fail(cli, CLI_USAGE, "--json and --perfetto are two documents; give one of them");
	return f->user ? find_user(cli, f->user) : CLI_OK;
}

static int run(struct cli *cli, char **argv)
{
	int rc = read_wishes(cli);

	if (rc != CLI_OK)
		return rc;
	if (cli->flags.perfetto)
		return run_perfetto(cli);
	rc = query_run(cli, argv);
	return rc == CLI_OK && cli->flags.follow ? follow(cli) : rc;
}

static const struct option_row options[] = {
    OPTION("count", 'n', "N", count, count,
           "at most so many jobs; 0: all that kopsd keeps, 1024; default 20, with --perfetto 0"),
    OPTION("user", 0, "NAME", text, user, "only jobs of this user, or uid"),
    OPTION("op", 0, "NAME", text, of_op, "only jobs whose first op is this one"),
    OPTION("longer-than", 0, "TIME", duration, longer_than,
           "only jobs that took so long from arrival to end: 500us, 20ms, 2 (seconds)"),
    OPTION("follow", 'f', NULL, switch, follow, "go on with jobs as they end"),
    OPTION("perfetto", 0, "FILE", file, perfetto,
           "write them for ui.perfetto.dev, as Chrome's trace events; -: to standard output"),
    OPTION_JSON,
    OPTION_TIMEOUT,
    OPTIONS_END};

const struct command command_trace = {
    .name = "trace",
    .summary = "show the latest jobs, and where their time went",
    .usage = "[options]",
    .help =
        "For each job that was answered, in the order in which they ended: who sent it, its first op and how\n"
        "many follow (+3), the kernel, how long it waited, copied and computed, and its result.\n"
        "You see your own jobs. kopsd's setting see-others says who sees those of others.\n"
        "--perfetto writes a track for each device and each session, with what the jobs waited for, copied "
        "and\n"
        "computed as slices; times are those of CLOCK_MONOTONIC.\n"
        "\n"
        "Examples:\n"
        "  kops-client trace\n"
        "  kops-client trace -f\n"
        "  kops-client trace -n 0 --json | jq '[.jobs[].queue_us] | max'\n",
    .options = options,
    .list = list,
    .run = run,
    .text = text,
    .json = json,
};
