/*
 * layout.h: where the matrices of a product lie, in a channel's memory or in place, and the job that computes
 * it there.
 *
 * kops is row-major, so it computes c' = op(b)' * op(a)': a transposed matrix is the same memory, read by rows.
 */
#ifndef KOPS_LIBBLAS_LAYOUT_H
#define KOPS_LIBBLAS_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "channel.h"
#include "kops.h"
#include "place.h"
#include "product.h"

struct region {
	uint64_t rows, cols, ld;   /* elements */
	uint64_t offset;           /* in bytes; matrices of a batch follow each other */
	const struct place *place; /* the matrix lies there; NULL: in the channel's memory */
};

struct layout {
	struct region a, b, c;       /* a and b are one region if the product says b_is_a */
	uint64_t bytes, first_bytes; /* of the channel's memory: for all matrices, and for the first one */
};

/*
 * Lays out a, b and c, or b, a and c, from byte 0 of the channel's memory, but for those that lie elsewhere.
 * Returns false if no memory could be so large. The places must stay.
 */
bool layout_make(const struct product *product, const struct places *places, bool b_first, struct layout *ret);

/* Copy a matrix of the caller to memory that begins as the region's does, unless it lies there, and c back. */
void layout_load(const struct product *product, const struct operand *from, const struct region *to,
                 char *memory);
void layout_store(const struct product *product, const struct region *c, const char *memory);

/* Gets the pages of the caller's c while a job computes it, so that layout_store() is quick. */
void layout_expect(const struct product *product);

/*
 * Submits the job in a queue. buffer: the channel's memory, or NULL if no matrix lies there. Returns NULL if it
 * cannot be made or sent.
 */
kops_job *layout_submit(struct channel *channel, kops_buffer *buffer, const struct product *product,
                        const struct layout *layout, uint32_t queue);

#endif
