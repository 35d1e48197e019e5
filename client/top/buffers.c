/* buffers: shows published buffers. */
#include <inttypes.h>

#include "rows.h"
#include "show.h"
#include "verb/commands.h"

static int list(const struct cli *cli, kops_list **ret_list)
{
	return kops_list_buffers(cli->handle, ret_list);
}

static struct show_text access_of(const kops_buffer_info *b)
{
	struct show_text t;

	if (b->access == KOPS_GROUP)
		snprintf(t.text, sizeof(t.text), "group %" PRIu32, b->group);
	else
		snprintf(t.text, sizeof(t.text), "%s", b->access == KOPS_EVERYBODY ? "everybody" : "user");
	return t;
}

static void text(const struct answer *answer)
{
	const kops_buffer_info *b;

	printf("%-10s %-8s %9s %8s %-12s %8s  %-4s %-20s %s\n", "USER", "MEMORY", "BYTES", "ATTACHED", "FOR",
	       "AGE", "KEEP", "SHAPE", "NAME");
	for (size_t i = 0; (b = kops_list_buffer(answer->list, i)); i++) {
		struct show_text age = rows_age((double)b->age_us);
		struct show_line user = show_cut(rows_user(b->uid).text, 10),
		                 shape = show_op(b->shape.rank ? "" : "-", &b->shape);
		const char *what = shape.text[0] == ' ' ? shape.text + 1 : shape.text;
		printf("%-*s %-8s %9s %8" PRIu64 " %-12s %*s  %-4s %-*s %s\n", show_field(10, user.text),
		       user.text, b->device[0] ? b->device : "shared", show_bytes(b->bytes).text, b->attached,
		       access_of(b).text, show_field(8, age.text), age.text, b->keep ? "yes" : "no",
		       show_field(20, what), what, show_cut(b->name, 64).text);
	}
}

static void json(struct json *json, const struct answer *answer)
{
	const kops_buffer_info *b;

	json_array(json, "buffers");
	for (size_t i = 0; (b = kops_list_buffer(answer->list, i)); i++) {
		json_object(json, NULL);
		json_count(json, "number", b->number);
		json_count(json, "uid", b->uid);
		json_text(json, "name", b->name);
		json_count(json, "bytes", b->bytes);
		json_text(json, "device", b->device[0] ? b->device : NULL);
		show_op_shape_json(json, &b->shape);
		json_text(json, "access", access_of(b).text);
		json_bool(json, "keep", b->keep);
		json_count(json, "age_us", b->age_us);
		json_count(json, "attached", b->attached);
		json_count(json, "pid", b->pid);
		json_close_object(json);
	}
	json_close_array(json);
}

const struct command command_buffers = {
    .name = "buffers",
    .summary = "show published buffers that you may attach",
    .usage = "[options]",
    .help = "For each buffer: its user, memory and size, how often it is attached, for whom it is, for how "
            "long it\n"
            "has been published, and whether its name outlives its publisher (KEEP).\n"
            "How often others' buffers are attached is not told. Root sees all.\n"
            "\n"
            "Examples:\n"
            "  kops-client buffers\n"
            "  kops-client buffers --json | jq '.buffers[] | select(.attached == 0).name'\n",
    .options = query_options,
    .list = list,
    .run = query_run,
    .text = text,
    .json = json,
};
