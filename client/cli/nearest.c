#include "nearest.h"

#include <stdio.h>
#include <string.h>

#define LENGTH_MAX   32
#define DISTANCE_MAX 2

static unsigned least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* Returns how many letters to add, leave out or exchange (Levenshtein 1966); n and m up to LENGTH_MAX. */
static unsigned distance(const char *a, size_t n, const char *b, size_t m)
{
	unsigned row[LENGTH_MAX + 1];

	for (unsigned j = 0; j <= m; j++)
		row[j] = j;
	for (size_t i = 1; i <= n; i++) {
		unsigned diagonal = row[0];
		row[0] = (unsigned)i;
		for (size_t j = 1; j <= m; j++) {
			unsigned exchanged = diagonal + (a[i - 1] != b[j - 1]);
			diagonal = row[j];
			row[j] = least(exchanged, 1 + least(row[j], row[j - 1]));
		}
	}
	return row[m];
}

struct nearest nearest_to(const char *word, size_t length)
{
	return (struct nearest){.word = word, .length = length, .distance = DISTANCE_MAX + 1};
}

void nearest_offer(struct nearest *nearest, const char *word)
{
	size_t length = word ? strlen(word) : 0;

	if (length == 0 || length > LENGTH_MAX || nearest->length > LENGTH_MAX)
		return;
	unsigned d = distance(nearest->word, nearest->length, word, length);
	if (d >= nearest->distance || 2 * d > nearest->length || 2 * d > length)
		return; /* every word is near a short one */
	nearest->distance = d;
	nearest->best = word;
}

const char *nearest_hint(const struct nearest *nearest, const char *dashes, const char *otherwise,
                         char text[96])
{
	if (nearest->best == NULL)
		return otherwise;
	snprintf(text, 96, "did you mean '%s%s'?", dashes, nearest->best);
	return text;
}
