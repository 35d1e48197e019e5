#include "cuda/sensors.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "cuda/gpu.h"

/* What we use of nvml.h, which not every toolkit has. Functions return 0 on success. */
#define NVML_SONAME      "libnvidia-ml.so.1"
#define NVML_TEMPERATURE 0 /* NVML_TEMPERATURE_GPU */

struct nvml_memory {
	unsigned long long total, free, used; /* bytes */
};

struct nvml_utilization {
	unsigned gpu, memory; /* percent of the latest sample, of 1/6 to 1 s */
};

static struct {
	int (*init)(void);
	int (*find)(const char *bus_id, void **ret_device);
	int (*temperature)(void *device, int sensor, unsigned *ret_celsius);
	int (*power)(void *device, unsigned *ret_milliwatts);
	int (*power_limit)(void *device, unsigned *ret_milliwatts);
	int (*memory)(void *device, struct nvml_memory *ret);
	int (*utilization)(void *device, struct nvml_utilization *ret);
} nvml;
static bool is_there;

static bool load_symbol(void *library, const char *name, void *ret_function)
{
	void *symbol = dlsym(library, name);

	memcpy(ret_function, &symbol, sizeof symbol);
	return symbol != NULL;
}

/* Never closed: devices use it until the process ends. */
static void load_nvml(void)
{
	void *library = dlopen(NVML_SONAME, RTLD_NOW | RTLD_LOCAL);

	is_there = library && load_symbol(library, "nvmlInit_v2", &nvml.init) &&
	           load_symbol(library, "nvmlDeviceGetHandleByPciBusId_v2", &nvml.find) &&
	           load_symbol(library, "nvmlDeviceGetTemperature", &nvml.temperature) &&
	           load_symbol(library, "nvmlDeviceGetPowerUsage", &nvml.power) &&
	           load_symbol(library, "nvmlDeviceGetEnforcedPowerLimit", &nvml.power_limit) &&
	           load_symbol(library, "nvmlDeviceGetMemoryInfo", &nvml.memory) &&
	           load_symbol(library, "nvmlDeviceGetUtilizationRates", &nvml.utilization) && nvml.init() == 0;
}

void *cuda_sensors_open(int index)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	char bus_id[32];
	void *device = NULL;

	pthread_once(&once, load_nvml);
	if (!is_there || cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, index) != cudaSuccess)
		return NULL;
	return nvml.find(bus_id, &device) == 0 ? device : NULL;
}

/* NVML tells of the whole GPU: of a part of one (MIG), as CUDA has it, what it tells is of others too. */
static bool is_whole(const struct device_state *dev, const struct nvml_memory *memory)
{
	return (double)dev->total_bytes > 0.9 * (double)memory->total;
}

static void sense_memory(const struct device_state *dev, struct device_sensors *ret)
{
	struct nvml_utilization utilization;
	struct nvml_memory memory;

	if (nvml.memory(dev->nvml, &memory) != 0 || !is_whole(dev, &memory))
		return;
	ret->memory_used_bytes = memory.used;
	ret->memory_free_bytes = memory.free;
	if (nvml.utilization(dev->nvml, &utilization) != 0)
		return;
	ret->has_utilization = true;
	ret->utilization = utilization.gpu / 100.0;
}

void cuda_sense(const struct device_state *dev, struct device_sensors *ret)
{
	unsigned value;

	if (!dev->nvml)
		return;
	if (nvml.temperature(dev->nvml, NVML_TEMPERATURE, &value) == 0)
		ret->temperature_c = value;
	if (nvml.power(dev->nvml, &value) == 0)
		ret->power_w = value / 1e3;
	if (nvml.power_limit(dev->nvml, &value) == 0)
		ret->power_limit_w = value / 1e3;
	sense_memory(dev, ret);
}
