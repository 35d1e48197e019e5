/*
 * place.h: which matrices of a product lie in memory that kopsd sees (heap.h). Those are not copied.
 *
 * A matrix is used in place if it is a single one, stored as a whole, and large. The result moreover only if
 * beta is 0, so that nothing is lost if kopsd fails half-way, and if no other operand reaches between its
 * columns.
 */
#ifndef KOPS_LIBBLAS_PLACE_H
#define KOPS_LIBBLAS_PLACE_H

#include <stdbool.h>

#include "channel.h"
#include "heap/heap.h"
#include "product.h"

struct place {
	struct heap_part part; /* .block is 0 for a matrix that is copied */
	kops_buffer *buffer;
};

struct places {
	struct place a, b, c;
};

/* Finds the matrices that may be used in place. */
void places_find(const struct product *product, struct places *ret);

/* Imports their blocks. Matrices whose blocks cannot be had are copied. */
void places_import(struct places *places, const struct product *product, struct channel *channel);

/* Bytes of the product's matrices that are copied, both ways, and those that are not. */
double places_copied_bytes(const struct places *places, const struct product *product);
double places_used_bytes(const struct places *places, const struct product *product);

/*
 * A job that writes c in place: place_lend() before it is submitted, place_wait() after, with NULL if it could
 * not be. Returns what channel_wait() does. *ret_is_elsewhere: c's memory became private meanwhile, and the
 * result is in the buffer's memory (kops_data()). After a failure the next BLAS may write the caller's memory,
 * whatever kopsd still does.
 */
void place_lend(const struct product *product, struct channel *channel);
int place_wait(const struct place *c, const struct product *product, struct channel *channel, kops_job *job,
               bool *ret_is_elsewhere);

#endif
