/*
 * Copy, y = x.
 *
 *   kernel  idea                                         bound                        measured, H200
 *   copy  dense both sides: one DMA copy; two axes:    PCIe 55 GB/s, HBM 4.3 TB/s   2^28 f32 dense:
 *         one pitched DMA copy; else one element per   (read + written)             4232 GB/s
 *         thread along y's finest axis
 */
#include "common/cuda.h"

namespace
{

/* One element per thread and step; lanes follow y's finest axis. extent is 1 beyond the rank. */
template <typename T, typename Index>
__global__ void copy_elements(const T *x, T *y, cuda_axes axes, Index count)
{
	Index step = (Index)gridDim.x * blockDim.x;

	for (Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
		Index rest = i;
		int64_t from = 0, to = 0;

		for (uint32_t d = 0; d < axes.rank; d++) {
			Index extent = (Index)axes.extent[d];
			Index at = d + 1 < axes.rank ? rest % extent : rest;

			rest = d + 1 < axes.rank ? rest / extent : 0;
			from += (int64_t)at * axes.strides[0][d];
			to += (int64_t)at * axes.strides[1][d];
		}
		y[to] = x[from];
	}
}

template <typename T>
void launch_elements(const view *x, const view *y, const cuda_axes &axes, uint64_t count, cudaStream_t stream)
{
	const unsigned threads = 256;
	uint64_t blocks = (count + threads - 1) / threads;
	unsigned grid = (unsigned)(blocks < (1u << 20) ? blocks : 1u << 20);

	/* A 32-bit index must not wrap when the last step is added to it. */
	if (count < (1u << 30))
		copy_elements<T, uint32_t>
		    <<<grid, threads, 0, stream>>>((const T *)x->data, (T *)y->data, axes, (uint32_t)count);
	else
		copy_elements<T, uint64_t>
		    <<<grid, threads, 0, stream>>>((const T *)x->data, (T *)y->data, axes, count);
}

} // namespace

extern "C" int cuda_copy_strided(const struct view *x, const struct view *y, cudaStream_t stream)
{
	const view both[2] = {*x, *y};
	uint64_t count = view_elements(y);
	cuda_axes axes;

	cuda_axes_of(both, 2, &axes);
	switch (dtype_size(y->dtype)) {
	case 2:
		launch_elements<uint16_t>(x, y, axes, count, stream);
		break;
	case 4:
		launch_elements<uint32_t>(x, y, axes, count, stream);
		break;
	default:
		launch_elements<uint64_t>(x, y, axes, count, stream);
	}
	return cuda_launch_status();
}
