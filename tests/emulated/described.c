/* described.c: replaces kernels/common/cuda_device.c. */
#include "described.h"

#include "common/cuda.h"

static struct described_gpu described;

void described_gpu_set(const struct described_gpu *gpu)
{
	described = *gpu;
}

int cuda_device_attribute(enum cudaDeviceAttr which)
{
	switch (which) {
	case cudaDevAttrComputeCapabilityMajor:
		return described.major;
	case cudaDevAttrComputeCapabilityMinor:
		return described.minor;
	case cudaDevAttrMultiProcessorCount:
		return described.multiprocessors;
	case cudaDevAttrMaxSharedMemoryPerBlockOptin:
		return described.shared_bytes_max;
	case cudaDevAttrClockRate:
		return described.clock_khz;
	case cudaDevAttrMemoryClockRate:
		return described.memory_clock_khz;
	case cudaDevAttrGlobalMemoryBusWidth:
		return described.bus_bits;
	case cudaDevAttrSingleToDoublePrecisionPerfRatio:
		return described.f32_per_f64;
	case cudaDevAttrPciBusId:
	case cudaDevAttrPciDomainId:
		break; /* there is one GPU */
	}
	return 0;
}
