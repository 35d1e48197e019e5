/* sessions: who is connected to kopsd, and what their jobs do. */
#include <inttypes.h>

#include "rows.h"
#include "show.h"
#include "verb/commands.h"

static int list(const struct cli *cli, kops_list **ret_list)
{
	return kops_list_sessions(cli->handle, ret_list);
}

static void text(const struct answer *answer)
{
	const kops_session_info *s;

	printf("%7s %-10s %7s %-16s %8s %6s %7s %8s %6s %8s %8s  %s\n", "SESSION", "USER", "PID", "CLIENT",
	       "AGE", "QUEUED", "RUNNING", "DONE", "FAILED", "P50", "P99", "RUNS");
	for (size_t i = 0; (s = kops_list_session(answer->list, i)); i++) {
		struct show_text age = rows_age((double)s->age_us), p50 = rows_latency(s->usage->p50_us),
		                 p99 = rows_latency(s->usage->p99_us);
		struct show_line user = show_cut(rows_user(s->uid).text, 10), client = show_cut(s->client, 16);
		printf("%7" PRIu64 " %-*s %7" PRIu32 " %-*s %*s %6" PRIu64 " %7" PRIu64 " %8" PRIu64
		       " %6" PRIu64 " %*s %*s  %s\n",
		       s->session, show_field(10, user.text), user.text, s->pid, show_field(16, client.text),
		       client.text, show_field(8, age.text), age.text, s->queued, s->running,
		       s->usage->jobs_done, s->usage->jobs_failed, show_field(8, p50.text), p50.text,
		       show_field(8, p99.text), p99.text, rows_running(s->oldest).text);
	}
}

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

static void json(struct json *json, const struct answer *answer)
{
	const kops_session_info *s;

	json_array(json, "sessions");
	for (size_t i = 0; (s = kops_list_session(answer->list, i)); i++) {
		json_object(json, NULL);
		json_count(json, "session", s->session);
		json_count(json, "uid", s->uid);
		json_text(json, "user", rows_user(s->uid).text);
		json_count(json, "pid", s->pid);
		json_text(json, "client", s->client);
		json_count(json, "age_us", s->age_us);
		json_count(json, "buffers", s->buffers);
		json_count(json, "prepared", s->prepared);
		json_count(json, "queued", s->queued);
		json_count(json, "running", s->running);
		if (s->oldest)
			json_running(json, s->oldest);
		rows_usage_json(json, s->usage);
		json_close_object(json);
	}
	json_close_array(json);
}

const struct command command_sessions = {
    .name = "sessions",
    .summary = "show who is connected to kopsd, and what their jobs do",
    .usage = "[options]",
    .help = "For each session: its process, jobs that wait, run, are done and failed, and the latency within\n"
            "which half of its latest jobs ended (P50), and 99 % of them (P99). For the job that has run the\n"
            "longest: its progress, and the estimate of its time.\n"
            "You see your own sessions. kopsd's setting see-others says who sees those of others.\n"
            "\n"
            "Examples:\n"
            "  kops-client sessions\n"
            "  kops-client sessions --json | jq '.sessions[] | select(.queued > 0).pid'\n",
    .options = query_options,
    .list = list,
    .run = query_run,
    .text = text,
    .json = json,
};
