/* view.c: which bytes of a buffer an operand uses. */
#include <string.h>

#include "dtype.h"
#include "libkops/base/view.h"

size_t kops_dtype_size(kops_dtype dtype)
{
	return dtype_size(dtype);
}

kops_view kops_matrix(kops_buffer *buffer, uint64_t offset, kops_dtype dtype, uint64_t rows, uint64_t cols,
                      uint64_t ld)
{
	kops_view view = {.buffer = buffer, .offset = offset, .dtype = dtype, .rank = 2};
	view.shape[0] = rows;
	view.shape[1] = cols;
	view.strides[0] = (int64_t)(ld ? ld : cols);
	view.strides[1] = 1;
	return view;
}

kops_view kops_tensor(kops_buffer *buffer, uint64_t offset, kops_dtype dtype, uint32_t rank,
                      const uint64_t *shape)
{
	kops_view view = {.buffer = buffer, .offset = offset, .dtype = dtype, .rank = rank};
	uint64_t stride = 1;
	for (uint32_t d = rank < KOPS_RANK_MAX ? rank : KOPS_RANK_MAX; d-- > 0;) {
		view.shape[d] = shape[d];
		view.strides[d] = (int64_t)stride;
		stride *= shape[d];
	}
	return view;
}

kops_view kops_transposed(kops_view view)
{
	if (view.rank < 2 || view.rank > KOPS_RANK_MAX) {
		view.rank = 0; /* the view has no two axes, so no job takes it */
		return view;
	}
	uint64_t extent = view.shape[view.rank - 1];
	int64_t stride = view.strides[view.rank - 1];
	view.shape[view.rank - 1] = view.shape[view.rank - 2];
	view.strides[view.rank - 1] = view.strides[view.rank - 2];
	view.shape[view.rank - 2] = extent;
	view.strides[view.rank - 2] = stride;
	return view;
}

static bool is_dense(const kops_view *view)
{
	uint64_t stride = 1;
	for (uint32_t d = view->rank; d-- > 0;)
		if (view->strides[d] != (int64_t)stride || stride > INT64_MAX ||
		    __builtin_mul_overflow(stride, view->shape[d], &stride))
			return false;
	return true;
}

void client_view_encode(const kops_view *view, Kops__V1__View *ret_wire)
{
	Kops__V1__View wire = KOPS__V1__VIEW__INIT;
	wire.buffer = view->buffer->id;
	wire.offset = view->offset;
	wire.dtype = (Kops__V1__DType)view->dtype;
	wire.n_shape = view->rank;
	wire.shape = (uint64_t *)view->shape;
	if (!is_dense(view)) {
		wire.n_strides = view->rank;
		wire.strides = (int64_t *)view->strides;
	}
	*ret_wire = wire;
}

/* Computes how many elements the axes reach below and above the first one, and the product of the extents. */
static bool reach(const kops_view *view, uint64_t *ret_below, uint64_t *ret_above, uint64_t *ret_count)
{
	*ret_below = *ret_above = 0;
	*ret_count = 1;
	for (uint32_t d = 0; d < view->rank; d++) {
		int64_t stride = view->strides[d];
		uint64_t step = stride < 0 ? -(uint64_t)stride : (uint64_t)stride;
		uint64_t *side = stride < 0 ? ret_below : ret_above;
		if (__builtin_mul_overflow(*ret_count, view->shape[d], ret_count))
			return false;
		if (view->shape[d] == 0)
			continue;
		if (__builtin_mul_overflow(step, view->shape[d] - 1, &step) ||
		    __builtin_add_overflow(*side, step, side))
			return false;
	}
	return true;
}

static bool repeats(const kops_view *view)
{
	for (uint32_t d = 0; d < view->rank; d++)
		if (view->strides[d] == 0 && view->shape[d] > 1)
			return true;
	return false;
}

void client_view_extent(struct operand *operand)
{
	const kops_view *view = &operand->view;
	uint64_t size = kops_dtype_size(view->dtype), below, above, count;
	operand->lo = 0;
	operand->hi = UINT64_MAX;
	operand->dense = false;
	if (size == 0 || !reach(view, &below, &above, &count))
		return;
	if (count == 0) {
		operand->hi = 0;
		return;
	}
	if (__builtin_mul_overflow(below, size, &below) || __builtin_mul_overflow(above, size, &above) ||
	    __builtin_add_overflow(above, size, &above) ||
	    __builtin_add_overflow(view->offset, above, &above) || view->offset < below)
		return;
	operand->lo = view->offset - below;
	operand->hi = above;
	/*
	 * Distinct elements of a dense operand fill its range. If an output repeats any, the daemon refuses it.
	 */
	operand->dense = !repeats(view) && count == (operand->hi - operand->lo) / size;
}
