/* program.h: main() of a program that is a list of commands: kops-client, and kops-bench beside it. */
#ifndef KOPS_CLI_PROGRAM_H
#define KOPS_CLI_PROGRAM_H

#include "cli.h"

struct program {
	const char *name;                      /* "kops-client" */
	const char *usage;                     /* what follows the name */
	const char *summary;                   /* one line */
	const char *noun;                      /* of a command: "verb" */
	const char *example;                   /* of a command: "sgemm" */
	const char *checks;                    /* what exit status 5 means */
	const struct command *const *commands; /* in the order of -h; ends with NULL */
	/* A command of another program that is looked for here, and where it is. NULL: none. */
	const char *elsewhere, *where;
};

/* Before the command. */
extern const struct option_row program_options[];

/* Of -h, and of the manual pages; %s: what exit status 5 means. */
#define PROGRAM_NOTES                                                                                          \
	"Data and JSON go to stdout, everything else to stderr. In JSON, infinity and NaN are written as\n"    \
	"null, and a failure is a document with \"ok\": false.\n"
#define PROGRAM_EXITS                                                                                          \
	"0 done, 1 failed, 2 wrong usage, 3 cannot connect to kopsd, 4 timeout, 5 %s;\n"                       \
	"as shells see it, 130 after Ctrl-C, which cancels the job and leaves no partial file.\n"

/* NULL if there is none. */
const struct command *program_command(const struct program *program, const char *name);

/* What is shown is UTF-8 whatever the locale, and numbers are written as in C. */
void program_set_characters(void);

/*
 * Why the command failed: on stderr and, with --json where nothing was printed, as a document on stdout. name:
 * as the user gave the command; NULL: it gave none.
 */
void program_report_failure(const struct cli *cli, const char *name, int code);

/* All of main(). An exit code. */
int program_main(const struct program *program, int argc, char **argv);

#endif
