/* ping: checks that kopsd is there and that every device computes correctly. */
#include "json.h"
#include "show.h"
#include "verb/commands.h"

static void report_json(const struct cli *cli, uint64_t n, double best_us, double sum_us)
{
	struct json json;

	json_begin(&json, stdout, cli->command->name);
	json_bool(&json, "ok", true);
	json_bool(&json, "healthy", true);
	json_count(&json, "count", n);
	json_us(&json, "connect_us", cli->connect_us);
	json_us(&json, "round_trip_min_us", best_us);
	json_us(&json, "round_trip_mean_us", sum_us / (double)n);
	json_end(&json);
}

static int run(struct cli *cli, char **argv)
{
	uint64_t n = count_or(cli->flags.count, 1);
	double best = 0, sum = 0;

	(void)argv;
	if (n == 0)
		return cli_fail(cli, CLI_USAGE, "--count 0 asks nothing");
	int rc = cli_open(cli);
	if (rc != CLI_OK)
		return rc;
	for (uint64_t i = 0; i < n; i++) {
		double start = cli_now_us();
		int status = kops_ping(cli->handle);
		double us = cli_now_us() - start;
		if (status < 0)
			return cli_fail_kops(cli, status, kops_error(cli->handle));
		best = i == 0 || us < best ? us : best;
		sum += us;
	}
	if (cli->flags.json)
		report_json(cli, n, best, sum);
	else if (n == 1)
		printf("healthy: connected in %s, round trip %s\n", show_us(cli->connect_us).text,
		       show_us(sum).text);
	else
		printf("healthy: connected in %s, %llu round trips, fastest %s, mean %s\n",
		       show_us(cli->connect_us).text, (unsigned long long)n, show_us(best).text,
		       show_us(sum / (double)n).text);
	return CLI_OK;
}

static const struct option_row options[] = {
    OPTION("count", 0, "N", count, count, "number of round trips; default 1"), OPTION_TIMEOUT, OPTION_JSON,
    OPTIONS_END};

const struct command command_ping = {
    .name = "ping",
    .summary = "ask whether kopsd is there and healthy",
    .usage = "[options]",
    .help = "Healthy means that every device passed its last self-check: a small product that it computed.\n"
            "Exit status 1 if one did not, 3 if nobody answers.\n"
            "\n"
            "Examples:\n"
            "  kops-client ping\n"
            "  kops-client ping --timeout 500ms && start-my-service\n",
    .options = options,
    .run = run,
};
