#include "plan/layout.h"

/* Sorts the axes that occupy memory, finest first; of equal strides the later axis is the finer. */
static uint32_t sort_axes(const struct view *v, uint32_t axes[KOPS_RANK_MAX])
{
	uint32_t n = 0;

	for (uint32_t d = v->rank; d-- > 0;) {
		uint32_t at = n;

		if (v->shape[d] < 2 || v->strides[d] == 0)
			continue;
		for (; at > 0 && stride_magnitude(v->strides[axes[at - 1]]) > stride_magnitude(v->strides[d]);
		     at--)
			axes[at] = axes[at - 1];
		axes[at] = d;
		n++;
	}
	return n;
}

/* Appends an axis, or extends the last one if it continues that. */
static void append_axis(struct layout *layout, uint64_t extent, uint64_t host_stride, uint64_t image_stride)
{
	uint32_t last = layout->rank - 1;

	if (layout->rank > 0 && host_stride == layout->host_stride[last] * layout->extent[last] &&
	    image_stride == layout->image_stride[last] * layout->extent[last]) {
		layout->extent[last] *= extent;
		return;
	}
	layout->extent[layout->rank] = extent;
	layout->host_stride[layout->rank] = host_stride;
	layout->image_stride[layout->rank++] = image_stride;
}

static struct layout empty_layout(const struct view *v)
{
	return (struct layout){
	    .dtype = v->dtype, .element = (uint32_t)dtype_size(v->dtype), .lowest = v->offset};
}

void layout_of(const struct view *v, struct layout *ret)
{
	uint32_t axes[KOPS_RANK_MAX], n = sort_axes(v, axes);
	uint64_t dense = 1;

	*ret = empty_layout(v);
	for (uint32_t d = 0; d < v->rank; d++)
		ret->strides[d] = v->strides[d];
	if (view_elements(v) == 0)
		return;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t extent = v->shape[axes[i]], step = stride_magnitude(v->strides[axes[i]]);

		if (v->strides[axes[i]] < 0) {
			ret->lowest -= (extent - 1) * step * ret->element;
			ret->origin += (extent - 1) * dense;
			ret->strides[axes[i]] = -(int64_t)dense;
		} else {
			ret->strides[axes[i]] = (int64_t)dense;
		}
		append_axis(ret, extent, step, dense);
		dense *= extent;
	}
	ret->bytes = dense * ret->element;
}

void *layout_of_part(const struct view *host, const struct view *image, struct layout *ret)
{
	uint32_t axes[KOPS_RANK_MAX], n = sort_axes(host, axes);
	uint64_t elements = 1, before = 0;

	*ret = empty_layout(host);
	if (view_elements(host) == 0)
		return image->data;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t extent = host->shape[axes[i]], step = stride_magnitude(host->strides[axes[i]]);
		uint64_t image_step = stride_magnitude(image->strides[axes[i]]);

		if (host->strides[axes[i]] < 0) {
			ret->lowest -= (extent - 1) * step * ret->element;
			before += (extent - 1) * image_step;
		}
		append_axis(ret, extent, step, image_step);
		elements *= extent;
	}
	ret->bytes = elements * ret->element;
	return (char *)image->data - before * ret->element;
}

uint64_t layout_halve(struct layout *part, unsigned half)
{
	uint32_t last = part->rank - 1;
	uint64_t before, n;

	if (part->rank == 0) {
		part->bytes = half == 0 ? 0 : part->bytes;
		return 0;
	}
	before = half == 0 ? 0 : part->extent[last] / 2;
	n = half == 0 ? part->extent[last] / 2 : part->extent[last] - before;
	part->bytes = part->bytes / part->extent[last] * n;
	part->extent[last] = n;
	part->lowest += before * part->host_stride[last] * part->element;
	return before * part->image_stride[last] * part->element;
}

bool layout_is_same_image(const struct layout *a, const struct layout *b)
{
	if (a->bytes != b->bytes || a->lowest != b->lowest || a->element != b->element || a->rank != b->rank)
		return false;
	for (uint32_t d = 0; d < a->rank; d++)
		if (a->extent[d] != b->extent[d] || a->host_stride[d] != b->host_stride[d])
			return false;
	return true;
}
