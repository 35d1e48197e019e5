/* pages.h: what kops-manual writes, into a folder: pages for scdoc, pages that name another, and completions.
 */
#ifndef KOPS_MAN_PAGES_H
#define KOPS_MAN_PAGES_H

#include <stdio.h>

struct program;

/* FOLDER/NAME for writing. Ends the program with a sentence where that fails. */
FILE *pages_open(const char *folder, const char *name);
void pages_close(FILE *page);

/* programs.c: NAME.1 and NAME-COMMAND.1. */
void pages_of_program(const char *folder, const struct program *program);

/* calls.c: kops.3 and KOPS_CALL.3, from kops.h. */
void pages_of_calls(const char *folder, const char *header);

/* complete.c: a program that is a list of commands, or (without commands) one that has options only. */
struct completed {
	const char *name;
	const struct program *program; /* NULL: options only */
	const struct option_row *options;
};
void complete_bash(FILE *out, const struct completed *c);
void complete_zsh(FILE *out, const struct completed *c);
void complete_fish(FILE *out, const struct completed *c);

#endif
