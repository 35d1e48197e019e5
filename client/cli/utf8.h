/* utf8.h: decodes UTF-8 text. */
#ifndef KOPS_CLI_UTF8_H
#define KOPS_CLI_UTF8_H

#include <stdint.h>

/*
 * Returns the bytes of the valid character at `at`, and its code point; 0 if there is none. Overlong forms and
 * surrogates are invalid. The text ends with a NUL, which is a character of one byte.
 */
unsigned utf8_decode(const char *at, uint32_t *ret_point);

/* Returns the columns of a character on a terminal: 0 for combining marks, 2 for ideographs. */
int utf8_columns(uint32_t point);

#endif
