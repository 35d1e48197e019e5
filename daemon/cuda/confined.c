#include "cuda/confined.h"

#include "common/cuda.h"

/* So many let a small kernel of another user begin within 30 us, and cost a product that is bound by power
 * nothing (H200). */
#define LEFT 4u

unsigned cuda_multiprocessors_left(void)
{
	return cuda_multiprocessors() >= 8 * LEFT ? LEFT : 0;
}

/* ---- The driver's functions, which the runtime lacks ---- */

struct green {
	PFN_cuDeviceGetDevResource_v12040 resource;
	PFN_cuDevSmResourceSplitByCount_v12040 split;
	PFN_cuDevResourceGenerateDesc_v12040 describe;
	PFN_cuGreenCtxCreate_v12040 create;
	PFN_cuGreenCtxStreamCreate_v12050 stream;
	PFN_cuGreenCtxDestroy_v12040 destroy;
};

static bool find_function(const char *name, unsigned version, void *ret_function)
{
	enum cudaDriverEntryPointQueryResult found;
	void **function = ret_function;

	return cudaGetDriverEntryPointByVersion(name, function, version, cudaEnableDefault, &found) ==
	           cudaSuccess &&
	       found == cudaDriverEntryPointSuccess && *function;
}

static bool find_all(struct green *ret)
{
	return find_function("cuDeviceGetDevResource", 12040, &ret->resource) &&
	       find_function("cuDevSmResourceSplitByCount", 12040, &ret->split) &&
	       find_function("cuDevResourceGenerateDesc", 12040, &ret->describe) &&
	       find_function("cuGreenCtxCreate", 12040, &ret->create) &&
	       find_function("cuGreenCtxStreamCreate", 12050, &ret->stream) &&
	       find_function("cuGreenCtxDestroy", 12040, &ret->destroy);
}

/* ---- Opening and closing ---- */

/* All multiprocessors but `left`. Without co-scheduling their number need not be a multiple of 8; such kernels
 * use no large clusters. */
static bool make_green(struct device_state *dev, const struct green *green, unsigned left)
{
	CUdevResource all = {0}, few = {0}, most = {0};
	CUdevResourceDesc description;
	unsigned groups = 1;

	return green->resource(dev->index, &all, CU_DEV_RESOURCE_TYPE_SM) == CUDA_SUCCESS &&
	       green->split(&few, &groups, &all, &most, CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING,
	                    left) == CUDA_SUCCESS &&
	       groups == 1 && most.sm.smCount > 0 && green->describe(&description, &most, 1) == CUDA_SUCCESS &&
	       green->create(&dev->confined, description, dev->index, CU_GREEN_CTX_DEFAULT_STREAM) ==
	           CUDA_SUCCESS;
}

static void open_stream(struct device_state *dev, struct lane *lane, const struct green *green)
{
	int priority = 0;
	CUstream stream;

	if (cudaEventCreateWithFlags(&lane->turn, cudaEventDisableTiming) == cudaSuccess &&
	    cudaStreamGetPriority(lane->stream, &priority) == cudaSuccess &&
	    green->stream(&stream, dev->confined, CU_STREAM_NON_BLOCKING, priority) == CUDA_SUCCESS)
		lane->confined = stream;
}

void cuda_confined_open(struct device_state *dev)
{
	unsigned left = cuda_multiprocessors_left();
	struct green green;

	if (left > 0 && find_all(&green) && make_green(dev, &green, left))
		for (unsigned i = 0; i < CUDA_LANES; i++)
			open_stream(dev, &dev->lanes[i], &green);
	cudaGetLastError();
}

void cuda_confined_close(struct device_state *dev)
{
	struct green green;

	for (unsigned i = 0; i < CUDA_LANES; i++) {
		struct lane *lane = &dev->lanes[i];

		if (lane->confined) {
			cudaStreamSynchronize(lane->confined);
			cudaStreamDestroy(lane->confined);
		}
		if (lane->turn)
			cudaEventDestroy(lane->turn);
	}
	if (dev->confined && find_all(&green))
		green.destroy(dev->confined);
}

/* ---- Launches ---- */

/* cuBLAS forgets its workspace with its stream. */
static bool go_to(struct lane *lane, cudaStream_t from, cudaStream_t to)
{
	return cudaEventRecord(lane->turn, from) == cudaSuccess &&
	       cudaStreamWaitEvent(to, lane->turn, 0) == cudaSuccess &&
	       cublasSetStream(lane->cublas, to) == CUBLAS_STATUS_SUCCESS &&
	       cublasSetWorkspace(lane->cublas, lane->cublas_workspace, lane->cublas_workspace_bytes) ==
	           CUBLAS_STATUS_SUCCESS;
}

int cuda_confined_begin(struct lane *lane, struct launch *launch)
{
	if (!lane->confined)
		return 0;
	launch->stream = (struct stream *)lane->confined;
	return go_to(lane, lane->stream, lane->confined) ? 0 : KOPS_E_FAULT;
}

int cuda_confined_end(struct lane *lane, const struct launch *launch)
{
	if (cuda_stream(launch) == lane->stream)
		return 0;
	return go_to(lane, lane->confined, lane->stream) ? 0 : KOPS_E_FAULT;
}
