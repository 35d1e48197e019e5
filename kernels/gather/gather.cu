/*
 * gather: y[i, :] = x[indices[i], :].
 *
 *   kernel    idea                                               bound
 *   rows      threads side by side take the pieces of a row, as  HBM (read + written), for rows of a sector
 *             wide as all addresses allow, up to 16 bytes; a     or more
 *             block has several short rows, or a part of a long
 *             one
 *   elements  one element per thread, any strides                a sector for each element that is apart
 *
 * Each thread reads the index of its row and checks it: memory that a client shares may change between two
 * reads.
 */
#include "common/launch.cuh"
#include "common/together.cuh"
#include "gather/gather.h"

namespace
{

constexpr unsigned THREADS = 256;
constexpr int UNROLL = 4; /* pieces of one thread that are under way together */
constexpr uint64_t GRID_MAX = 1u << 20;

/* Strides in elements, for `elements`; in bytes of rows, for `rows`. count: rows of y, or its elements. */
struct problem {
	uint64_t x_rows, columns, inner, count; /* inner: indices of axis 1 of indices and y */
	int64_t index_strides[2], x_strides[2], y_strides[3];
};

problem problem_of(const view *views)
{
	const view *x = &views[GATHER_X], *indices = &views[GATHER_INDICES], *y = &views[GATHER_Y];

	return {x->shape[0],
	        x->shape[1],
	        y->shape[1],
	        y->shape[0] * y->shape[1],
	        {indices->strides[0], indices->strides[1]},
	        {x->strides[0], x->strides[1]},
	        {y->strides[0], y->strides[1], y->strides[2]}};
}

/* Where a row of y comes from and goes to, in strides of the problem. */
struct route {
	bool exists; /* the index is a row of x */
	int64_t from, to;
};

__device__ __forceinline__ route route_of(const problem &p, const void *indices, uint64_t row)
{
	uint64_t i = row < p.inner ? 0 : row / p.inner, j = row < p.inner ? row : row % p.inner;
	uint64_t from =
	    gather_row(indices, (int64_t)i * p.index_strides[0] + (int64_t)j * p.index_strides[1], p.x_rows);

	return {from < p.x_rows, (int64_t)from * p.x_strides[0],
	        (int64_t)i * p.y_strides[0] + (int64_t)j * p.y_strides[1]};
}

/* ---- rows ---- */

/* A row's bytes are whole pieces of V, then elements of 2 bytes: every type's size is a multiple of that. */
struct cut {
	uint64_t pieces, row_bytes;
	uint64_t chunks; /* of a row: each is the work of one block, or of some threads of one */
	unsigned lanes;  /* threads side by side on a row, a power of two */
};

template <typename V> cut cut_of(uint64_t row_bytes)
{
	cut c = {row_bytes / sizeof(V), row_bytes, 1, 1};

	while (c.lanes < THREADS && c.lanes * UNROLL < c.pieces)
		c.lanes *= 2;
	if (c.pieces > (uint64_t)c.lanes * UNROLL)
		c.chunks = (c.pieces + c.lanes * UNROLL - 1) / (c.lanes * UNROLL);
	return c;
}

template <typename V>
__device__ __forceinline__ void copy_chunk(const cut &c, const char *from, char *to, uint64_t first)
{
	V held[UNROLL];

#pragma unroll
	for (int k = 0; k < UNROLL; k++) {
		uint64_t i = first + (uint64_t)k * c.lanes;

		held[k] = from && i < c.pieces ? ((const V *)from)[i] : V{};
	}
#pragma unroll
	for (int k = 0; k < UNROLL; k++) {
		uint64_t i = first + (uint64_t)k * c.lanes;

		if (i < c.pieces)
			((V *)to)[i] = held[k];
	}
}

template <typename V>
__device__ __forceinline__ void copy_rest(const cut &c, const char *from, char *to, unsigned lane)
{
	for (uint64_t i = c.pieces * sizeof(V) / 2 + lane; i < c.row_bytes / 2; i += c.lanes)
		((uint16_t *)to)[i] = from ? ((const uint16_t *)from)[i] : (uint16_t)0;
}

template <typename V, unsigned OPS>
__global__ void __launch_bounds__(THREADS)
    gather_rows_by(const __grid_constant__ operands<3, OPS> where, problem p, cut c)
{
	const char *x = (const char *)where.at(GATHER_X, blockIdx.y);
	const void *indices = where.at(GATHER_INDICES, blockIdx.y);
	char *y = (char *)where.at(GATHER_Y, blockIdx.y);
	unsigned lane = threadIdx.x % c.lanes, rows = THREADS / c.lanes;
	uint64_t tasks = (p.count + rows - 1) / rows * c.chunks;

	await_kernel_before();
	for (uint64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
		uint64_t group = c.chunks == 1 ? task : task / c.chunks,
		         chunk = c.chunks == 1 ? 0 : task % c.chunks;
		uint64_t row = group * rows + threadIdx.x / c.lanes;

		if (row >= p.count)
			continue;
		route r = route_of(p, indices, row);
		const char *from = r.exists ? x + r.from : NULL;

		copy_chunk<V>(c, from, y + r.to, chunk * c.lanes * UNROLL + lane);
		if (chunk == 0)
			copy_rest<V>(c, from, y + r.to, lane);
	}
	let_next_kernel_come();
}

template <typename V, unsigned OPS>
void launch_pieces(const operands<3, OPS> &where, const problem &p, uint64_t row_bytes, cudaStream_t stream)
{
	cut c = cut_of<V>(row_bytes);
	uint64_t rows = THREADS / c.lanes, tasks = (p.count + rows - 1) / rows * c.chunks;

	launch_kernel(gather_rows_by<V, OPS>,
	              {dim3((unsigned)(tasks < GRID_MAX ? tasks : GRID_MAX), where.n), dim3(THREADS)}, stream,
	              where, p, c);
}

/* views: of one of the ops, as they are alike. Strides become bytes. */
template <unsigned OPS>
int launch_rows(const operands<3, OPS> &where, const view *views, const struct launch *launch)
{
	int64_t size = (int64_t)dtype_size(views[GATHER_Y].dtype);
	problem p = problem_of(views);
	cudaStream_t stream = cuda_stream(launch);

	p.x_strides[0] *= size;
	p.y_strides[0] *= size;
	p.y_strides[1] *= size;
	uint64_t apart = (uintptr_t)views[GATHER_X].data | (uintptr_t)views[GATHER_Y].data |
	                 (uint64_t)p.x_strides[0] | (uint64_t)p.y_strides[0] | (uint64_t)p.y_strides[1];
	uint64_t row_bytes = p.columns * (uint64_t)size;

	if (apart % 16 == 0)
		launch_pieces<uint4>(where, p, row_bytes, stream);
	else if (apart % 8 == 0)
		launch_pieces<uint64_t>(where, p, row_bytes, stream);
	else if (apart % 4 == 0)
		launch_pieces<uint32_t>(where, p, row_bytes, stream);
	else
		launch_pieces<uint16_t>(where, p, row_bytes, stream);
	return cuda_launch_status();
}

/* ---- elements ---- */

template <typename T, unsigned OPS>
__global__ void __launch_bounds__(THREADS)
    gather_elements_by(const __grid_constant__ operands<3, OPS> where, problem p)
{
	const T *x = (const T *)where.at(GATHER_X, blockIdx.y);
	const void *indices = where.at(GATHER_INDICES, blockIdx.y);
	T *y = (T *)where.at(GATHER_Y, blockIdx.y);
	uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x, count = p.count * p.columns;

	for (; i < count; i += (uint64_t)gridDim.x * THREADS) {
		route r = route_of(p, indices, i / p.columns);
		int64_t column = (int64_t)(i % p.columns);

		y[r.to + column * p.y_strides[2]] = r.exists ? x[r.from + column * p.x_strides[1]] : T{};
	}
}

template <typename T, unsigned OPS>
void launch_type(const operands<3, OPS> &where, const problem &p, cudaStream_t stream)
{
	uint64_t blocks = (p.count * p.columns + THREADS - 1) / THREADS;
	launch_form form = {dim3((unsigned)(blocks < GRID_MAX ? blocks : GRID_MAX), where.n), dim3(THREADS)};

	form.early = false; /* the kernel does not wait */
	launch_kernel(gather_elements_by<T, OPS>, form, stream, where, p);
}

template <unsigned OPS>
int launch_elements(const operands<3, OPS> &where, const view *views, const struct launch *launch)
{
	problem p = problem_of(views);
	cudaStream_t stream = cuda_stream(launch);

	switch (dtype_size(views[GATHER_Y].dtype)) {
	case 2:
		launch_type<uint16_t>(where, p, stream);
		break;
	case 4:
		launch_type<uint32_t>(where, p, stream);
		break;
	case 8:
		launch_type<uint64_t>(where, p, stream);
		break;
	case 16:
		launch_type<uint4>(where, p, stream);
		break;
	default:
		return KOPS_E_UNSUPPORTED;
	}
	return cuda_launch_status();
}

} // namespace

extern "C" CUDA_LAUNCH(gather_rows_wide)
{
	return launch_rows(operands_of<3>(args), args->views, launch);
}

extern "C" CUDA_TOGETHER(gather_rows_wide_together)
{
	return launch_rows(operands_of<3>(args, n, launch), args[0]->views, launch);
}

extern "C" CUDA_LAUNCH(gather_elements)
{
	return launch_elements(operands_of<3>(args), args->views, launch);
}

extern "C" CUDA_TOGETHER(gather_elements_together)
{
	return launch_elements(operands_of<3>(args, n, launch), args[0]->views, launch);
}
