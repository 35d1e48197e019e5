/* The pages of a program that is a list of commands: one for itself, one for each command. */
#include <ctype.h>
#include <string.h>

#include "pages.h"
#include "program.h"
#include "scdoc.h"

#define EXAMPLES "\nExamples:\n"

static void options(FILE *out, const struct option_row *row)
{
	for (; row->name || row->letter; row++) {
		char term[96];
		int n = 0;

		if (row->letter)
			n = snprintf(term, sizeof(term), "-%c%s", row->letter, row->name ? ", " : "");
		if (row->name)
			n += snprintf(term + n, sizeof(term) - (size_t)n, "--%s", row->name);
		if (row->argument)
			snprintf(term + n, sizeof(term) - (size_t)n, " %s", row->argument);
		scdoc_term(out, term, row->help);
	}
}

static void name_line(FILE *out, const char *name, const char *summary)
{
	scdoc_inline(out, name);
	fprintf(out, " - %c", tolower(summary[0]));
	scdoc_inline(out, summary + 1);
	fputc('\n', out);
}

static void synopsis(FILE *out, const char *program, const char *command, const char *usage)
{
	scdoc_heading(out, "Synopsis");
	fprintf(out, "*%s%s%s* ", program, command[0] ? " " : "", command);
	scdoc_inline(out, usage);
	fputc('\n', out);
}

static void ending(FILE *out, const struct program *program, const char *see_also)
{
	char exits[512];

	scdoc_heading(out, "Exit status");
	snprintf(exits, sizeof(exits), PROGRAM_EXITS, program->checks);
	scdoc_text(out, exits, strlen(exits));
	scdoc_heading(out, "See also");
	fprintf(out, "%s, *kopsd*(8), *kops*(7)\n", see_also);
}

static void program_page(const char *folder, const struct program *program)
{
	char name[64];

	snprintf(name, sizeof(name), "%s.1.scd", program->name);
	FILE *out = pages_open(folder, name);
	scdoc_begin(out, program->name, 1);
	/* The name's line has no full stop. */
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(program->summary, ",."), program->summary);
	name_line(out, program->name, name);
	synopsis(out, program->name, "", program->usage);
	fprintf(out, "\n*%s* *help* [", program->name);
	for (const char *p = program->noun; *p; p++)
		fputc(toupper((unsigned char)*p), out);
	fputs("]\n", out);
	scdoc_heading(out, "Description");
	scdoc_text(out, program->summary, strlen(program->summary));
	fputc('\n', out);
	scdoc_text(out, PROGRAM_NOTES, strlen(PROGRAM_NOTES));
	fprintf(out, "\nEach %s has a page of its own, *%s-%s*(1) for example.\n", program->noun, program->name,
	        program->example);
	snprintf(name, sizeof(name), "%ss", program->noun);
	scdoc_heading(out, name);
	for (size_t i = 0; program->commands[i]; i++)
		scdoc_term(out, program->commands[i]->name, program->commands[i]->summary);
	scdoc_heading(out, "Options");
	options(out, program_options);
	ending(out, program,
	       strcmp(program->name, "kops-client") == 0 ? "*kops-bench*(1)" : "*kops-client*(1)");
	pages_close(out);
}

static void command_page(const char *folder, const struct program *program, const struct command *command)
{
	const char *examples = strstr(command->help, EXAMPLES);
	size_t length = examples ? (size_t)(examples - command->help) : strlen(command->help);
	char title[64], name[80], see_also[80];

	snprintf(title, sizeof(title), "%s-%s", program->name, command->name);
	snprintf(name, sizeof(name), "%s.1.scd", title);
	FILE *out = pages_open(folder, name);
	scdoc_begin(out, title, 1);
	name_line(out, title, command->summary);
	synopsis(out, program->name, command->name, command->usage);
	scdoc_heading(out, "Description");
	scdoc_text(out, command->help, length);
	scdoc_heading(out, "Options");
	options(out, command->options);
	if (examples) {
		examples += strlen(EXAMPLES);
		scdoc_heading(out, "Examples");
		scdoc_literal(out, examples, strlen(examples));
	}
	snprintf(see_also, sizeof(see_also), "*%s*(1)", program->name);
	ending(out, program, see_also);
	pages_close(out);
}

void pages_of_program(const char *folder, const struct program *program)
{
	program_page(folder, program);
	for (size_t i = 0; program->commands[i]; i++)
		command_page(folder, program, program->commands[i]);
}
