#include "program.h"

#include <ctype.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "files/sink.h"
#include "json.h"
#include "nearest.h"
#include "progress.h"
#include "standard_fds.h"

#define HELP "help" /* every program has this command */

const struct command *program_command(const struct program *program, const char *name)
{
	for (size_t i = 0; program->commands[i] != NULL; i++)
		if (strcmp(program->commands[i]->name, name) == 0)
			return program->commands[i];
	return NULL;
}

/* ---- help ---- */

const struct option_row program_options[] = {OPTION("version", 'V', NULL, switch, version, "print the version"),
                                             OPTIONS_END};

static void print_help(const struct program *program)
{
	printf("Usage: %s %s\n%s\n\n%c%ss:\n", program->name, program->usage, program->summary,
	       toupper(program->noun[0]), program->noun + 1);
	for (size_t i = 0; program->commands[i] != NULL; i++)
		printf("  %-10s %s\n", program->commands[i]->name, program->commands[i]->summary);
	printf("\n`%s help %s` has the details, with examples.\n\nOptions:\n", program->name, program->example);
	options_help(program_options);
	printf("\n%sExit status: " PROGRAM_EXITS, PROGRAM_NOTES, program->checks);
}

static void print_command_help(const struct program *program, const struct command *command)
{
	printf("Usage: %s %s %s\n%c%s.\n\n%s\nOptions:\n", program->name, command->name, command->usage,
	       toupper(command->summary[0]), command->summary + 1, command->help);
	options_help(command->options);
	printf("\nExit status: " PROGRAM_EXITS, program->checks);
}

/* ---- the command ---- */

/*
 * Parses the options before the command. Returns true with the command in argv[*ret_at]. Otherwise *ret_exit is
 * the exit code, with a sentence in why if it is not 0.
 */
static bool find_command(const struct program *program, int argc, char **argv, struct cli *cli, int *ret_at,
                         int *ret_exit)
{
	int at = 1, n;

	while (at < argc && argv[at][0] == '-')
		at += strcmp(argv[at], "--socket") == 0 && at + 1 < argc ? 2 : 1;
	*ret_at = at;
	*ret_exit = CLI_OK;
	if (options_parse(program_options, at, argv, &cli->flags, &n, &(char **){NULL}, cli->why) < 0) {
		*ret_exit = CLI_USAGE;
	} else if (cli->flags.help) {
		print_help(program);
	} else if (cli->flags.version) {
		printf("%s " KOPS_VERSION "\n", program->name);
	} else if (at < argc) {
		return true;
	} else {
		why_invalid(cli->why, "no %s given, such as %s; `%s -h` lists them", program->noun,
		            program->example, program->name);
		*ret_exit = CLI_USAGE;
	}
	return false;
}

/* Writes a sentence into why, and returns an exit code. */
static int refuse_command(const struct program *program, const char *name, char *why)
{
	struct nearest nearest = nearest_to(name, strlen(name));
	bool is_elsewhere = program->elsewhere && strcmp(name, program->elsewhere) == 0;
	char hint[96], help[96];

	for (size_t i = 0; program->commands[i] != NULL; i++)
		nearest_offer(&nearest, program->commands[i]->name);
	nearest_offer(&nearest, HELP);
	snprintf(help, sizeof(help), "`%s -h` lists them", program->name);
	why_invalid(why, "there is no %s '%s'; %s", program->noun, name,
	            is_elsewhere ? program->where : nearest_hint(&nearest, "", help, hint));
	return CLI_USAGE;
}

/* Returns true for the names of the help itself, so `help help` and `help -h` are `help`. */
static bool is_help(const char *name)
{
	return strcmp(name, HELP) == 0 || strcmp(name, "-h") == 0 || strcmp(name, "--help") == 0;
}

/*
 * Does "help" or "help VERB": prints what -h does. Returns an exit code, with a sentence in why if it is not
 * CLI_OK.
 */
static int run_help(const struct program *program, const char *name, char *why)
{
	const struct command *command = name ? program_command(program, name) : NULL;

	if (command) {
		print_command_help(program, command);
	} else if (name && !is_help(name)) {
		return refuse_command(program, name, why);
	} else {
		print_help(program);
	}
	return CLI_OK;
}

/* Returns true if --json is given, even among options that could not be parsed. */
static bool asks_for_json(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (strcmp(argv[i], "--json") == 0)
			return true;
	return false;
}

void program_report_failure(const struct cli *cli, const char *name, int code)
{
	const struct command *command = cli->command;
	struct json json;

	if (cli->silent)
		return;
	fprintf(stderr, "%s%s%s: %s\n", cli->program, command ? " " : "", command ? command->name : "",
	        cli->why);
	if (!cli->flags.json || cli->printed)
		return;
	json_begin(&json, stdout, command && command->json_verb ? command->json_verb : name);
	json_bool(&json, "ok", false);
	json_count(&json, "exit_status", (uint64_t)code);
	json_text(&json, "error", cli->why);
	json_end(&json);
}

static int run_command(const struct program *program, struct cli *cli, int argc, char **argv)
{
	const struct command *command = cli->command;
	char **args;
	int n_args;

	if (options_parse(command->options, argc, argv, &cli->flags, &n_args, &args, cli->why) < 0)
		return CLI_USAGE;
	if (cli->flags.help) {
		print_command_help(program, command);
		return CLI_OK;
	}
	if (n_args < command->min_args || n_args > command->max_args)
		return cli_fail(cli, CLI_USAGE, "expected %s, got %d; see -h",
		                command->args_are ? command->args_are : "no files", n_args);
	return command->run(cli, args);
}

void program_set_characters(void)
{
	if (!setlocale(LC_CTYPE, "C.UTF-8"))
		setlocale(LC_CTYPE, "");
}

/* Returns the command's exit code, or that of the failure before it. */
static int find_and_run(const struct program *program, struct cli *cli, int argc, char **argv,
                        const char **ret_name)
{
	int code, at;

	if (!find_command(program, argc, argv, cli, &at, &code))
		return code;
	*ret_name = argv[at];
	if (strcmp(argv[at], HELP) == 0)
		return run_help(program, argv[at + 1], cli->why);
	cli->command = program_command(program, argv[at]);
	return cli->command ? run_command(program, cli, argc - at, argv + at)
	                    : refuse_command(program, argv[at], cli->why);
}

int program_main(const struct program *program, int argc, char **argv)
{
	struct cli cli = {.program = program->name};
	const char *name = "";

	standard_fds_open();
	program_set_characters();
	signal(SIGPIPE, SIG_IGN);
	sink_catch_signals(progress_erase);
	int code = find_and_run(program, &cli, argc, argv, &name);
	if (code == CLI_OK)
		code = cli_flush(&cli);
	cli.flags.json |= code == CLI_USAGE && asks_for_json(argc, argv);
	if (code != CLI_OK)
		program_report_failure(&cli, name, code);
	kops_close(cli.handle);
	return code;
}
