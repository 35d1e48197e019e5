/* sessions: shows who is connected to kopsd, and what their jobs do. */
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

	printf("%7s %-10s %7s %-16s %8s %9s %6s %7s %8s %6s %8s %8s  %s\n", "SESSION", "USER", "PID", "CLIENT",
	       "AGE", "MEMORY", "QUEUED", "RUNNING", "DONE", "FAILED", "P50", "P99", "RUNS");
	for (size_t i = 0; (s = kops_list_session(answer->list, i)); i++) {
		struct show_text age = rows_age((double)s->age_us), p50 = rows_latency(s->usage->p50_us),
		                 p99 = rows_latency(s->usage->p99_us);
		struct show_line user = show_cut(rows_user(s->uid).text, 10), client = show_cut(s->client, 16);
		printf("%7" PRIu64 " %-*s %7" PRIu32 " %-*s %*s %9s %6" PRIu64 " %7" PRIu64 " %8" PRIu64
		       " %6" PRIu64 " %*s %*s  %s\n",
		       s->session, show_field(10, user.text), user.text, s->pid, show_field(16, client.text),
		       client.text, show_field(8, age.text), age.text,
		       show_bytes(s->mapped_bytes + s->resident_bytes).text, s->queued, s->running,
		       s->usage->jobs_done, s->usage->jobs_failed, show_field(8, p50.text), p50.text,
		       show_field(8, p99.text), p99.text, rows_running(s->oldest).text);
	}
}

static void json(struct json *json, const struct answer *answer)
{
	json_array(json, "sessions");
	for (size_t i = 0; i < kops_list_count(answer->list); i++) {
		json_object(json, NULL);
		rows_session_json(json, kops_list_session(answer->list, i));
		json_close_object(json);
	}
	json_close_array(json);
}

const struct command command_sessions = {
    .name = "sessions",
    .summary = "show who is connected to kopsd, and what their jobs do",
    .usage = "[options]",
    .help = "For each session: its process, the memory of its buffers, jobs that wait, run, are done and "
            "failed, and the latency within\n"
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
