/*
 * Copy, y = x.
 *
 *   kernel  idea                                         bound                        measured, H200
 *   copy  dense both sides: one DMA copy; two axes:    PCIe 55 GB/s, HBM 4.3 TB/s   2^28 f32 dense:
 *         one pitched DMA copy; else one element per   (read + written)             4232 GB/s
 *         thread along y's finest axis
 */
#include "common/together.cuh"

namespace
{

/* One element per thread and step; lanes follow y's finest axis. extent is 1 beyond the rank. */
template <typename T, typename Index, unsigned OPS>
__global__ void copy_elements(const __grid_constant__ operands<2, OPS> where, cuda_axes axes, Index count)
{
	const T *x = (const T *)where.at(0, blockIdx.y);
	T *y = (T *)where.at(1, blockIdx.y);
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

template <typename T, unsigned OPS>
void launch_elements(const operands<2, OPS> &where, const cuda_axes &axes, uint64_t count, cudaStream_t stream)
{
	const unsigned threads = 256;
	uint64_t blocks = (count + threads - 1) / threads;
	dim3 grid((unsigned)(blocks < (1u << 20) ? blocks : 1u << 20), where.n);

	/* A 32-bit index must not wrap when the last step is added to it. */
	if (count < (1u << 30))
		copy_elements<T, uint32_t><<<grid, threads, 0, stream>>>(where, axes, (uint32_t)count);
	else
		copy_elements<T, uint64_t><<<grid, threads, 0, stream>>>(where, axes, count);
}

/* views: of one of the ops, as they are alike. */
template <unsigned OPS>
int launch_by_size(const operands<2, OPS> &where, const view *views, cudaStream_t stream)
{
	uint64_t count = view_elements(&views[1]);
	cuda_axes axes;

	cuda_axes_of(views, 2, &axes);
	switch (dtype_size(views[1].dtype)) {
	case 2:
		launch_elements<uint16_t>(where, axes, count, stream);
		break;
	case 4:
		launch_elements<uint32_t>(where, axes, count, stream);
		break;
	case 8:
		launch_elements<uint64_t>(where, axes, count, stream);
		break;
	case 16:
		launch_elements<uint4>(where, axes, count, stream);
		break;
	default:
		return KOPS_E_UNSUPPORTED;
	}
	return cuda_launch_status();
}

} // namespace

extern "C" int cuda_copy_strided(const struct view *x, const struct view *y, cudaStream_t stream)
{
	const view both[2] = {*x, *y};

	return launch_by_size(operands<2, 1>{{{x->data, y->data}}, 1}, both, stream);
}

extern "C" CUDA_TOGETHER(copy_strided_together)
{
	return launch_by_size(operands_of<2>(args, n, launch), args[0]->views, cuda_stream(launch));
}
