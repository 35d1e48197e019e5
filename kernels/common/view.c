/* view.c: computes which bytes views touch, and whether two of them meet. See kernel.h. */
#include "kernel.h"

bool view_is_empty(const struct view *v)
{
	if (view_is_absent(v))
		return true;
	for (uint32_t d = 0; d < v->rank; d++)
		if (v->shape[d] == 0)
			return true;
	return false;
}

int view_count(const struct view *v, uint64_t *ret_count)
{
	uint64_t count = view_is_empty(v) ? 0 : 1;

	for (uint32_t d = 0; count && d < v->rank; d++)
		if (__builtin_mul_overflow(count, v->shape[d], &count))
			return KOPS_E_RANGE;
	if (count > INT64_MAX)
		return KOPS_E_RANGE;
	*ret_count = count;
	return 0;
}

uint64_t view_elements(const struct view *v)
{
	uint64_t count = 0;

	return view_count(v, &count) < 0 ? 0 : count;
}

void view_narrow(struct view *v, uint32_t axis, uint64_t first, uint64_t n)
{
	int64_t bytes = (int64_t)first * v->strides[axis] * (int64_t)dtype_size(v->dtype);

	v->offset += (uint64_t)bytes;
	if (v->data)
		v->data = (char *)v->data + bytes;
	v->shape[axis] = n;
}

void view_make_dense(struct view *v)
{
	uint64_t stride = 1;

	for (uint32_t d = v->rank; d-- > 0;) {
		v->strides[d] = (int64_t)stride;
		stride *= v->shape[d] ? v->shape[d] : 1;
	}
}

bool view_is_dense(const struct view *v)
{
	uint64_t stride = 1;

	if (view_is_empty(v))
		return true;
	for (uint32_t d = v->rank; d-- > 0;) {
		if (v->shape[d] > 1 && v->strides[d] != (int64_t)stride)
			return false;
		stride *= v->shape[d];
	}
	return true;
}

/*
 * Computes the bytes below and above element (0, …) up to the first byte of the last element. No extent may be
 * 0.
 */
static int reach(const struct view *v, uint64_t *ret_below, uint64_t *ret_above)
{
	uint64_t below = 0, above = 0, span;

	for (uint32_t d = 0; d < v->rank; d++) {
		uint64_t *side = v->strides[d] < 0 ? &below : &above;
		if (__builtin_mul_overflow(v->shape[d] - 1, stride_magnitude(v->strides[d]), &span) ||
		    __builtin_mul_overflow(span, dtype_size(v->dtype), &span) ||
		    __builtin_add_overflow(*side, span, side))
			return KOPS_E_RANGE;
	}
	*ret_below = below;
	*ret_above = above;
	return 0;
}

int view_extent(const struct view *v, uint64_t space_bytes, uint64_t *ret_lo, uint64_t *ret_hi)
{
	size_t size = dtype_size(v->dtype);
	uint64_t count, below, above, hi;

	if (size == 0 || v->rank < 1 || v->rank > KOPS_RANK_MAX || v->offset % dtype_alignment(v->dtype) != 0)
		return KOPS_E_INVALID;
	if (view_count(v, &count) < 0 || v->offset > space_bytes)
		return KOPS_E_RANGE;
	if (count == 0) {
		*ret_lo = *ret_hi = v->offset;
		return 0;
	}
	if (reach(v, &below, &above) < 0 || below > v->offset ||
	    __builtin_add_overflow(v->offset, above, &hi) || __builtin_add_overflow(hi, size, &hi) ||
	    hi > space_bytes)
		return KOPS_E_RANGE;
	*ret_lo = v->offset - below;
	*ret_hi = hi;
	return 0;
}

/* Lists the axes with more than one index by rising stride, and returns their number. */
static unsigned axes_by_stride(const struct view *v, uint32_t axes[KOPS_RANK_MAX])
{
	unsigned n = 0;

	for (uint32_t d = 0; d < v->rank; d++) {
		if (v->shape[d] < 2)
			continue;
		unsigned at = n++;
		for (; at > 0 && stride_magnitude(v->strides[axes[at - 1]]) > stride_magnitude(v->strides[d]);
		     at--)
			axes[at] = axes[at - 1];
		axes[at] = d;
	}
	return n;
}

double view_blocks(const struct view *v, uint64_t bytes)
{
	double size = (double)dtype_size(v->dtype), run = size, apart = 1;
	uint32_t axes[KOPS_RANK_MAX];
	unsigned n = axes_by_stride(v, axes);

	if (view_is_empty(v))
		return 0;
	for (unsigned i = 0; i < n; i++) {
		double step = (double)stride_magnitude(v->strides[axes[i]]) * size;
		double extent = (double)v->shape[axes[i]];
		if (step == 0)
			continue;
		if (apart == 1 && (step <= run || step <= (double)bytes))
			run += (extent - 1) * step;
		else
			apart *= extent;
	}
	return apart * (run > (double)bytes ? run / (double)bytes : 1);
}

/* A sufficient condition: along each axis the step is longer than what all smaller axes span together. */
bool view_is_injective(const struct view *v)
{
	uint32_t axes[KOPS_RANK_MAX];
	uint64_t span = 0, more;

	if (view_is_empty(v))
		return true;
	unsigned n = axes_by_stride(v, axes);
	for (unsigned i = 0; i < n; i++) {
		uint64_t step = stride_magnitude(v->strides[axes[i]]);
		if (step <= span)
			return false;
		if (__builtin_mul_overflow(v->shape[axes[i]] - 1, step, &more) ||
		    __builtin_add_overflow(span, more, &span))
			return false;
	}
	return true;
}

bool view_same(const struct view *a, const struct view *b)
{
	if (a->space != b->space || a->offset != b->offset || a->dtype != b->dtype || a->rank != b->rank)
		return false;
	for (uint32_t d = 0; d < a->rank; d++)
		if (a->shape[d] != b->shape[d] || (a->shape[d] > 1 && a->strides[d] != b->strides[d]))
			return false;
	return true;
}

/*
 * Computes the bytes of v modulo `pitch` as one interval [*ret_start, +*ret_length) on a circle of that length.
 * Axes whose stride is a multiple of the pitch vanish. Returns false if the interval covers the circle.
 */
static bool wrap(const struct view *v, uint64_t pitch, uint64_t *ret_start, uint64_t *ret_length)
{
	uint64_t size = dtype_size(v->dtype), below = 0, length = size;

	for (uint32_t d = 0; d < v->rank; d++) {
		uint64_t step = stride_magnitude(v->strides[d]) * size; /* fits, as reach() checked */
		if (v->shape[d] < 2 || step % pitch == 0)
			continue;
		uint64_t span = (v->shape[d] - 1) * step;
		if (span >= pitch)
			return false;
		length += span;
		if (v->strides[d] < 0)
			below += span;
		if (length >= pitch)
			return false;
	}
	*ret_start = (v->offset % pitch + pitch - below) % pitch;
	*ret_length = length;
	return true;
}

static bool apart_modulo(const struct view *a, const struct view *b, uint64_t pitch)
{
	uint64_t a_start, a_length, b_start, b_length;

	if (!wrap(a, pitch, &a_start, &a_length) || !wrap(b, pitch, &b_start, &b_length))
		return false;
	uint64_t a_to_b = b_start >= a_start ? b_start - a_start : b_start + (pitch - a_start);
	uint64_t b_to_a = a_to_b ? pitch - a_to_b : 0;
	return a_to_b >= a_length && b_to_a >= b_length;
}

static bool apart_by_pitch_of(const struct view *v, const struct view *a, const struct view *b)
{
	for (uint32_t d = 0; d < v->rank; d++) {
		if (v->shape[d] < 2 || v->strides[d] == 0)
			continue;
		uint64_t pitch = stride_magnitude(v->strides[d]) * dtype_size(v->dtype);
		if (pitch < UINT64_MAX / 4 && apart_modulo(a, b, pitch))
			return true;
	}
	return false;
}

/* A modulus that keeps the two apart proves them disjoint. Tries each stride of either. */
bool view_overlap(const struct view *a, const struct view *b)
{
	uint64_t a_lo, a_hi, b_lo, b_hi;

	if (a->space != b->space || view_is_empty(a) || view_is_empty(b))
		return false;
	if (view_extent(a, UINT64_MAX, &a_lo, &a_hi) < 0 || view_extent(b, UINT64_MAX, &b_lo, &b_hi) < 0)
		return true;
	if (a_hi <= b_lo || b_hi <= a_lo)
		return false;
	return !apart_by_pitch_of(a, a, b) && !apart_by_pitch_of(b, a, b);
}
