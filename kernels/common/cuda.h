/*
 * cuda.h: what the CUDA kernels of all ops share: their tables, the form of a launch, facts about the device,
 * and the reduction of a problem's axes to the few that matter.
 */
#ifndef KOPS_KERNELS_CUDA_H
#define KOPS_KERNELS_CUDA_H

#include <cuda_runtime_api.h>

#include "kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The kernels of each op: kernels/<op>/cuda.c. */
#define X(name) extern const struct kernel_list name##_cuda_kernels;
#include "ops.def"
#undef X

/*
 * Threads that a multiprocessor should hold, for __launch_bounds__: all that it can on GPUs of data centres.
 * Others can hold 1024 or 1536, and get 1024.
 */
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900 || __CUDA_ARCH__ / 100 == 10)
#define CUDA_RESIDENT_THREADS 2048
#else
#define CUDA_RESIDENT_THREADS 1024
#endif

#ifndef CUDA_LAUNCH /* tests/plan needs no kernels */
/* Declares or begins a launch function (kernel.h: struct kernel.launch). */
#define CUDA_LAUNCH(name) int name(const struct op_args *args, const struct launch *launch)
/* The same for struct kernel.launch_together. */
#define CUDA_TOGETHER(name) int name(const struct op_args *const *args, unsigned n, const struct launch *launch)
#endif

static inline cudaStream_t cuda_stream(const struct launch *launch)
{
	return (cudaStream_t)(void *)launch->stream;
}

/* Returns how many of all multiprocessors a launch of so many blocks may keep to its end, one for each: all of
 * them, if fewer would have to go round more often by more than a twentieth. */
static inline int cuda_multiprocessors_to_keep(const struct launch *launch, int all, uint64_t blocks)
{
	uint64_t most = (uint64_t)all, fewer = most - launch->multiprocessors_left;

	if (launch->multiprocessors_left >= most)
		return all;
	return (blocks + fewer - 1) / fewer * 20 <= (blocks + most - 1) / most * 21 ? (int)fewer : all;
}

/* Whether its blocks may begin before the kernel before has ended (overlap.cuh): while they wait, they would
 * keep what is left to others. */
static inline bool cuda_may_be_early(const struct launch *launch)
{
	return launch->multiprocessors_left == 0;
}

/*
 * Returns the result of this thread's launches so far. The error stays set, so that the driver can still ask
 * the runtime for its sentence.
 */
static inline int cuda_launch_status(void)
{
	cudaError_t error = cudaPeekAtLastError();

	if (error == cudaSuccess)
		return 0;
	return error == cudaErrorMemoryAllocation ? KOPS_E_NOMEM : KOPS_E_FAULT;
}

/* The supports() of kernels that take whatever their types allow. */
static inline bool cuda_supports_any(const struct op_args *args, const char **ret_why_not)
{
	(void)args;
	(void)ret_why_not;
	return true;
}

/* For supports() of kernels that move elements of any type: returns true if there is code for their size. */
static inline bool cuda_moves(kops_dtype dtype, const char **ret_why_not)
{
	size_t size = dtype_size(dtype);

	if (size == 2 || size == 4 || size == 8 || size == 16)
		return true;
	*ret_why_not = "takes elements of 2, 4, 8 and 16 bytes";
	return false;
}

/*
 * Returns an attribute of this thread's GPU; 0 if there is none. Asks the driver once: that takes a
 * microsecond, and supports() is called several times per job. (cuda_device.c)
 */
int cuda_device_attribute(enum cudaDeviceAttr which);

/* For together_max of kernels bound by memory: launching takes little of the time of larger outputs. */
#define CUDA_TOGETHER_BYTES (64u << 10)
static inline unsigned cuda_together_max(const struct op_args *args)
{
	const struct view *y = op_output_const(args);

	return view_elements(y) * dtype_size(y->dtype) <= CUDA_TOGETHER_BYTES
	           ? TOGETHER_OPS(args->op->n_operands)
	           : 1;
}

/*
 * For time_ns of kernels (cuda_time.c): facts about this thread's GPU, from its driver; 1 if unknown. So models
 * contain shares of a rate, not the rate itself.
 */
double cuda_multiprocessors(void);
double cuda_clocks_per_ns(void);
double cuda_bytes_per_ns(void); /* peak rate of device memory */
/* For constants in ns: how many times longer clocks are here than on the GPU that they were fitted on. */
double cuda_clock_factor(void);
/* Time of bytes at a share of the memory's rate; time of clocks of one multiprocessor, divided among all. */
double cuda_ns_of_bytes(double bytes, double share);
double cuda_ns_of_clocks(double clocks);
/* Time of operations on f64, for which some GPUs have few units; 0 for ops on other types. */
double cuda_ns_of_f64(double operations);
double cuda_f64_ns(const struct op_args *args, double operations);
/* Time of device memory's lines and of address arithmetic, whatever is computed. */
double cuda_memory_ns(const struct op_args *args);

/*
 * n views of one shape with as few axes as possible. Axes of extent 1 are dropped, and the others sorted by the
 * last view's stride, innermost first. Neighbours that are contiguous in every view are joined. Rank 0 is a
 * single element. strides[v][d]: elements, view v, axis d.
 */
#define CUDA_AXES_VIEWS 3 /* few, since the struct is a parameter of kernels */
struct cuda_axes {
	uint32_t rank;
	uint64_t extent[KOPS_RANK_MAX];
	int64_t strides[CUDA_AXES_VIEWS][KOPS_RANK_MAX];
};

void cuda_axes_of(const struct view *views, unsigned n, struct cuda_axes *ret);

/*
 * Does what part_convert (kernel.h) says on a GPU, for one view of f32 and one of a 16-bit type. Enqueues.
 * (convert.cu)
 */
int cuda_convert(const struct view *from, const struct view *to, const struct launch *launch);

/*
 * Computes y = x element by element for any strides. The GPU must reach both addresses. Enqueues.
 * (copy/copy.cu)
 */
int cuda_copy_strided(const struct view *x, const struct view *y, cudaStream_t stream);

/* Enqueues copies by DMA, which end where a piece of host memory does (pieces.h). (copy/cuda.c) */
struct rows;
void cuda_copy_rows(const struct rows *rows, enum cudaMemcpyKind kind, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
