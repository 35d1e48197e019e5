/*
 * Completion for shells, from the same tables as -h: commands, their options, the words that values may be,
 * files where an option or command takes them, and what a running kopsd lists (devices, kernels).
 */
#include <stdbool.h>
#include <string.h>

#include "op/operation.h"
#include "pages.h"
#include "program.h"

#define EACH_ROW(row, rows) (const struct option_row *row = (rows); row->name || row->letter; row++)

/* Functions that print what only a running daemon knows, a word a line; the bodies suit all shells. */
#define DEVICES "kops-client devices --timeout 1s 2>/dev/null | sed -n '2,$s/^\\([a-z0-9]*\\) .*/\\1/p'"
/* Of one op, which begins the line of its first kernel. */
#define KERNELS(op)                                                                                            \
	"kops-client ops --timeout 1s 2>/dev/null | awk -v op=\"" op "\" "                                     \
	"'NR > 1 { at = /^ / ? 1 : 2; if (at == 2) now = $1; if (now == op) print $at }' | sort -u"
static const char lookups[] = "_kops_devices() { " DEVICES "; }\n_kops_kernels() { " KERNELS("$1") "; }\n\n";
static const char fish_lookups[] = "function _kops_devices; " DEVICES "; end\n"
                                   "function _kops_kernels; " KERNELS("$argv[1]") "; end\n\n";

/* The command that lists an option's values; false, and nothing: there is none. */
static bool put_lookup(FILE *out, const char *before, const struct command *command,
                       const struct option_row *row, const char *after)
{
	bool devices = row->type->values == VALUES_DEVICES;
	bool kernels = row->type->values == VALUES_KERNELS && command && command->op;

	if (devices || kernels)
		fprintf(out, "%s%s%s%s", before, devices ? "_kops_devices" : "_kops_kernels ",
		        devices ? "" : command->op, after);
	return devices || kernels;
}

static void put_words(FILE *out, const char *const *words)
{
	for (const char *between = ""; *words; words++, between = " ")
		fprintf(out, "%s%s", between, *words);
}

static void put_ops(FILE *out)
{
	for (size_t i = 0; i < OPERATIONS; i++)
		fprintf(out, "%s%s", i ? " " : "", operation_at(i)->name);
}

static void put_commands(FILE *out, const struct program *program)
{
	for (size_t i = 0; program->commands[i]; i++)
		fprintf(out, "%s ", program->commands[i]->name);
}

/* As part of the name of a shell's function. */
static void put_identifier(FILE *out, const char *name)
{
	for (; *name; name++)
		fputc(*name == '-' ? '_' : *name, out);
}

/* With a backslash before each of `special`, for text between single quotes. */
static void put_quoted(FILE *out, const char *text, const char *special)
{
	for (; *text; text++) {
		if (*text == '\'') {
			fputs("'\\''", out);
			continue;
		}
		if (strchr(special, *text))
			fputc('\\', out);
		fputc(*text, out);
	}
}

/* ---- bash ---- */

static const char bash_head[] =
    "()\n"
    "{\n"
    "\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= options= words= files= i\n"
    "\t# --name=value comes as three words.\n"
    "\t[ \"$prev\" != = ] || prev=${COMP_WORDS[COMP_CWORD-2]}\n"
    "\t[ \"$cur\" != = ] || cur=\n";

static const char bash_find_command[] = "\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
                                        "\t\tcase ${COMP_WORDS[i]} in\n"
                                        "\t\t--socket) [ \"${COMP_WORDS[i+1]}\" != = ] || ((i++)); ((i++)) ;;\n"
                                        "\t\t-*) ;;\n"
                                        "\t\t*) command=${COMP_WORDS[i]}; break ;;\n"
                                        "\t\tesac\n"
                                        "\tdone\n";

static const char bash_cases[] = "\tcase \"$command $prev\" in\n";

static const char bash_tail[] = "\tesac\n"
                                "\t[[ $cur != -* || -z $options ]] || { words=$options; files=; }\n"
                                "\tmapfile -t COMPREPLY < <(compgen ${files:+-f} -W \"$words\" -- \"$cur\")\n"
                                "}\n";

static void bash_value(FILE *out, const struct command *of, const struct option_row *row)
{
	const char *command = of ? of->name : "";

	if (row->letter)
		fprintf(out, "\t\"%s -%c\"%s", command, row->letter, row->name ? " | " : "");
	if (row->name)
		fprintf(out, "%s\"%s --%s\"", row->letter ? "" : "\t", command, row->name);
	fputs(") ", out);
	if (row->type->words) {
		fputs("words=\"", out);
		put_words(out, row->type->words);
		fputs("\"", out);
	} else if (row->type->values == VALUES_FILES) {
		fputs("files=yes", out);
	} else {
		put_lookup(out, "words=$(", of, row, ")");
	}
	fputs(" ;;\n", out);
}

static void bash_options(FILE *out, const struct option_row *rows)
{
	fputs("options=\"", out);
	for
		EACH_ROW(row, rows)
		{
			if (row->letter)
				fprintf(out, "-%c ", row->letter);
			if (row->name)
				fprintf(out, "--%s ", row->name);
		}
	fputs("\"", out);
}

static void bash_command(FILE *out, const struct command *command)
{
	fprintf(out, "\t\"%s \"*) ", command->name);
	bash_options(out, command->options);
	if (command->args == VALUES_FILES)
		fputs(" files=yes", out);
	if (command->args == VALUES_OPS) {
		fputs(" words=\"", out);
		put_ops(out);
		fputs("\"", out);
	}
	fputs(" ;;\n", out);
}

static void bash_commands(FILE *out, const struct program *program)
{
	for (size_t i = 0; program->commands[i]; i++)
		for
			EACH_ROW(row, program->commands[i]->options)
	if (row->argument)
		bash_value(out, program->commands[i], row);
	fputs("\t\" \"*) ", out);
	bash_options(out, program_options);
	fputs(" words=\"", out);
	put_commands(out, program);
	fputs("help\" ;;\n\t\"help \"*) words=\"", out);
	put_commands(out, program);
	fputs("\" ;;\n", out);
	for (size_t i = 0; program->commands[i]; i++)
		bash_command(out, program->commands[i]);
}

void complete_bash(FILE *out, const struct completed *c)
{
	fprintf(out, "# Completion for %s in bash; written by kops-manual.\n%s_", c->name,
	        c->program ? lookups : "");
	put_identifier(out, c->name);
	fputs(bash_head, out);
	fputs(c->program ? bash_find_command : "", out);
	fputs(bash_cases, out);
	for
		EACH_ROW(row, c->options)
	if (row->argument)
		bash_value(out, NULL, row);
	if (c->program) {
		bash_commands(out, c->program);
	} else {
		fputs("\t*) ", out);
		bash_options(out, c->options);
		fputs(" ;;\n", out);
	}
	fputs(bash_tail, out);
	fputs("complete -o filenames -F _", out);
	put_identifier(out, c->name);
	fprintf(out, " %s\n", c->name);
}

/* ---- zsh ---- */

/* What follows "[help]" in a specification of _arguments. */
static void zsh_value(FILE *out, const struct command *of, const struct option_row *row)
{
	if (row->argument == NULL)
		return;
	fprintf(out, ":%s:", row->argument);
	if (row->type->words) {
		fputc('(', out);
		put_words(out, row->type->words);
		fputc(')', out);
	} else if (row->type->values == VALUES_FILES) {
		fputs("_files", out);
	} else {
		put_lookup(out, "{compadd -- $(", of, row, ")}");
	}
}

static void zsh_option(FILE *out, const struct command *of, const struct option_row *row, bool with_letter)
{
	fputs(" \\\n\t\t'", out);
	if (row->letter && row->name)
		fprintf(out, "(-%c --%s)", row->letter, row->name);
	if (with_letter)
		fprintf(out, "-%c%s[", row->letter, row->argument ? "+" : "");
	else
		fprintf(out, "--%s%s[", row->name, row->argument ? "=" : "");
	put_quoted(out, row->help, "[]:\\");
	fputc(']', out);
	zsh_value(out, of, row);
	fputc('\'', out);
}

static void zsh_options(FILE *out, const struct command *of, const struct option_row *rows)
{
	for
		EACH_ROW(row, rows)
		{
			if (row->letter)
				zsh_option(out, of, row, true);
			if (row->name)
				zsh_option(out, of, row, false);
		}
}

static void zsh_command(FILE *out, const struct command *command)
{
	fprintf(out, "\t%s)\n\t\t_arguments -s", command->name);
	zsh_options(out, command, command->options);
	if (command->args == VALUES_FILES) {
		fputs(" \\\n\t\t'*:file:_files'", out);
	} else if (command->args == VALUES_OPS) {
		fputs(" \\\n\t\t'1:op:(", out);
		put_ops(out);
		fputs(")'", out);
	}
	fputs("\n\t\t;;\n", out);
}

static void zsh_commands(FILE *out, const struct program *program)
{
	fputs("local context state line\nlocal -a commands\ntypeset -A opt_args\ncommands=(\n", out);
	for (size_t i = 0; program->commands[i]; i++) {
		fprintf(out, "\t'%s:", program->commands[i]->name);
		put_quoted(out, program->commands[i]->summary, ":\\");
		fputs("'\n", out);
	}
	fputs("\t'help:show what -h prints'\n)\n_arguments -C", out);
	zsh_options(out, NULL, program_options);
	fprintf(out,
	        " \\\n\t\t'1:%s:->command' \\\n\t\t'*::argument:->argument'\n"
	        "case $state in\ncommand) _describe %s commands ;;\nargument)\n\tcase $words[1] in\n"
	        "\thelp) _describe %s commands ;;\n",
	        program->noun, program->noun, program->noun);
	for (size_t i = 0; program->commands[i]; i++)
		zsh_command(out, program->commands[i]);
	fputs("\tesac\n\t;;\nesac\n", out);
}

void complete_zsh(FILE *out, const struct completed *c)
{
	fprintf(out, "#compdef %s\n# Completion for zsh; written by kops-manual.\n%s", c->name,
	        c->program ? lookups : "");
	if (c->program) {
		zsh_commands(out, c->program);
		return;
	}
	fputs("_arguments -s", out);
	zsh_options(out, NULL, c->options);
	fputc('\n', out);
}

/* ---- fish ---- */

/* "complete -c PROGRAM -n CONDITION", the condition being that `command` was given; "" for none yet, NULL for
 * any. */
static void fish_begin(FILE *out, const char *program, const char *command)
{
	if (!command)
		fprintf(out, "complete -c %s", program);
	else if (command[0])
		fprintf(out, "complete -c %s -n '__fish_seen_subcommand_from %s'", program, command);
	else
		fprintf(out, "complete -c %s -n __fish_use_subcommand", program);
}

static void fish_option(FILE *out, const struct completed *c, const struct command *of,
                        const struct option_row *row)
{
	fish_begin(out, c->name, of ? of->name : c->program ? "" : NULL);
	if (row->letter)
		fprintf(out, " -s %c", row->letter);
	if (row->name)
		fprintf(out, " -l %s", row->name);
	if (row->argument && row->type->values == VALUES_FILES)
		fputs(" -r -F", out);
	else if (row->argument)
		fputs(" -x", out);
	if (row->argument && row->type->words) {
		fputs(" -a '", out);
		put_words(out, row->type->words);
		fputs("'", out);
	} else if (row->argument) {
		put_lookup(out, " -a '(", of, row, ")'");
	}
	fputs(" -d '", out);
	for (const char *at = row->help; *at; at++)
		fprintf(out, *at == '\'' ? "\\'" : "%c", *at);
	fputs("'\n", out);
}

static void fish_options(FILE *out, const struct completed *c, const struct command *of,
                         const struct option_row *rows)
{
	for
		EACH_ROW(row, rows)
	fish_option(out, c, of, row);
}

static void fish_command(FILE *out, const struct completed *c, const struct command *command)
{
	fish_begin(out, c->name, "");
	fprintf(out, " -a %s -d '%s'\n", command->name, command->summary);
	fish_options(out, c, command, command->options);
	if (command->args == VALUES_FILES)
		return;
	fish_begin(out, c->name, command->name);
	fputs(" -f", out);
	if (command->args == VALUES_OPS) {
		fputs(" -a '", out);
		put_ops(out);
		fputs("'", out);
	}
	fputc('\n', out);
}

void complete_fish(FILE *out, const struct completed *c)
{
	const struct program *program = c->program;

	fprintf(out, "# Completion for %s in fish; written by kops-manual.\n%s", c->name,
	        program ? fish_lookups : "");
	fish_options(out, c, NULL, c->options);
	if (!program) {
		fprintf(out, "complete -c %s -f\n", c->name);
		return;
	}
	fish_begin(out, c->name, "");
	fputs(" -f -a help -d 'show what -h prints'\n", out);
	for (size_t i = 0; program->commands[i]; i++)
		fish_command(out, c, program->commands[i]);
	fish_begin(out, c->name, "help");
	fputs(" -f -a '", out);
	put_commands(out, program);
	fputs("'\n", out);
}
