#include "cuda/words.h"

#include "common/cuda.h"
#include "common/overlap.cuh"
#include "kops_types.h"

static __device__ uint32_t load_relaxed(const uint32_t *host_word)
{
	uint32_t value;

	asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(host_word) : "memory");
	return value;
}

static __device__ uint64_t device_clock_ns()
{
	uint64_t ns;

	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
	return ns;
}

/*
 * Ends by itself whatever the host does: a call that enqueues may come to wait for the device, the first launch
 * of a kernel does while it is loaded.
 */
static __global__ void hold(const uint32_t *word, uint32_t number, uint64_t most_ns)
{
	uint64_t begun = device_clock_ns();

	while ((int32_t)(load_relaxed(word) - number) < 0 && device_clock_ns() - begun < most_ns)
		;
}

extern "C" void cuda_hold(const uint32_t *word, uint32_t number, unsigned most_us, cudaStream_t stream)
{
	hold<<<1, 1, 0, stream>>>(word, number, 1000ull * most_us);
}

static __global__ void write_time(uint64_t *word)
{
	*word = device_clock_ns();
}

/* The number does not wait until the host's memory has the time: that takes 1.5 us. */
static __global__ void signal(uint32_t *word, uint32_t number, uint64_t *stamp)
{
	await_kernel_before();
	__threadfence_system();
	if (stamp)
		asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(stamp), "l"(device_clock_ns())
		             : "memory");
	asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(word), "r"(number) : "memory");
}

/* One thread, before blocks of other streams: it takes no time, and somebody waits for it. early: see
 * launch.cuh. */
template <class... PARAMETERS, class... ARGUMENTS>
static cudaError_t launch_first(void (*kernel)(PARAMETERS...), bool early, cudaStream_t stream,
                                ARGUMENTS... arguments)
{
	cudaLaunchAttribute attributes[2] = {};
	cudaLaunchConfig_t config = {};

	attributes[0].id = cudaLaunchAttributePriority;
	cudaDeviceGetStreamPriorityRange(NULL, &attributes[0].val.priority);
	attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
	attributes[1].val.programmaticStreamSerializationAllowed = 1;
	config.gridDim = config.blockDim = dim3(1);
	config.stream = stream;
	config.attrs = attributes;
	config.numAttrs = early && cuda_device_attribute(cudaDevAttrComputeCapabilityMajor) >= 9 ? 2 : 1;
	return cudaLaunchKernelEx(&config, kernel, arguments...);
}

extern "C" void cuda_stamp(uint64_t *word, cudaStream_t stream)
{
	launch_first(write_time, false, stream, word);
}

extern "C" int cuda_signal(uint32_t *word, uint32_t number, uint64_t *stamp, cudaStream_t stream)
{
	return launch_first(signal, true, stream, word, number, stamp) == cudaSuccess ? 0 : KOPS_E_FAULT;
}
