/*
 * move.h: copies elements between strided layouts on the CPU. Copy, transpose and the packing of operands are
 * all this operation.
 */
#ifndef KOPS_MOVE_H
#define KOPS_MOVE_H

#include <stddef.h>
#include <stdint.h>

/* y[i, j] = x[i, j] for rows × cols elements of `size` bytes, strides in elements. One thread. */
void move_matrix(void *y, int64_t y_row, int64_t y_col, const void *x, int64_t x_row, int64_t x_col,
                 uint64_t rows, uint64_t cols, size_t size);

/* The same for four axes, divided among the threads if that is worth it. */
struct move {
	char *y;
	const char *x;
	size_t size;
	uint64_t shape[4];
	int64_t y_strides[4], x_strides[4]; /* elements */
};
void move_run(const struct move *move);

#define MOVE_PART 16384 /* elements that are worth a thread */

/* Estimates how long the threads compute, without the time of memory; for plans. */
double move_ns(const struct move *move);

#endif
