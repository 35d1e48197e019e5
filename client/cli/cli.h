/*
 * cli.h: what every command of kops-client and kops-bench shares: exit codes, errors, the connection.
 *
 * A command is one file that exports one struct command. program_main() finds it, parses its options into
 * cli->flags and calls run() with the remaining arguments. run() returns an exit code. If that is not 0, run()
 * has set the reason by cli_fail(), and program_main() prints it.
 */
#ifndef KOPS_CLI_H
#define KOPS_CLI_H

#include <stddef.h>

#include "kops.h"
#include "options.h"

enum cli_exit {
	CLI_OK = 0,
	CLI_FAILED = 1,
	CLI_USAGE = 2,
	CLI_NO_DAEMON = 3,
	CLI_TIMED_OUT = 4,
	CLI_CHECK_FAILED = 5,
};

struct cli;
struct json;

/* For commands that ask kopsd and print. */
struct answer {
	kops_info *info;
	kops_list *list; /* NULL: the command asks for none, or kopsd is too old for lists */
};

struct command {
	const char *name;
	const char *summary; /* one line for -h of the program */
	const char *usage;   /* the part after the name: "[options] A B" */
	const char *help;    /* below the options: rules, then examples */
	int min_args, max_args;
	const char *args_are;    /* for errors: "two files, A and B"; NULL: no files */
	enum option_values args; /* what the arguments, or the first of them, are */
	const char *op;          /* the op whose kernels --kernel may name; NULL: there is no such option */
	const struct option_row *options; /* ends with a row without name */
	const char *json_verb;            /* "verb" in its JSON; NULL: the name */
	int (*run)(struct cli *cli, char **argv);
	/*
	 * For query_run(). list() asks for a list; NULL: none. text() prints, json() writes the members of the
	 * document.
	 */
	int (*list)(const struct cli *cli, kops_list **ret_list);
	void (*text)(const struct answer *answer);
	void (*json)(struct json *json, const struct answer *answer);
};

struct cli {
	const char *program; /* "kops-client" */
	const struct command *command;
	struct flags flags;
	kops *handle; /* opened by cli_open() */
	double connect_us;
	uint32_t patience_ms; /* how long kopsd may not answer, without --timeout; 0: 30 s */
	bool printed;         /* stdout already has a JSON document */
	bool silent;          /* fail without a sentence: the reader of stdout went away */
	char why[CLI_WHY_BYTES];
};

/* Sets cli->why and returns code: `return cli_fail(cli, CLI_FAILED, "…", …)`. */
int cli_fail(struct cli *cli, enum cli_exit code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for a failed call of libkops: chooses the exit code for `status` and keeps `sentence`. */
int cli_fail_kops(struct cli *cli, int status, const char *sentence);

/* Returns true if a terminal shows the progress of long calls. */
bool cli_shows_progress(const struct cli *cli);

/* Shows the text if the call lasts longer than half a second, until progress_erase(). */
void cli_announce(const struct cli *cli, const char *text);

/* Connects cli->handle, as --socket and --timeout say. */
int cli_open(struct cli *cli);

/* Flushes stdout. Fails silently if its reader is gone, and with a sentence if it is full. */
int cli_flush(struct cli *cli);

/* CLOCK_MONOTONIC in microseconds. */
double cli_now_us(void);

#endif
