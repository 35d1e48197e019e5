/*
 * json.h: writes one JSON document. Strings are escaped, so that none controls a terminal (printable.h).
 * Numbers keep all significant digits; those that JSON lacks (NaN, infinities) become null. Invalid bytes of
 * UTF-8 become "?".
 */
#ifndef KOPS_CLI_JSON_H
#define KOPS_CLI_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define JSON_DEPTH_MAX 8
#define JSON_SCHEMA    1

struct json {
	FILE *out;
	unsigned depth;
	bool is_line;                /* the document is one line */
	bool filled[JSON_DEPTH_MAX]; /* the open object or array has a member */
};

/* Opens the document: an object with "schema" and "verb". */
void json_begin(struct json *json, FILE *out, const char *verb);
void json_begin_plain(struct json *json, FILE *out); /* without the two, for a foreign format */
void json_begin_line(struct json *json, FILE *out, const char *verb); /* one line, for a series of documents */
void json_end(struct json *json);                                     /* closes it, with a newline */

/* key is NULL inside an array. */
void json_object(struct json *json, const char *key);
void json_array(struct json *json, const char *key);
void json_close_object(struct json *json);
void json_close_array(struct json *json);
void json_text(struct json *json, const char *key, const char *value); /* NULL: null */
void json_real(struct json *json, const char *key, double value);
void json_us(struct json *json, const char *key, double us); /* to the nanosecond */
void json_count(struct json *json, const char *key, uint64_t value);
void json_bool(struct json *json, const char *key, bool value);

#endif
