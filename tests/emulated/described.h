/* described.h: describes a GPU that is not there, as kernels/common/cuda_device.c would. */
#ifndef KOPS_DESCRIBED_H
#define KOPS_DESCRIBED_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct described_gpu {
	char name[96];
	int major, minor; /* compute capability */
	int multiprocessors;
	int shared_bytes_max; /* most shared memory of a block that asks for it */
	int clock_khz, memory_clock_khz, bus_bits;
	int f32_per_f64;       /* operations per clock */
	uint64_t memory_bytes; /* usable by runs and RESIDENT buffers */
	double link_rate; /* to host memory, in bytes per us; 0: as on the GPU that constants were fitted on */
};

/* Sets what cuda_device_attribute() reports from here on. */
void described_gpu_set(const struct described_gpu *gpu);

#ifdef __cplusplus
}
#endif

#endif
