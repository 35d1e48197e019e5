#include "common/cuda.h"

#define DEVICES    64
#define ATTRIBUTES 256

int cuda_device_attribute(enum cudaDeviceAttr which)
{
	static int known[DEVICES][ATTRIBUTES]; /* 1 + the value */
	int device, value;

	if (cudaGetDevice(&device) != cudaSuccess || device >= DEVICES || (unsigned)which >= ATTRIBUTES) {
		cudaGetLastError();
		return 0;
	}
	value = __atomic_load_n(&known[device][which], __ATOMIC_RELAXED);
	if (value > 0)
		return value - 1;
	if (cudaDeviceGetAttribute(&value, which, device) != cudaSuccess || value < 0) {
		cudaGetLastError();
		return 0;
	}
	__atomic_store_n(&known[device][which], value + 1, __ATOMIC_RELAXED);
	return value;
}
