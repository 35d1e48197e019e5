/*
 * copy.h: copies matrices between the caller's memory and kopsd's. Column-major; touches no byte outside the
 * matrix.
 *
 * Several threads copy large matrices, as many as settings.h says. They start with the first large copy and
 * sleep in between. They serve one copy at a time; other callers copy alone.
 */
#ifndef KOPS_LIBBLAS_COPY_H
#define KOPS_LIBBLAS_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which elements of a square matrix are used. */
enum triangle { WHOLE, UPPER, LOWER };

struct copy {
	char *to;
	const char *from;
	uint64_t to_ld, from_ld, rows, cols; /* elements */
	size_t element;                      /* bytes: 4, 8 or 16 */
	bool hermitian;                      /* of complex numbers: see copy_symmetric() */
};

/* Copies the elements of the triangle, or all. */
void copy_matrix(const struct copy *copy, enum triangle triangle);

/* Copies a symmetric matrix of which one triangle is stored, and fills in the other; if hermitian its
 * conjugate. */
void copy_symmetric(const struct copy *copy, enum triangle stored);

/* Sets the imaginary parts of the diagonal of a square matrix of complex numbers to 0. */
void copy_make_diagonal_real(char *matrix, uint64_t ld, uint64_t n, size_t element);

/*
 * Gets the pages of memory without changing it. A program's new memory has none, and getting them takes longer
 * than a copy. Returns false if they cannot be had.
 */
bool copy_get_pages(void *memory, uint64_t bytes);

/* Calls copy_one(ctx, i) for each i below n, on any thread. bytes: what one call copies. */
void copy_each(uint64_t n, uint64_t bytes, void (*copy_one)(void *ctx, uint64_t i), void *ctx);

#endif
