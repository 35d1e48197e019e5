/*
 * preload.c: loads what launches need before jobs wait for it.
 *
 * CUDA loads a kernel when it is first used. It then waits until the GPU has computed what it was given, and so
 * do all threads that launch anything meanwhile: 20 ms of a 40 ms kernel of somebody else, for each kernel of a
 * new kind (H200). So the module's kernels are loaded when a device is opened. CUDA_MODULE_LOADING=EAGER would
 * load cuBLAS's kernels too: 530 MB of the device's memory, 1.6 GB of the host's.
 *
 * A thread of the device gets first launches of shapes over with (kernel.h: first_ns). It records such a launch
 * as a graph, which is never launched: cuBLAS finds out how to compute the shape, and loads the kernel, once
 * for the process.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/threads.h"
#include "cuda/gpu.h"
#include "plan/layout.h"

/* ---- The module's kernels ---- */

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

/* ---- First launches ---- */

#define WAITING_MAX 32u
#define ALIGNED     256u

struct first_launch {
	const struct kernel *kernel;
	struct op_args args;
};

struct firsts {
	pthread_t thread;
	cublasHandle_t cublas;
	cudaStream_t stream;
	/* A lane's: nothing is computed. */
	void *workspace;
	size_t workspace_bytes;
	int device;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	/* Under lock. */
	bool closing;
	unsigned n;
	struct first_launch waiting[WAITING_MAX]; /* the oldest first */
};

/* ---- On its thread ---- */

static void record_and_discard(const struct firsts *f, const struct first_launch *first)
{
	struct launch launch = {
	    .workspace = f->workspace,
	    .workspace_bytes = f->workspace_bytes,
	    .stream = (struct stream *)f->stream,
	    .library = (struct library *)f->cublas,
	};
	cudaGraph_t recorded = NULL;

	if (cudaStreamBeginCapture(f->stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess) {
		first->kernel->launch(&first->args, &launch);
		cudaStreamEndCapture(f->stream, &recorded);
	}
	if (recorded)
		cudaGraphDestroy(recorded);
	cudaGetLastError();
}

/* Returns false to close. The oldest stays in the list until drop_oldest(), so that none is noted twice. */
static bool await_oldest(struct firsts *f, struct first_launch *ret)
{
	bool open;

	pthread_mutex_lock(&f->lock);
	while (f->n == 0 && !f->closing)
		pthread_cond_wait(&f->wake, &f->lock);
	open = !f->closing;
	if (open)
		*ret = f->waiting[0];
	pthread_mutex_unlock(&f->lock);
	return open;
}

static void drop_oldest(struct firsts *f)
{
	pthread_mutex_lock(&f->lock);
	memmove(f->waiting, f->waiting + 1, --f->n * sizeof f->waiting[0]);
	pthread_mutex_unlock(&f->lock);
}

static void *get_over_with_all(void *arg)
{
	struct firsts *f = arg;
	struct first_launch first;

	cuda_use_device(f->device);
	while (await_oldest(f, &first)) {
		if (first.kernel->first_ns(&first.args) > 0) { /* no run has launched it meanwhile */
			cuda_wait_for_gap();
			record_and_discard(f, &first);
		}
		drop_oldest(f);
	}
	return NULL;
}

/* ---- On others ---- */

static int begin_thread(struct firsts *f, char why[WHY_BYTES])
{
	int rc;

	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->wake, NULL);
	rc = threads_create(&f->thread, NULL, get_over_with_all, f);
	if (rc == 0)
		return 0;
	snprintf(
	    why, WHY_BYTES,
	    "cannot start a thread: %s; raise the limits on processes (TasksMax, ulimit -u) and address space "
	    "(ulimit -v)",
	    strerror(rc));
	pthread_cond_destroy(&f->wake);
	pthread_mutex_destroy(&f->lock);
	return KOPS_E_SYSTEM;
}

int cuda_first_open(struct device_state *dev, cudaStream_t stream, cublasHandle_t cublas, char why[WHY_BYTES])
{
	struct firsts *f = calloc(1, sizeof *f);
	int rc = KOPS_E_NOMEM;

	snprintf(why, WHY_BYTES, "out of memory");
	if (f) {
		f->device = dev->index;
		f->workspace = dev->lanes[0].cublas_workspace;
		f->workspace_bytes = dev->lanes[0].cublas_workspace_bytes;
		f->stream = stream;
		f->cublas = cublas;
		rc = begin_thread(f, why);
	}
	if (rc < 0)
		free(f);
	else
		dev->firsts = f;
	return rc;
}

void cuda_first_close(struct device_state *dev)
{
	struct firsts *f = dev->firsts;

	if (!f)
		return;
	pthread_mutex_lock(&f->lock);
	f->closing = true;
	pthread_cond_signal(&f->wake);
	pthread_mutex_unlock(&f->lock);
	pthread_join(f->thread, NULL);
	pthread_cond_destroy(&f->wake);
	pthread_mutex_destroy(&f->lock);
	cublasDestroy(f->cublas);
	cudaStreamDestroy(f->stream);
	free(f);
	dev->firsts = NULL;
}

/* Nothing is read or written there: only where it lies within ALIGNED bytes matters. */
static void place(struct view *v, void *anywhere)
{
	if (view_is_absent(v))
		return;
	if (view_is_in_host_memory(v)) { /* it gets a copy on the device */
		struct layout layout;

		layout_of(v, &layout);
		memcpy(v->strides, layout.strides, sizeof layout.strides);
	}
	v->offset %= ALIGNED;
	v->data = (char *)anywhere + v->offset;
	v->space = NULL; /* the thread may outlast it */
}

static bool is_waiting(const struct firsts *f, const struct first_launch *first)
{
	for (unsigned i = 0; i < f->n; i++)
		if (f->waiting[i].kernel == first->kernel && op_args_alike(&f->waiting[i].args, &first->args))
			return true;
	return false;
}

static void add_first(struct firsts *f, const struct run_op *op)
{
	struct first_launch first = {op->first_launch, op->args};

	for (unsigned v = 0; v < first.args.op->n_operands; v++)
		place(&first.args.views[v], f->workspace);
	if (!is_waiting(f, &first))
		f->waiting[f->n++] = first;
}

void cuda_first_get_ready(struct device_state *dev, const struct run *run)
{
	struct firsts *f = dev->firsts;
	unsigned before;

	pthread_mutex_lock(&f->lock);
	before = f->n;
	for (unsigned i = 0; i < run->n_ops && f->n < WAITING_MAX; i++)
		if (run->ops[i].first_launch)
			add_first(f, &run->ops[i]);
	if (before == 0 && f->n > 0)
		pthread_cond_signal(&f->wake);
	pthread_mutex_unlock(&f->lock);
}
