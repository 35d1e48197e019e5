/* layout.h: the dense image of a view on the device, and parts of it. */
#ifndef KOPS_PLAN_LAYOUT_H
#define KOPS_PLAN_LAYOUT_H

#include "kernel.h"

/* The axes are those of several indices and a stride other than 0, merged, finest first in host memory. */
struct layout {
	uint64_t bytes;                 /* of the elements; 0 for a view without any */
	uint64_t lowest;                /* bytes from the memory's start to the view's lowest element */
	uint64_t origin;                /* elements from the image's start to element (0, …) */
	int64_t strides[KOPS_RANK_MAX]; /* of the view over the image, in elements; unchanged for axes of one
	                                   index */
	kops_dtype dtype;
	uint32_t element, rank; /* bytes of an element; merged axes */
	uint64_t extent[KOPS_RANK_MAX];
	uint64_t host_stride[KOPS_RANK_MAX], image_stride[KOPS_RANK_MAX]; /* elements; an image is dense */
};

/* Images and workspaces begin at multiples of this. */
#define LAYOUT_ALIGNMENT 256u
static inline uint64_t layout_aligned(uint64_t bytes)
{
	return (bytes + LAYOUT_ALIGNMENT - 1) & ~(uint64_t)(LAYOUT_ALIGNMENT - 1);
}

/* Pure. Reads v->offset, but not v->data. */
void layout_of(const struct view *v, struct layout *ret);

/*
 * Describes a part of a view and the same part of its image. image->data: the address of the part's element
 * (0, …). Returns the address of its lowest element. Does not set ret->origin and ret->strides.
 */
void *layout_of_part(const struct view *host, const struct view *image, struct layout *ret);

/*
 * Leaves one half of a part, 0 or 1, cut along the coarsest axis: half 1 has what is odd, and all of a single
 * element. Returns by how many bytes the half's lowest element lies higher in the image.
 */
uint64_t layout_halve(struct layout *part, unsigned half);

/* Returns true if the two, over one memory, hold the same elements at the same offsets. Their strides may
 * differ. */
bool layout_is_same_image(const struct layout *a, const struct layout *b);

#endif
