#include "files/jobfile.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "files/transfer.h"

#define WORDS_MAX 16

/* A line, and the other outputs that it names. */
struct line {
	struct jobfile *file;
	struct jobfile_value more[STEP_MORE_MAX];
	unsigned n_more;
	unsigned number;
	char *words[WORDS_MAX];
	size_t n;
	char *why;
};

static bool is_name(const char *word)
{
	size_t n = 0;

	while (isalnum((unsigned char)word[n]) || word[n] == '_')
		n++;
	return n > 0 && n < JOBFILE_NAME_BYTES && word[n] == '\0' && !isdigit((unsigned char)word[0]);
}

/*
 * Ends the word that starts at *text, in place, and moves *text behind it. The first "=" is a word of its own.
 */
static int cut_word(struct line *line, char **text)
{
	static char equals[] = "=";
	bool quoted = **text == '"';
	const char *ends = quoted ? "\"" : line->n == 0 ? " \t#=" : " \t#";
	char *start = *text + quoted, *end = start + strcspn(start, ends);

	if (line->n == WORDS_MAX)
		return why_invalid(line->why, "more than %d words", WORDS_MAX);
	if (quoted && *end == '\0')
		return why_invalid(line->why, "a quotation mark is missing at the end of %s", start);
	if (line->n == 1 && *start == '=')
		end = start; /* x =load … */
	else
		line->words[line->n++] = start;
	if (*end == '=')
		line->words[line->n++] = equals;
	*text = *end == '#' ? end + strlen(end) : end + (*end != '\0'); /* skip the comment */
	*end = '\0';
	return 0;
}

/* Splits at blanks, up to a comment. */
static int split(struct line *line, char *text)
{
	int rc = 0;

	while (rc == 0 && *(text += strspn(text, " \t")) != '\0' && *text != '#')
		rc = cut_word(line, &text);
	return rc;
}

/* Returns the index of a value, or -1. */
static int find(const struct jobfile *file, const char *name)
{
	for (size_t i = 0; i < file->n_values; i++)
		if (strcmp(file->values[i].name, name) == 0)
			return (int)i;
	return -1;
}

static bool is_number(const char *word)
{
	char *end;

	strtod(word, &end);
	return end != word && *end == '\0';
}

static int look_up(const struct line *line, const char *name, unsigned *ret_index)
{
	int index = find(line->file, name);

	if (index < 0 && is_number(name))
		return why_invalid(
		    line->why,
		    "'%s' is a number; operands are names of values, and numbers are settings: NAME=%s", name,
		    name);
	if (index < 0 && (strchr(name, '.') || strchr(name, '/')))
		return why_invalid(line->why, "'%s' is not a value; load a file first: x = load %s", name,
		                   name);
	if (index < 0)
		return why_invalid(line->why, "no value is named '%s' above this line", name);
	*ret_index = (unsigned)index;
	return 0;
}

static const struct option_row load_settings[] = {OPTION_DTYPE, OPTION("rows", 0, "N", count, m, ""),
                                                  OPTION("cols", 0, "N", count, n, ""), SETTINGS_END};
static const struct option_row op_settings[] = {OPTION_KERNEL, SETTINGS_END};

static const struct option_row *find_setting(const struct operation *op, const char *name)
{
	const struct option_row *row = options_find(op ? op_settings : load_settings, name);

	return row == NULL && op && op->settings ? options_find(op->settings, name) : row;
}

/* Parses NAME or NAME'. */
static int parse_operand(struct line *line, struct jobfile_value *value, unsigned i, char *word)
{
	struct jobfile_operand *operand = &value->operands[i];
	size_t n = strlen(word);

	operand->is_given = true;
	operand->transposed = n > 1 && word[n - 1] == '\'';
	if (operand->transposed)
		word[n - 1] = '\0';
	return look_up(line, word, &operand->value);
}

/* What keeps a value from having this name; 0, or KOPS_E_INVALID with a sentence. */
static int check_name(const struct line *line, const char *name)
{
	int before = find(line->file, name);

	if (!is_name(name))
		return why_invalid(
		    line->why,
		    "'%s' is not a valid name: up to %d letters, digits and _, starting with a letter", name,
		    JOBFILE_NAME_BYTES - 1);
	if (before >= 0)
		return why_invalid(line->why, "'%s' has a value since line %u; take another name", name,
		                   line->file->values[before].line);
	for (unsigned i = 0; i < line->n_more; i++)
		if (strcmp(line->more[i].name, name) == 0)
			return why_invalid(line->why, "'%s' is named twice in this line", name);
	return 0;
}

/* Parses the NAME of another output. */
static int parse_more(struct line *line, unsigned output, const char *name)
{
	struct jobfile_value *value = &line->more[line->n_more];
	int rc = check_name(line, name);

	if (rc == 0 && strcmp(name, line->words[0]) == 0)
		rc = why_invalid(line->why, "'%s' is named twice in this line", name);
	for (unsigned i = 0; i < line->n_more && rc == 0; i++)
		if (line->more[i].output == output)
			rc = why_invalid(line->why, "%s and %s are the same output", line->more[i].name, name);
	if (rc < 0)
		return rc;
	*value = (struct jobfile_value){.line = line->number, .output = output};
	snprintf(value->name, sizeof(value->name), "%s", name);
	line->n_more++;
	return 0;
}

/* Parses key=value. */
static int parse_setting(struct line *line, struct jobfile_value *value, char *word)
{
	const struct operation *op = value->op;
	char *text = strchr(word, '=');

	*text++ = '\0';
	if (op && op->accumulates && strcmp(word, op->accumulates) == 0) {
		value->has_old = true;
		return look_up(line, text, &value->old);
	}
	unsigned optional = op ? operation_optional(op, word) : 0;
	if (op && optional < op->n_inputs)
		return parse_operand(line, value, optional, text);
	unsigned output = op ? operation_more(op, word) : 0;
	if (output > 0)
		return parse_more(line, output, text);
	const struct option_row *row = find_setting(op, word);
	if (row == NULL)
		return why_invalid(line->why, "%s has no setting '%s'", op ? op->name : "load", word);
	return options_set(row, word, text, &value->flags, line->why);
}

/* Parses the i-th operand without NAME= before it. */
static int parse_required(struct line *line, struct jobfile_value *value, unsigned i, char *word)
{
	if (i < operation_required(value->op))
		return parse_operand(line, value, i, word);
	return why_invalid(line->why, "%s takes %u operand%s; '%s' is one too many%s", value->op->name, i,
	                   i == 1 ? "" : "s", word,
	                   value->op->n_optional ? ": others have their name before them, NAME=VALUE" : "");
}

static int parse_op(struct line *line, struct jobfile_value *value)
{
	unsigned n = 0;

	for (size_t i = 3; i < line->n; i++) {
		char *word = line->words[i];
		int rc = strchr(word, '=') ? parse_setting(line, value, word)
		                           : parse_required(line, value, n++, word);
		if (rc < 0)
			return rc;
	}
	unsigned required = operation_required(value->op);
	if (n < required)
		return why_invalid(line->why, "%s takes %u operand%s, got %u", value->op->name, required,
		                   required == 1 ? "" : "s", n);
	const char *setting = value->has_old ? NULL : operation_needs_old(value->op, &value->flags.op);
	if (setting)
		return why_invalid(line->why, "%s= needs %s=NAME, the matrix that it multiplies", setting,
		                   value->op->accumulates);
	return 0;
}

static int parse_load(struct line *line, struct jobfile_value *value)
{
	int rc = 0;

	if (line->n < 4 || line->words[3][0] == '\0')
		return why_invalid(line->why, "load takes a file");
	value->path = line->words[3];
	for (size_t i = 4; i < line->n && rc == 0; i++) {
		char *word = line->words[i];
		if (strchr(word, '=') == NULL)
			return why_invalid(
			    line->why,
			    "load takes one file; '%s' is one too many (\"quote\" names with blanks)", word);
		rc = parse_setting(line, value, word);
	}
	return rc;
}

/* Parses what follows "name =". */
static int parse_right(struct line *line, struct jobfile_value *value)
{
	char names[192];

	if (strcmp(line->words[2], "load") == 0)
		return parse_load(line, value);
	value->op = operation_by_name(line->words[2]);
	if (value->op)
		return parse_op(line, value);
	return why_invalid(line->why, "'%s' is not load, %s", line->words[2],
	                   operation_names(names, sizeof(names)));
}

static int parse_value(struct line *line)
{
	struct jobfile *file = line->file;
	struct jobfile_value value = {.line = line->number};
	const char *name = line->words[0];
	int rc = check_name(line, name);

	if (rc < 0)
		return rc;
	if (line->n < 3)
		return why_invalid(line->why, "nothing after '%s ='", name);
	snprintf(value.name, sizeof(value.name), "%s", name);
	rc = parse_right(line, &value);
	if (rc < 0)
		return rc;
	if (file->n_values + line->n_more >= JOBFILE_VALUES_MAX)
		return why_invalid(line->why, "more than %d values", JOBFILE_VALUES_MAX);
	for (unsigned i = 0; i < line->n_more; i++) {
		line->more[i].of = (unsigned)file->n_values + line->n_more - i;
		file->values[file->n_values++] = line->more[i];
	}
	file->values[file->n_values++] = value;
	return 0;
}

static int parse_save(struct line *line)
{
	struct jobfile *file = line->file;
	struct jobfile_save save = {.line = line->number, .path = line->words[2]};

	if (line->n != 3 || save.path[0] == '\0')
		return why_invalid(line->why, "save takes a value and a file: save y y.npy");
	if (file->n_saves == JOBFILE_SAVES_MAX)
		return why_invalid(line->why, "more than %d saved values", JOBFILE_SAVES_MAX);
	int rc = look_up(line, line->words[1], &save.value);
	if (rc == 0)
		file->saves[file->n_saves++] = save;
	return rc;
}

static int parse_line(struct jobfile *file, unsigned number, char *text, char *why)
{
	struct line line = {.file = file, .number = number, .why = why};

	int rc = split(&line, text);
	if (rc < 0 || line.n == 0)
		return rc;
	if (line.n >= 2 && strcmp(line.words[1], "=") == 0)
		return parse_value(&line);
	if (strcmp(line.words[0], "save") == 0)
		return parse_save(&line);
	return why_invalid(why, "expected 'NAME = …' or 'save NAME FILE', not '%s'", line.words[0]);
}

static int parse_lines(struct jobfile *file, char *why)
{
	unsigned number = 1;

	for (char *line = file->text, *next; line; line = next, number++) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		size_t n = strlen(line);
		if (n > 0 && line[n - 1] == '\r')
			line[n - 1] = '\0';
		if (parse_line(file, number, line, why) < 0)
			return why_invalid(why, "%s:%u: %s", file->path, number, why);
	}
	if (file->n_values == 0)
		return why_invalid(why, "%s: nothing to do; a first line might be: x = load x.npy", file->path);
	return 0;
}

int jobfile_parse(const char *path, const char *text, size_t len, struct jobfile **ret, char *why)
{
	if (memchr(text, '\0', len))
		return why_invalid(why, "%s: not a text file", path);
	struct jobfile *file = calloc(1, sizeof(*file));
	if (file == NULL || (file->text = strndup(text, len)) == NULL) {
		free(file);
		why_invalid(why, "out of memory");
		return KOPS_E_NOMEM;
	}
	file->path = path;
	int rc = parse_lines(file, why);
	if (rc == 0)
		*ret = file;
	else
		jobfile_free(file);
	return rc;
}

int jobfile_read(const char *path, struct jobfile **ret, char *why)
{
	int fd = transfer_open(&path, why);
	char *text = malloc(JOBFILE_BYTES_MAX + 1);
	int rc;

	if (fd < 0 || text == NULL) {
		free(text);
		return fd < 0 ? fd : why_invalid(why, "out of memory");
	}
	uint64_t n = transfer_read(fd, path, text, JOBFILE_BYTES_MAX + 1, 0);
	if (errno)
		rc = why_invalid(why, "cannot read %s: %s", path, strerror(errno));
	else if (n > JOBFILE_BYTES_MAX)
		rc = why_invalid(why, "%s: more than %d bytes is too long for a job file", path,
		                 JOBFILE_BYTES_MAX);
	else
		rc = jobfile_parse(path, text, n, ret, why);
	close(fd);
	free(text);
	return rc;
}

void jobfile_free(struct jobfile *file)
{
	if (file == NULL)
		return;
	free(file->text);
	free(file);
}
