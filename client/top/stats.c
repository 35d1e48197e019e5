/* stats: shows what kopsd has done and holds. */
#include <inttypes.h>

#include "rows.h"
#include "show.h"
#include "verb/commands.h"

/* Lists the users. A kopsd too old for that still shows the rest. */
static int list(const struct cli *cli, kops_list **ret_list)
{
	int status = kops_list_users(cli->handle, ret_list);

	return status == KOPS_E_UNSUPPORTED ? 0 : status;
}

static void text(const struct answer *answer)
{
	const kops_info *info = answer->info;

	printf("%s, up %s, %" PRIu64 " session%s, %" PRIu64 " buffer%s\n", info->daemon,
	       rows_age((double)info->uptime_us).text, info->sessions, info->sessions == 1 ? "" : "s",
	       info->buffers, info->buffers == 1 ? "" : "s");
	printf("shared memory: mapped %s", show_bytes(info->mapped_bytes).text);
	printf(", pinned %s", show_bytes(info->pinned_bytes).text);
	printf(", pool %s\n\n", show_bytes(info->pool_bytes).text);
	printf("%-6s %10s %8s %7s %8s %10s %10s %12s\n", "DEVICE", "DONE", "FAILED", "QUEUED", "RUNNING",
	       "BUSY", "RESIDENT", "LAST CANARY");
	for (size_t i = 0; i < info->n_devices; i++) {
		const kops_device_info *d = kops_info_device(info, i);
		struct show_text busy = show_us(d->busy_us), canary = show_us((double)d->canary_age_us);
		printf("%-6s %10" PRIu64 " %8" PRIu64 " %7" PRIu64 " %8" PRIu64 " %*s %10s %*s ago\n", d->name,
		       d->jobs_done, d->jobs_failed, d->queued, d->running, show_field(10, busy.text),
		       busy.text, show_bytes(d->resident_bytes).text, show_field(8, canary.text), canary.text);
	}
	if (answer->list)
		rows_users(stdout, answer->list);
}

static void json_device(struct json *json, const kops_device_info *d)
{
	json_object(json, NULL);
	rows_device_json(json, d);
	json_close_object(json);
}

static void json_user(struct json *json, const kops_user_info *u)
{
	json_object(json, NULL);
	rows_user_json(json, u);
	json_close_object(json);
}

static void json(struct json *json, const struct answer *answer)
{
	const kops_info *info = answer->info;

	json_text(json, "daemon", info->daemon);
	json_count(json, "uptime_us", info->uptime_us);
	json_count(json, "sessions", info->sessions);
	json_count(json, "buffers", info->buffers);
	json_count(json, "mapped_bytes", info->mapped_bytes);
	json_count(json, "pinned_bytes", info->pinned_bytes);
	json_count(json, "pool_bytes", info->pool_bytes);
	json_array(json, "devices");
	for (size_t i = 0; i < info->n_devices; i++)
		json_device(json, kops_info_device(info, i));
	json_close_array(json);
	if (!answer->list)
		return;
	json_array(json, "users");
	for (size_t i = 0; i < kops_list_count(answer->list); i++)
		json_user(json, kops_list_user(answer->list, i));
	json_close_array(json);
}

const struct command command_stats = {
    .name = "stats",
    .summary = "show what kopsd has done and holds",
    .usage = "[options]",
    .help = "Sessions, memory, and per device: jobs done, failed, waiting and running, time spent on them,\n"
            "memory of RESIDENT buffers, and how long ago the device last passed its self-check. Per user:\n"
            "the same counts, and the latency within which half of the latest jobs ended (P50), and 99 % of\n"
            "them (P99). kopsd's setting see-others says who sees other users.\n"
            "\n"
            "Examples:\n"
            "  kops-client stats\n"
            "  kops-client stats --json | jq '.devices[0].jobs_done'\n",
    .options = query_options,
    .list = list,
    .run = query_run,
    .text = text,
    .json = json,
};
