/*
 * place.h: where the matrices of a product lie in a lane's memory, and the job that computes it there.
 *
 * kops is row-major, so it computes c' = op(b)' * op(a)', where the transposed matrices are the same memory
 * seen by rows.
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
	uint64_t offset;         /* bytes; those of a batch follow each other */
};

struct layout {
	struct place a, b, c; /* a and b are one where the product says so */
	uint64_t bytes;       /* to the end of c */
};

/* From byte 0: a, b and c; or b, a and c. False if there can be no such memory. */
bool place_all(const struct product *product, bool b_first, struct layout *ret);

/* Copies a matrix of the caller there, and c back. */
void place_load(const struct product *product, const struct operand *from, const struct place *to,
                char *memory);
void place_store(const struct product *product, const struct place *c, const char *memory);

/* Submits the job, in this queue. NULL: it cannot be made, or sent. */
kops_job *place_submit(struct lane *lane, kops_buffer *buffer, const struct product *product,
                       const struct layout *layout, uint32_t queue);

#endif
