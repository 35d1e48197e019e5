#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/element.h"
#include "why.h"

#define ROWS_MAX   40
#define FIRST_LONG 256 /* getopt's value of row i; letters stay below */

static const struct option_row always[] = {OPTIONS_ALWAYS, OPTIONS_END};

bool options_switch(const char *text, void *member)
{
	(void)text;
	*(bool *)member = true;
	return true;
}

bool options_text(const char *text, void *member)
{
	*(const char **)member = text;
	return text[0] != '\0';
}

bool options_count(const char *text, void *member)
{
	struct opt_count *count = member;
	char *end;

	if (text[0] < '0' || text[0] > '9')
		return false;
	errno = 0;
	count->value = strtoull(text, &end, 10);
	count->set = true;
	return errno == 0 && *end == '\0';
}

bool options_real(const char *text, void *member)
{
	struct opt_real *real = member;
	char *end;

	real->value = strtod(text, &end);
	real->set = true;
	return end != text && *end == '\0' && isfinite(real->value);
}

bool options_dtype(const char *text, void *member)
{
	return element_type_by_name(text, member);
}

/* The index of text in a list that ends with NULL, or -1. */
static int word_index(const char *text, const char *const *words)
{
	for (int i = 0; words[i] != NULL; i++)
		if (strcmp(text, words[i]) == 0)
			return i;
	return -1;
}

bool options_precision(const char *text, void *member)
{
	static const char *const words[] = {"f32", "ieee", "tf32", "bf16", NULL};
	int i = word_index(text, words);

	*(kops_precision *)member = (kops_precision)(i < 0 ? 0 : i);
	return i >= 0;
}

bool options_priority(const char *text, void *member)
{
	static const char *const words[] = {"normal", "high", "low", NULL};
	int i = word_index(text, words);

	*(kops_priority *)member = (kops_priority)(i < 0 ? 0 : i);
	return i >= 0;
}

bool options_time(const char *text, void *member)
{
	static const struct {
		const char *suffix;
		double ms;
	} units[] = {{"", 1e3}, {"ms", 1}, {"s", 1e3}, {"min", 60e3}};
	char *end;
	double value = strtod(text, &end);

	if (end == text)
		return false;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		double ms = ceil(value * units[i].ms);
		if (strcmp(end, units[i].suffix) != 0 || !(ms >= 1 && ms <= 2147483647.0))
			continue;
		*(uint32_t *)member = (uint32_t)ms;
		return true;
	}
	return false;
}

/* Both tables as one list of pointers. */
static size_t collect(const struct option_row *rows, const struct option_row *ret[ROWS_MAX])
{
	size_t n = 0;

	for (; (rows->name || rows->letter) && n < ROWS_MAX; rows++)
		ret[n++] = rows;
	for (rows = always; rows->name && n < ROWS_MAX; rows++)
		ret[n++] = rows;
	return n;
}

static void to_getopt(const struct option_row *const *rows, size_t n, struct option longs[ROWS_MAX + 1],
                      char shorts[2 * ROWS_MAX + 2])
{
	size_t n_longs = 0;

	*shorts++ = ':'; /* tell a missing argument from an unknown option */
	for (size_t i = 0; i < n; i++) {
		int has_arg = rows[i]->argument ? required_argument : no_argument;
		if (rows[i]->name)
			longs[n_longs++] = (struct option){rows[i]->name, has_arg, NULL, FIRST_LONG + (int)i};
		if (rows[i]->letter)
			*shorts++ = rows[i]->letter;
		if (rows[i]->letter && rows[i]->argument)
			*shorts++ = ':';
	}
	longs[n_longs] = (struct option){0};
	*shorts = '\0';
}

static const struct option_row *row_of(const struct option_row *const *rows, size_t n, int value)
{
	if (value >= FIRST_LONG)
		return rows[value - FIRST_LONG];
	for (size_t i = 0; i < n; i++)
		if (rows[i]->letter == value)
			return rows[i];
	return NULL;
}

static int bad_value(const struct option_row *row, char *why)
{
	char letter[2] = {row->letter, '\0'};
	const char *dashes = row->name ? "--" : "-";

	return why_invalid(why, "%s%s does not take '%s': %s; see -h", dashes, row->name ? row->name : letter,
	                   optarg, row->help);
}

static int bad_option(int value, const char *word, const struct option_row *row, char *why)
{
	char letter[3] = {'-', (char)optopt, '\0'};
	bool is_letter = optopt > 0 && optopt < FIRST_LONG;

	if (value == ':')
		return why_invalid(why, "option '%s' needs a value, %s; see -h", is_letter ? letter : word,
		                   row ? row->argument : "VALUE");
	return why_invalid(why, "no option '%s' here; -h lists those there are", is_letter ? letter : word);
}

int options_parse(const struct option_row *options, int argc, char **argv, struct flags *flags, int *ret_argc,
                  char ***ret_argv, char *why)
{
	const struct option_row *rows[ROWS_MAX];
	struct option longs[ROWS_MAX + 1];
	char shorts[2 * ROWS_MAX + 2];
	size_t n = collect(options, rows);

	to_getopt(rows, n, longs, shorts);
	opterr = 0;
	optind = 0;
	for (;;) {
		int value = getopt_long(argc, argv, shorts, longs, NULL);
		if (value == -1)
			break;
		if (value == '?' || value == ':')
			return bad_option(value, argv[optind - 1], row_of(rows, n, optopt), why);
		const struct option_row *row = row_of(rows, n, value);
		if (!row->parse(optarg, (char *)flags + row->member))
			return bad_value(row, why);
	}
	*ret_argc = argc - optind;
	*ret_argv = argv + optind;
	return 0;
}

static void help_row(const struct option_row *row)
{
	char left[64];
	int used = 0;

	if (row->letter)
		used += snprintf(left, sizeof(left), "-%c%s", row->letter, row->name ? ", " : "");
	if (row->name)
		used += snprintf(left + used, sizeof(left) - (size_t)used, "%s--%s", row->letter ? "" : "    ",
		                 row->name);
	if (row->argument)
		snprintf(left + used, sizeof(left) - (size_t)used, " %s", row->argument);
	printf("  %-22s %s\n", left, row->help);
}

void options_help(const struct option_row *rows)
{
	const struct option_row *all[ROWS_MAX];
	size_t n = collect(rows, all);

	for (size_t i = 0; i < n; i++)
		help_row(all[i]);
}
