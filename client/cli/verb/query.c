#include "json.h"
#include "verb/commands.h"

const struct option_row query_options[] = {OPTION_JSON, OPTION_TIMEOUT, OPTIONS_END};

int query_run(struct cli *cli, int argc, char **argv)
{
	struct json json;
	kops_info *info;

	(void)argc;
	(void)argv;
	int rc = cli_open(cli);
	if (rc != CLI_OK)
		return rc;
	int status = kops_query(cli->handle, &info);
	if (status < 0)
		return cli_fail_kops(cli, status, kops_error(cli->handle));
	if (cli->flags.json) {
		json_begin(&json, stdout, cli->command->name);
		json_bool(&json, "ok", true);
		cli->command->json(&json, info);
		json_end(&json);
		cli->printed = true;
	} else {
		cli->command->text(info);
	}
	kops_info_free(info);
	return cli_flush(cli);
}
