/* refuse_graphs.c: the CUDA module on a GPU that makes no graph of a recording, as if memory were short. */
#include <cuda_runtime_api.h>

cudaError_t __wrap_cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags);

cudaError_t __wrap_cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
	(void)exec;
	(void)graph;
	(void)flags;
	return cudaErrorMemoryAllocation;
}
