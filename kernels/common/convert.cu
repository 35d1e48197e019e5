/* convert.cu: elements of f16, bf16 or f32 to another of these types, any strides: what cut ops hand on. See
 * kernel.h. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "common/launch.cuh"

namespace
{

constexpr unsigned THREADS = 256;
constexpr uint64_t BLOCKS_MAX = 1u << 16;

/* Views of rank 4, at most. */
struct elements {
	const void *from;
	void *to;
	uint64_t n, shape[KOPS_RANK_MAX];
	int64_t from_strides[KOPS_RANK_MAX], to_strides[KOPS_RANK_MAX];
};

template <typename FROM, typename TO> __global__ void __launch_bounds__(THREADS) convert(elements e)
{
	await_kernel_before();
	for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < e.n;
	     i += (uint64_t)gridDim.x * THREADS) {
		int64_t from = 0, to = 0;
		uint64_t rest = i;

#pragma unroll
		for (int d = KOPS_RANK_MAX - 1; d >= 0; d--) {
			int64_t at = (int64_t)(rest % e.shape[d]);

			rest /= e.shape[d];
			from += at * e.from_strides[d];
			to += at * e.to_strides[d];
		}
		((TO *)e.to)[to] = (TO)(float)((const FROM *)e.from)[from];
	}
	let_next_kernel_come();
}

elements elements_of(const struct view *from, const struct view *to)
{
	uint32_t missing = KOPS_RANK_MAX - to->rank;
	elements e = {};

	e.from = from->data;
	e.to = to->data;
	e.n = view_elements(to);
	for (uint32_t d = 0; d < KOPS_RANK_MAX; d++) {
		bool is_there = d >= missing;

		e.shape[d] = is_there ? to->shape[d - missing] : 1;
		e.from_strides[d] = is_there ? from->strides[d - missing] : 0;
		e.to_strides[d] = is_there ? to->strides[d - missing] : 0;
	}
	return e;
}

typedef void (*converter)(elements);

/* One of the two is f32. */
converter converter_of(kops_dtype from, kops_dtype to)
{
	if (from == KOPS_F32)
		return to == KOPS_F16 ? convert<float, __half> : convert<float, __nv_bfloat16>;
	return from == KOPS_F16 ? convert<__half, float> : convert<__nv_bfloat16, float>;
}

} // namespace

extern "C" int cuda_convert(const struct view *from, const struct view *to, const struct launch *launch)
{
	elements e = elements_of(from, to);
	uint64_t blocks = (e.n + THREADS - 1) / THREADS;

	launch_kernel(converter_of(from->dtype, to->dtype),
	              {dim3((unsigned)(blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX)), dim3(THREADS)},
	              cuda_stream(launch), e);
	return cuda_launch_status();
}
