/* utf8.h: characters of UTF-8 text. */
#ifndef KOPS_CLI_UTF8_H
#define KOPS_CLI_UTF8_H

#include <stdint.h>

/*
 * Bytes of the valid character at `at`, and its code point; 0 where there is none. Overlong forms and
 * surrogates are none. The text ends with a NUL, which is a character of one byte.
 */
unsigned utf8_decode(const char *at, uint32_t *ret_point);

/* Columns of a terminal that it takes: 0 for marks that go on the character before, 2 for ideographs. */
int utf8_columns(uint32_t point);

#endif
