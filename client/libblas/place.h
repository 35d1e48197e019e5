/*
 * place.h: where the matrices of a product lie in a lane's memory, and the job that computes it there.
 *
 * kops is row-major, so it computes c' = op(b)' * op(a)': a transposed matrix is the same memory, read by rows.
 */
#ifndef KOPS_LIBBLAS_PLACE_H
#define KOPS_LIBBLAS_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "kops.h"
#include "lane.h"
#include "product.h"

struct place {
	uint64_t rows, cols, ld; /* elements */
	uint64_t offset;         /* in bytes; matrices of a batch follow each other */
};

struct layout {
	struct place a, b, c; /* a and b are one place if the product says b_is_a */
	uint64_t bytes;       /* bytes up to the end of c */
};

/* Lays out a, b and c from byte 0, or b, a and c. Returns false if no memory could be so large. */
bool place_all(const struct product *product, bool b_first, struct layout *ret);

/* Copy a matrix of the caller there, and c back. */
void place_load(const struct product *product, const struct operand *from, const struct place *to,
                char *memory);
void place_store(const struct product *product, const struct place *c, const char *memory);

/* Submits the job in a queue. Returns NULL if it cannot be made or sent. */
kops_job *place_submit(struct lane *lane, kops_buffer *buffer, const struct product *product,
                       const struct layout *layout, uint32_t queue);

#endif
