#include "program.h"

#include <ctype.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "files/sink.h"
#include "json.h"
#include "nearest.h"

#define HELP "help" /* a command of every program */

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

/* Options before the command. True with argv[*ret_at] the command; else *ret_exit is what to exit with. */
static bool find_command(const struct program *program, int argc, char **argv, struct cli *cli, int *ret_at,
                         int *ret_exit)
{
	int at = 1, n;

	while (at < argc && argv[at][0] == '-')
		at += strcmp(argv[at], "--socket") == 0 && at + 1 < argc ? 2 : 1;
	*ret_at = at;
	*ret_exit = CLI_OK;
	if (options_parse(program_options, at, argv, &cli->flags, &n, &(char **){NULL}, cli->why) < 0) {
		fprintf(stderr, "%s: %s\n", program->name, cli->why);
		*ret_exit = CLI_USAGE;
	} else if (cli->flags.help) {
		print_help(program);
	} else if (cli->flags.version) {
		printf("%s " KOPS_VERSION "\n", program->name);
	} else if (at < argc) {
		return true;
	} else {
		fprintf(stderr, "%s: no %s given, such as %s; `%s -h` lists them\n", program->name,
		        program->noun, program->example, program->name);
		*ret_exit = CLI_USAGE;
	}
	return false;
}

static void refuse_command(const struct program *program, const char *name)
{
	struct nearest nearest = nearest_to(name, strlen(name));
	bool is_elsewhere = program->elsewhere && strcmp(name, program->elsewhere) == 0;
	char hint[96], help[96];

	for (size_t i = 0; program->commands[i] != NULL; i++)
		nearest_offer(&nearest, program->commands[i]->name);
	nearest_offer(&nearest, HELP);
	snprintf(help, sizeof(help), "`%s -h` lists those there are", program->name);
	fprintf(stderr, "%s: there is no %s '%s'; %s\n", program->name, program->noun, name,
	        is_elsewhere ? program->where : nearest_hint(&nearest, "", help, hint));
}

/* `help help` and `help -h` are `help`. */
static bool is_help(const char *name)
{
	return strcmp(name, HELP) == 0 || strcmp(name, "-h") == 0 || strcmp(name, "--help") == 0;
}

/* "help", or "help VERB": what -h prints. */
static int run_help(const struct program *program, const char *name)
{
	const struct command *command = name ? program_command(program, name) : NULL;

	if (command) {
		print_command_help(program, command);
	} else if (name && !is_help(name)) {
		refuse_command(program, name);
		return CLI_USAGE;
	} else {
		print_help(program);
	}
	return CLI_OK;
}

static void report_failure(struct cli *cli, int code)
{
	const struct command *command = cli->command;
	struct json json;

	if (cli->silent)
		return;
	fprintf(stderr, "%s %s: %s\n", cli->program, command->name, cli->why);
	if (!cli->flags.json || cli->printed)
		return;
	json_begin(&json, stdout, command->json_verb ? command->json_verb : command->name);
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
		return cli_fail(cli, CLI_USAGE, "takes %s, got %d; see -h",
		                command->args_are ? command->args_are : "no files", n_args);
	return command->run(cli, args);
}

void program_set_characters(void)
{
	setlocale(LC_CTYPE, "C.UTF-8");
}

int program_main(const struct program *program, int argc, char **argv)
{
	struct cli cli = {.program = program->name};
	int code, at;

	program_set_characters();
	signal(SIGPIPE, SIG_IGN);
	sink_catch_signals();
	if (!find_command(program, argc, argv, &cli, &at, &code))
		return code;
	if (strcmp(argv[at], HELP) == 0)
		return run_help(program, argv[at + 1]);
	cli.command = program_command(program, argv[at]);
	if (cli.command == NULL) {
		refuse_command(program, argv[at]);
		return CLI_USAGE;
	}
	code = run_command(program, &cli, argc - at, argv + at);
	if (code == CLI_OK)
		code = cli_flush(&cli);
	if (code != CLI_OK)
		report_failure(&cli, code);
	kops_close(cli.handle);
	return code;
}
