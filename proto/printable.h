/*
 * printable.h: makes text from others safe to show: it can neither control a terminal nor forge lines. And the
 * names that buffers may have, which are safe everywhere.
 */
#ifndef KOPS_PRINTABLE_H
#define KOPS_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/*
 * Returns the bytes of the character at `at` if a terminal would take it for a command (C0, DEL, C1), if it
 * ends a line (U+2028, U+2029), or if it changes the direction of text (U+200E, U+200F, U+202A to E, U+2066 to
 * 9, U+061C). Else 0, also at the end of the text.
 */
static inline size_t unprintable_bytes(const char *at)
{
	unsigned char first = (unsigned char)at[0], second = first ? (unsigned char)at[1] : 0;
	unsigned char third = first == 0xe2 && second ? (unsigned char)at[2] : 0;

	if ((first && first < 0x20) || first == 0x7f)
		return 1;
	if ((first == 0xc2 && second >= 0x80 && second < 0xa0) || (first == 0xd8 && second == 0x9c))
		return 2;
	if (second == 0x80 && (third == 0x8e || third == 0x8f || (third >= 0xa8 && third <= 0xae)))
		return 3;
	return second == 0x81 && third >= 0xa6 && third <= 0xa9 ? 3 : 0;
}

/* Replaces each such character by '?', in place. */
static inline void make_printable(char *text)
{
	char *to = text;

	while (*text) {
		size_t n = unprintable_bytes(text);
		*to++ = n ? '?' : *text;
		text += n ? n : 1;
	}
	*to = '\0';
}

#define BUFFER_NAME_MAX 255
#define BUFFER_NAME_RULES                                                                                      \
	"1 to 255 characters: parts of letters, digits and ._-+, joined by /, none of them . or .."

/* Returns true if a buffer may be published under this name: BUFFER_NAME_RULES. */
static inline bool buffer_name_is_valid(const char *name)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+";
	const char *part = name;

	for (;;) {
		size_t n = strspn(part, letters), dots = strspn(part, ".");

		if (n == 0 || (dots == n && n <= 2))
			return false;
		part += n;
		if (*part != '/')
			return *part == '\0' && part - name <= BUFFER_NAME_MAX;
		part++;
	}
}

#endif
