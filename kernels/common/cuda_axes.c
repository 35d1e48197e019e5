#include "common/cuda.h"

static void insert_axis(struct cuda_axes *axes, const struct view *views, unsigned n, uint32_t d)
{
	int64_t key = views[n - 1].strides[d];
	uint32_t at = axes->rank++;

	for (; at > 0 && stride_magnitude(axes->strides[n - 1][at - 1]) > stride_magnitude(key); at--) {
		axes->extent[at] = axes->extent[at - 1];
		for (unsigned v = 0; v < n; v++)
			axes->strides[v][at] = axes->strides[v][at - 1];
	}
	axes->extent[at] = views[0].shape[d];
	for (unsigned v = 0; v < n; v++)
		axes->strides[v][at] = views[v].strides[d];
}

static bool joins(const struct cuda_axes *axes, unsigned n, uint32_t inner, uint32_t outer)
{
	for (unsigned v = 0; v < n; v++)
		if (axes->strides[v][outer] != axes->strides[v][inner] * (int64_t)axes->extent[inner])
			return false;
	return true;
}

void cuda_axes_of(const struct view *views, unsigned n, struct cuda_axes *ret)
{
	struct cuda_axes sorted = {0};
	uint32_t last = 0;

	for (uint32_t d = views[0].rank; d-- > 0;)
		if (views[0].shape[d] != 1)
			insert_axis(&sorted, views, n, d);

	*ret = sorted;
	ret->rank = sorted.rank > 0;
	for (uint32_t d = 1; d < sorted.rank; d++) {
		if (joins(ret, n, last, d)) {
			ret->extent[last] *= sorted.extent[d];
			continue;
		}
		last = ret->rank++;
		ret->extent[last] = sorted.extent[d];
		for (unsigned v = 0; v < n; v++)
			ret->strides[v][last] = sorted.strides[v][d];
	}
}
