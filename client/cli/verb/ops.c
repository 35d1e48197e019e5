/* ops: lists what kopsd can compute, and with which kernels. */
#include <string.h>

#include "show.h"
#include "verb/commands.h"

static int longest(const kops_info *info, size_t member)
{
	int width = 6;

	for (size_t i = 0; i < info->n_kernels; i++) {
		const char *text;
		memcpy(&text, (const char *)kops_info_kernel(info, i) + member, sizeof(text));
		width = show_width(text) > width ? show_width(text) : width;
	}
	return width;
}

static void text(const struct answer *answer)
{
	const kops_info *info = answer->info;
	int names = longest(info, offsetof(kops_kernel_info, name));
	int dtypes = longest(info, offsetof(kops_kernel_info, dtypes));
	int takes = longest(info, offsetof(kops_kernel_info, takes));
	const char *last = "";

	printf("%-10s %-*s %-4s %-*s %-*s %s\n", "OP", names, "KERNEL", "ON", dtypes, "DTYPES", takes, "TAKES",
	       "IDEA");
	for (size_t i = 0; i < info->n_kernels; i++) {
		const kops_kernel_info *k = kops_info_kernel(info, i);
		printf("%-10s %-*s %-4s %-*s %-*s %s\n", strcmp(k->op, last) ? k->op : "", names, k->name,
		       k->device_kind, dtypes, k->dtypes, takes, k->takes, k->idea);
		last = k->op;
	}
}

static void json(struct json *json, const struct answer *answer)
{
	const kops_info *info = answer->info;

	json_array(json, "kernels");
	for (size_t i = 0; i < info->n_kernels; i++) {
		const kops_kernel_info *k = kops_info_kernel(info, i);
		json_object(json, NULL);
		json_text(json, "op", k->op);
		json_text(json, "kernel", k->name);
		json_text(json, "device_kind", k->device_kind);
		json_text(json, "dtypes", k->dtypes);
		json_text(json, "takes", k->takes);
		json_bool(json, "tensor_cores", k->tensor_cores);
		json_text(json, "idea", k->idea);
		json_close_object(json);
	}
	json_close_array(json);
}

const struct command command_ops = {
    .name = "ops",
    .summary = "list ops and the kernels that compute them",
    .usage = "[options]",
    .help = "--kernel of other verbs takes these names. Without it kopsd chooses the fastest kernel that is\n"
            "accurate enough, by estimates and by what earlier jobs showed.\n"
            "\n"
            "Examples:\n"
            "  kops-client ops\n"
            "  kops-client ops --json | jq -r '.kernels[] | select(.op == \"gemm\").kernel'\n",
    .options = query_options,
    .run = query_run,
    .text = text,
    .json = json,
};
