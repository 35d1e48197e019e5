#include "common/cuda.h"
#include "copy/pieces.h"
#include "fitted.h"

#define PITCH_MAX     ((int64_t)INT32_MAX) /* bytes; cudaMemcpy2D refuses more */
#define ROW_BYTES_MIN 256                  /* below, the copy engine is slower than a kernel */

CUDA_LAUNCH(copy_vector);
CUDA_TOGETHER(copy_vector_together);
CUDA_TOGETHER(copy_strided_together); /* copy.cu */

static bool copy_supports(const struct op_args *args, const char **ret_why_not)
{
	return cuda_moves(args->views[0].dtype, ret_why_not);
}

static bool is_run(const struct cuda_axes *axes)
{
	return axes->rank == 0 || (axes->rank == 1 && axes->strides[0][0] == 1 && axes->strides[1][0] == 1);
}

static bool vector_supports(const struct op_args *args, const char **ret_why_not)
{
	struct cuda_axes axes;

	if (!cuda_moves(args->views[0].dtype, ret_why_not))
		return false;
	cuda_axes_of(args->views, 2, &axes);
	if (is_run(&axes))
		return true;
	*ret_why_not = "takes only views without gaps, both in the same order";
	return false;
}

/* Returns true for two axes of which the finer is contiguous on both sides, as cudaMemcpy2D requires. */
static bool is_pitched(const struct cuda_axes *axes, size_t element)
{
	int64_t row = (int64_t)axes->extent[0], pitch_max = PITCH_MAX / (int64_t)element;

	return axes->rank == 2 && axes->strides[0][0] == 1 && axes->strides[1][0] == 1 &&
	       (uint64_t)row * element >= ROW_BYTES_MIN && axes->strides[0][1] >= row &&
	       axes->strides[1][1] >= row && axes->strides[0][1] <= pitch_max &&
	       axes->strides[1][1] <= pitch_max;
}

void cuda_copy_rows(const struct rows *rows, enum cudaMemcpyKind kind, cudaStream_t stream)
{
	struct rows rest = *rows, r;

	while (rows_take(&rest, &r))
		if (r.height == 1)
			cudaMemcpyAsync((void *)r.to, (const void *)r.from, r.bytes, kind, stream);
		else
			cudaMemcpy2DAsync((void *)r.to, r.to_pitch, (const void *)r.from, r.from_pitch, r.bytes,
			                  r.height, kind, stream);
}

/* Returns true if it is registered memory of the host. */
static bool is_of_host(const void *address)
{
	struct cudaPointerAttributes of;

	return cudaPointerGetAttributes(&of, address) == cudaSuccess && of.type == cudaMemoryTypeHost;
}

static int by_engine(const struct view *x, const struct view *y, uint64_t row_bytes, uint64_t height,
                     uint64_t x_pitch, uint64_t y_pitch, const struct launch *launch)
{
	struct rows rows = {.to = (uintptr_t)y->data,
	                    .from = (uintptr_t)x->data,
	                    .bytes = row_bytes,
	                    .height = height,
	                    .to_pitch = y_pitch,
	                    .from_pitch = x_pitch};

	/* To ask CUDA takes longer than to see that it would not matter. */
	rows.to_pieces = piece_ends_within(rows.to, y_pitch, &rows) && is_of_host(y->data);
	rows.from_pieces = piece_ends_within(rows.from, x_pitch, &rows) && is_of_host(x->data);
	cuda_copy_rows(&rows, cudaMemcpyDefault, cuda_stream(launch));
	return cuda_launch_status();
}

static CUDA_LAUNCH(copy_launch)
{
	const struct view *x = &args->views[0], *y = &args->views[1];
	size_t element = dtype_size(y->dtype);
	struct cuda_axes axes;

	cuda_axes_of(args->views, 2, &axes);
	if (is_run(&axes))
		return by_engine(x, y, view_elements(y) * element, 1, 0, 0, launch);
	if (is_pitched(&axes, element))
		return by_engine(x, y, axes.extent[0] * element, axes.extent[1],
		                 (uint64_t)axes.strides[0][1] * element, (uint64_t)axes.strides[1][1] * element,
		                 launch);
	return cuda_copy_strided(x, y, cuda_stream(launch));
}

/* Uses no DMA: one for each op would take longer than a kernel for all. */
static CUDA_TOGETHER(copy_launch_together)
{
	struct cuda_axes axes;

	cuda_axes_of(args[0]->views, 2, &axes);
	return is_run(&axes) ? copy_vector_together(args, n, launch) : copy_strided_together(args, n, launch);
}

/* The copy engine, and the kernel for views with gaps, begin 1 us later than vector. */
static double copy_ns(const struct op_args *args)
{
	return fitted.copy.engine_ns + cuda_memory_ns(args);
}

static double vector_ns(const struct op_args *args)
{
	return fitted.copy.kernel_ns + cuda_memory_ns(args);
}

static const struct kernel kernels[] = {
    {
        .name = "copy",
        .idea = "one DMA copy where the views are dense or pitched, else one element per thread",
        .dtypes = "f32 f64 f16 bf16 i32 c64 c128",
        .takes = "any strides",
        .once = true,
        .supports = copy_supports,
        .time_ns = copy_ns,
        .launch = copy_launch,
        .together_max = cuda_together_max,
        .launch_together = copy_launch_together,
    },
    {
        .name = "vector",
        .idea = "several independent 128-bit accesses per thread",
        .dtypes = "f32 f64 f16 bf16 i32 c64 c128",
        .takes = "views without gaps, both in the same order",
        .supports = vector_supports,
        .time_ns = vector_ns,
        .launch = copy_vector,
        .together_max = cuda_together_max,
        .launch_together = copy_vector_together,
    },
};

const struct kernel_list copy_cuda_kernels = {kernels, sizeof(kernels) / sizeof(kernels[0])};
