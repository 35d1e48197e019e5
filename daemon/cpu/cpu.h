/* cpu.h: the driver of the CPU, which is built in; see driver.h. */
#ifndef KOPS_CPU_DRIVER_H
#define KOPS_CPU_DRIVER_H

#include "device/driver.h"

extern const struct driver driver_cpu;

#endif
