/*
 * blocks.h: computes a product with a large c by blocks of c's columns or rows, so that copies and computing
 * overlap.
 *
 *     this process    copy in 0 | copy in 1 | copy out 0, in 2 | copy out 1, in 3 | ...
 *     kopsd                     | block 0   | block 1          | block 2          | ...
 *
 * The channel's memory has room for two blocks and for the operand that all blocks read: a for columns, b for
 * rows. Operands in place are not copied. kopsd sends this operand to its GPU with each block, so blocks are
 * wider than k.
 */
#ifndef KOPS_LIBBLAS_BLOCKS_H
#define KOPS_LIBBLAS_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "channel.h"
#include "place.h"
#include "product.h"

struct blocks {
	const struct product *product;
	const struct places *places;
	bool by_rows;
	int64_t extent, width; /* rows or columns: of c, and of a block */
};

/* Returns false if the product is better computed as a whole. c must not be in place. */
bool blocks_cut(const struct product *product, const struct places *places, struct blocks *ret);

/*
 * Computes the product. Calls other() for blocks that kopsd fails to compute, and adds them to *failed. Returns
 * false, having done nothing, if there is no memory.
 */
bool blocks_compute(const struct blocks *blocks, struct channel *channel, product_function *other,
                    int64_t *failed);

#endif
