/* version: prints the version of this program and, if it can be reached, of kopsd. */
#include "json.h"
#include "verb/commands.h"

static int run(struct cli *cli, char **argv)
{
	kops_info *info = NULL;
	struct json json;

	(void)argv;
	bool reached = cli_open(cli) == CLI_OK && kops_query(cli->handle, &info) == 0;
	if (cli->flags.json) {
		json_begin(&json, stdout, cli->command->name);
		json_bool(&json, "ok", true);
		json_text(&json, "client", KOPS_VERSION);
		json_text(&json, "daemon", reached ? info->daemon : NULL);
		json_end(&json);
	} else {
		printf("kops-client %s\n", KOPS_VERSION);
		if (reached)
			puts(info->daemon);
		else
			printf("kopsd: not reached: %s\n", cli->handle ? kops_error(cli->handle) : cli->why);
	}
	kops_info_free(info);
	return CLI_OK;
}

const struct command command_version = {
    .name = "version",
    .summary = "versions of kops-client and kopsd",
    .usage = "[options]",
    .help = "The exit status is 0 even if kopsd cannot be reached.\n"
            "\n"
            "Examples:\n"
            "  kops-client version\n"
            "  kops-client version --json | jq -r .daemon\n",
    .options = query_options,
    .run = run,
};
