/* program.h: main() of a program that is a list of commands, such as kops-client and kops-bench. */
#ifndef KOPS_CLI_PROGRAM_H
#define KOPS_CLI_PROGRAM_H

#include "cli.h"

struct program {
	const char *name;                      /* "kops-client" */
	const char *usage;                     /* the part after the name */
	const char *summary;                   /* one line */
	const char *noun;                      /* what a command is called: "verb" */
	const char *example;                   /* a command, as an example: "sgemm" */
	const char *checks;                    /* meaning of exit status 5 */
	const struct command *const *commands; /* in the order of -h; ends with NULL */
	/* A command that belongs to another program, and where to find it. NULL: none. */
	const char *elsewhere, *where;
};

/* Options before the command. */
extern const struct option_row program_options[];

/* Notes of -h and the manual pages; %s: the meaning of exit status 5. */
#define PROGRAM_NOTES                                                                                          \
	"Data and JSON go to stdout, everything else to stderr. In JSON, infinity and NaN are written as\n"    \
	"null, and a failure is a document with \"ok\": false.\n"
#define PROGRAM_EXITS                                                                                          \
	"0 done, 1 failed, 2 wrong usage, 3 cannot connect to kopsd, 4 timeout, 5 %s;\n"                       \
	"as shells see it, 130 after Ctrl-C, which cancels the job and leaves no partial file.\n"

/* Returns NULL if there is no such command. */
const struct command *program_command(const struct program *program, const char *name);

/* Makes output UTF-8 in any locale. Numbers are written as in C. */
void program_set_characters(void);

/*
 * Reports why the command failed, on stderr and, with --json if nothing was printed, as a document on stdout.
 * name: the command as the user gave it; NULL: none.
 */
void program_report_failure(const struct cli *cli, const char *name, int code);

/* Does everything for main(). Returns an exit code. */
int program_main(const struct program *program, int argc, char **argv);

#endif
