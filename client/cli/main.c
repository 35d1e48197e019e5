/* kops-client: matrix jobs from files and scripts, through kopsd. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "json.h"
#include "sink.h"

static void print_help(void)
{
	puts("Usage: kops-client [--socket PATH] VERB [options] [files]\n"
	     "Matrix jobs on this machine's GPUs, or its CPU, through the daemon kopsd.\n\nVerbs:");
	for (size_t i = 0; command_rows[i] != NULL; i++)
		printf("  %-10s %s\n", command_rows[i]->name, command_rows[i]->summary);
	puts("\n`kops-client VERB -h` tells the rest, with examples.\n"
	     "\n"
	     "  --socket PATH   kopsd's socket; default $KOPS_SOCKET, else /run/kopsd/kopsd.sock\n"
	     "\n"
	     "Data and JSON go to stdout, everything else to stderr. In JSON, numbers that are infinite or no\n"
	     "numbers are null, and a failure is a document with \"ok\": false.\n"
	     "Exit status: 0 done, 1 failed, 2 wrong usage, 3 cannot connect to kopsd, 4 timeout, 5 --check "
	     "failed.");
}

/* Options before the verb. True with argv[optind] the verb; else *ret_exit is what to exit with. */
static bool find_verb(int argc, char **argv, struct flags *flags, int *ret_exit)
{
	static const struct option longs[] = {{"socket", required_argument, NULL, 's'},
	                                      {"help", no_argument, NULL, 'h'},
	                                      {"version", no_argument, NULL, 'V'},
	                                      {0}};
	int value;

	while ((value = getopt_long(argc, argv, "+h", longs, NULL)) != -1) {
		switch (value) {
		case 's':
			flags->socket = optarg;
			break;
		case 'h':
			print_help();
			*ret_exit = CLI_OK;
			return false;
		case 'V':
			puts("kops-client " KOPS_VERSION);
			*ret_exit = CLI_OK;
			return false;
		default: /* getopt has said what is wrong */
			fputs("see `kops-client -h`\n", stderr);
			*ret_exit = CLI_USAGE;
			return false;
		}
	}
	if (optind < argc)
		return true;
	fputs("kops-client: no verb given, such as sgemm; `kops-client -h` lists them\n", stderr);
	*ret_exit = CLI_USAGE;
	return false;
}

static void report_failure(struct cli *cli, int code)
{
	struct json json;

	if (cli->silent)
		return;
	fprintf(stderr, "kops-client %s: %s\n", cli->command->name, cli->why);
	if (!cli->flags.json || cli->printed)
		return;
	json_begin(&json, stdout, cli->command->name);
	json_bool(&json, "ok", false);
	json_count(&json, "exit_status", (uint64_t)code);
	json_text(&json, "error", cli->why);
	json_end(&json);
}

static int run_command(struct cli *cli, int argc, char **argv)
{
	const struct command *command = cli->command;
	char **args;
	int n_args;

	if (options_parse(command, argc, argv, &cli->flags, &n_args, &args, cli->why) < 0)
		return CLI_USAGE;
	if (cli->flags.help) {
		command_help(command);
		return CLI_OK;
	}
	if (n_args < command->min_args || n_args > command->max_args)
		return cli_fail(cli, CLI_USAGE, "takes %s, got %d; see `kops-client %s -h`", command->args_are,
		                n_args, command->name);
	return command->run(cli, n_args, args);
}

int main(int argc, char **argv)
{
	struct cli cli = {0};
	int code;

	signal(SIGPIPE, SIG_IGN);
	sink_catch_signals();
	if (!find_verb(argc, argv, &cli.flags, &code))
		return code;
	cli.command = command_by_name(argv[optind]);
	if (cli.command == NULL) {
		fprintf(stderr, "kops-client: there is no verb '%s'; `kops-client -h` lists those there are\n",
		        argv[optind]);
		return CLI_USAGE;
	}
	code = run_command(&cli, argc - optind, argv + optind);
	if (code != CLI_OK)
		report_failure(&cli, code);
	kops_close(cli.handle);
	if (fflush(stdout) != 0 && code == CLI_OK) {
		if (errno != EPIPE)
			fprintf(stderr, "kops-client: cannot write to standard output: %s\n", strerror(errno));
		code = CLI_FAILED;
	}
	return code;
}
