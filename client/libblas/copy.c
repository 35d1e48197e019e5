/* copy.c: columns by memcpy(); the missing half of a symmetric matrix by tiles, so that both sides stay in
 * cache. */
#include "copy.h"

#include <string.h>

#define TILE 32

static void copy_rows(const struct copy *c, uint64_t col, uint64_t begin, uint64_t end)
{
	if (end > begin)
		memcpy(c->to + (col * c->to_ld + begin) * c->element,
		       c->from + (col * c->from_ld + begin) * c->element, (end - begin) * c->element);
}

void copy_matrix(const struct copy *c, enum triangle triangle)
{
	if (triangle == WHOLE && c->to_ld == c->rows && c->from_ld == c->rows) {
		memcpy(c->to, c->from, c->rows * c->cols * c->element);
		return;
	}
	for (uint64_t col = 0; col < c->cols; col++)
		copy_rows(c, col, triangle == LOWER ? col : 0, triangle == UPPER ? col + 1 : c->rows);
}

/* One tile of element (j, i) = (i, j), i < j, where m is column-major; the stored triangle is the source. */
static inline void mirror_tile(const struct copy *c, size_t element, enum triangle stored, uint64_t i0,
                               uint64_t j0)
{
	for (uint64_t j = j0; j < j0 + TILE && j < c->cols; j++)
		for (uint64_t i = i0; i < i0 + TILE && i < j; i++) {
			char *upper = c->to + (j * c->to_ld + i) * element;
			char *lower = c->to + (i * c->to_ld + j) * element;
			memcpy(stored == UPPER ? lower : upper, stored == UPPER ? upper : lower, element);
		}
}

void copy_symmetric(const struct copy *c, enum triangle stored)
{
	copy_matrix(c, stored);
	for (uint64_t j = 0; j < c->cols; j += TILE)
		for (uint64_t i = 0; i <= j; i += TILE) {
			if (c->element == 4)
				mirror_tile(c, 4, stored, i, j);
			else
				mirror_tile(c, 8, stored, i, j);
		}
}
