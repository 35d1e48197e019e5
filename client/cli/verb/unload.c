/* unload: withdraws names of published buffers. */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "ids.h"
#include "json.h"
#include "verb/commands.h"

/* NAME itself, or NAME/… */
static bool is_meant(const char *name, const char *given)
{
	size_t n = strlen(given);

	return strncmp(name, given, n) == 0 && (name[n] == '\0' || name[n] == '/');
}

static int find_user(struct cli *cli, uint32_t *ret)
{
	const char *user = cli->flags.user;

	*ret = geteuid();
	if (user && !id_find(false, user, ret))
		return cli_fail(cli, CLI_USAGE, "there is no user \"%.100s\"", user);
	return CLI_OK;
}

/* A name that is gone by now was withdrawn by somebody else. */
static int withdraw(struct cli *cli, const kops_list *list, uint32_t uid, const char *given, uint64_t *ret_n)
{
	const kops_buffer_info *b;

	*ret_n = 0;
	for (size_t i = 0; (b = kops_list_buffer(list, i)); i++) {
		if (b->uid != uid || !is_meant(b->name, given))
			continue;
		int status = kops_unpublish(cli->handle, uid, b->name);
		if (status < 0 && status != KOPS_E_NOT_FOUND)
			return cli_fail_kops(cli, status, kops_error(cli->handle));
		*ret_n += status == 0;
	}
	if (*ret_n == 0)
		return cli_fail(cli, CLI_FAILED,
		                "uid %" PRIu32
		                " has published nothing as %.255s that you may unload; `kops-client "
		                "buffers` shows what there is",
		                uid, given);
	return CLI_OK;
}

static void report(const struct cli *cli, const char *name, uint64_t n)
{
	struct json json;

	if (!cli->flags.json) {
		printf("%s: %" PRIu64 " name%s withdrawn\n", name, n, n == 1 ? "" : "s");
		return;
	}
	json_begin(&json, stdout, cli->command->name);
	json_bool(&json, "ok", true);
	json_text(&json, "name", name);
	json_count(&json, "buffers", n);
	json_end(&json);
}

static int run(struct cli *cli, char **argv)
{
	kops_list *list = NULL;
	uint32_t uid;
	uint64_t n;
	int rc = find_user(cli, &uid);

	if (rc == CLI_OK)
		rc = cli_open(cli);
	if (rc != CLI_OK)
		return rc;
	int status = kops_list_buffers(cli->handle, &list);
	if (status < 0)
		return cli_fail_kops(cli, status, kops_error(cli->handle));
	rc = withdraw(cli, list, uid, argv[0], &n);
	kops_list_free(list);
	if (rc == CLI_OK)
		report(cli, argv[0], n);
	return rc;
}

static const struct option_row options[] = {OPTION("user", 0, "USER", text, user, "of this user; for root"),
                                            OPTION_TIMEOUT, OPTION_JSON, OPTIONS_END};

const struct command command_unload = {
    .name = "unload",
    .summary = "withdraw names of published buffers",
    .usage = "[options] NAME",
    .help = "Withdraws NAME and all names that begin with NAME/. Who has a buffer attached keeps it; its "
            "memory is\n"
            "freed when nobody has it any more. A `kops-client load` that holds them stays: end that instead.\n"
            "\n"
            "Examples:\n"
            "  kops-client unload llama\n"
            "  kops-client unload llama --user alice\n",
    .min_args = 1,
    .max_args = 1,
    .args_are = "one name",
    .options = options,
    .run = run,
};
