/*
 * cli.h: what every command of kops-client and kops-bench shares: exit codes, errors, the connection.
 *
 * A command is one file that exports one struct command. program_main() finds it, parses its options into
 * cli->flags and calls run() with the arguments that are no options. run() returns an exit code; on any but 0
 * it has said why with cli_fail(), which program_main() prints.
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
	kops_list *list; /* NULL: the command asks for none, or kopsd is too old to list */
};

struct command {
	const char *name;
	const char *summary; /* one line for -h of the program */
	const char *usage;   /* what follows the name: "[options] A B" */
	const char *help;    /* below the options: rules, then examples */
	int min_args, max_args;
	const char *args_are;             /* "two files, A and B": for errors; NULL: no files */
	enum option_values args;          /* what the arguments are, or the first of them */
	const char *op;                   /* whose kernels --kernel may name; NULL: it has no such option */
	const struct option_row *options; /* ends with a row without name */
	const char *json_verb;            /* "verb" in its JSON; NULL: the name */
	int (*run)(struct cli *cli, char **argv);
	/* For query_run(): the list that it asks for, NULL: none; what it prints, or the members of the JSON
	 * document. */
	int (*list)(const struct cli *cli, kops_list **ret_list);
	void (*text)(const struct answer *answer);
	void (*json)(struct json *json, const struct answer *answer);
};

struct cli {
	const char *program; /* "kops-client" */
	const struct command *command;
	struct flags flags;
	kops *handle; /* by cli_open() */
	double connect_us;
	uint32_t patience_ms; /* with a kopsd that does not answer, where --timeout is not given; 0: 30 s */
	bool printed;         /* stdout has a JSON document already */
	bool silent;          /* fail without a word: the reader of stdout went away */
	char why[CLI_WHY_BYTES];
};

/* Keeps the sentence and returns code: `return cli_fail(cli, CLI_FAILED, "…", …)`. */
int cli_fail(struct cli *cli, enum cli_exit code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for a failed call of libkops: picks the exit code for `status` and keeps `sentence`. */
int cli_fail_kops(struct cli *cli, int status, const char *sentence);

/* Whether a terminal shows how far long calls are. */
bool cli_shows_progress(const struct cli *cli);

/* Has it show the text, until progress_erase(), if that takes longer than half a second. */
void cli_announce(const struct cli *cli, const char *text);

/* Connects cli->handle, as --socket and --timeout say. */
int cli_open(struct cli *cli);

/* Flushes stdout; fails silently when its reader is gone, with a sentence when it is full. */
int cli_flush(struct cli *cli);

/* CLOCK_MONOTONIC in microseconds. */
double cli_now_us(void);

#endif
