#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dtype.h"
#include "nearest.h"

#define ROWS_MAX   40
#define FIRST_LONG 256 /* getopt's value of row i is this plus i; letters are below */

int why_invalid(char why[CLI_WHY_BYTES], const char *format, ...)
{
	char text[CLI_WHY_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (why)
		strcpy(why, text);
	return KOPS_E_INVALID;
}

static bool parse_switch(const char *text, void *member)
{
	*(bool *)member = strcmp(text, "yes") == 0;
	return *(bool *)member || strcmp(text, "no") == 0;
}

static bool parse_text(const char *text, void *member)
{
	*(const char **)member = text;
	return text[0] != '\0';
}

static bool parse_count(const char *text, void *member)
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

static bool parse_count32(const char *text, void *member)
{
	return parse_count(text, member) && ((struct opt_count *)member)->value <= UINT32_MAX;
}

static bool parse_real(const char *text, void *member)
{
	struct opt_real *real = member;
	char *end;

	real->value = strtod(text, &end);
	real->set = true;
	return end != text && *end == '\0' && isfinite(real->value);
}

/* Reads 2 (seconds), 500ms or 20us as milliseconds. */
static bool read_time(const char *text, double *ret_ms)
{
	static const struct {
		const char *suffix;
		double ms;
	} units[] = {{"", 1e3}, {"us", 1e-3}, {"µs", 1e-3}, {"ms", 1}, {"s", 1e3}, {"min", 60e3}};
	char *end;
	double value = strtod(text, &end);

	for (size_t i = 0; end != text && i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(end, units[i].suffix) != 0)
			continue;
		*ret_ms = value * units[i].ms;
		return isfinite(*ret_ms) && *ret_ms >= 0;
	}
	return false;
}

static bool parse_time(const char *text, void *member)
{
	double ms;

	if (!read_time(text, &ms) || !(ceil(ms) >= 1 && ceil(ms) <= 2147483647.0))
		return false;
	*(uint32_t *)member = (uint32_t)ceil(ms);
	return true;
}

static bool parse_duration(const char *text, void *member)
{
	struct opt_real *us = member;
	double ms;

	if (!read_time(text, &ms))
		return false;
	*us = (struct opt_real){.set = true, .value = ms * 1e3};
	return true;
}

static const char *const dtypes[] = {
#define X(name, NAME, number, bytes, alignment, kind, accumulator) #name,
#include "dtype.def"
#undef X
    NULL};
static const char *const precisions[] = {"f32", "ieee", "tf32", "bf16", NULL};
static const char *const priorities[] = {"normal", "high", "low", NULL};

const struct option_type options_switch = {.takes = "yes or no", .parse = parse_switch};
const struct option_type options_text = {.takes = "a word", .parse = parse_text};
const struct option_type options_file = {.takes = "a file's name", .parse = parse_text, .values = VALUES_FILES};
const struct option_type options_device = {
    .takes = "a device's name", .parse = parse_text, .values = VALUES_DEVICES};
const struct option_type options_kernel = {
    .takes = "a kernel's name", .parse = parse_text, .values = VALUES_KERNELS};
const struct option_type options_count = {.takes = "a whole number below 2^64", .parse = parse_count};
const struct option_type options_count32 = {.takes = "a whole number below 2^32", .parse = parse_count32};
const struct option_type options_real = {.takes = "a number", .parse = parse_real};
const struct option_type options_dtype = {
    .takes = "f32, f64, f16, bf16, i32, c64 or c128", .words = dtypes, .first = DTYPE_FIRST};
const struct option_type options_precision = {.takes = "f32, ieee, tf32 or bf16", .words = precisions};
const struct option_type options_priority = {.takes = "normal, high or low", .words = priorities};
const struct option_type options_time = {.takes = "a time above 0 such as 2 (seconds), 500ms or 1min",
                                         .parse = parse_time};
const struct option_type options_duration = {.takes = "a time such as 500us, 20ms or 2 (seconds)",
                                             .parse = parse_duration};

static bool read_value(const struct option_type *type, const char *text, void *member)
{
	if (type->words == NULL)
		return type->parse(text, member);
	for (unsigned i = 0; type->words[i] != NULL; i++) {
		if (strcmp(text, type->words[i]) != 0)
			continue;
		*(unsigned *)member = type->first + i;
		return true;
	}
	return false;
}

int options_set(const struct option_row *row, const char *name, const char *text, struct flags *flags,
                char *why)
{
	if (read_value(row->type, text, (char *)flags + row->member))
		return 0;
	return why_invalid(why, "%s takes %s, not '%s'", name, row->type->takes, text);
}

bool options_is_row(const struct option_row *row)
{
	return row->name || row->letter;
}

const struct option_row *options_find(const struct option_row *rows, const char *name)
{
	for (; options_is_row(rows); rows++)
		if (rows->name && strcmp(rows->name, name) == 0)
			return rows;
	return NULL;
}

static void to_getopt(const struct option_row *rows, struct option longs[ROWS_MAX + 1],
                      char shorts[2 * ROWS_MAX + 2])
{
	*shorts++ = ':'; /* so that getopt distinguishes a missing argument from an unknown option */
	for (int i = 0; i < ROWS_MAX && options_is_row(&rows[i]); i++) {
		int has_arg = rows[i].argument ? required_argument : no_argument;
		if (rows[i].name)
			*longs++ = (struct option){rows[i].name, has_arg, NULL, FIRST_LONG + i};
		if (rows[i].letter)
			*shorts++ = rows[i].letter;
		if (rows[i].letter && rows[i].argument)
			*shorts++ = ':';
	}
	*longs = (struct option){0};
	*shorts = '\0';
}

static const struct option_row *row_of(const struct option_row *rows, int value)
{
	if (value >= FIRST_LONG)
		return &rows[value - FIRST_LONG];
	for (; options_is_row(rows); rows++)
		if (value != 0 && rows->letter == value)
			return rows;
	return NULL;
}

/* Formats "--alpha" or "-m". */
static const char *dashed(const struct option_row *row, char text[64])
{
	if (row->name)
		snprintf(text, 64, "--%s", row->name);
	else
		snprintf(text, 64, "-%c", row->letter);
	return text;
}

static int no_option(const struct option_row *rows, const char *word, char *why)
{
	const char *name = word + strspn(word, "-");
	struct nearest nearest = nearest_to(name, strcspn(name, "="));
	char hint[96];

	for (; options_is_row(rows); rows++)
		nearest_offer(&nearest, rows->name);
	return why_invalid(why, "unknown option '%s'; %s", word,
	                   nearest_hint(&nearest, "--", "-h lists the options", hint));
}

/* Explains what getopt refused: value is '?' or ':', word what it looked at. */
static int bad_option(int value, const char *word, const struct option_row *rows, char *why)
{
	const struct option_row *row = row_of(rows, optopt);
	char letter[3] = {'-', (char)optopt, '\0'}, name[64];
	bool is_letter = optopt > 0 && optopt < FIRST_LONG;

	if (value == ':')
		return why_invalid(why, "option '%s' needs a value, %s; see -h", is_letter ? letter : word,
		                   row ? row->argument : "VALUE");
	if (row && row->argument == NULL)
		return why_invalid(why, "%s takes no value", dashed(row, name));
	return no_option(rows, is_letter ? letter : word, why);
}

int options_parse(const struct option_row *rows, int argc, char **argv, struct flags *flags, int *ret_argc,
                  char ***ret_argv, char *why)
{
	struct option longs[ROWS_MAX + 1];
	char shorts[2 * ROWS_MAX + 2], name[64];
	int value;

	to_getopt(rows, longs, shorts);
	opterr = 0;
	optind = 0;
	while ((value = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
		if (value == '?' || value == ':')
			return bad_option(value, argv[optind - 1], rows, why);
		const struct option_row *row = row_of(rows, value);
		int rc = options_set(row, dashed(row, name), row->argument ? optarg : "yes", flags, why);
		if (rc < 0)
			return rc;
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
	for (; options_is_row(rows); rows++)
		help_row(rows);
}
