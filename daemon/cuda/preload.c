/*
 * preload.c: loads the module's kernels when a device is opened.
 *
 * CUDA loads a kernel when it is first used. It then waits until the GPU has computed what it was given, and so
 * do all threads that launch anything meanwhile: 20 ms of a 40 ms kernel of somebody else, for each kernel of a
 * new kind (H200). CUDA_MODULE_LOADING=EAGER would load cuBLAS's kernels too: 530 MB of the device's memory,
 * 1.6 GB of the host's.
 */
#include <stdlib.h>

#include "cuda/gpu.h"

/* Addresses by which the runtime knows the kernels. */
static const void **kernels;
static size_t n_kernels;

/*
 * Each CUDA source's constructor registers its kernels with the runtime by this function. The linker sends its
 * calls here (--wrap). Kernels that are not noted are loaded when they are first used.
 */
void __real___cudaRegisterFunction(void **fatbin, const char *kernel, char *device_kernel, const char *name,
                                   int thread_limit, void *thread, void *block, void *block_extent,
                                   void *grid_extent, int *warp_size);
void __wrap___cudaRegisterFunction(void **fatbin, const char *kernel, char *device_kernel, const char *name,
                                   int thread_limit, void *thread, void *block, void *block_extent,
                                   void *grid_extent, int *warp_size);

static void remember(const void *kernel)
{
	const size_t grows_by = 256;

	if (n_kernels % grows_by == 0) {
		const void **larger = realloc(kernels, (n_kernels + grows_by) * sizeof *kernels);
		if (!larger)
			return;
		kernels = larger;
	}
	kernels[n_kernels++] = kernel;
}

void __wrap___cudaRegisterFunction(void **fatbin, const char *kernel, char *device_kernel, const char *name,
                                   int thread_limit, void *thread, void *block, void *block_extent,
                                   void *grid_extent, int *warp_size)
{
	remember(kernel);
	__real___cudaRegisterFunction(fatbin, kernel, device_kernel, name, thread_limit, thread, block,
	                              block_extent, grid_extent, warp_size);
}

/* Kernels without code for this GPU are not launched either. */
void cuda_preload(void)
{
	struct cudaFuncAttributes attributes;

	for (size_t i = 0; i < n_kernels; i++)
		cudaFuncGetAttributes(&attributes, kernels[i]);
	cudaGetLastError();
}
