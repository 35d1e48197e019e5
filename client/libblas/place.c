/* place.c: finds matrices in the program's shared memory, and runs jobs that write there. */
#include "place.h"

#define LEAST_BYTES (UINT64_C(64) << 10) /* a copy of less takes a few µs */

/* ---- Finding ---- */

/* Sets the bytes from the first element of a matrix to its last. Returns false if no memory could be so large.
 */
static bool reach(const struct product *p, const struct operand *matrix, int64_t rows, int64_t cols,
                  uint64_t *ret_bytes)
{
	uint64_t bytes;
	if (__builtin_mul_overflow((uint64_t)matrix->ld, (uint64_t)cols - 1, &bytes) ||
	    __builtin_add_overflow(bytes, (uint64_t)rows, &bytes) ||
	    __builtin_mul_overflow(bytes, kops_dtype_size(p->dtype), ret_bytes))
		return false;
	return *ret_bytes <= PTRDIFF_MAX;
}

static void find(const struct product *p, const struct operand *matrix, int64_t rows, int64_t cols,
                 struct place *ret, uint64_t *ret_bytes)
{
	struct heap_part part;
	*ret = (struct place){.buffer = NULL};
	if (p->batch > 0 || matrix->triangle != WHOLE || !reach(p, matrix, rows, cols, ret_bytes) ||
	    *ret_bytes < LEAST_BYTES || (uintptr_t)matrix->data % kops_dtype_size(p->dtype) != 0)
		return;
	if (heap_find(matrix->data, *ret_bytes, &part))
		ret->part = part;
}

static bool overlap(const void *x, uint64_t x_bytes, const void *y, uint64_t y_bytes)
{
	uintptr_t x0 = (uintptr_t)x, y0 = (uintptr_t)y;
	return x0 < y0 + y_bytes && y0 < x0 + x_bytes;
}

void places_find(const struct product *p, struct places *ret)
{
	uint64_t a_bytes = 0, b_bytes = 0, c_bytes = 0;
	*ret = (struct places){.a.buffer = NULL};
	if (!heap_is_on())
		return;
	find(p, &p->a, product_rows_of_a(p), product_cols_of_a(p), &ret->a, &a_bytes);
	if (p->b_is_a)
		ret->b = ret->a;
	else
		find(p, &p->b, product_rows_of_b(p), product_cols_of_b(p), &ret->b, &b_bytes);
	if (p->beta == 0)
		find(p, &p->c, p->m, p->n, &ret->c, &c_bytes);
	if (overlap(p->a.data, a_bytes, p->c.data, c_bytes) || overlap(p->b.data, b_bytes, p->c.data, c_bytes))
		ret->c = (struct place){.buffer = NULL};
}

static void import(struct place *place, uint64_t wanted_bytes, struct channel *channel)
{
	if (place->part.block)
		place->buffer = channel_import(channel, &place->part, wanted_bytes);
	if (!place->buffer)
		place->part.block = 0;
}

static uint64_t bytes_of(const struct product *p, int64_t rows, int64_t cols)
{
	return (uint64_t)rows * (uint64_t)cols * kops_dtype_size(p->dtype);
}

void places_import(struct places *places, const struct product *p, struct channel *channel)
{
	import(&places->a, bytes_of(p, p->m, p->k), channel);
	import(&places->b, bytes_of(p, p->k, p->n), channel);
	import(&places->c, bytes_of(p, p->m, p->n), channel);
}

/* ---- Counting ---- */

double places_used_bytes(const struct places *places, const struct product *p)
{
	double element = (double)kops_dtype_size(p->dtype), m = (double)p->m, n = (double)p->n,
	       k = (double)p->k;
	double a = places->a.part.block ? m * k : 0, b = places->b.part.block && !p->b_is_a ? k * n : 0;
	return element * (a + b + (places->c.part.block ? m * n : 0));
}

double places_copied_bytes(const struct places *places, const struct product *p)
{
	return product_bytes(p) - places_used_bytes(places, p);
}

/* ---- Results in place ---- */

static uint64_t bytes_of_c(const struct product *p)
{
	uint64_t bytes = 0;
	reach(p, &p->c, p->m, p->n, &bytes);
	return bytes;
}

void place_lend(const struct product *p, struct channel *channel)
{
	channel_lend(channel, (void *)(uintptr_t)p->c.data, bytes_of_c(p));
}

int place_wait(const struct place *c, const struct product *p, struct channel *channel, kops_job *job,
               bool *ret_is_elsewhere)
{
	int status = job ? channel_wait(channel, job, product_flops(p)) : KOPS_E_INVALID;
	/* A job that kopsd answered has ended. */
	if (job && (!channel_is_open(channel) || status == KOPS_E_INTERRUPTED))
		heap_keep((void *)(uintptr_t)p->c.data, bytes_of_c(p));
	channel_lend(channel, NULL, 0);
	*ret_is_elsewhere = status == 0 && !heap_is_shared(c->part.block);
	return status;
}
