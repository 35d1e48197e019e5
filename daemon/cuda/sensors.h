/* sensors.h: temperature, power, memory and utilization of a GPU, by NVML, which the driver brings. */
#ifndef KOPS_CUDA_SENSORS_H
#define KOPS_CUDA_SENSORS_H

#include "plan/backend.h"

/* The handle of NVML for the GPU; NULL where the driver has no NVML or does not know the GPU. Takes some ms. */
void *cuda_sensors_open(int index);

/* struct backend.sense(). */
void cuda_sense(const struct backend_device *dev, struct device_sensors *ret);

#endif
