/*
 * The pages of libkops, from kops.h: kops.3 with the concepts and types, and one page for each comment that
 * stands before calls. The header is a row of blocks with blank lines between: a comment, declarations, or
 * both.
 */
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "pages.h"
#include "scdoc.h"

#define NAMES_MAX 16

/* A part of the header's text. */
struct span {
	const char *text;
	size_t length;
};

struct block {
	struct span comment, code; /* either may be empty */
	struct span names[NAMES_MAX];
	size_t n_names; /* of the calls that the code declares */
};

static char *read_all(const char *path)
{
	FILE *in = fopen(path, "re");
	char *text = NULL;
	size_t size = 0;

	if (in == NULL || getdelim(&text, &size, '\0', in) < 0) {
		fprintf(stderr, "kops-manual: cannot read %s: %s\n", path, strerror(errno));
		exit(1);
	}
	fclose(in);
	return text;
}

/* ---- blocks ---- */

static bool begins_with(struct span s, const char *word)
{
	return s.length >= strlen(word) && memcmp(s.text, word, strlen(word)) == 0;
}

static bool is_call(struct span code)
{
	return memchr(code.text, '(', code.length) && !begins_with(code, "typedef") &&
	       !begins_with(code, "enum") && !begins_with(code, "extern") && !begins_with(code, "#");
}

/* The word before each '(' that follows a ';', or the beginning. */
static void find_names(struct block *b)
{
	const char *end = b->code.text + b->code.length;

	for (const char *at = b->code.text; at && at < end && b->n_names < NAMES_MAX;) {
		const char *open = memchr(at, '(', (size_t)(end - at)), *start = open;
		if (open == NULL)
			return;
		while (start > at && (isalnum((unsigned char)start[-1]) || start[-1] == '_'))
			start--;
		b->names[b->n_names++] = (struct span){start, (size_t)(open - start)};
		at = memchr(open, ';', (size_t)(end - open));
	}
}

static bool next_block(const char **at, struct block *ret)
{
	const char *text = *at + strspn(*at, "\n"), *end = strstr(text, "\n\n");
	struct block b = {0};

	end = end ? end : text + strlen(text);
	*at = end;
	if (end == text)
		return false;
	b.code = (struct span){text, (size_t)(end - text)};
	if (begins_with(b.code, "/*")) {
		const char *stop = strstr(text, "*/") + 2;
		b.comment = (struct span){text, (size_t)(stop - text)};
		stop += *stop == '\n';
		b.code = (struct span){stop, stop < end ? (size_t)(end - stop) : 0};
	}
	if (is_call(b.code))
		find_names(&b);
	*ret = b;
	return true;
}

/* ---- comments ---- */

/* What a comment says, without its marks; the caller frees it. */
static char *plain(struct span comment)
{
	char *text = calloc(1, comment.length + 1), *to = text;
	const char *end;

	if (comment.length == 0)
		return text;
	end = comment.text + comment.length - 2; /* before the mark at the end */
	for (const char *at = comment.text + 2; at < end;) {
		const char *stop = memchr(at, '\n', (size_t)(end - at));
		size_t n = (size_t)((stop ? stop : end) - at);
		bool marked = n >= 2 && memcmp(at, " *", 2) == 0;

		at += marked ? 2 : 0;
		n -= marked ? 2 : 0;
		if (n > 0 && *at == ' ') {
			at++;
			n--;
		}
		to = mempcpy(to, at, n);
		*to++ = '\n';
		at = stop ? stop + 1 : end;
	}
	while (to > text && isspace((unsigned char)to[-1]))
		*--to = '\0';
	memmove(text, text + strspn(text, "\n"), strlen(text) + 1 - strspn(text, "\n"));
	return text;
}

/* The first sentence, in one line, without its full stop. */
static void first_sentence(FILE *out, const char *text)
{
	char sentence[512];
	size_t n = 0;

	for (unsigned brackets = 0; text[n] && n < sizeof(sentence) - 1; n++) {
		brackets += (text[n] == '(') - (text[n] == ')');
		if (!brackets && strchr(".:", text[n]) && strchr(" \n", text[n + 1]))
			break;
		sentence[n] = text[n] == '\n' ? ' ' : text[n];
	}
	sentence[n] = '\0';
	if (isupper((unsigned char)sentence[0]) && islower((unsigned char)sentence[1]))
		sentence[0] = (char)tolower((unsigned char)sentence[0]);
	scdoc_inline(out, sentence);
	fputc('\n', out);
}

/* ---- pages ---- */

static void put_names(FILE *out, const struct block *b, const char *format)
{
	char name[64];

	for (size_t i = 0; i < b->n_names; i++) {
		snprintf(name, sizeof(name), "%.*s", (int)b->names[i].length, b->names[i].text);
		fputs(i ? ", " : "", out);
		fputs(format[0] ? "*" : "", out);
		scdoc_inline(out, name);
		fputs(format[0] ? "*" : "", out);
		fputs(format, out);
	}
}

static void call_page(const char *folder, const struct block *b)
{
	char name[64], file[80], *text = plain(b->comment);

	snprintf(name, sizeof(name), "%.*s", (int)b->names[0].length, b->names[0].text);
	if (!text[0]) {
		fprintf(stderr, "kops-manual: kops.h does not say what %s() does\n", name);
		exit(1);
	}
	snprintf(file, sizeof(file), "%s.3.scd", name);
	FILE *out = pages_open(folder, file);
	scdoc_begin(out, name, 3);
	put_names(out, b, "");
	fputs(" - ", out);
	first_sentence(out, text);
	scdoc_heading(out, "Synopsis");
	fputs("```\n#include <kops.h>\n\n", out);
	fprintf(out, "%.*s\n```\n", (int)b->code.length, b->code.text);
	scdoc_heading(out, "Description");
	scdoc_text(out, text, strlen(text));
	scdoc_heading(out, "See also");
	fputs("*kops*(3) for concepts, types and errors, *kopsd*(8)\n", out);
	pages_close(out);
	for (size_t i = 1; i < b->n_names; i++) {
		snprintf(file, sizeof(file), "%.*s.3", (int)b->names[i].length, b->names[i].text);
		out = pages_open(folder, file);
		fprintf(out, ".so man3/%s.3\n", name);
		pages_close(out);
	}
	free(text);
}

/* What kops.3 has of a block: prose, types, or the names of calls with a line each. */
static void overview(FILE *out, const struct block *b)
{
	char *text = plain(b->comment);

	if (b->n_names) {
		fputc('\n', out);
		put_names(out, b, "(3)");
		fputs("\n\t", out);
		first_sentence(out, text);
	} else {
		fputc('\n', out);
		scdoc_text(out, text, strlen(text));
		fputc('\n', out);
		if (b->code.length)
			scdoc_literal(out, b->code.text, b->code.length);
	}
	free(text);
}

/* "---- Jobs ------": the name of a part; else NULL. Static memory. */
static const char *part_name(const struct block *b)
{
	static char name[64];

	if (!begins_with(b->comment, "/* ---- "))
		return NULL;
	snprintf(name, sizeof(name), "%.*s", (int)b->comment.length - 8, b->comment.text + 8);
	*strstr(name, " --") = '\0';
	return name;
}

/* Lines for the preprocessor, of which only those for programs are shown, and the marks of scripts/gen-ops. */
static bool is_machinery(const struct block *b)
{
	return begins_with(b->comment, "/* Made by scripts/") || begins_with(b->comment, "/* End of ") ||
	       begins_with(b->code, "#if") || begins_with(b->code, "#endif") ||
	       begins_with(b->code, "#include") || begins_with(b->code, "#define KOPS_VERSION");
}

void pages_of_calls(const char *folder, const char *header)
{
	char *text = read_all(header), *head;
	const char *at = text;
	FILE *out = pages_open(folder, "kops.3.scd");
	struct block b;

	scdoc_begin(out, "kops", 3);
	fputs("kops - matrix jobs on the GPUs, or the CPU, of this host\n", out);
	scdoc_heading(out, "Synopsis");
	fputs("*#include <kops.h>*\n\n*cc* … *$(pkg-config --cflags --libs kops)*\n", out);
	scdoc_heading(out, "Description");
	next_block(&at, &b);
	head = plain(b.comment);
	scdoc_text(out, head, strlen(head));
	while (next_block(&at, &b)) {
		const char *part = part_name(&b);
		if (part)
			scdoc_heading(out, part);
		else if (!is_machinery(&b))
			overview(out, &b);
		if (b.n_names)
			call_page(folder, &b);
	}
	scdoc_heading(out, "See also");
	fputs("*kops*(7), *kopsd*(8), *kops-client*(1)\n", out);
	pages_close(out);
	free(head);
	free(text);
}
