/* copy.h: matrices between the caller's memory and kopsd's. Column-major; never a byte outside the matrix. */
#ifndef KOPS_LIBBLAS_COPY_H
#define KOPS_LIBBLAS_COPY_H

#include <stddef.h>
#include <stdint.h>

/* The elements of a square matrix that count. */
enum triangle { WHOLE, UPPER, LOWER };

struct copy {
	char *to;
	const char *from;
	uint64_t to_ld, from_ld, rows, cols; /* elements */
	size_t element;                      /* bytes: 4 or 8 */
};

/* Copies the elements of the triangle, or all. */
void copy_matrix(const struct copy *copy, enum triangle triangle);

/* Copies a symmetric matrix of which one triangle is stored, and fills in the other. */
void copy_symmetric(const struct copy *copy, enum triangle stored);

#endif
