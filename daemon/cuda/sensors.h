/* sensors.h: temperature, power, memory and utilization of a GPU, by NVML, which the NVIDIA driver brings. */
#ifndef KOPS_CUDA_SENSORS_H
#define KOPS_CUDA_SENSORS_H

#include "device/driver.h"

/* The handle of NVML for the GPU; NULL where there is no NVML or it does not know the GPU. Takes some ms. */
void *cuda_sensors_open(int index);

/* struct driver.sense(). */
void cuda_sense(const struct device_state *dev, struct device_sensors *ret);

#endif
