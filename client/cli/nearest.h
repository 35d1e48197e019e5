/* nearest.h: guesses what a mistyped word was meant to be. */
#ifndef KOPS_CLI_NEAREST_H
#define KOPS_CLI_NEAREST_H

#include <stddef.h>

struct nearest {
	const char *word; /* `length` characters that were typed */
	size_t length;
	const char *best; /* NULL: no word is near */
	unsigned distance;
};

struct nearest nearest_to(const char *word, size_t length);

/*
 * Keeps the word if it is nearer than those before: up to two letters added, left out or exchanged. NULL is
 * ignored.
 */
void nearest_offer(struct nearest *nearest, const char *word);

/* Returns "did you mean '--alpha'?" with dashes "--", or `otherwise`. */
const char *nearest_hint(const struct nearest *nearest, const char *dashes, const char *otherwise,
                         char text[96]);

#endif
