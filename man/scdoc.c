#include "scdoc.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

struct line {
	const char *text; /* behind the indentation */
	size_t length, indent;
};

void scdoc_begin(FILE *out, const char *name, int section)
{
	fprintf(out, "%s(%d) \"kops " KOPS_VERSION "\" \"kops\"\n\n# NAME\n\n", name, section);
}

void scdoc_heading(FILE *out, const char *heading)
{
	fputs("\n# ", out);
	for (; *heading; heading++)
		fputc(toupper((unsigned char)*heading), out);
	fputs("\n\n", out);
}

/* Of punctuation that begins a line; scdoc itself escapes a dot that begins no list, and with a backslash would
 * not. */
static bool is_special_first(const char *text)
{
	return ispunct((unsigned char)*text) && !(*text == '.' && text[1] != ' ');
}

static void escape(FILE *out, const char *text, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		bool special = strchr("\\*_`#|<>[]+", text[i]) || (i == 0 && is_special_first(text));

		if (special)
			fputc('\\', out);
		fputc(text[i], out);
	}
}

void scdoc_inline(FILE *out, const char *text)
{
	escape(out, text, strlen(text));
}

static void term(FILE *out, const char *text, size_t length)
{
	fputs("\n*", out);
	escape(out, text, length);
	fputs("*\n", out);
}

void scdoc_term(FILE *out, const char *name, const char *text)
{
	term(out, name, strlen(name));
	fputc('\t', out);
	scdoc_inline(out, text);
	fputc('\n', out);
}

/* ---- lines ---- */

static struct line next_line(const char **text, const char *end)
{
	const char *start = *text, *stop = memchr(start, '\n', (size_t)(end - start));
	struct line line = {.text = start};

	stop = stop ? stop : end;
	*text = stop < end ? stop + 1 : end;
	while (line.text < stop && *line.text == ' ')
		line.text++;
	line.indent = (size_t)(line.text - start);
	line.length = (size_t)(stop - line.text);
	return line;
}

static struct line peek(const char *text, const char *end)
{
	return next_line(&text, end);
}

/* Whether the next line that is not blank is indented. */
static bool goes_on(const char *text, const char *end)
{
	while (text < end) {
		struct line line = next_line(&text, end);
		if (line.length > 0)
			return line.indent > 0;
	}
	return false;
}

static void put_literal_line(FILE *out, const struct line *line, size_t less)
{
	fprintf(out, "%*s", (int)(line->indent > less ? line->indent - less : 0), "");
	for (size_t i = 0; i < line->length; i++)
		fprintf(out, line->text[i] == '\\' ? "\\\\" : "%c", line->text[i]);
	fputc('\n', out);
}

static const char *literal(FILE *out, const char *text, const char *end)
{
	size_t less = peek(text, end).indent;

	fputs("\n```\n", out);
	while (text < end) {
		struct line line = peek(text, end);
		if (line.length > 0 ? line.indent < less : !goes_on(text, end))
			break;
		next_line(&text, end);
		put_literal_line(out, &line, less);
	}
	fputs("```\n\n", out);
	return text;
}

void scdoc_literal(FILE *out, const char *text, size_t length)
{
	literal(out, text, text + length);
}

/* ---- lists ---- */

/* Letters before the item's text: of "- item" or "1. item"; 0: it begins no item. */
static size_t bullet(const struct line *line)
{
	if (line->length > 2 && memcmp(line->text, "- ", 2) == 0)
		return 2;
	return line->length > 3 && isdigit((unsigned char)line->text[0]) && memcmp(line->text + 1, ". ", 2) == 0
	           ? 3
	           : 0;
}

/* What stands before a gap of two blanks; the whole line if it has none. */
static size_t term_length(const struct line *line)
{
	const char *gap = memmem(line->text, line->length, "  ", 2);

	return gap ? (size_t)(gap - line->text) : line->length;
}

static void begin_item(FILE *out, const struct line *line)
{
	size_t skip = bullet(line);

	if (skip) {
		fputs(skip == 2 ? "\n- " : "\n. ", out);
	} else {
		skip = term_length(line);
		term(out, line->text, skip);
		while (skip < line->length && line->text[skip] == ' ')
			skip++;
		if (skip < line->length)
			fputc('\t', out);
	}
	escape(out, line->text + skip, line->length - skip);
}

/* Up to the next line that is blank or not indented; what is indented further goes on with an item. */
static const char *list(FILE *out, const char *text, const char *end)
{
	size_t indent = peek(text, end).indent;

	while (text < end) {
		struct line line = peek(text, end);
		if (line.length == 0 || line.indent < indent)
			break;
		next_line(&text, end);
		if (line.indent == indent) {
			begin_item(out, &line);
			continue;
		}
		fputc(' ', out);
		escape(out, line.text, line.length);
	}
	fputs("\n\n", out);
	return text;
}

static bool is_list(const struct line *line)
{
	return bullet(line) || (line->indent == 2 && term_length(line) < line->length);
}

void scdoc_text(FILE *out, const char *text, size_t length)
{
	const char *end = text + length;

	while (text < end) {
		struct line line = peek(text, end);
		if (line.indent > 0 && line.length > 0) {
			text = (is_list(&line) ? list : literal)(out, text, end);
			continue;
		}
		next_line(&text, end);
		escape(out, line.text, line.length);
		fputc('\n', out);
	}
}
