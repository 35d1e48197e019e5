/* trace: the latest jobs of kopsd, and where their time went. */
#include <inttypes.h>
#include <time.h>

#include "rows.h"
#include "show.h"
#include "verb/commands.h"

#define JOBS_SHOWN      20
#define FOLLOW_EVERY_NS 200000000l

/* Of --follow: the number of the last that was shown. */
static uint64_t shown;

static int list(const struct cli *cli, kops_list **ret_list)
{
	size_t most = cli->flags.count.set ? cli->flags.count.value : JOBS_SHOWN;

	return kops_list_jobs(cli->handle, shown, shown ? 0 : most, ret_list);
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
	for (size_t i = kops_list_count(answer->list); i-- > 0;) {
		put_job(kops_list_job(answer->list, i));
		shown = kops_list_job(answer->list, i)->number;
	}
}

static void text(const struct answer *answer)
{
	printf("%-8s %-10s %7s %-5s %-*s %-12s %8s %8s %8s %8s %8s  %s\n", "ENDED", "USER", "PID", "ON",
	       ROWS_OP_COLUMNS, "OP", "KERNEL", "QUEUED", "UPLOAD", "COMPUTE", "DOWNLOAD", "TOTAL", "RESULT");
	text_jobs(answer);
}

static void json(struct json *json, const struct answer *answer)
{
	json_array(json, "jobs");
	for (size_t i = kops_list_count(answer->list); i-- > 0;) {
		const kops_traced_job *job = kops_list_job(answer->list, i);
		json_object(json, NULL);
		json_count(json, "number", job->number);
		json_count(json, "session", job->session);
		json_count(json, "uid", job->uid);
		json_text(json, "user", rows_user(job->uid).text);
		json_count(json, "pid", job->pid);
		json_bool(json, "ok", job->status == 0);
		json_text(json, "error", job->status < 0 ? kops_strerror(job->status) : NULL);
		json_count(json, "age_us", job->age_us);
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
	json_close_array(json);
}

/* Until kopsd or the reader of stdout goes away. */
static int follow(struct cli *cli)
{
	struct answer answer = {.list = NULL};
	int rc = CLI_OK;

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

static int run(struct cli *cli, char **argv)
{
	if (cli->flags.follow && cli->flags.json)
		return cli_fail(cli, CLI_USAGE, "--follow has no end, so it makes no JSON document");
	int rc = query_run(cli, argv);
	return rc == CLI_OK && cli->flags.follow ? follow(cli) : rc;
}

static const struct option_row options[] = {
    OPTION("count", 'n', "N", count, count, "at most so many jobs; 0: all that kopsd keeps, 1024; default 20"),
    OPTION("follow", 'f', NULL, switch, follow, "go on with jobs as they end"), OPTION_JSON, OPTION_TIMEOUT,
    OPTIONS_END};

const struct command command_trace = {
    .name = "trace",
    .summary = "show the latest jobs, and where their time went",
    .usage = "[options]",
    .help =
        "For each job that was answered, in the order in which they ended: who sent it, its first op and how\n"
        "many follow (+3), the kernel, how long it waited, copied and computed, and its result.\n"
        "You see your own jobs. kopsd's setting see-others says who sees those of others.\n"
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
