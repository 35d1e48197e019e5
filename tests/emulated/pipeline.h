/* pipeline.h: cp.async, as copies that complete at once. */
#ifndef KOPS_EMULATED_PIPELINE_H
#define KOPS_EMULATED_PIPELINE_H

#include <string.h>

#include "emulator.h"

static void __pipeline_memcpy_async(void *to, const void *from, size_t bytes)
{
	if ((uintptr_t)to % bytes != 0 || (uintptr_t)from % bytes != 0)
		emulator::fail("a copy of %zu bytes that is not aligned", bytes);
	memcpy(to, from, bytes);
}

static void __pipeline_commit()
{
}

static void __pipeline_wait_prior(unsigned)
{
}

#endif
