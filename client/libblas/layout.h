/*
 * layout.h: where the matrices of a product lie in a channel's memory, and the job that computes it there.
 *
 * kops is row-major, so it computes c' = op(b)' * op(a)': a transposed matrix is the same memory, read by rows.
 */
#ifndef KOPS_LIBBLAS_LAYOUT_H
#define KOPS_LIBBLAS_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "channel.h"
#include "kops.h"
#include "product.h"

struct region {
	uint64_t rows, cols, ld; /* elements */
	uint64_t offset;         /* in bytes; matrices of a batch follow each other */
};

struct layout {
	struct region a, b, c; /* a and b are one region if the product says b_is_a */
	uint64_t bytes;        /* bytes up to the end of c */
};

/* Lays out a, b and c from byte 0, or b, a and c. Returns false if no memory could be so large. */
bool layout_make(const struct product *product, bool b_first, struct layout *ret);

/* Copy a matrix of the caller there, and c back. */
void layout_load(const struct product *product, const struct operand *from, const struct region *to,
                 char *memory);
void layout_store(const struct product *product, const struct region *c, const char *memory);

/* Submits the job in a queue. Returns NULL if it cannot be made or sent. */
kops_job *layout_submit(struct channel *channel, kops_buffer *buffer, const struct product *product,
                        const struct layout *layout, uint32_t queue);

#endif
