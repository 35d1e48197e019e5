#include "json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* Length of the valid UTF-8 sequence at s, 0 if there is none. Overlong forms and surrogates are none. */
static unsigned sequence_length(const unsigned char *s)
{
	static const struct {
		unsigned char low, high, second_low, second_high;
		unsigned length;
	} forms[] = {{0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
	             {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
	             {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};

	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		if (s[0] < forms[i].low || s[0] > forms[i].high)
			continue;
		if (forms[i].length > 1 && (s[1] < forms[i].second_low || s[1] > forms[i].second_high))
			return 0;
		for (unsigned j = 2; j < forms[i].length; j++)
			if (s[j] < 0x80 || s[j] > 0xbf)
				return 0;
		return forms[i].length;
	}
	return 0;
}

static void put_text(FILE *out, const char *text)
{
	const unsigned char *s = (const unsigned char *)text;

	fputc('"', out);
	while (*s) {
		unsigned n = sequence_length(s);
		if (*s == '"' || *s == '\\')
			fprintf(out, "\\%c", *s);
		else if (*s < 0x20)
			fprintf(out, "\\u%04x", *s);
		else if (n == 0)
			fputc('?', out);
		else
			fwrite(s, 1, n, out);
		s += n ? n : 1;
	}
	fputc('"', out);
}

static void newline(struct json *json)
{
	fputc('\n', json->out);
	for (unsigned i = 0; i < json->depth; i++)
		fputs("  ", json->out);
}

static void member(struct json *json, const char *key)
{
	bool *filled = &json->filled[json->depth - 1];

	if (*filled)
		fputc(',', json->out);
	*filled = true;
	newline(json);
	if (key) {
		put_text(json->out, key);
		fputs(": ", json->out);
	}
}

static void open_bracket(struct json *json, char bracket)
{
	fputc(bracket, json->out);
	if (json->depth == JSON_DEPTH_MAX)
		abort(); /* a bug of the caller, found by its first run */
	json->filled[json->depth++] = false;
}

static void close_bracket(struct json *json, char bracket)
{
	json->depth--;
	if (json->filled[json->depth])
		newline(json);
	fputc(bracket, json->out);
}

void json_begin(struct json *json, FILE *out, const char *verb)
{
	*json = (struct json){.out = out};
	open_bracket(json, '{');
	json_count(json, "schema", JSON_SCHEMA);
	json_text(json, "verb", verb);
}

void json_end(struct json *json)
{
	close_bracket(json, '}');
	fputc('\n', json->out);
}

void json_object(struct json *json, const char *key)
{
	member(json, key);
	open_bracket(json, '{');
}

void json_array(struct json *json, const char *key)
{
	member(json, key);
	open_bracket(json, '[');
}

void json_close_object(struct json *json)
{
	close_bracket(json, '}');
}

void json_close_array(struct json *json)
{
	close_bracket(json, ']');
}

void json_text(struct json *json, const char *key, const char *value)
{
	member(json, key);
	if (value)
		put_text(json->out, value);
	else
		fputs("null", json->out);
}

void json_real(struct json *json, const char *key, double value)
{
	char text[40];

	member(json, key);
	if (!isfinite(value)) {
		fputs("null", json->out);
		return;
	}
	for (int digits = 6; digits <= 17; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, value);
		if (strtod(text, NULL) == value)
			break;
	}
	fputs(text, json->out);
}

void json_us(struct json *json, const char *key, double us)
{
	json_real(json, key, round(us * 1e3) / 1e3);
}

void json_count(struct json *json, const char *key, uint64_t value)
{
	member(json, key);
	fprintf(json->out, "%" PRIu64, value);
}

void json_bool(struct json *json, const char *key, bool value)
{
	member(json, key);
	fputs(value ? "true" : "false", json->out);
}
