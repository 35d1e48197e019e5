#include "json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "printable.h"
#include "utf8.h"

static void put_text(FILE *out, const char *text)
{
	fputc('"', out);
	while (*text) {
		uint32_t point;
		unsigned n = utf8_decode(text, &point);
		if (*text == '"' || *text == '\\')
			fprintf(out, "\\%c", *text);
		else if (n == 0)
			fputc('?', out);
		else if (unprintable_bytes(text))
			fprintf(out, "\\u%04x", point);
		else
			fwrite(text, 1, n, out);
		text += n ? n : 1;
	}
	fputc('"', out);
}

static void newline(struct json *json)
{
	if (json->is_line)
		return;
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

static void begin(struct json *json, const char *verb)
{
	open_bracket(json, '{');
	json_count(json, "schema", JSON_SCHEMA);
	json_text(json, "verb", verb);
}

void json_begin(struct json *json, FILE *out, const char *verb)
{
	*json = (struct json){.out = out};
	begin(json, verb);
}

void json_begin_plain(struct json *json, FILE *out)
{
	*json = (struct json){.out = out, .is_line = true};
	open_bracket(json, '{');
}

void json_begin_line(struct json *json, FILE *out, const char *verb)
{
	*json = (struct json){.out = out, .is_line = true};
	begin(json, verb);
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
