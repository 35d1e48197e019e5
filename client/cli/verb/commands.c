#include "verb/commands.h"

#include "json.h"
#include "program.h"
#include "verb/op.h"

static const struct command *const others[] = {
    &command_run,     &command_random,   &command_devices, &command_ops,    &command_ping,
    &command_stats,   &command_sessions, &command_top,     &command_trace,  &command_load,
    &command_buffers, &command_unload,   &command_tune,    &command_version};
#define N_OTHERS (sizeof(others) / sizeof(others[0]))

const struct program *commands_program(void)
{
	static const struct command *all[2 * OPERATIONS + N_OTHERS + 1];
	static const struct program program = {
	    .name = "kops-client",
	    .usage = "[--socket PATH] VERB [options] [files]",
	    .summary = "Matrix jobs on this machine's GPUs, or its CPU, through the daemon kopsd.",
	    .noun = "verb",
	    .example = "sgemm",
	    .checks = "--check failed",
	    .commands = all,
	    .elsewhere = "bench",
	    .where = "kops-bench(1) measures",
	};
	size_t n = 0;

	if (all[0])
		return &program;
	for (size_t i = 0; i < OPERATIONS; i++) {
		const struct operation *op = operation_at(i);
		if (op->other_verb)
			all[n++] = verb_op_command(op, op->other_verb);
		all[n++] = verb_op_command(op, &op->verb);
	}
	for (size_t i = 0; i < N_OTHERS; i++)
		all[n++] = others[i];
	return &program;
}

const struct option_row query_options[] = {OPTION_JSON, OPTION_TIMEOUT, OPTIONS_END};

int query_run(struct cli *cli, char **argv)
{
	const struct command *command = cli->command;
	struct answer answer = {.list = NULL};
	struct json json;

	(void)argv;
	int rc = cli_open(cli);
	if (rc != CLI_OK)
		return rc;
	int status = kops_query(cli->handle, &answer.info);
	if (status == 0 && command->list)
		status = command->list(cli, &answer.list);
	if (status < 0) {
		rc = cli_fail_kops(cli, status, kops_error(cli->handle));
	} else if (cli->flags.json) {
		json_begin(&json, stdout, command->name);
		json_bool(&json, "ok", true);
		command->json(&json, &answer);
		json_end(&json);
		cli->printed = true;
	} else {
		command->text(&answer);
	}
	kops_list_free(answer.list);
	kops_info_free(answer.info);
	return rc;
}
