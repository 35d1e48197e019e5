/* devices: shows what kopsd computes on. */
#include "rows.h"
#include "verb/commands.h"

static void text(const struct answer *answer)
{
	const kops_info *info = answer->info;

	printf("%-6s %10s %14s %5s  %s\n", "NAME", "MEMORY", "USED", "WORKS", "DESCRIPTION");
	for (size_t i = 0; i < info->n_devices; i++) {
		const kops_device_info *d = kops_info_device(info, i);
		printf("%-6s %10s %14s %5s  %s\n", d->name, show_bytes(d->memory_bytes).text,
		       rows_memory(d).text, rows_utilization(d).text, d->description);
		if (d->disabled_kernels && d->disabled_kernels[0])
			printf("%39s  failed their self-test and are not used: %s\n", "", d->disabled_kernels);
	}
	if (info->n_devices == 0)
		puts("(none)");
}

static void json(struct json *json, const struct answer *answer)
{
	const kops_info *info = answer->info;

	json_text(json, "daemon", info->daemon);
	json_array(json, "devices");
	for (size_t i = 0; i < info->n_devices; i++) {
		const kops_device_info *d = kops_info_device(info, i);
		json_object(json, NULL);
		json_text(json, "name", d->name);
		json_text(json, "description", d->description);
		json_count(json, "memory_bytes", d->memory_bytes);
		json_count(json, "cache_bytes", d->cache_bytes);
		json_text(json, "disabled_kernels", d->disabled_kernels);
		rows_memory_json(json, d);
		json_close_object(json);
	}
	json_close_array(json);
}

const struct command command_devices = {
    .name = "devices",
    .summary = "list the devices that kopsd computes on",
    .usage = "[options]",
    .help =
        "MEMORY is what kopsd may use. USED is by all programs: of what there is on a GPU, of the CPU's what\n"
        "kopsd may not take. WORKS: the share of the last second.\n"
        "RESIDENT buffers go to the first device unless told otherwise. --device takes these names.\n"
        "\n"
        "Examples:\n"
        "  kops-client devices\n"
        "  kops-client devices --json | jq -r '.devices[].name'\n",
    .options = query_options,
    .run = query_run,
    .text = text,
    .json = json,
};
