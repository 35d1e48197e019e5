/* cpu.h: the CPU as a device. Built in; see backend.h. */
#ifndef KOPS_BACKEND_CPU_H
#define KOPS_BACKEND_CPU_H

#include "plan/backend.h"

extern const struct backend backend_cpu;

#endif
