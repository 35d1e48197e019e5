/* described.h: a GPU that is not there, as kernels/common/cuda_device.c would tell of it. */
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
	int shared_bytes_max; /* of a block that asks for more than the usual */
	int clock_khz, memory_clock_khz, bus_bits;
	int f32_per_f64;       /* arithmetic in a clock */
	uint64_t memory_bytes; /* usable by runs and RESIDENT buffers */
	double
	    link_rate; /* to host memory, bytes in a us; 0: as that of the GPU that constants were fitted on */
};

/* What cuda_device_attribute() tells of from here on. */
void described_gpu_set(const struct described_gpu *gpu);

#ifdef __cplusplus
}
#endif

#endif
